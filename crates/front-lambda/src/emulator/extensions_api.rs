//! The Extensions API, and the telemetry calls, which are answered as where telemetry is unavailable.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Body, BrokenOff, answer};
use super::environment::{ExtensionEvent, Refusal};
use super::runtime_api::{not_found, refused, told};
use super::shared::{CallResult, Shared};

/// Prefix of all paths.
pub(super) const BASE: &str = "/2020-01-01";
const REGISTRATION: usize = 64 << 10;
const NAME: &str = "lambda-extension-name";
const IDENTIFIER: &str = "lambda-extension-identifier";

/// Returns whether a path belongs to the Telemetry API, or to the older Logs API.
pub(super) fn is_telemetry(path: &str) -> bool {
    matches!(path, "/2022-07-01/telemetry" | "/2020-08-15/logs")
}

/// Accepts a subscription without effect, so that no extension fails because of it.
pub(super) fn telemetry(path: &str) -> Response<Body> {
    let words = if path.ends_with("logs") {
        ("Logs.NotSupported", "Logs API is not supported")
    } else {
        ("Telemetry.NotSupported", "Telemetry API is not supported")
    };
    told(StatusCode::ACCEPTED, words)
}

#[derive(Deserialize)]
struct Registration {
    #[serde(default)]
    events: Vec<String>,
}

/// Handles one call; `call` is its path without the base.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    call: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, BrokenOff> {
    if *request.method() == Method::POST && call == "/extension/register" {
        return register(shared, request).await;
    }
    let identifier = request.headers().get(IDENTIFIER).and_then(|id| id.to_str().ok());
    let Some(id) = identifier.map(str::to_owned) else {
        let kind = "Extension.MissingExtensionIdentifier";
        let message = "Missing Lambda-Extension-Identifier header".into();
        return Ok(refused(&Refusal::Extension { kind, message }));
    };
    match (request.method(), call) {
        (&Method::GET, "/extension/event/next") => next(shared, &id).await,
        (&Method::POST, "/extension/init/error" | "/extension/exit/error") => {
            let gone = shared.act(|environment, now| environment.extension_error(now, &id));
            Ok(match gone {
                Ok(()) => answer(StatusCode::ACCEPTED, "application/json", "{\"status\":\"OK\"}\n"),
                Err(refusal) => refused(&refusal),
            })
        }
        _ => Ok(not_found()),
    }
}

async fn register(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, BrokenOff> {
    let (head, body) = request.into_parts();
    let refuse = |kind, message: String| Ok(refused(&Refusal::Extension { kind, message }));
    let name = head.headers.get(NAME).and_then(|name| name.to_str().ok()).unwrap_or_default();
    if name.is_empty() {
        return refuse("Extension.InvalidExtensionName", "Empty extension name".into());
    }
    let body = Limited::new(body, REGISTRATION).collect().await.map_err(|_broken| BrokenOff)?;
    let registration: Registration = match serde_json::from_slice(&body.to_bytes()) {
        Ok(registration) => registration,
        Err(error) => return refuse("InvalidRequestFormat", error.to_string()),
    };
    let id = shared.new_id();
    let registered = shared
        .act(|environment, _now| environment.register(id.to_string(), name, &registration.events));
    if let Err(refusal) = registered {
        return Ok(refused(&refusal));
    }
    let function = &shared.options.function;
    let body = json!({
        "functionName": function.name,
        "functionVersion": function.version,
        "handler": function.handler,
    });
    let mut response = answer(StatusCode::OK, "application/json", body.to_string());
    let id = HeaderValue::try_from(&*id).expect("a UUID is text");
    response.headers_mut().insert(IDENTIFIER, id);
    Ok(response)
}

async fn next(shared: &Arc<Shared>, id: &str) -> Result<Response<Body>, BrokenOff> {
    let told = shared.wait(|environment, now, ticket| environment.extension_next(now, id, ticket));
    let (event, trace_id, deadline) = match told.await {
        Ok(Some(CallResult::Extension { event, trace_id, deadline })) => {
            (event, trace_id, deadline)
        }
        Ok(_) => return Err(BrokenOff),
        Err(refusal) => return Ok(refused(&refusal)),
    };
    let body = match event {
        ExtensionEvent::Invoke { id } => {
            let trace_id = trace_id.as_ref().and_then(|id| id.to_str().ok());
            json!({
                "eventType": "INVOKE",
                "deadlineMs": deadline,
                "requestId": &*id,
                "invokedFunctionArn": shared.options.function.arn(),
                "tracing": { "type": "X-Amzn-Trace-Id", "value": trace_id },
            })
        }
        ExtensionEvent::Shutdown => json!({
            "eventType": "SHUTDOWN",
            "deadlineMs": deadline,
            "shutdownReason": "spindown",
        }),
    };
    let mut response = answer(StatusCode::OK, "application/json", body.to_string());
    let event = HeaderValue::try_from(&*shared.new_id()).expect("a UUID is text");
    response.headers_mut().insert("lambda-extension-event-identifier", event);
    Ok(response)
}
