//! Plain HTTP: a request becomes the event of the chosen integration, and the function's result the response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::Incoming;

use super::answer::{Answer, Body, BrokenOff, Chunks, whole};
use super::integration::{self, Context};
use super::prelude::{self, Prelude};
use super::reply::{self, BadReply, Head, Refused};
use super::shared::{Event, Shared};
use super::{FunctionError, invocations};

/// Maximum size of an event in bytes.
const EVENT: usize = 6 * 1024 * 1024;

/// Handles one HTTP request.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    remote: SocketAddr,
) -> Result<Response<Body>, BrokenOff> {
    let integration = shared.options.integration;
    let refuse = |refused: Refused| Ok(refused.answer(integration).map(whole));
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, integration.body_limit()).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return refuse(Refused::TooLarge);
        }
        Err(_broken) => return Err(BrokenOff),
    };
    let id = shared.new_id();
    let given = head.headers.get("x-amzn-trace-id").and_then(|value| value.to_str().ok());
    let trace_id = given.map_or_else(|| shared.new_trace_id(), str::to_owned);
    let context = Context {
        function: &shared.options.function,
        request_id: &id,
        trace_id: &trace_id,
        remote,
        local: shared.address,
        now: SystemTime::now(),
    };
    let event = match integration::event(integration, &head, &body, &context) {
        Ok(event) => event.to_string(),
        Err(refused) => return refuse(refused),
    };
    if event.len() > EVENT {
        return refuse(Refused::TooLarge);
    }
    let event = Event {
        payload: event.into(),
        content_type: None,
        trace_id: HeaderValue::try_from(&trace_id).unwrap_or(HeaderValue::from_static("")),
        client_context: None,
        tenant: None,
    };
    let Some(mut started) = shared.invoke(Arc::clone(&id), event) else {
        return refuse(Refused::Throttled);
    };
    let answer = match integration.patience() {
        // The function continues without a caller.
        Some(patience) => match tokio::time::timeout(patience, &mut started.answer).await {
            Ok(answer) => answer,
            Err(_late) => return refuse(Refused::TimedOut),
        },
        None => (&mut started.answer).await,
    };
    let answered = match answer {
        Err(_gone) => return Err(BrokenOff),
        Ok(Answer::Failed(error)) => Err(failed(&error)),
        Ok(Answer::Whole { body }) => reply_of(shared, &body),
        Ok(Answer::Stream { media_type, chunks }) => {
            if shared.options.streams && integration.can_stream() {
                streamed(media_type, chunks).await
            } else {
                buffered(shared, chunks).await
            }
        }
    };
    match answered {
        Ok(mut response) => {
            if !integration.is_alb()
                && let Ok(id) = HeaderValue::try_from(&*id)
            {
                response.headers_mut().insert("x-amzn-requestid", id);
            }
            Ok(response)
        }
        Err(refused) => refuse(refused),
    }
}

fn failed(error: &FunctionError) -> Refused {
    tracing::warn!(error_type = error.kind, "the function failed");
    if error.kind == "Sandbox.Timedout" { Refused::TimedOut } else { Refused::Failed }
}

fn misunderstood(reason: &BadReply) -> Refused {
    tracing::warn!(%reason, "the function's result is not an HTTP answer");
    Refused::Failed
}

fn reply_of(shared: &Shared, body: &[u8]) -> Result<Response<Body>, Refused> {
    let (head, body) =
        reply::answer(shared.options.integration, body).map_err(|bad| misunderstood(&bad))?;
    Ok(head.with_body(whole(body)))
}

/// Buffers a streamed result for an integration that cannot stream. Its prelude stays in the body, and the
/// integration interprets it as it can.
async fn buffered(shared: &Shared, mut chunks: Chunks) -> Result<Response<Body>, Refused> {
    match invocations::collect(&mut chunks).await {
        Ok(body) => reply_of(shared, &body),
        Err(error) => Err(failed(&error)),
    }
}

/// Returns a streamed response.
async fn streamed(
    media_type: Option<HeaderValue>,
    mut chunks: Chunks,
) -> Result<Response<Body>, Refused> {
    let with_prelude = media_type
        .as_ref()
        .is_some_and(|media_type| media_type.as_bytes() == prelude::MEDIA_TYPE.as_bytes());
    let mut first = Bytes::new();
    let head = if with_prelude {
        let mut prelude = Prelude::default();
        loop {
            let chunk = match chunks.next().await {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Err(failed(&error)),
                None => {
                    let reason = BadReply("a streamed answer ended before its prelude".into());
                    return Err(misunderstood(&reason));
                }
            };
            match prelude.push(&chunk) {
                Ok(None) => {}
                Ok(Some((head, rest))) => {
                    first = rest;
                    break Some(head);
                }
                Err(bad) => return Err(misunderstood(&bad)),
            }
        }
    } else {
        None
    };
    let body = stream::unfold((Some(first), chunks), |(first, mut chunks)| async move {
        if let Some(first) = first.filter(|first| !first.is_empty()) {
            return Some((Ok(Frame::data(first)), (None, chunks)));
        }
        let item = match chunks.next().await? {
            Ok(chunk) => Ok(Frame::data(chunk)),
            Err(error) => {
                tracing::warn!(error_type = error.kind, "a streamed answer broke off");
                Err(BrokenOff)
            }
        };
        Some((item, (None, chunks)))
    });
    let body = StreamBody::new(body).boxed_unsync();
    Ok(head
        .map_or_else(
            || {
                let mut response = Response::new(Body::default());
                *response.status_mut() = StatusCode::OK;
                let media_type =
                    media_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
                response.headers_mut().insert(CONTENT_TYPE, media_type);
                response
            },
            |head: Head| head.with_body(Body::default()),
        )
        .map(|_empty| body))
}
