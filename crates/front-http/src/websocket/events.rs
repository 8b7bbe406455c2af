//! Events of a connection as requests to the application: a POST to the handler's path, with the head of the upgrade,
//! the event in `$_SERVER`, and a message as body.
//!
//! Invariants
//! - Each event is routed by itself: after a reload the new release gets it.
//! - A client cannot forge an event: its header fields never become `HEARTH_*` variables.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use pool::{CompleteBody, DispatchError, RequestContext};

use super::registry::Seat;
use super::routes::WebSocketLimits;
use crate::application::Application;
use crate::forwarded::ForwardedInfo;
use crate::front::Shared;
use crate::request_body::RequestBody;
use crate::route::{self, Decision, Disk};
use crate::trace;

/// The parts that all events of a connection share.
#[derive(Debug)]
pub(crate) struct Visitor {
    /// The connection's id in text.
    pub(crate) id: String,
    /// Target of the upgrade.
    pub(crate) uri: Uri,
    /// Path of the handler, without query.
    pub(crate) handler: String,
    /// The fields of the upgrade that are not about the connection.
    pub(crate) fields: Fields,
    pub(crate) forwarded: ForwardedInfo,
    /// The context of the upgrade; script and id are those of each event, and further variables.
    pub(crate) context: RequestContext,
    /// The subprotocol that the application chose.
    pub(crate) protocol: Option<HeaderValue>,
    pub(crate) limits: WebSocketLimits,
}

/// One event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client wants to connect.
    Connect,
    /// A message of the client.
    Message { binary: bool, payload: Bytes },
    /// The connection has ended.
    Close { code: u16, reason: String },
}

/// Reasons why the application has not handled an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// No worker was free, or the server is shutting down.
    #[error("no worker was free")]
    Busy,
    /// The application has no such route any more.
    #[error("the path is no WebSocket any more")]
    Gone,
    /// The handler is not a script.
    #[error("the handler {0} is not a script")]
    NoScript(String),
    /// The worker died, or the time limit passed.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The answer broke off.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// The answer is larger than a queue.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// The fields of the upgrade that are about the connection or its body, not about the visitor.
const OF_THE_UPGRADE: [HeaderName; 10] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::TRANSFER_ENCODING,
    header::EXPECT,
    header::RANGE,
];

/// Header fields in as many bytes as they have. Those of a request share the buffer from which it was read, and
/// would hold all of it as long as the connection lasts.
#[derive(Debug)]
pub(crate) struct Fields(Bytes);

impl Fields {
    /// Copies the fields that events have.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in headers {
            if !OF_THE_UPGRADE.contains(name) {
                // Neither may contain a line's end.
                for part in [name.as_ref(), value.as_bytes()] {
                    bytes.extend_from_slice(part);
                    bytes.push(b'\n');
                }
            }
        }
        Self(bytes.into_boxed_slice().into())
    }

    fn headers(&self) -> HeaderMap {
        let mut lines = self.0.split(|byte| *byte == b'\n');
        let mut headers = HeaderMap::new();
        while let (Some(name), Some(value)) = (lines.next(), lines.next()) {
            let name = HeaderName::from_bytes(name).expect("it was a name");
            let value = HeaderValue::from_maybe_shared(self.0.slice_ref(value));
            headers.append(name, value.expect("it was a value"));
        }
        headers
    }
}

/// Copies a target, which otherwise would hold the buffer of its request.
pub(crate) fn target(uri: &Uri) -> Uri {
    uri.to_string().parse().unwrap_or_else(|_unlikely| uri.clone())
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Message { .. } => "message",
            Self::Close { .. } => "close",
        }
    }

    /// Returns the variables of the upgrade, such as those of the client's certificate, and the event's own.
    fn variables(&self, visitor: &Visitor) -> Vec<(&'static str, Bytes)> {
        let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let mut all = visitor.context.variables.clone();
        all.push(("HEARTH_SOCKET_ID", text(&visitor.id)));
        all.push(("HEARTH_SOCKET_EVENT", Bytes::from_static(self.name().as_bytes())));
        if let Some(protocol) = &visitor.protocol {
            all.push(("HEARTH_SOCKET_PROTOCOL", Bytes::copy_from_slice(protocol.as_bytes())));
        }
        match self {
            Self::Connect => {}
            Self::Message { binary, .. } => {
                let binary: &[u8] = if *binary { b"1" } else { b"0" };
                all.push(("HEARTH_SOCKET_BINARY", Bytes::from_static(binary)));
            }
            Self::Close { code, reason } => {
                all.push(("HEARTH_SOCKET_CODE", text(&code.to_string())));
                all.push(("HEARTH_SOCKET_REASON", text(reason)));
            }
        }
        all
    }

    fn body(self, headers: &mut HeaderMap) -> RequestBody {
        let Self::Message { binary, payload } = self else { return RequestBody::empty() };
        let kind = if binary { "application/octet-stream" } else { "text/plain; charset=utf-8" };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(payload.len()));
        if payload.is_empty() { RequestBody::empty() } else { RequestBody::whole(payload) }
    }
}

/// Sends an event to the application and returns its whole answer.
pub(crate) async fn call<A: Application>(
    front: &Shared<A>,
    seat: &Seat,
    visitor: &Visitor,
    event: Event,
) -> Result<Response<Bytes>, Failed> {
    let name = event.name();
    let answer = answer(front, visitor, event).await;
    if let Err(failed) = &answer {
        seat.socket.figures().failed.fetch_add(1, Relaxed);
        let id = &visitor.id;
        // Under too much load there are as many of these as messages.
        let folded = if matches!(failed, Failed::Busy) { seat.socket.is_busy() } else { Some(0) };
        match folded {
            Some(0) => {
                tracing::warn!(socket.id = id, event = name, %failed, "WebSocket event not handled");
            }
            Some(others) => {
                tracing::warn!(socket.id = id, event = name, %failed, others, "WebSocket events not handled");
            }
            None => {
                tracing::debug!(socket.id = id, event = name, %failed, "WebSocket event not handled");
            }
        }
    }
    answer
}

async fn answer<A: Application>(
    front: &Shared<A>,
    visitor: &Visitor,
    event: Event,
) -> Result<Response<Bytes>, Failed> {
    let current = front.switch.current();
    let original = parts(visitor.uri.clone(), visitor.fields.headers());
    let chosen = front.choose(&current, &visitor.forwarded, &original);
    let Ok(number) = chosen else { return Err(Failed::Gone) };
    let part = current.release.part(number);
    let path = route::clean(visitor.uri.path()).map_err(|_malformed| Failed::Gone)?;
    let is_close = matches!(event, Event::Close { .. });
    // The end of a connection that was let in is reported even if no further one would be.
    if part.websockets.route(path.as_bytes()).is_none() && !is_close {
        return Err(Failed::Gone);
    }
    let no_script = || Failed::NoScript(visitor.handler.clone());
    let handler = route::clean(&visitor.handler).map_err(|_malformed| no_script())?;
    let Decision::Script(script) = part.router.decide(&handler, &Disk) else {
        return Err(no_script());
    };
    let target = match visitor.uri.query() {
        Some(query) => format!("{}?{query}", visitor.handler),
        None => visitor.handler.clone(),
    };
    let mut parts = original;
    parts.uri = target.parse().map_err(|_malformed| no_script())?;
    parts.method = Method::POST;
    let mut context = RequestContext {
        script,
        id: front.ids.next(),
        variables: event.variables(visitor),
        ..visitor.context.clone()
    };
    let mut span = None;
    if let Some(tracer) = &front.tracer {
        let title = || Cow::Owned(format!("websocket {}", event.name()));
        let mut begun = tracer.begin_server(&mut parts.headers, title);
        context.trace = Some(begun.carried());
        if let Some(span) = &mut begun.span {
            span.set("url.path", parts.uri.path().to_owned());
            span.set("hearth.request.id", context.id.0.to_string());
            span.set("hearth.websocket.event", event.name());
        }
        span = begun.span;
    }
    let body = event.body(&mut parts.headers);
    let mut request = Request::from_parts(parts, body);
    request.extensions_mut().insert(CompleteBody);
    request.extensions_mut().insert(context);
    let outcome = whole(&current.applications[number], request, visitor.limits).await;
    part.router.files_may_have_changed();
    if let Some(mut span) = span {
        match &outcome {
            Ok(response) if !response.status().is_server_error() => {}
            Ok(response) => span.fail(response.status().as_str().to_owned(), "the handler failed"),
            Err(failed) => span.fail("not_handled", failed.to_string()),
        }
        let status = outcome.as_ref().map_or(StatusCode::BAD_GATEWAY, Response::status);
        trace::end(span, status);
    }
    outcome
}

fn parts(uri: Uri, headers: HeaderMap) -> http::request::Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.uri, parts.headers, parts.version) = (uri, headers, Version::HTTP_11);
    parts.method = Method::GET;
    parts
}

/// Calls the application and collects its answer.
async fn whole<A: Application>(
    application: &A,
    request: Request<RequestBody>,
    limits: WebSocketLimits,
) -> Result<Response<Bytes>, Failed> {
    let response = application.call(request).await.map_err(|error| match error {
        DispatchError::Overloaded { .. } | DispatchError::Draining => Failed::Busy,
        error => Failed::Dispatch(error),
    })?;
    let (head, mut body) = response.into_parts();
    let limit = limits.queue.max(limits.message);
    let (mut pieces, mut length) = (Vec::new(), 0);
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| Failed::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > limit {
            return Err(Failed::TooLarge(limit));
        }
        pieces.push(data);
    }
    let body = match &mut pieces[..] {
        [] => Bytes::new(),
        [one] => std::mem::take(one),
        several => several.concat().into(),
    };
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_an_upgrade_are_kept_in_order_and_in_few_bytes() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "example.com"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "x"),
            ("cookie", "a=1"),
            ("x-empty", ""),
            ("cookie", "b=2"),
            ("x-bytes", "\u{e4}\t"),
        ] {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let fields = Fields::of(&headers);
        assert_eq!(
            fields.0.len(),
            "host|example.com|cookie|a=1|cookie|b=2|x-empty||x-bytes|\u{e4}\t|".len()
        );
        for name in ["upgrade", "sec-websocket-key"] {
            headers.remove(name);
        }
        assert_eq!(fields.headers(), headers);
        assert!(Fields::of(&HeaderMap::new()).headers().is_empty());
    }
}
