//! Requests of PHP about open connections, in the shape of API Gateway's `@connections`: `POST /@connections/ID` sends its body, `DELETE` closes.
//!
//! Invariants
//! - Each answer is given without waiting for a client.
//! - A process of another user is not answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use channels::websocket::CloseCode;
use front_http::{NotSent, WebSockets};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Calls at once; further ones wait in the system's queue.
const CALLS: usize = 256;
/// Maximum size of a message.
const MESSAGE: usize = 64 << 20;
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing is accepted after an error, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers the calls of an application's PHP, whose user is `user` if it is not ours.
pub(super) async fn serve(
    listener: UnixListener,
    sockets: Arc<WebSockets>,
    application: Arc<str>,
    user: Option<u32>,
) {
    let places = Arc::new(Semaphore::new(CALLS));
    let mut calls = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let stream = loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => break stream,
                    Err(error) => {
                        tracing::debug!(%error, "call about a WebSocket not accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = calls.join_next() => {}
            }
        };
        if !is_allowed(&stream, user) {
            continue;
        }
        let (sockets, application) = (Arc::clone(&sockets), Arc::clone(&application));
        calls.spawn(async move {
            let _place = place;
            let service = service_fn(|request| answer(&sockets, &application, request));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            let served = builder.serve_connection(TokioIo::new(stream), service);
            if !matches!(tokio::time::timeout(PATIENCE, served).await, Ok(Ok(()))) {
                tracing::debug!("call about a WebSocket broke off");
            }
        });
    }
}

fn is_allowed(stream: &UnixStream, user: Option<u32>) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    let own = rustix::process::geteuid().as_raw();
    [0, own].contains(&peer.uid()) || user == Some(peer.uid())
}

async fn answer(
    sockets: &WebSockets,
    application: &str,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status(sockets, application, request).await;
    Ok(response)
}

async fn status(sockets: &WebSockets, application: &str, request: Request<Incoming>) -> StatusCode {
    let (head, body) = request.into_parts();
    let Some(id) = head.uri.path().strip_prefix("/@connections/") else {
        return StatusCode::NOT_FOUND;
    };
    let parameter = |name: &str| {
        let pairs = head.uri.query().unwrap_or_default().split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name)
    };
    let Ok(body) = Limited::new(body, MESSAGE).collect().await else {
        return StatusCode::PAYLOAD_TOO_LARGE;
    };
    let body = body.to_bytes();
    match head.method {
        Method::POST => {
            let binary = parameter("binary").is_some_and(|(_, value)| value == "1");
            match sockets.send(application, id, binary, &body) {
                Ok(()) => StatusCode::OK,
                Err(NotSent::Gone) => StatusCode::GONE,
                Err(NotSent::Full) => StatusCode::TOO_MANY_REQUESTS,
                Err(NotSent::NotText) => StatusCode::BAD_REQUEST,
            }
        }
        Method::DELETE => {
            let code = parameter("code").map_or(Some(1000), |(_, code)| code.parse().ok());
            let code = code.and_then(|code| CloseCode::new(code).ok());
            let (Some(code), Ok(reason)) = (code, str::from_utf8(&body)) else {
                return StatusCode::BAD_REQUEST;
            };
            if sockets.close(application, id, code, reason) {
                StatusCode::NO_CONTENT
            } else {
                StatusCode::GONE
            }
        }
        _ => StatusCode::METHOD_NOT_ALLOWED,
    }
}
