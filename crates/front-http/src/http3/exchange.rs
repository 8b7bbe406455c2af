//! One request of an HTTP/3 connection, and its answer.
//!
//! Invariants
//! - A request that the client gives up is dropped at once.
//! - The answer counts as sent when the client has all of it: the connection stays open until then.
//! - While the client takes nothing, the worker's answer is still read, as far as it is buffered; after the write
//!   time-out the stream is reset.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::server::{RequestResolver, RequestStream};
use http::header::{self, HeaderMap};
use http::{Request, Response, StatusCode};
use http_body::Body;
use pool::HintSender;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::body::Incoming;
use super::quic::{Arrival, Progress, Sending, Stopped};
use crate::answer_body::AnswerBody;
use crate::application::Application;
use crate::front::Shared;
use crate::metrics::ClientLimit;
use crate::multiplexed::{self, Announced};
use crate::pace::UnreadBodies;
use crate::request_body::RequestBody;
use crate::respond::{Connection, respond};

/// Interim answers that wait to be sent; more are dropped, because they are optional.
const INTERIM: usize = 16;
/// Largest DATA frame: while the client takes one, time-outs are counted.
const PIECE: usize = 32 << 10;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client has received an answer.
    Answered,
    /// The client gave it up, or it was no valid request.
    Lost,
}

/// Handles one stream.
pub(super) async fn exchange<A: Application>(
    front: Arc<Shared<A>>,
    connection: Arc<Connection>,
    unread: UnreadBodies,
    resolver: RequestResolver<super::quic::Connection, Bytes>,
    Arrival { mut stopped, progress, link }: Arrival,
) -> Outcome {
    let resolved = tokio::select! {
        biased;
        resolved = timeout(front.patience.header, resolver.resolve_request()) => resolved,
        _gone = &mut stopped => return Outcome::Lost,
    };
    let (request, mut stream) = match resolved {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            tracing::debug!(%error, "no valid request");
            return Outcome::Lost;
        }
        Err(_) => {
            front.metrics.limited(ClientLimit::SlowHead);
            return Outcome::Lost;
        }
    };
    link.answering.store(true, Ordering::Relaxed);
    let (parts, ()) = request.into_parts();
    if is_malformed(&parts.headers) {
        tracing::debug!("fields that HTTP/3 has not");
        stream.stop_sending(Code::H3_MESSAGE_ERROR);
        stream.stop_stream(Code::H3_MESSAGE_ERROR);
        return Outcome::Lost;
    }
    let (mut send, receive) = stream.split();
    let length = multiplexed::content_length(&parts.headers);
    let mut incoming = Incoming::new(receive, link, length);
    if let Err(error) = poll_fn(|cx| Poll::Ready(incoming.begin(cx))).await {
        tracing::debug!(%error, "no valid request");
        send.stop_stream(Code::H3_MESSAGE_ERROR);
        return Outcome::Lost;
    }
    let mut body = RequestBody::http3(incoming, &unread);
    let (interim, mut interims) = mpsc::channel(INTERIM);
    if parts.headers.contains_key(header::EXPECT) {
        let interim = interim.clone();
        body.on_first_read(move || {
            let _dropped = interim.try_send((StatusCode::CONTINUE, HeaderMap::new())).is_err();
        });
    }
    let hints = HintSender(Arc::new(move |status, headers| {
        if let Some(headers) = multiplexed::hint(status, headers) {
            let _dropped = interim.try_send((status, headers)).is_err();
        }
    }));
    let request = Request::from_parts(parts, body);
    let mut response = pin!(respond(&front, &connection, request, Some(hints)));
    let response = loop {
        tokio::select! {
            biased;
            _gone = &mut stopped => return Outcome::Lost,
            Some((status, headers)) = interims.recv() => {
                let mut response = Response::new(());
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                if !matches!(
                    timeout(front.patience.write, send.send_response(response)).await,
                    Ok(Ok(()))
                ) {
                    return Outcome::Lost;
                }
            }
            response = &mut response => break response,
        }
    };
    let (mut head, body) = response.into_parts();
    let announced = Announced::new(multiplexed::complete_head(&mut head, &body));
    let head = Response::from_parts(head, ());
    match timeout(front.patience.write, send.send_response(head)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "answer not sent");
            return Outcome::Lost;
        }
        Err(_) => return too_slow(&front, &mut send),
    }
    let patience = front.patience.write;
    match send_body(&mut send, body, announced, &mut stopped, patience).await {
        Sent::All => {}
        Sent::Lost => return Outcome::Lost,
        Sent::TooSlow => return too_slow(&front, &mut send),
    }
    if send.finish().await.is_err() {
        return Outcome::Lost;
    }
    match received(&mut stopped, &progress, patience).await {
        Sent::All => Outcome::Answered,
        Sent::Lost => Outcome::Lost,
        Sent::TooSlow => too_slow(&front, &mut send),
    }
}

/// Waits until the client has received the end of the answer, as long as it takes something within each `patience`.
/// The end may be as long as the send window of the connection, for which a slow line needs longer than that.
async fn received(stopped: &mut Stopped, progress: &Progress, patience: Duration) -> Sent {
    let mut frames = progress.frames();
    loop {
        match timeout(patience, &mut *stopped).await {
            Ok(Ok(None)) => return Sent::All,
            Ok(_) => return Sent::Lost,
            Err(_) => {
                let before = std::mem::replace(&mut frames, progress.frames());
                if frames == before {
                    return Sent::TooSlow;
                }
            }
        }
    }
}

fn too_slow<A>(front: &Shared<A>, send: &mut RequestStream<Sending, Bytes>) -> Outcome {
    front.metrics.limited(ClientLimit::SlowReading);
    tracing::debug!("the client takes nothing of the answer");
    send.stop_stream(Code::H3_REQUEST_CANCELLED);
    Outcome::Lost
}

/// Returns whether there are fields of a connection, which HTTP/3 does not have (RFC 9114, section 4.2).
fn is_malformed(headers: &HeaderMap) -> bool {
    let of_connections = [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::HeaderName::from_static("keep-alive"),
        header::HeaderName::from_static("proxy-connection"),
    ];
    let lengths = headers.get_all(header::CONTENT_LENGTH);
    let mut lengths = lengths.iter().map(header::HeaderValue::as_bytes);
    let first = lengths.next();
    of_connections.iter().any(|name| headers.contains_key(name))
        || headers.get_all(header::TE).iter().any(|te| te != "trailers")
        || first.is_some_and(|length| !is_number(length) || lengths.next().is_some())
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit)
}

/// How sending a body ended.
enum Sent {
    All,
    Lost,
    TooSlow,
}

/// Sends a body as credit arrives. More than announced is truncated, less resets the stream.
async fn send_body<B>(
    send: &mut RequestStream<Sending, Bytes>,
    mut body: AnswerBody<B>,
    mut announced: Announced,
    stopped: &mut Stopped,
    patience: Duration,
) -> Sent
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    loop {
        let next = poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(()));
            }
            Pin::new(&mut body).poll_frame(cx).map(Ok)
        });
        let mut data = match next.await {
            Err(()) => return Sent::Lost,
            Ok(None) => break,
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(_trailers) => continue,
            },
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "answer broke off");
                send.stop_stream(Code::H3_INTERNAL_ERROR);
                return Sent::Lost;
            }
        };
        announced.take(&mut data);
        while !data.is_empty() {
            let piece = data.split_to(PIECE.min(data.len()));
            let mut sending = pin!(send.send_data(piece));
            let sent = poll_fn(|cx| {
                let sent = sending.as_mut().poll(cx);
                if sent.is_pending() {
                    body.poll_fill(cx);
                }
                sent
            });
            match timeout(patience, sent).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%error, "answer not sent");
                    return Sent::Lost;
                }
                Err(_) => return Sent::TooSlow,
            }
        }
    }
    if announced.is_done() {
        return Sent::All;
    }
    send.stop_stream(Code::H3_INTERNAL_ERROR);
    Sent::Lost
}
