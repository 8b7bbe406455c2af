//! HTTP/1.1 connections, using hyper: keep-alive, pipelining, 100-continue. All requests of a connection run on its
//! task.
//!
//! Invariants
//! - A response that was sent before the whole request was read reaches the client: the connection is closed only after
//!   the client, within limits.
//! - A request for a WebSocket is answered to its end once the application has been asked, even if the client leaves.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::answer_body::{AnswerBody, CutError};
use crate::application::Application;
use crate::early_hints::HintQueue;
use crate::front::Shared;
use crate::options::Options;
use crate::phase::PhaseCell;
use crate::pieces::Pieces;
use crate::realtime::{Grant, IntoStream};
use crate::request_body::RequestBody;
use crate::respond::{Connection, respond};
use crate::timed_io::{TimedIo, discard_input};
use crate::websocket::session::{self, Running};

/// The minimum buffer size of hyper.
const MIN_BUFFER: usize = 8192;

/// hyper's default limit of header fields.
const DEFAULT_HEADERS: usize = 100;

pub(crate) fn builder(options: &Options) -> Builder {
    let head = options.max_head.max(MIN_BUFFER);
    let mut builder = Builder::new();
    builder
        .keep_alive(true)
        // The stream below distinguishes a client that only closed its sending side from one that is gone.
        .half_close(true)
        // The stream below enforces the time-outs.
        .header_read_timeout(None)
        .max_header_size(head)
        // One byte more than the head may have, so that hyper detects a head that is too large before its buffer is
        // full.
        .max_buf_size(head.max(64 << 10) + 1);
    // With its default hyper uses the stack; any configured number allocates on the heap for each request.
    if options.max_headers != DEFAULT_HEADERS {
        builder.max_headers(options.max_headers);
    }
    builder
}

/// Serves one connection until it ends or becomes a WebSocket, or until `drain` is cancelled and its request in
/// progress is answered. Returns what serves the WebSocket, if it became one of the application.
pub(crate) async fn serve<
    A: Application,
    S: AsyncRead + AsyncWrite + IntoStream + Unpin + Send + 'static,
>(
    front: &Arc<Shared<A>>,
    connection: Connection,
    timed_io: TimedIo<S>,
    phase: Arc<PhaseCell>,
    drain: CancellationToken,
) -> Option<Running> {
    let hints = Arc::new(HintQueue::default());
    let sender = hints.sender();
    let timed_io = timed_io.with_hints(Arc::clone(&hints));
    let connection = Arc::new(connection);
    let grants = Arc::clone(&connection);
    let busy = Arc::clone(&phase);
    let sent = Sent::default();
    // The last request had a body, which may not have been read to its end.
    let body_came = AtomicBool::new(false);
    let handshake = Handshake::default();
    let service = {
        let (sent, body_came, handshake) = (&sent, &body_came, &handshake);
        let phase = Arc::clone(&phase);
        service_fn(move |request: http::Request<hyper::body::Incoming>| {
            phase.busy();
            body_came.store(!request.body().is_end_stream(), Ordering::Relaxed);
            hints.begin();
            let hints = Arc::clone(&hints);
            let front = Arc::clone(front);
            let connection = Arc::clone(&connection);
            // HTTP/1.0 has no interim responses.
            let sender = (request.version() == Version::HTTP_11).then(|| sender.clone());
            let request = request.map(RequestBody::http1);
            async move {
                let mut response = if request.headers().contains_key(UPGRADE) {
                    let front = Arc::clone(&front);
                    let answer = async move { respond(&front, &connection, request, sender).await };
                    handshake.answer(Box::pin(answer)).await
                } else {
                    respond(&front, &connection, request, sender).await
                };
                hints.finish();
                if front.succeeded.is_cancelled()
                    && response.status() != StatusCode::SWITCHING_PROTOCOLS
                {
                    // Another process accepts now: the next request goes there.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| sent.watch(body)))
            }
        })
    };
    let mut served = front.http1.serve_connection(TokioIo::new(timed_io), service);
    let outcome = tokio::select! {
        biased;
        outcome = sent.filling(&mut served) => outcome,
        () = drain.cancelled() => {
            phase.drain();
            Pin::new(&mut served).graceful_shutdown();
            sent.filling(&mut served).await
        }
    };
    let granted = grants.grant.lock().expect("no holder panics").take();
    let broken = outcome.is_err();
    if let Err(error) = outcome {
        tracing::debug!(error = %error, "connection broke off");
    }
    let parts = served.into_parts();
    let timed_io = parts.io.into_inner();
    let closed_first = timed_io.closed_first();
    let (mut stream, peeked) = timed_io.into_parts();
    let read = [parts.read_buf, peeked].concat();
    let granted = match granted {
        Some(granted) if !broken => granted,
        mut granted => {
            if let Some(Grant::Asked) = granted
                && let Some(answering) = handshake.take()
            {
                drop(answering.await);
                granted = grants.grant.lock().expect("no holder panics").take();
            }
            if let Some(Grant::Application(accepted)) = granted {
                Box::pin(session::lost(front, *accepted)).await;
            }
            // hyper also fails after it has answered a malformed head, and reads nothing behind it.
            if closed_first && (broken || body_came.into_inner() || !read.is_empty()) {
                Box::pin(discard_input(&mut stream, &drain)).await;
            }
            return None;
        }
    };
    match granted {
        Grant::Channels(granted) => {
            granted.give(stream, read);
            None
        }
        Grant::Application(accepted) => {
            // Its place is not for others.
            busy.busy();
            Some(session::begin(Arc::clone(front), accepted, stream, &read, drain))
        }
        Grant::Asked => None,
    }
}

type Answering<B> = Pin<Box<dyn Future<Output = Response<AnswerBody<B>>> + Send>>;

/// The request with `Upgrade` that is being answered, if there is one. It is kept here because hyper drops its own
/// futures when the client leaves.
struct Handshake<B>(Mutex<Option<Answering<B>>>);

impl<B> Default for Handshake<B> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<B> Handshake<B> {
    async fn answer(&self, answering: Answering<B>) -> Response<AnswerBody<B>> {
        *self.0.lock().expect("no holder panics") = Some(answering);
        std::future::poll_fn(|cx| {
            let mut current = self.0.lock().expect("no holder panics");
            let answering = current.as_mut().expect("hyper answers one request at a time");
            let response = ready!(answering.as_mut().poll(cx));
            *current = None;
            Poll::Ready(response)
        })
        .await
    }

    fn take(&self) -> Option<Answering<B>> {
        self.0.lock().expect("no holder panics").take()
    }
}

/// The body of a response as hyper sends it.
enum Sending<B> {
    /// The body is complete, or no worker produces it.
    Alone(AnswerBody<B>),
    /// A worker still produces the body: the connection reads ahead while hyper cannot write.
    Watched(Arc<Mutex<AnswerBody<B>>>),
}

/// The response being sent, shared with hyper. The connection's task polls both.
struct Sent<B>(Mutex<Weak<Mutex<AnswerBody<B>>>>);

impl<B> Default for Sent<B> {
    fn default() -> Self {
        Self(Mutex::new(Weak::new()))
    }
}

impl<B> Sent<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    fn watch(&self, body: AnswerBody<B>) -> Sending<B> {
        if !body.may_fill() {
            return Sending::Alone(body);
        }
        let body = Arc::new(Mutex::new(body));
        *self.0.lock().expect("no holder panics") = Arc::downgrade(&body);
        Sending::Watched(body)
    }

    /// Polls `served` and reads ahead from the worker while hyper waits for the client.
    async fn filling<F: Future + Unpin>(&self, served: &mut F) -> F::Output {
        std::future::poll_fn(|cx| {
            let outcome = Pin::new(&mut *served).poll(cx);
            if outcome.is_pending() {
                self.poll_fill(cx);
            }
            outcome
        })
        .await
    }

    fn poll_fill(&self, cx: &mut Context<'_>) {
        let mut watched = self.0.lock().expect("no holder panics");
        let Some(body) = watched.upgrade() else { return };
        let mut body = body.lock().expect("no holder panics");
        if body.may_fill() {
            body.poll_fill(cx);
        } else {
            *watched = Weak::new();
        }
    }
}

impl<B> Body for Sending<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = Pieces;
    type Error = CutError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, CutError>>> {
        match &mut *self {
            Self::Alone(body) => {
                let next = Pin::new(body).poll_frame(cx);
                next.map_ok(|frame| frame.map_data(Pieces::from))
            }
            Self::Watched(body) => {
                body.lock().expect("no holder panics").poll_pieces(cx).map_ok(Frame::data)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Alone(body) => body.is_end_stream(),
            Self::Watched(body) => body.lock().expect("no holder panics").is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Alone(body) => body.size_hint(),
            Self::Watched(body) => body.lock().expect("no holder panics").size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pool::{HintSender, Pool};

    use super::*;

    fn size_of_answer<F, R>(_: F) -> usize
    where
        F: FnOnce(
            &'static Shared<Pool>,
            &'static Connection,
            http::Request<RequestBody>,
            Option<HintSender>,
        ) -> R,
    {
        size_of::<R>()
    }

    #[test]
    fn a_request_is_small_because_its_connection_moves_it_and_keeps_room_for_it() {
        let size = size_of_answer(|front, connection, request, hints| {
            respond::<Pool>(front, connection, request, hints)
        });
        assert!(size <= 6 << 10, "{size} bytes");
    }
}
