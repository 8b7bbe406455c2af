//! The HTTP listener: HTTP/1.1 on a unix socket, one call per connection.
//!
//! Invariants
//! - A call lives as long as its caller's connection: closing it cancels the call.
//! - Every head is checked by `http1::check` before hyper reads it, so hyper never answers by itself.
//! - Memory per caller is bounded: a head, and hyper's buffers.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use super::control::control;
use super::declined::{Counters, ListenerReport};
use super::fields;
use super::files::Files;
use super::prepare::{CHEAP_FIELDS, Counted, HEAD, HEAD_TIMEOUT, Listener, Shared, final_answer};
use super::refusal::Refusal;
use super::socket::{Socket, SocketError};
use super::target::check;
use super::trace::CallSpan;
use super::wire::{Injected, Outgoing, Wire, left};
use crate::peer::Allowed;
use crate::request::Spelled;
use crate::{Answer, Call, Engine, Timing};

/// hyper's buffers for one caller, each way.
const BUFFER: usize = HEAD + (8 << 10);
/// The most connections above the limit of callers that get a refusal at once.
const REFUSED_AT_ONCE: usize = 64;
/// How long unwanted bytes of a caller are still read, so that closing does not discard the response.
const LINGER: Duration = Duration::from_secs(5);
/// The pause before the next attempt if the system has no descriptor for a caller.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the reserved descriptor is used for one caller.
const TURNED_AWAY: Duration = Duration::from_secs(1);
/// The times of the call, for callers that request them.
const TIMING: HeaderName = HeaderName::from_static("hearth-timing");

/// Options of a listener.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// The path of the socket. Its folder also holds `egress.token`: there is one broker per folder.
    pub socket: PathBuf,
    /// The group of socket and token; none: the system's choice.
    pub group: Option<u32>,
    /// Users who may call, besides the broker's own user and root.
    pub allow_users: Vec<u32>,
    /// The most concurrent calls; further ones are declined.
    pub callers: usize,
    /// The time limit for connecting, for calls that set none.
    pub connect: Duration,
    /// How long a call waits for a connection to become free.
    pub queue: Duration,
}

/// A listener that listens, and opens with [`HttpListener::serve`].
#[derive(Debug)]
pub struct HttpListener {
    socket: Socket,
    shared: Arc<Shared>,
    tracer: Option<Tracer>,
}

/// Tells what comes through a listener.
#[derive(Clone, Debug)]
pub struct ListenerWatch(Arc<Shared>);

impl ListenerWatch {
    /// The numbers so far.
    pub fn report(&self) -> ListenerReport {
        self.0.counters.report()
    }
}

impl HttpListener {
    /// Creates the socket and the token. Callers may connect from now on; [`HttpListener::serve`] answers them.
    pub fn bind(options: ListenerOptions) -> Result<Self, SocketError> {
        let socket = Socket::bind(&options.socket, options.group)?;
        let allowed = Allowed::new(options.allow_users.clone());
        let shared =
            Shared { options, allowed, files: Files::default(), counters: Counters::default() };
        Ok(Self { socket, shared: Arc::new(shared), tracer: None })
    }

    /// Starts a span for each call, as a child of the one that its caller names. To be called before
    /// [`HttpListener::serve`].
    pub fn trace(&mut self, tracer: Tracer) {
        self.tracer = Some(tracer);
    }

    /// Returns the absolute path of the socket.
    pub fn path(&self) -> &Path {
        &self.socket.path
    }

    /// Returns the handle for metrics.
    pub fn watch(&self) -> ListenerWatch {
        ListenerWatch(Arc::clone(&self.shared))
    }

    /// Accepts calls until `drain` is cancelled, then removes the socket and finishes the running calls.
    pub async fn serve(self, engine: Engine, drain: CancellationToken) {
        let Self { socket, shared, tracer } = self;
        let callers_at_once = shared.options.callers;
        // The frame listener's idle ones are no calls.
        let most = callers_at_once.saturating_add(callers_at_once / 2 + REFUSED_AT_ONCE);
        let listener = Arc::new(Listener::new(engine, shared, socket.token.clone(), tracer));
        let mut callers = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = drain.cancelled() => break,
                Some(_) = callers.join_next() => {}
                // When there are too many, further ones wait in the system's queue.
                accepted = socket.listener.accept(), if callers.len() < most => match accepted {
                    Ok((stream, _)) => {
                        let (listener, drain) = (Arc::clone(&listener), drain.clone());
                        callers.spawn(async move { listener.caller(stream, drain).await });
                    }
                    Err(error) => {
                        let reserve = &listener.reserve;
                        if reserve.is_news(Instant::now()) {
                            tracing::warn!(%error, "caller not accepted");
                        }
                        let again = |cx: &mut Context<'_>| Poll::Ready(socket.listener.poll_accept(cx));
                        if reserve.lend() && let Poll::Ready(Ok((stream, _))) = poll_fn(again).await {
                            let listener = Arc::clone(&listener);
                            callers.spawn(async move { listener.turn_away(stream).await });
                        } else {
                            reserve.restore();
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                },
            }
        }
        drop(socket);
        while callers.join_next().await.is_some() {}
    }
}

impl Listener {
    async fn caller(self: Arc<Self>, mut stream: UnixStream, drain: CancellationToken) {
        let Ok(uid) = stream.peer_cred().map(|credentials| credentials.uid()) else { return };
        let mut bytes = BytesMut::with_capacity(4096);
        let read = tokio::select! {
            biased;
            read = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut stream, &mut bytes)) => read,
            // No request has begun yet.
            () = drain.cancelled() => return,
        };
        let end = match read {
            Ok(Ok(Begin::Http(end))) => end,
            Ok(Ok(Begin::Frames)) => {
                return super::frame::serve(self, stream, bytes, uid, drain).await;
            }
            Ok(Ok(Begin::Nothing)) | Err(_) => return,
            Ok(Err(refusal)) => return self.refuse(stream, &refusal).await,
        };
        let bytes = bytes.freeze();
        let counted = Counted::new(&self.shared.counters);
        let admitted = self.admit(&bytes[..end], uid, &counted);
        let facts = match admitted.and_then(|facts| check(facts.target).map(|_uri| facts)) {
            Ok(facts) => facts,
            Err(refusal) => return self.refuse(stream, &refusal).await,
        };
        let (written, fields) = (facts.target.to_owned(), facts.fields);
        let spelled = Spelled(bytes.slice(..end));
        self.speak(stream, bytes, uid, &written, fields, spelled).await;
    }

    /// Whether the reserved descriptor serves this caller: what it sends is read, and its call is declined.
    async fn turn_away(&self, mut stream: UnixStream) {
        self.shared.counters.calls.fetch_add(1, Ordering::Relaxed);
        let told = async {
            let asked = read_head(&mut stream, &mut BytesMut::new()).await;
            let refusal = Refusal::no_descriptor();
            if matches!(asked, Ok(Begin::Frames)) {
                self.shared.counters.refused("", &refusal);
                let _left = stream.write_all(&super::frame::refusal(&refusal)).await.is_err();
            } else {
                self.refuse(stream, &refusal).await;
            }
        };
        let _left_or_told = tokio::time::timeout(TURNED_AWAY, told).await.is_ok();
        self.reserve.restore();
    }

    /// Lets hyper answer the one request.
    async fn speak(
        &self,
        stream: UnixStream,
        bytes: Bytes,
        uid: u32,
        written: &str,
        fields: usize,
        spelled: Spelled,
    ) {
        let injected = Arc::new(Injected::default());
        let read = Arc::new(Read::default());
        let stream = Arc::new(stream);
        let wire = Wire::new(Arc::clone(&stream), bytes, Arc::clone(&injected));
        let mut builder = Builder::new();
        builder
            // A caller that closes its sending side is gone.
            .half_close(false)
            .auto_date_header(false)
            .header_read_timeout(None)
            .max_header_size(HEAD)
            .max_buf_size(BUFFER);
        if fields > CHEAP_FIELDS {
            builder.max_headers(fields);
        }
        let service = {
            let read = Arc::clone(&read);
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(spelled.clone());
                let (injected, read) = (Arc::clone(&injected), Arc::clone(&read));
                Box::pin(async move {
                    Ok::<_, Infallible>(self.answer(request, uid, written, injected, read).await)
                })
            })
        };
        let mut connection = builder.serve_connection(TokioIo::new(wire), service);
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
            () = left(&stream) => return tracing::debug!("caller has left"),
        };
        // With it its half of the stream goes.
        drop(connection);
        match (ended, Arc::into_inner(stream)) {
            (Ok(()), Some(stream)) if !read.whole.load(Ordering::Relaxed) => linger(stream).await,
            (Ok(()), _) => {}
            (Err(error), _) => tracing::debug!(%error, "caller's connection broke off"),
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        uid: u32,
        written: &str,
        injected: Arc<Injected>,
        read: Arc<Read>,
    ) -> Response<Outgoing> {
        read.whole.store(request.body().is_end_stream(), Ordering::Relaxed);
        let mut origin = String::new();
        let outcome =
            match self.prepared(request, uid, written, Arc::clone(&read), &mut origin).await {
                Ok((call, timing, span)) => match self.call(call, &injected, &read).await {
                    Ok(answer) => Ok((span.answered(answer), timing)),
                    Err(refusal) => {
                        span.refused(&refusal);
                        Err(refusal)
                    }
                },
                Err(refusal) => Err(refusal),
            };
        injected.answered();
        match outcome {
            Ok((answer, timing)) => passed_on(answer, timing, injected),
            Err(refusal) => {
                self.shared.counters.refused(&origin, &refusal);
                refusal.response().map(|bytes| Outgoing::whole(bytes, injected))
            }
        }
    }

    /// Returns the call, whether its caller requests the times, and its span.
    async fn prepared(
        &self,
        request: Request<Incoming>,
        uid: u32,
        written: &str,
        read: Arc<Read>,
        origin: &mut String,
    ) -> Result<(Call, bool, CallSpan), Refusal> {
        let (head, body) = request.into_parts();
        let options = |fields: &HeaderMap| control(fields, &self.token);
        let body = Asked { body, read }.boxed_unsync();
        let (call, control, span) = self.prepare(head, body, uid, written, options, origin).await?;
        Ok((call, control.timing, span))
    }

    async fn call(&self, call: Call, injected: &Injected, read: &Read) -> Result<Answer, Refusal> {
        // hyper itself sends `100 Continue` if the body is read before the answer exists.
        let expects = call.request.headers().contains_key(EXPECT);
        let interim = |(status, headers, written): crate::Interim<'_>| {
            if !(expects && status == StatusCode::CONTINUE) {
                injected.interim(status, headers, written);
            }
        };
        let answer = Box::pin(self.engine.call(call, interim)).await?;
        let status = answer.response.status();
        // The engine continues with the body after such an answer; after others it is not needed.
        if expects && (status.is_success() || status.is_redirection()) {
            if read.begun.load(Ordering::Relaxed) {
                // hyper was asked for the body, perhaps just now: it sends `100 Continue` before the response starts.
                tokio::task::yield_now().await;
            } else {
                injected.interim(StatusCode::CONTINUE, &HeaderMap::new(), None);
            }
        }
        final_answer(answer)
    }

    /// Answers without hyper.
    async fn refuse(&self, mut stream: UnixStream, refusal: &Refusal) {
        self.shared.counters.refused("", refusal);
        if stream.write_all(&refusal.bytes()).await.is_ok() {
            linger(stream).await;
        }
    }
}

/// The first bytes of a caller.
enum Begin {
    /// An HTTP head that ends here.
    Http(usize),
    /// The opening of the frame protocol.
    Frames,
    /// The caller has disconnected.
    Nothing,
}

/// Reads up to the end of a head.
async fn read_head(stream: &mut UnixStream, bytes: &mut BytesMut) -> Result<Begin, Refusal> {
    let mut seen = 0;
    loop {
        match stream.read_buf(bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Ok(Begin::Nothing),
        }
        if bytes.first() == wire::OPENING.first() {
            return Ok(Begin::Frames);
        }
        if let Some(end) = ::http1::strict_end(bytes, seen).map_err(Refusal::request)? {
            return Ok(Begin::Http(end));
        }
        seen = bytes.len();
        if seen > HEAD {
            return Err(Refusal::request("the head is too large"));
        }
    }
}

/// Lets the caller read its response although it has not sent everything: closing a socket with unread bytes would
/// reset it.
async fn linger(mut stream: UnixStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut bytes = vec![0; 16 << 10];
    let read = async { while matches!(stream.read(&mut bytes).await, Ok(1..)) {} };
    // A caller that still sends after this time has already received its response.
    let _patience_is_over = tokio::time::timeout(LINGER, read).await.is_err();
}

fn passed_on(answer: Answer, asks_for_timing: bool, injected: Arc<Injected>) -> Response<Outgoing> {
    if let Some(written) = answer.written {
        injected.spell(written);
    }
    let (mut head, body) = answer.response.into_parts();
    head.version = Version::HTTP_11;
    head.headers = fields::of_answer(head.headers);
    if asks_for_timing {
        head.headers.insert(TIMING, timing(&answer.timing));
    }
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if head.headers.contains_key(TRAILER) && !body.is_end_stream() {
        // HTTP/2 may have a length and trailers; HTTP/1.1 has trailers after chunks only.
        head.headers.remove(CONTENT_LENGTH);
    }
    let chunked = !head.headers.contains_key(CONTENT_LENGTH) && !body.is_end_stream();
    Response::from_parts(head, Outgoing::answer(body, injected, chunked))
}

/// Encodes the times as a dictionary of RFC 8941.
fn timing(timing: &Timing) -> HeaderValue {
    let Timing { resolved, connected, secured, first_byte, reused, http2, address, .. } = timing;
    let mut text = format!(
        "dns={}, connect={}, tls={}, first-byte={}, reused=?{}, protocol=\"{}\"",
        resolved.as_micros(),
        connected.as_micros(),
        secured.as_micros(),
        first_byte.as_micros(),
        u8::from(*reused),
        if *http2 { "2" } else { "1.1" },
    );
    if let Some(address) = address {
        write!(text, ", address=\"{address}\"").expect("a String takes all");
    }
    HeaderValue::try_from(text).expect("digits and ASCII")
}

/// How far the body of a request was read.
#[derive(Debug, Default)]
struct Read {
    /// Whether it was requested: hyper has sent `100 Continue` to a caller that waits for it.
    begun: AtomicBool,
    /// Whether it was read to its end.
    whole: AtomicBool,
}

/// The body of a request on its way to the engine.
#[derive(Debug)]
struct Asked {
    body: Incoming,
    read: Arc<Read>,
}

impl Body for Asked {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.read.begun.store(true, Ordering::Relaxed);
        let polled = std::pin::Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.read.whole.store(true, Ordering::Relaxed);
        }
        polled.map(|frame| {
            let frame = frame?.map_err(std::io::Error::other);
            Some(frame.map(|frame| match frame.into_trailers() {
                Ok(trailers) => Frame::trailers(fields::of_trailers(trailers)),
                Err(data) => data,
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
