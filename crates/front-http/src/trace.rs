//! The span of a request, following OpenTelemetry's semantic conventions for HTTP servers (stable since 1.23).
//! `http.route` is missing, because a front does not know it.
//!
//! Invariants
//! - Queries are not recorded, because they may contain secrets.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::request::Parts;
use http::{StatusCode, header};
use pool::RequestId;
use traces::{Begun, Span, Tracer, method_name};

use crate::protocol::Protocol;
use crate::request_head::{name_of, split_host};
use crate::respond::Connection;

/// Information about a request besides its head.
pub(crate) struct About<'r> {
    pub(crate) connection: &'r Connection,
    /// Address of the client, according to trusted proxies.
    pub(crate) remote: SocketAddr,
    /// The client uses TLS.
    pub(crate) secure: bool,
    pub(crate) id: &'r RequestId,
}

/// The reason why PHP gave no response, stored in the extensions of the error page.
#[derive(Clone, Debug)]
pub(crate) struct FailureReason(pub(crate) String);

/// Starts the span.
pub(crate) fn begin(tracer: &Tracer, parts: &mut Parts, about: &About<'_>) -> Begun {
    let name = || Cow::Borrowed(method_name(&parts.method).unwrap_or("HTTP"));
    let mut begun = tracer.begin_server(&mut parts.headers, name);
    if let Some(span) = &mut begun.span {
        describe(span, parts, about);
    }
    begun
}

fn describe(span: &mut Span, parts: &Parts, about: &About<'_>) {
    span.set_method(&parts.method);
    span.set("url.scheme", if about.secure { "https" } else { "http" });
    span.set("url.path", parts.uri.path().to_owned());
    let field = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let (host, port) = split_host(field.unwrap_or_default());
    let local = about.connection.local;
    if host.is_empty() {
        span.set("server.address", name_of(local.ip()));
    } else {
        span.set("server.address", host.to_owned());
    }
    span.set("server.port", port.unwrap_or_else(|| local.port()));
    span.set("client.address", about.remote.ip().to_canonical().to_string());
    span.set("network.peer.address", about.connection.peer.ip().to_canonical().to_string());
    span.set("network.protocol.version", Protocol::of(parts.version).number());
    if let Some(agent) = parts.headers.get(header::USER_AGENT) {
        span.set("user_agent.original", String::from_utf8_lossy(agent.as_bytes()).into_owned());
    }
    span.set("hearth.request.id", about.id.0.to_string());
}

/// Records the response head.
pub(crate) fn answered(span: &mut Span, head: &mut http::response::Parts) {
    let why = head.extensions.remove::<FailureReason>();
    if head.status.is_server_error() {
        let reason = why.map(|FailureReason(reason)| reason);
        let reason = reason.unwrap_or_else(|| head.status.to_string());
        span.fail(head.status.as_str().to_owned(), reason);
    }
}

/// Ends the span when the response has ended or the client has disconnected.
pub(crate) fn end(mut span: Span, status: StatusCode) {
    if status.as_u16() == 499 {
        span.fail("client_gone", "the client went away before the answer");
    } else {
        span.set("http.response.status_code", status.as_u16());
    }
}
