//! Whoever wants to see what goes over the wire for one call.

use std::fmt::Write as _;
use std::net::SocketAddr;

use http::{HeaderMap, Request, StatusCode};

use crate::Secured;

/// Is told what goes over the wire for one call, as it goes. Called where the call is polled: it must not block.
pub trait Tap: Send + Sync {
    /// This was seen.
    fn see(&self, sight: Sight<'_>);

    /// It wants to see heads. Over HTTP/2 they are put together for it.
    fn heads(&self) -> bool {
        true
    }
}

/// What there is to see. Bodies are not: whoever makes the call has them in hand.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// A try waits for its connection.
    Waiting,
    /// A try has its connection.
    Connection {
        /// The other end: a proxy's, where there is one.
        address: Option<SocketAddr>,
        /// It has carried a call before.
        kept: bool,
        /// HTTP/2 is spoken over it.
        http2: bool,
        /// TLS, where [`Options::peers`](crate::Options::peers) has it kept.
        secured: Option<&'a Secured>,
    },
    /// The head of the request as it goes out. Over HTTP/2, where fields go packed, as HTTP/1.1 would write it.
    Request(&'a [u8]),
    /// The head of an answer, interim ones included. The same.
    Answer(&'a [u8]),
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

/// An answer of HTTP/2 as text.
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
