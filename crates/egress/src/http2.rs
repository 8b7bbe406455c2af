//! One call on one stream of an HTTP/2 connection.
//!
//! It uses h2 directly, because hyper's client passes on no interim answers over HTTP/2, starts a task for every call,
//! and hides whether a stream was refused. The task that waits for the answer sends the body, and then the one that
//! reads the answer.
//!
//! Invariants
//! - Dropping the answer resets its stream and nothing else.
//! - Unread bytes are not acknowledged: an answer occupies its window and no more, and stops no other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connect::{Birth, Connected};
use crate::errors::code;
use crate::http1::Broken;
use crate::origin::StreamGuard;
use crate::repeat::Progress;
use crate::silence::{Silence, Watched};
use crate::upload::{Upload, Watch};
use crate::{CallError, Interim, Reason, Secured};

/// Window of one stream in bytes: 50 MB/s at a distance of 20 ms.
const STREAM_WINDOW: u32 = 1 << 20;
/// Window of a connection: the maximum (RFC 9113, 6.9.1). With less, a few unread answers would stop all others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Bytes written to one stream before the connection accepts them.
const SEND_BUFFER: usize = 256 << 10;
/// Fields of one answer, and of all interim answers before it: libcurl's limit for all of them.
const FIELDS: u32 = 300 << 10;

/// Maximum number of concurrent streams, as announced on the origin's last connection. Before that, the number that
/// every origin should accept (RFC 9113, 6.5.2).
#[derive(Debug)]
pub(crate) struct Streams(AtomicUsize);

impl Default for Streams {
    fn default() -> Self {
        Self(AtomicUsize::new(100))
    }
}

/// An HTTP/2 connection. A clone is another handle of it; when the last one and the last stream are gone, it closes.
#[derive(Clone, Debug)]
pub(crate) struct Http2 {
    send: SendRequest<Bytes>,
    silence: Arc<Silence>,
    calls: Arc<AtomicU64>,
    birth: Birth,
    secured: Option<Arc<Secured>>,
    born: Instant,
    streams: Arc<Streams>,
    /// The assumed limit before the origin announced one.
    assumed: usize,
}

/// The driver that moves the bytes of a connection.
pub(crate) struct Driver {
    connection: Connection<Watched, Bytes>,
    pings: Option<PingPong>,
    silence: Arc<Silence>,
}

impl Http2 {
    pub(crate) async fn new(
        connected: Connected,
        streams: Arc<Streams>,
    ) -> Result<(Self, Driver), h2::Error> {
        let assumed = streams.0.load(Relaxed).max(1);
        let silence = Arc::<Silence>::default();
        let (send, mut connection) = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(assumed)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(FIELDS)
            // Unwanted answers may still arrive for a while.
            .max_concurrent_reset_streams(1024)
            .handshake(silence.watch(connected.stream))
            .await?;
        let pings = connection.ping_pong();
        let this = Self {
            send,
            silence: Arc::clone(&silence),
            calls: Arc::default(),
            birth: connected.birth,
            secured: connected.secured,
            born: Instant::now(),
            streams,
            assumed,
        };
        Ok((this, Driver { connection, pings, silence }))
    }

    /// A call has waited without an answer: the connection is being pinged.
    pub(crate) fn suspected(&self) -> bool {
        self.silence.suspected()
    }

    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }

    /// The outcome of TLS, if it is recorded.
    pub(crate) fn secured(&self) -> Option<&Arc<Secured>> {
        self.secured.as_ref()
    }

    pub(crate) fn born(&self) -> Instant {
        self.born
    }

    /// How many streams the origin takes; `None`: the connection takes no new ones.
    pub(crate) fn room(&mut self) -> Option<usize> {
        let ready = self.send.poll_ready(&mut Context::from_waker(Waker::noop()));
        if matches!(ready, Poll::Ready(Err(_))) {
            return None;
        }
        let room = self.send.current_max_send_streams();
        if room != self.assumed {
            self.streams.0.store(room, Relaxed);
        }
        Some(room)
    }

    /// The connection has carried a call before.
    pub(crate) fn kept(&self) -> bool {
        self.calls.load(Relaxed) > 0
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropped, the stream is reset.
    pub(crate) async fn exchange(
        mut self,
        guard: StreamGuard,
        request: Request<()>,
        body: Upload,
        watch: Option<&Arc<Watch>>,
        interim: &mut (dyn FnMut(Interim<'_>) + Send),
    ) -> Result<Response<Http2Body>, Broken> {
        self.calls.fetch_add(1, Relaxed);
        let _asked = self.silence.asked();
        let bodiless = body.is_end_stream();
        let head = request.method() == http::Method::HEAD;
        let (mut answer, stream) = match self.send.send_request(request, bodiless) {
            Ok(sent) => sent,
            Err(error) => {
                let progress = Progress::Unwritten;
                return Err(Broken { error: told(&error, None), progress });
            }
        };
        let id = answer.stream_id().as_u32();
        let mut pump = (!bodiless).then(|| Pump::new(stream, body));
        let mut before = 0;
        let answered = std::future::poll_fn(|cx| {
            loop {
                match answer.poll_informational(cx) {
                    Poll::Ready(Some(Ok(response))) => {
                        if let Some(watch) = watch
                            && response.status() == StatusCode::CONTINUE
                        {
                            watch.open();
                        }
                        before += size(response.headers());
                        if before > FIELDS as usize {
                            return Poll::Ready(Err(None));
                        }
                        interim((response.status(), response.headers(), None));
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Some(error))),
                    Poll::Ready(None) | Poll::Pending => break,
                }
            }
            if let Some(running) = &mut pump
                && running.poll(cx).is_ready()
            {
                pump = None;
            }
            Pin::new(&mut answer).poll(cx).map_err(Some)
        });
        match answered.await {
            Ok(response) => {
                let under_way = watch.is_some_and(|watch| {
                    watch.answered(response.status());
                    watch.under_way()
                });
                let length = if head { Some(0) } else { length(response.headers()) };
                Ok(response.map(|stream| {
                    let guard = Some(Guard::Own(guard));
                    let mut body =
                        Http2Body { stream, pump, cancelled: None, id, guard, left: length };
                    if under_way {
                        body.pump_cancelled();
                    }
                    body.settle();
                    body
                }))
            }
            Err(None) => {
                let error =
                    CallError::weird("Weird server reply: too much comes before the answer");
                Err(Broken { error, progress: Progress::Answered })
            }
            Err(Some(error)) => {
                if watch.is_some_and(|watch| watch.broken()) {
                    let error = CallError::abandoned();
                    return Err(Broken { error, progress: Progress::Answered });
                }
                let refused = error.is_remote()
                    && ((error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
                        || error.is_go_away());
                let reset = error.is_remote() && error.is_reset();
                let progress = if reset && error.reason() == Some(h2::Reason::HTTP_1_1_REQUIRED) {
                    Progress::WantsHttp1
                } else if refused {
                    Progress::Unprocessed
                } else if error.is_reset() {
                    Progress::Answered
                } else {
                    Progress::Written
                };
                Err(Broken { error: told(&error, Some(id)), progress })
            }
        }
    }
}

impl Driver {
    /// Moves bytes until the connection ends. Pings the peer from time to time, and at once after a call waited without
    /// an answer.
    ///
    /// # Cancel safety
    /// Dropped, the connection is closed.
    pub(crate) async fn run(mut self: Box<Self>, every: Duration, within: Duration) {
        let (pings, silence) = (self.pings.take(), Arc::clone(&self.silence));
        let dead = async move {
            let Some(mut pings) = pings else { return std::future::pending().await };
            loop {
                drop(tokio::time::timeout(every, silence.suspicion()).await);
                match tokio::time::timeout(within, pings.ping(Ping::opaque())).await {
                    Ok(Ok(_)) => silence.lives(),
                    // The connection is over: that is for the other branch to see.
                    Ok(Err(_)) => return std::future::pending().await,
                    Err(_late) => return,
                }
            }
        };
        tokio::select! {
            result = self.connection => {
                if let Err(error) = result {
                    tracing::debug!(%error, "HTTP/2 connection over");
                }
            }
            () = dead => tracing::debug!("HTTP/2 connection does not answer"),
        }
    }
}

/// The size of an interim answer by RFC 9113, 6.5.2: its status and its fields.
fn size(headers: &HeaderMap) -> usize {
    const EACH: usize = 32;
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + EACH);
    EACH + fields.sum::<usize>()
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// An error of a stream, or of the connection below it.
fn told(error: &h2::Error, id: Option<u32>) -> CallError {
    if let Some(io) = error.get_io() {
        return match io.kind() {
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::UnexpectedEof => {
                CallError::empty()
            }
            _ => CallError::broken(io),
        };
    }
    match (error.reason(), id) {
        // The peer's data are invalid.
        (Some(reason), Some(id)) if error.is_reset() => CallError::stream(id, reason),
        (Some(reason), _) => CallError::failed(
            Reason::Stream,
            code::HTTP2_STREAM,
            format!("HTTP/2 connection was closed by GOAWAY (err {})", u32::from(reason)),
        ),
        (None, _) => CallError::failed(Reason::Stream, code::HTTP2_STREAM, error.to_string()),
    }
}

/// Sends a body as the origin's window opens.
#[derive(Debug)]
struct Pump {
    stream: SendStream<Bytes>,
    body: Upload,
    chunk: Bytes,
}

impl Pump {
    fn new(stream: SendStream<Bytes>, body: Upload) -> Self {
        Self { stream, body, chunk: Bytes::new() }
    }

    /// Ready when everything was sent, or when the origin stops the upload. The response tells the reason.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.chunk.is_empty() {
                // The origin may stop the upload while there are no data to send.
                if self.stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(());
                }
                match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    None => {
                        drop(self.stream.send_data(Bytes::new(), true));
                        return Poll::Ready(());
                    }
                    Some(Err(_broken_off)) => {
                        self.stream.send_reset(h2::Reason::CANCEL);
                        return Poll::Ready(());
                    }
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            if self.body.is_end_stream() && data.is_empty() {
                                drop(self.stream.send_data(data, true));
                                return Poll::Ready(());
                            }
                            self.chunk = data;
                        }
                        Err(frame) => {
                            if let Ok(trailers) = frame.into_trailers() {
                                drop(self.stream.send_trailers(trailers));
                                return Poll::Ready(());
                            }
                        }
                    },
                }
                continue;
            }
            // No more than can be had anyway: h2 counts in u32.
            self.stream.reserve_capacity(self.chunk.len().min(SEND_BUFFER));
            let Some(Ok(room)) = ready!(self.stream.poll_capacity(cx)) else {
                return Poll::Ready(());
            };
            let part = self.chunk.split_to(room.min(self.chunk.len()));
            let last = self.chunk.is_empty() && self.body.is_end_stream();
            if self.stream.send_data(part, last).is_err() || last {
                return Poll::Ready(());
            }
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Http2Body {
    stream: RecvStream,
    /// `None`: the request is sent, or another task sends it.
    pump: Option<Pump>,
    /// Dropped if the answer is not wanted: nothing more is to be sent then.
    cancelled: Option<oneshot::Sender<Infallible>>,
    id: u32,
    /// `None`: it is over.
    guard: Option<Guard>,
    left: Option<u64>,
}

/// Keeps a stream in use, for one or for two.
#[derive(Debug)]
enum Guard {
    Own(StreamGuard),
    Shared { _guard: Arc<StreamGuard> },
}

impl Http2Body {
    /// The request's body is still on its way: a task sends it, however slowly its answer is read.
    fn pump_cancelled(&mut self) {
        let Some(mut pump) = self.pump.take() else { return };
        let Some(Guard::Own(guard)) = self.guard.take() else { return };
        let (tell, told) = oneshot::channel();
        let home = Arc::clone(guard.home());
        let guard = Arc::new(guard);
        self.cancelled = Some(tell);
        self.guard = Some(Guard::Shared { _guard: Arc::clone(&guard) });
        home.spawn(async move {
            tokio::select! {
                () = std::future::poll_fn(|cx| pump.poll(cx)) => {}
                _nobody = told => {}
            }
            drop(pump);
            drop(guard);
        });
    }

    /// The stream is free as soon as it has ended, however slow its reader is.
    fn settle(&mut self) {
        if self.pump.is_none() && self.stream.is_end_stream() {
            self.guard = None;
        }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        let this = self.get_mut();
        if let Some(pump) = &mut this.pump
            && pump.poll(cx).is_ready()
        {
            this.pump = None;
        }
        let failed = |error: &h2::Error| {
            // The response is complete, and the origin does not read the rest of the request (RFC 9113, 8.1).
            let all = this.left.is_none_or(|left| left == 0);
            if all && error.is_reset() && error.reason() == Some(h2::Reason::NO_ERROR) {
                return None;
            }
            Some(Err(match error.get_io() {
                Some(io) if io.kind() == std::io::ErrorKind::ConnectionReset => {
                    CallError::broken(io)
                }
                Some(_) => CallError::partial(this.left),
                None => told(error, Some(this.id)),
            }))
        };
        match ready!(this.stream.poll_data(cx)) {
            Some(Ok(data)) => {
                if let Some(left) = &mut this.left {
                    *left = left.saturating_sub(data.len() as u64);
                }
                // It is the reader's now: the window may move on.
                drop(this.stream.flow_control().release_capacity(data.len()));
                this.settle();
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(failed(&error)),
            None => match ready!(this.stream.poll_trailers(cx)) {
                Ok(trailers) => {
                    this.settle();
                    Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
                }
                Err(error) => Poll::Ready(failed(&error)),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.stream.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}
