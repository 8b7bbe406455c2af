//! Parses the request at the start of a connection to a listener of the hub.

use http1::EMPTY_FIELD;

use super::event_stream::{self, StreamRequest};
use crate::websocket::{BadUpgrade, Upgrade};

/// Maximum size of a request head in bytes.
pub(super) const MAX_HEAD: usize = 8 * 1024;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 64;

/// The kind of a request.
#[derive(Debug)]
pub(super) enum Request<'a> {
    /// The head is incomplete.
    Partial,
    /// A request for a WebSocket.
    WebSocket {
        /// Length of the head in bytes.
        length: usize,
        upgrade: Upgrade,
        /// Path and query.
        target: &'a str,
        origin: Option<&'a str>,
    },
    /// A request for Server-Sent Events.
    EventStream(StreamRequest<'a>),
    /// A request for a WebSocket that is rejected with this response.
    Refused(&'static [u8]),
    /// Any other request.
    Other,
}

const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const UPGRADE_REQUIRED: &[u8] =
    b"HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
pub(super) const NOT_FOUND: &[u8] =
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
pub(super) const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Parses the start of a connection. `deflate` allows to negotiate compression.
pub(super) fn read(bytes: &[u8], deflate: bool) -> Request<'_> {
    let mut fields = [EMPTY_FIELD; MAX_FIELDS];
    let request = match http1::parse(bytes, &mut fields) {
        Ok(Some(request)) => request,
        Ok(None) => return Request::Partial,
        Err(_) => return Request::Other,
    };
    if (request.method, request.minor) != ("GET", 1) {
        return Request::Other;
    }
    let (length, target) = (request.length, request.target);
    let field = |name: &str| request.field(name);
    let fields = request.fields.iter().map(|field| (field.name, field.value));
    match Upgrade::read(fields, deflate) {
        Ok(Some(upgrade)) => {
            Request::WebSocket { length, upgrade, target, origin: field("origin") }
        }
        Ok(None) if event_stream::is_meant(target) => Request::EventStream(StreamRequest {
            target,
            origin: field("origin"),
            site: field("sec-fetch-site"),
            last_event_id: field("last-event-id"),
        }),
        Ok(None) => Request::Other,
        Err(BadUpgrade::Version) => Request::Refused(UPGRADE_REQUIRED),
        Err(BadUpgrade::Malformed(_)) => Request::Refused(BAD_REQUEST),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UPGRADE: &str = "GET /app/key?protocol=7 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: https://a.example\r\n\r\nmore";

    #[test]
    fn a_websocket_request_is_parsed_once_it_is_complete() {
        let end = UPGRADE.len() - 4;
        for cut in 0..end {
            assert!(
                matches!(read(&UPGRADE.as_bytes()[..cut], false), Request::Partial),
                "cut at {cut}"
            );
        }
        let Request::WebSocket { length, target, origin, .. } = read(UPGRADE.as_bytes(), false)
        else {
            panic!("it is one");
        };
        assert_eq!(
            (length, target, origin),
            (end, "/app/key?protocol=7", Some("https://a.example"))
        );
    }

    #[test]
    fn other_requests_are_left_to_the_other_front() {
        for bytes in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST /apps/1/events HTTP/1.1\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            &UPGRADE.replace("HTTP/1.1", "HTTP/1.0"),
            &UPGRADE.replace("GET", "POST"),
            "\u{16}\u{3}\u{1}",
        ] {
            assert!(matches!(read(bytes.as_bytes(), false), Request::Other), "{bytes:?}");
        }
        let old = UPGRADE.replace("Version: 13", "Version: 8");
        assert!(
            matches!(read(old.as_bytes(), false), Request::Refused(answer) if answer.starts_with(b"HTTP/1.1 426 "))
        );
    }
    proptest! {
        #[test]
        fn any_bytes_are_one_of_the_request_kinds(
            at in 0usize..230,
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            deflate: bool,
        ) {
            let (before, after) = UPGRADE.as_bytes().split_at(at.min(UPGRADE.len()));
            let input = [before, &bytes, after].concat();
            if let Request::WebSocket { length, target, .. } = read(&input, deflate) {
                prop_assert!(length <= input.len() && target.len() < length);
            }
        }
    }
}
