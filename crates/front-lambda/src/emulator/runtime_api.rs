//! The Runtime API: calls of the runtime and their responses, with the texts of the AWS emulator.
//!
//! Invariants
//! - A response is read to its end before it is answered, so that a runtime that is still sending receives the reason
//!   of a rejection.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::FunctionError;
use super::answer::{Answer, Body, BrokenOff, CHUNKS, Chunk, Chunks, answer};
use super::environment::{Environment, Refusal, Status};
use super::shared::{CallResult, Cut, Shared};

/// Prefix of all paths.
pub(super) const BASE: &str = "/2018-06-01";
/// Maximum size of a buffered response in bytes: 6 MiB, and its envelope.
pub(super) const PAYLOAD: usize = 6 * 1024 * 1024 + 100;
/// Maximum number of bytes that are read of a response that is too large.
const SWALLOWED: usize = 64 << 20;
/// Maximum number of bytes that are read of a rejected call's body; beyond it the connection is closed.
const UNWANTED: usize = 256 << 10;
/// Maximum size of an error body.
const ERROR: usize = 1 << 20;

const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
const ERROR_BODY: &str = "lambda-runtime-function-error-body";
const MODE: &str = "lambda-runtime-function-response-mode";

/// Handles one call; `call` is its path without the base.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    call: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, BrokenOff> {
    let parts: Vec<&str> = call.trim_start_matches('/').split('/').collect();
    let response = match (request.method(), parts.as_slice()) {
        (&Method::GET, ["ping"]) => answer(StatusCode::OK, "text/plain; charset=utf-8", "pong"),
        (&Method::GET, ["runtime", "invocation", "next"]) => return next(shared).await,
        (&Method::POST, ["runtime", "invocation", id, "response"]) => {
            let id = (*id).to_owned();
            response(shared, &id, request).await
        }
        (&Method::POST, ["runtime", "invocation", id, "error"]) => {
            let id = (*id).to_owned();
            error(shared, &id, request).await
        }
        (&Method::POST, ["runtime", "init", "error"]) => {
            let error = posted_error(request).await?;
            match shared.act(|environment, _now| environment.init_error(error)) {
                Ok(()) => accepted(),
                Err(refusal) => refused(&refusal),
            }
        }
        (&Method::GET, ["runtime", "restore", "next"]) => return restore_next(shared).await,
        (&Method::POST, ["runtime", "restore", "error"]) => {
            let error = posted_error(request).await?;
            match shared.act(|environment, _now| environment.restore_error(error)) {
                Some(Ok(())) => accepted(),
                Some(Err(refusal)) => refused(&refusal),
                None => not_found(),
            }
        }
        _ => not_found(),
    };
    Ok(response)
}

async fn next(shared: &Arc<Shared>) -> Result<Response<Body>, BrokenOff> {
    let told = shared.wait(Environment::next).await;
    let (id, event, deadline) = match told {
        Ok(Some(CallResult::Event { id, event, deadline, .. })) => (id, event, deadline),
        // The emulator shuts down: as in a sandbox, the connection just ends.
        Ok(_) => return Err(BrokenOff),
        Err(refusal) => return Ok(refused(&refusal)),
    };
    let mut response = answer(StatusCode::OK, "application/json", event.payload);
    let headers = response.headers_mut();
    let mut set = |name: &'static str, value: Option<HeaderValue>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            headers.insert(name, value);
        }
    };
    let text = |text: &str| HeaderValue::try_from(text).ok();
    set("lambda-runtime-aws-request-id", text(&id));
    set("lambda-runtime-deadline-ms", Some(HeaderValue::from(deadline)));
    set("lambda-runtime-invoked-function-arn", text(&shared.options.function.arn()));
    set("lambda-runtime-trace-id", Some(event.trace_id));
    set("lambda-runtime-client-context", event.client_context);
    set("lambda-runtime-aws-tenant-id", event.tenant);
    set("content-type", event.content_type);
    Ok(response)
}

async fn restore_next(shared: &Arc<Shared>) -> Result<Response<Body>, BrokenOff> {
    let mut exists = true;
    let told = shared.wait(|environment, now, ticket| {
        environment.restore_next(now, ticket).unwrap_or_else(|| {
            exists = false;
            Err(Refusal::UnknownInvocation)
        })
    });
    match told.await {
        Ok(Some(CallResult::Restored)) => Ok(answer(StatusCode::OK, "application/json", "")),
        Ok(_) => Err(BrokenOff),
        Err(_) if !exists => Ok(not_found()),
        Err(refusal) => Ok(refused(&refusal)),
    }
}

/// A response being received. If it is dropped early (the runtime's connection is gone), it ends as truncated.
struct Answering {
    shared: Arc<Shared>,
    id: String,
    caller: Option<oneshot::Sender<Answer>>,
    cut: Arc<Cut>,
    finished: bool,
}

impl Answering {
    /// Begins it, if the environment's state allows it.
    fn begin(shared: &Arc<Shared>, id: &str, to: &'static str) -> Result<Self, Refusal> {
        shared.act(|environment, _now| environment.begin_answer(id, to))?;
        let (caller, cut) = shared.take_caller(id).ok_or(Refusal::UnknownInvocation)?;
        let shared = Arc::clone(shared);
        Ok(Self { shared, id: id.into(), caller: Some(caller), cut, finished: false })
    }

    /// Sends something to the caller, which may be gone without effect on the runtime.
    fn give(&mut self, answer: Answer) {
        if let Some(caller) = self.caller.take() {
            drop(caller.send(answer));
        }
    }

    fn finish(mut self, status: Status) {
        self.end(status);
    }

    fn succeed(mut self, body: Bytes) {
        self.give(Answer::Whole { body });
        self.finish(Status::Success);
    }

    fn fail(mut self, error: FunctionError) {
        let status = Status::Error(error.kind.clone());
        self.give(Answer::Failed(error));
        self.finish(status);
    }

    fn end(&mut self, status: Status) {
        self.finished = true;
        self.shared.act(|environment, now| environment.finish_answer(now, &self.id, status));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.finished {
            let error = FunctionError::truncated();
            let status = Status::Error(error.kind.clone());
            self.give(Answer::Failed(error));
            self.end(status);
        }
    }
}

/// Handles `POST …/response`.
async fn response(shared: &Arc<Shared>, id: &str, request: Request<Incoming>) -> Response<Body> {
    let mut answering = match Answering::begin(shared, id, "InvocationResponse") {
        Ok(answering) => answering,
        Err(refusal) => {
            swallow(request).await;
            return refused(&refusal);
        }
    };
    match request.headers().get(MODE).map(HeaderValue::as_bytes) {
        None | Some(b"") => match read(request, PAYLOAD, &answering.cut).await {
            Read::Whole(body) => {
                answering.succeed(body);
                accepted()
            }
            Read::TooLarge { size } => {
                answering.fail(FunctionError::too_large(size, PAYLOAD));
                too_large()
            }
            Read::Truncated => {
                answering.fail(FunctionError::truncated());
                truncated()
            }
            Read::Cut => {
                let why = answering.cut.why.get().cloned();
                answering.fail(why.unwrap_or_else(gone));
                refused(&Refusal::TimedOut)
            }
        },
        Some(b"streaming") => {
            let media_type = request.headers().get(CONTENT_TYPE).cloned();
            let (send, chunks) = mpsc::channel(CHUNKS);
            answering.give(Answer::Stream { media_type, chunks: Chunks(chunks) });
            let (response, status) = stream(request, &send, &answering.cut).await;
            answering.finish(status);
            response
        }
        Some(_) => {
            swallow(request).await;
            answering.fail(FunctionError::new(
                "Runtime.InvalidResponseModeHeader",
                "the header Lambda-Runtime-Function-Response-Mode has another value than `streaming`",
            ));
            let words = ("InvalidFunctionResponseMode", "Invalid function response mode");
            told(StatusCode::BAD_REQUEST, words)
        }
    }
}

/// Handles `POST …/error`.
async fn error(shared: &Arc<Shared>, id: &str, request: Request<Incoming>) -> Response<Body> {
    let answering = match Answering::begin(shared, id, "InvocationErrorResponse") {
        Ok(answering) => answering,
        Err(refusal) => {
            swallow(request).await;
            return refused(&refusal);
        }
    };
    let Ok(error) = posted_error(request).await else {
        answering.fail(FunctionError::truncated());
        return truncated();
    };
    answering.fail(error);
    accepted()
}

/// Reads a posted error: the type is in a header, the body for the caller. With the media type of error causes the
/// body has both.
async fn posted_error(request: Request<Incoming>) -> Result<FunctionError, BrokenOff> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, ERROR).collect().await;
    let body = body.map_err(|_broken| BrokenOff)?.to_bytes();
    let kind = header(&head.headers, ERROR_TYPE);
    let caused = header(&head.headers, "content-type")
        .starts_with("application/vnd.aws.lambda.error.cause+json");
    if !caused {
        return Ok(FunctionError::posted(kind, body));
    }
    let Ok(serde_json::Value::Object(mut whole)) = serde_json::from_slice(&body) else {
        return Ok(FunctionError::posted(kind, Bytes::from_static(b"\"Invalid error body\"")));
    };
    whole.retain(|key, value| match key.as_str() {
        "errorMessage" | "errorType" => true,
        "stackTrace" => value.as_array().is_none_or(|trace| !trace.is_empty()),
        _ => false,
    });
    Ok(FunctionError::posted(kind, serde_json::Value::Object(whole).to_string().into()))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn gone() -> FunctionError {
    FunctionError::new("Sandbox.Failure", "the invocation has ended meanwhile")
}

/// Reads a body that is not needed, so that the connection can be reused.
async fn swallow(request: Request<Incoming>) {
    let mut body = Limited::new(request.into_body(), UNWANTED);
    while let Some(Ok(_frame)) = body.frame().await {}
}

enum Read {
    Whole(Bytes),
    TooLarge { size: usize },
    Truncated,
    Cut,
}

async fn read(request: Request<Incoming>, limit: usize, cut: &Cut) -> Read {
    let mut body = request.into_body();
    let mut whole = BytesMut::new();
    let mut size = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = cut.now.cancelled() => return Read::Cut,
        };
        match frame {
            None if size > limit => return Read::TooLarge { size },
            None => return Read::Whole(whole.freeze()),
            Some(Err(_broken)) => return Read::Truncated,
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                size += data.len();
                if size <= limit {
                    whole.extend_from_slice(&data);
                } else if size > SWALLOWED {
                    return Read::TooLarge { size };
                }
            }
        }
    }
}

/// Forwards a streamed response. A caller that is gone does not stop the function.
async fn stream(
    request: Request<Incoming>,
    send: &mpsc::Sender<Chunk>,
    cut: &Cut,
) -> (Response<Body>, Status) {
    let mut body = request.into_body();
    let failed = |error: &FunctionError| Status::Error(error.kind.clone());
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = cut.now.cancelled() => {
                let error = cut.why.get().cloned().unwrap_or_else(gone);
                let status = failed(&error);
                // A slow caller sees an abort instead.
                drop(send.try_send(Chunk::Failed(error)));
                return (refused(&Refusal::TimedOut), status);
            }
        };
        let (chunk, last) = match frame {
            None => (Chunk::End, Some((accepted(), Status::Success))),
            Some(Err(_broken)) => {
                let error = FunctionError::truncated();
                let status = failed(&error);
                (Chunk::Failed(error), Some((truncated(), status)))
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => (Chunk::Data(data), None),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let kind = header(&trailers, ERROR_TYPE);
                    if kind.is_empty() {
                        continue;
                    }
                    let body = STANDARD.decode(header(&trailers, ERROR_BODY));
                    let error = FunctionError::posted(kind, body.unwrap_or_default().into());
                    let status = failed(&error);
                    (Chunk::Failed(error), Some((accepted(), status)))
                }
            },
        };
        tokio::select! {
            // The caller may be gone.
            sent = send.send(chunk) => drop(sent),
            () = cut.now.cancelled() => continue,
        }
        if let Some(last) = last {
            return last;
        }
    }
}

/// Returns a response with `errorMessage` and `errorType`.
pub(super) fn told(status: StatusCode, (kind, message): (&str, &str)) -> Response<Body> {
    let body = json!({"errorMessage": message, "errorType": kind});
    answer(status, "application/json", body.to_string())
}

fn accepted() -> Response<Body> {
    answer(StatusCode::ACCEPTED, "application/json", "{\"status\":\"OK\"}\n")
}

fn too_large() -> Response<Body> {
    let message = format!("Exceeded maximum allowed payload size ({PAYLOAD} bytes).");
    told(StatusCode::PAYLOAD_TOO_LARGE, ("RequestEntityTooLarge", &message))
}

fn truncated() -> Response<Body> {
    let words = ("TruncatedHTTPRequest", "HTTP request detected as truncated");
    told(StatusCode::BAD_REQUEST, words)
}

pub(super) fn not_found() -> Response<Body> {
    answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n")
}

/// Returns the response to a rejected call.
pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    match refusal {
        Refusal::UnknownInvocation => {
            told(StatusCode::BAD_REQUEST, ("InvalidRequestID", "Invalid request ID"))
        }
        Refusal::Transition { from, to } => {
            let message = format!(
                "State transition from {from} to {to} failed for runtime. Error: State transition is not allowed"
            );
            told(StatusCode::FORBIDDEN, ("InvalidStateTransition", &message))
        }
        Refusal::TimedOut => told(StatusCode::GONE, ("InvokeTimeout", "Invoke timeout")),
        Refusal::TooManyWaiting => told(
            StatusCode::INTERNAL_SERVER_ERROR,
            ("InternalServerError", "Internal Server Error"),
        ),
        Refusal::Extension { kind, message } => told(StatusCode::FORBIDDEN, (kind, message)),
    }
}
