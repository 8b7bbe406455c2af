//! The span of a call by OpenTelemetry's semantic conventions for HTTP clients (stable since 1.23).
//!
//! Invariants
//! - A caller's own `traceparent` is passed on unchanged: its span is the parent of ours, and the origin's spans belong below it.
//! - Credentials, and query values that may be secrets, are never recorded.
//! - Without a tracer a call costs one check of an `Option`.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use traces::{Context, Kind, Span, Tracer, method_name};

use super::refusal::Refusal;
use super::target::Target;
use crate::{Answer, AnswerBody, CallError};

/// The field by which a caller states its parent span. Fields with this prefix are never passed on.
pub(super) const PARENT: HeaderName = HeaderName::from_static("hearth-traceparent");
/// The trace state that belongs to it.
pub(super) const STATE: HeaderName = HeaderName::from_static("hearth-tracestate");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Parts of a name that mark its value as secret. There are more than the conventions require.
const SECRET: &[&str] = &[
    "auth",
    "code",
    "credential",
    "jwt",
    "key",
    "nonce",
    "otp",
    "pass",
    "pin",
    "pwd",
    "secret",
    "session",
    "sid",
    "sig",
    "state",
    "ticket",
    "token",
];

/// Starts the span of a call, and adds the trace context to its head.
pub(super) fn begin(tracer: &Tracer, head: &mut Parts, target: &Target) -> CallSpan {
    let own = Context::of(&head.headers);
    let said = || head.headers.get(PARENT).and_then(|value| Context::read(value.as_bytes()));
    let parent = own.or_else(said);
    let name = || Cow::Borrowed(method_name(&head.method).unwrap_or("HTTP"));
    let begun = tracer.begin(parent, Kind::Client, name);
    let mut span = begun.span;
    let state = if own.is_some() { TRACESTATE } else { STATE };
    let state = parent.and_then(|_| head.headers.get(state).cloned());
    if let Some(span) = &mut span {
        describe(span, &head.method, target);
        span.set_state(state.clone());
    }
    if own.is_none() {
        inject(&mut head.headers, &begun.context, state);
    }
    CallSpan(span)
}

fn inject(headers: &mut HeaderMap, context: &Context, state: Option<HeaderValue>) {
    let value = HeaderValue::from_bytes(context.traceparent().as_bytes());
    headers.insert(TRACEPARENT, value.expect("hexadecimal digits and dashes"));
    headers.remove(TRACESTATE);
    if let Some(state) = state {
        headers.insert(TRACESTATE, state);
    }
}

fn describe(span: &mut Span, method: &Method, target: &Target) {
    span.set_method(method);
    span.set("url.full", redacted(&target.uri.to_string()));
    span.set("server.address", target.host.clone());
    span.set("server.port", target.port);
}

/// Returns a URL without possible secrets.
fn redacted(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else { return url.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=REDACTED"),
        _ => pair.to_owned(),
    });
    format!("{before}?{}", pairs.collect::<Vec<_>>().join("&"))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|secret| name.contains(secret))
}

/// The span of a call until the response arrives, if the call is sampled.
#[derive(Debug, Default)]
pub(super) struct CallSpan(Option<Span>);

impl CallSpan {
    /// Ends the span of a call without a response.
    pub(super) fn refused(mut self, refusal: &Refusal) {
        let Some(mut span) = self.0.take() else { return };
        span.fail(refusal.word, refusal.message.to_string());
        if refusal.fate == crate::Fate::Declined {
            // The caller makes it directly.
            span.set("hearth.declined", true);
        }
    }

    /// Moves the span into the body of the response.
    pub(super) fn answered(mut self, mut answer: Answer) -> Answer {
        let Some(mut span) = self.0.take() else { return answer };
        let (status, timing) = (answer.response.status(), &answer.timing);
        span.set("http.response.status_code", status.as_u16());
        span.set("network.protocol.version", if timing.http2 { "2" } else { "1.1" });
        if let Some(address) = timing.address {
            span.set("network.peer.address", address.ip().to_canonical().to_string());
            span.set("network.peer.port", address.port());
        }
        span.set("hearth.connection.reused", timing.reused);
        if timing.repeated > 0 {
            span.set("http.request.resend_count", u32::from(timing.repeated));
        }
        failed(&mut span, status);
        if !answer.response.body().is_end_stream() {
            let traced = |body| AnswerBody::new(Traced { body, span: Some(span) });
            answer.response = answer.response.map(traced);
        }
        answer
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if let Some(span) = &mut self.0 {
            span.fail("caller_gone", "the caller did not wait for the answer");
        }
    }
}

/// Returns whether a client records the status as a failure: 400 and above.
fn failed(span: &mut Span, status: StatusCode) {
    if status.is_client_error() || status.is_server_error() {
        span.fail(status.as_str().to_owned(), status.to_string());
    }
}

/// The body of a response, with the span that ends with it.
struct Traced {
    body: AnswerBody,
    span: Option<Span>,
}

impl Body for Traced {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Err(error))) => {
                if let Some(mut span) = self.span.take() {
                    span.fail(error.reason.word(), error.message.clone());
                }
            }
            Poll::Ready(None) => self.span = None,
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.span = None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(span) = &mut self.span {
            span.fail("caller_gone", "the caller did not read the answer to its end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_secrets_are_not_traced() {
        for (url, told) in [
            ("https://a.test/p", "https://a.test/p"),
            ("https://a.test/?id=7&page=2", "https://a.test/?id=7&page=2"),
            (
                "https://a.test/?api_key=x&X-Amz-Signature=y&id=1&access_token=z&q",
                "https://a.test/?api_key=REDACTED&X-Amz-Signature=REDACTED&id=1&access_token=REDACTED&q",
            ),
        ] {
            assert_eq!(redacted(url), told);
        }
    }
}
