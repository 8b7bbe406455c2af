//! HTTP/2 connections, using the h2 crate directly: hyper's server cannot send 1xx responses, and browsers accept
//! early hints on HTTP/2 only.
//!
//! Invariants
//! - A stream's task ends with its connection; a stream that the client resets drops its request at once.
//! - Flow control works in both directions: the client gets credit as PHP reads. PHP's response is sent as the client
//!   grants credit; what is ahead of that is buffered.
//! - A stream from which the client reads nothing for the write time-out is reset; a client that does not answer a
//!   ping loses the connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Ping, Reason, RecvStream, SendStream};
use http::header;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use pool::HintSender;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::answer_body::AnswerBody;
use crate::application::Application;
use crate::front::Shared;
use crate::metrics::{ClientLimit, FrontMetrics};
use crate::multiplexed::{self, Announced, GOODBYE};
use crate::options::Options;
use crate::pace::{CONNECTION_WINDOW, STREAM_WINDOW, UnreadBodies};
use crate::phase::PhaseCell;
use crate::request_body::RequestBody;
use crate::respond::{Connection, respond};
use crate::timed_io::TimedIo;

/// Maximum number of bytes of one response that wait for the socket.
const SEND_BUFFER: usize = 128 << 10;
/// Maximum number of streams that a client opened and reset before they were processed ("rapid reset",
/// CVE-2023-44487); more end the connection.
const MAX_PENDING_RESETS: usize = 32;
/// Maximum number of streams reset by the server for a client's errors; more end the connection.
const MAX_OUR_RESETS: usize = 256;

pub(crate) fn builder(options: &Options) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(options.max_concurrent_streams)
        .max_header_list_size(u32::try_from(options.max_head).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_concurrent_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_OUR_RESETS));
    builder
}

/// Serves one connection until it ends, or until `drain` is cancelled and its streams are answered.
pub(crate) async fn serve<A: Application, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    front: &Arc<Shared<A>>,
    connection: Connection,
    timed_io: TimedIo<S>,
    phase: Arc<PhaseCell>,
    drain: CancellationToken,
) {
    let handshake = front.http2.handshake::<_, Bytes>(timed_io);
    let mut h2 = match tokio::time::timeout(front.patience.header, handshake).await {
        Ok(Ok(h2)) => h2,
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "HTTP/2 handshake failed");
            return;
        }
        Err(_) => return,
    };
    let mut ping = h2.ping_pong();
    let mut pinged = false;
    let connection = Arc::new(connection);
    let mut streams = JoinSet::new();
    let unread = UnreadBodies::default();
    let mut ending = false;
    // Between streams: how long to wait for another. During streams: when to ping the client.
    let mut timer = pin!(tokio::time::sleep(front.patience.keep_alive));
    loop {
        tokio::select! {
            biased;
            accepted = h2.accept() => match accepted {
                Some(Ok((request, answer))) => {
                    if streams.is_empty() {
                        phase.busy();
                        timer.as_mut().reset(Instant::now() + front.patience.write);
                    }
                    let exchange = exchange(
                        Arc::clone(front), Arc::clone(&connection), unread.clone(), request, answer,
                    );
                    streams.spawn(exchange.in_current_span());
                }
                Some(Err(error)) => {
                    tracing::debug!(error = %error, "connection broke off");
                    break;
                }
                None => break,
            },
            Some(ended) = streams.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    tracing::error!(error = %error, "stream failed");
                }
                if streams.is_empty() {
                    phase.answered();
                    let wait = if ending { GOODBYE } else { front.patience.keep_alive };
                    timer.as_mut().reset(Instant::now() + wait);
                }
            }
            // A client that receives GOAWAY opens another connection and loses nothing.
            () = async { tokio::select! {
                () = drain.cancelled() => {}
                () = front.succeeded.cancelled() => {}
            } }, if !ending => {
                ending = true;
                h2.graceful_shutdown();
                if streams.is_empty() {
                    timer.as_mut().reset(Instant::now() + GOODBYE);
                }
            }
            pong = poll_fn(|cx| match &mut ping {
                Some(ping) => ping.poll_pong(cx),
                None => Poll::Pending,
            }), if pinged => {
                pinged = false;
                if pong.is_err() {
                    break;
                }
            }
            () = timer.as_mut() => match (streams.is_empty(), ending) {
                (true, true) => break,
                (true, false) => {
                    ending = true;
                    h2.graceful_shutdown();
                    timer.as_mut().reset(Instant::now() + GOODBYE);
                }
                (false, _) => {
                    if pinged {
                        tracing::debug!("client does not answer pings");
                        break;
                    }
                    pinged = ping.as_mut().is_some_and(|ping| ping.send_ping(Ping::opaque()).is_ok());
                    timer.as_mut().reset(Instant::now() + front.patience.write);
                }
            },
        }
    }
}

type Answering = Arc<Mutex<SendResponse<Bytes>>>;

fn lock(answering: &Answering) -> std::sync::MutexGuard<'_, SendResponse<Bytes>> {
    answering.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send_interim(answering: &Answering, status: StatusCode, headers: HeaderMap) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Err(error) = lock(answering).send_informational(response) {
        tracing::debug!(error = %error, "interim answer not sent");
    }
}

/// Handles one stream.
async fn exchange<A: Application>(
    front: Arc<Shared<A>>,
    connection: Arc<Connection>,
    unread: UnreadBodies,
    request: Request<RecvStream>,
    answer: SendResponse<Bytes>,
) {
    let answering: Answering = Arc::new(Mutex::new(answer));
    let (parts, receive) = request.into_parts();
    let mut body = RequestBody::http2(receive, &parts.headers, &unread);
    if parts.headers.contains_key(header::EXPECT) {
        let answering = Arc::clone(&answering);
        body.on_first_read(move || {
            send_interim(&answering, StatusCode::CONTINUE, HeaderMap::new());
        });
    }
    let hints = {
        let answering = Arc::clone(&answering);
        HintSender(Arc::new(move |status, headers| {
            if let Some(headers) = multiplexed::hint(status, headers) {
                send_interim(&answering, status, headers);
            }
        }))
    };
    let request = Request::from_parts(parts, body);
    let response = tokio::select! {
        biased;
        response = respond(&front, &connection, request, Some(hints)) => response,
        _reset = poll_fn(|cx| lock(&answering).poll_reset(cx)) => return,
    };
    let (mut head, body) = response.into_parts();
    let announced = Announced::new(multiplexed::complete_head(&mut head, &body));
    let ends = body.is_end_stream();
    let stream = lock(&answering).send_response(Response::from_parts(head, ()), ends);
    match stream {
        Ok(_) if ends => {}
        Ok(stream) => {
            send_body(stream, body, announced, front.patience.write, &front.metrics).await;
        }
        Err(error) => tracing::debug!(error = %error, "answer not sent"),
    }
}

/// Sends a body as credit arrives. More than announced is truncated, less resets the stream.
async fn send_body<B>(
    mut stream: SendStream<Bytes>,
    mut body: AnswerBody<B>,
    mut announced: Announced,
    patience: Duration,
    metrics: &FrontMetrics,
) where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    loop {
        let next = poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Next::Reset);
            }
            Pin::new(&mut body).poll_frame(cx).map(Next::Frame)
        });
        let mut data = match next.await {
            Next::Reset => return,
            Next::Frame(None) => break,
            Next::Frame(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(_trailers) => continue,
            },
            Next::Frame(Some(Err(error))) => {
                tracing::debug!(error = %error, "answer broke off");
                return stream.send_reset(Reason::INTERNAL_ERROR);
            }
        };
        announced.take(&mut data);
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            // While the client grants no credit, the worker's response is still read.
            let credit = poll_fn(|cx| {
                let credit = stream.poll_capacity(cx);
                if credit.is_pending() {
                    body.poll_fill(cx);
                }
                credit
            });
            let credit = match tokio::time::timeout(patience, credit).await {
                Ok(Some(Ok(credit))) => credit,
                Ok(Some(Err(_)) | None) => return,
                Err(_) => {
                    metrics.limited(ClientLimit::SlowReading);
                    tracing::debug!("the client takes nothing of the answer");
                    return stream.send_reset(Reason::CANCEL);
                }
            };
            let piece = data.split_to(credit.min(data.len()));
            let last = data.is_empty() && announced.is_done() && body.is_end_stream();
            if stream.send_data(piece, last).is_err() || last {
                return;
            }
        }
    }
    if announced.is_done() {
        if let Err(error) = stream.send_data(Bytes::new(), true) {
            tracing::debug!(error = %error, "answer not finished");
        }
    } else {
        stream.send_reset(Reason::INTERNAL_ERROR);
    }
}

enum Next<E> {
    Frame(Option<Result<http_body::Frame<Bytes>, E>>),
    Reset,
}
