//! `POST /2015-03-31/functions/NAME/invocations`, the call of the AWS command line, the SDKs and users of the AWS
//! emulator.
//!
//! It is answered when the invocation has ended and its log is complete, as the AWS emulator does.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;

use super::FunctionError;
use super::answer::{Answer, Body, BrokenOff, Chunks, answer};
use super::runtime_api::{PAYLOAD, not_found};
use super::shared::{Event, Shared, Started};

/// Maximum size of a synchronous event in bytes.
const SYNCHRONOUS: usize = 6 * 1024 * 1024;
/// Maximum size of an asynchronous event in bytes.
const ASYNCHRONOUS: usize = 1 << 20;

/// Returns whether a path is that of an invocation. There is one function, whatever name the path has.
pub(super) fn is_one(path: &str) -> bool {
    path.strip_prefix("/2015-03-31/functions/")
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, call)| call == "invocations")
}

/// Handles one invocation.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, BrokenOff> {
    if *request.method() != Method::POST {
        return Ok(not_found());
    }
    let (head, body) = request.into_parts();
    let text = |name: &str| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let asynchronous = match text("x-amz-invocation-type") {
        "" | "RequestResponse" => false,
        "Event" => true,
        "DryRun" => return Ok(answer(StatusCode::NO_CONTENT, "application/json", "")),
        other => {
            let message = format!("{other} is no invocation type");
            return Ok(refuse(StatusCode::BAD_REQUEST, "InvalidParameterValueException", &message));
        }
    };
    let limit = if asynchronous { ASYNCHRONOUS } else { SYNCHRONOUS };
    let payload = match Limited::new(body, limit).collect().await {
        Ok(payload) => payload.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let kind = if asynchronous { "Event" } else { "RequestResponse" };
            let message = format!(
                "the payload is too large for the {kind} invocation type (limit {limit} bytes)"
            );
            return Ok(refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLargeException", &message));
        }
        Err(_broken) => return Err(BrokenOff),
    };
    let payload = if payload.is_empty() { Bytes::from_static(b"{}") } else { payload };
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&payload) {
        let message = format!("Could not parse request body into json: {error}");
        return Ok(refuse(StatusCode::BAD_REQUEST, "InvalidRequestContentException", &message));
    }
    let event = match event(shared, &head.headers, payload) {
        Ok(event) => event,
        Err(message) => {
            return Ok(refuse(StatusCode::BAD_REQUEST, "InvalidRequestContentException", message));
        }
    };
    let Some(started) = shared.invoke(shared.new_id(), event) else {
        let body = json!({"Reason": "ConcurrentInvocationLimitExceeded", "Type": "User", "message": "Rate Exceeded."});
        let mut response =
            answer(StatusCode::TOO_MANY_REQUESTS, "application/json", body.to_string());
        let kind = HeaderValue::from_static("TooManyRequestsException");
        response.headers_mut().insert("x-amzn-errortype", kind);
        return Ok(response);
    };
    if asynchronous {
        let id = Arc::clone(&started.id);
        // Bounded by the environment's backlog.
        shared.background.spawn(async move { drop(finish(started).await) });
        return Ok(identified(answer(StatusCode::ACCEPTED, "application/json", ""), &id));
    }
    let wants_log = text("x-amz-log-type").eq_ignore_ascii_case("tail");
    let id = Arc::clone(&started.id);
    let Some((outcome, log)) = finish(started).await else { return Err(BrokenOff) };
    let (body, error) = match outcome {
        Ok(body) => (body, None),
        Err(error) => (error.body, Some(error.kind)),
    };
    let mut response = identified(answer(StatusCode::OK, "application/json", body), &id);
    let headers = response.headers_mut();
    if let Ok(version) = HeaderValue::try_from(&shared.options.function.version) {
        headers.insert("x-amz-executed-version", version);
    }
    if let Some(kind) = error {
        headers.insert("x-amz-function-error", HeaderValue::from_static("Unhandled"));
        // As in the AWS emulator for managed instances.
        if let Ok(kind) = HeaderValue::try_from(kind) {
            headers.insert("error-type", kind);
        }
    }
    if wants_log {
        let log = HeaderValue::try_from(STANDARD.encode(log)).expect("base64 is text");
        headers.insert("x-amz-log-result", log);
    }
    Ok(response)
}

fn event(shared: &Shared, headers: &HeaderMap, payload: Bytes) -> Result<Event, &'static str> {
    let client_context = match headers.get("x-amz-client-context") {
        None => None,
        Some(encoded) => {
            let decoded = STANDARD.decode(encoded.as_bytes());
            let decoded = decoded.map_err(|_wrong| "X-Amz-Client-Context is no base64")?;
            let value = HeaderValue::try_from(decoded);
            Some(value.map_err(|_wrong| "X-Amz-Client-Context is no text")?)
        }
    };
    let trace_id = headers.get("x-amzn-trace-id").cloned().unwrap_or_else(|| {
        HeaderValue::try_from(shared.new_trace_id()).expect("a trace id is text")
    });
    Ok(Event {
        payload,
        content_type: headers.get(CONTENT_TYPE).cloned(),
        trace_id,
        client_context,
        tenant: headers.get("x-amz-tenant-id").cloned(),
    })
}

/// Waits for the end of an invocation; `None` if the emulator shuts down.
async fn finish(started: Started) -> Option<(Result<Bytes, FunctionError>, Vec<u8>)> {
    let outcome = match started.answer.await.ok()? {
        Answer::Whole { body } => Ok(body),
        Answer::Stream { mut chunks, .. } => collect(&mut chunks).await,
        Answer::Failed(error) => Err(error),
    };
    let ended = started.ended.await.ok()?;
    let outcome = match outcome {
        // It had responded and did not finish in time: the caller gets the time-out.
        Ok(_) if ended.timed_out => {
            let message = format!("RequestId: {} Error: Task timed out", started.id);
            Err(FunctionError::new("Sandbox.Timedout", &message))
        }
        outcome => outcome,
    };
    Some((outcome, ended.log))
}

/// Collects a streamed response.
pub(super) async fn collect(chunks: &mut Chunks) -> Result<Bytes, FunctionError> {
    let mut whole = BytesMut::new();
    let mut size = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        size += chunk.len();
        if size <= PAYLOAD {
            whole.extend_from_slice(&chunk);
        }
    }
    if size > PAYLOAD {
        return Err(FunctionError::too_large(size, PAYLOAD));
    }
    Ok(whole.freeze())
}

fn identified(mut response: Response<Body>, id: &str) -> Response<Body> {
    let id = HeaderValue::try_from(id).expect("a UUID is text");
    response.headers_mut().insert("x-amzn-requestid", id);
    response
}

fn refuse(status: StatusCode, kind: &'static str, message: &str) -> Response<Body> {
    let body = json!({"Type": "User", "message": message});
    let mut response = answer(status, "application/json", body.to_string());
    response.headers_mut().insert("x-amzn-errortype", HeaderValue::from_static(kind));
    response
}
