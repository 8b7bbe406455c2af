//! Observers of the bytes on the wire for one call.

use std::fmt::Write as _;
use std::net::SocketAddr;

use http::{HeaderMap, Request, StatusCode};

use crate::{Interim, Secured};

/// Receives what is sent and received for one call, as it happens. It is called where the call is polled, so it must not block.
pub trait Tap: Send + Sync {
    /// Receives one event.
    fn see(&self, sight: Sight<'_>);

    /// Returns whether it wants heads. Over HTTP/2 they are put together for it.
    fn heads(&self) -> bool {
        true
    }
}

/// The events. Bodies are not among them, because the caller has them.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// A try waits for its connection.
    Waiting,
    /// A try has its connection.
    Connection {
        /// The peer's address: the proxy's, if there is one.
        address: Option<SocketAddr>,
        /// Whether the connection has carried a call before.
        kept: bool,
        /// Whether HTTP/2 is used.
        http2: bool,
        /// The outcome of TLS, if [`Options::peers`](crate::Options::peers) records it.
        secured: Option<&'a Secured>,
    },
    /// The head of the request as it is sent. For HTTP/2, which compresses fields, it is written as in HTTP/1.1.
    Request(&'a [u8]),
    /// The head of a response, interim ones included, in the same form.
    Answer(&'a [u8]),
}

/// Shows the head of a response to an observer.
pub(crate) fn see_answer(tap: &dyn Tap, (status, headers, written): Interim<'_>) {
    match written {
        Some(written) => tap.see(Sight::Answer(written)),
        None => tap.see(Sight::Answer(&answer_head(status, headers))),
    }
}

/// A request of HTTP/2 as text.
pub(crate) fn request_head(request: &Request<()>) -> Vec<u8> {
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut line = format!("{} {path} HTTP/2\r\n", request.method());
    if let Some(authority) = uri.authority() {
        let _infallible = write!(line, "host: {authority}\r\n");
    }
    head(line, request.headers())
}

/// A response of HTTP/2 as text.
pub(crate) fn answer_head(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    head(format!("HTTP/2 {}\r\n", status.as_u16()), headers)
}

fn head(line: String, headers: &HeaderMap) -> Vec<u8> {
    let mut text = line.into_bytes();
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_http2_are_written_as_http1_would() {
        let request = Request::get("https://a.test:81/p?q").header("x-a", "1").body(());
        let text = request_head(&request.expect("a request"));
        assert_eq!(
            String::from_utf8(text).expect("ASCII"),
            "GET /p?q HTTP/2\r\nhost: a.test:81\r\nx-a: 1\r\n\r\n"
        );
        let headers = HeaderMap::from_iter([(http::header::AGE, 7.into())]);
        let text = answer_head(StatusCode::OK, &headers);
        assert_eq!(text, b"HTTP/2 200\r\nage: 7\r\n\r\n");
    }
}
