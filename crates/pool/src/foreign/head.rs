//! Response heads as PHP's own programs write them: those of CGI (RFC 3875 section 6) and of HTTP/1.
//!
//! Invariants
//! - A head has at most [`MAX_HEAD`] bytes; invalid bytes give an error, never a panic.
//! - Header fields keep PHP's order, and duplicates stay; fields that HTTP does not allow are dropped.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http1::{head_end, lenient_field, parse_status};
use tracing::debug;

use crate::worker::Head;

/// Maximum size of a head in bytes, and maximum number of header fields: the limits of a frame.
const MAX_HEAD: usize = 1 << 20;
const MAX_FIELDS: usize = 1024;

/// Reasons why a response has no valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHead {
    #[error("a head of more than {MAX_HEAD} bytes or {MAX_FIELDS} fields")]
    TooLarge,
    #[error("no valid status")]
    Status,
    #[error("an end before its head was complete")]
    Incomplete,
}

/// The format of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// CGI, where all fields are PHP's.
    Cgi,
    /// `php -S`, which begins with its own fields about the connection.
    Builtin,
}

/// Collects a head from pieces.
#[derive(Debug)]
pub(crate) struct HeadReader {
    dialect: Dialect,
    arrived: BytesMut,
    /// Number of bytes that were searched for the end of the head.
    searched: usize,
}

impl HeadReader {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, arrived: BytesMut::new(), searched: 0 }
    }

    /// Adds the next piece. Returns the complete head and the bytes after it.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Option<(Head, Bytes)>, BadHead> {
        self.arrived.extend_from_slice(piece);
        let Some(end) = self.end() else {
            self.searched = self.arrived.len();
            return if self.searched > MAX_HEAD { Err(BadHead::TooLarge) } else { Ok(None) };
        };
        if end > MAX_HEAD {
            return Err(BadHead::TooLarge);
        }
        let mut rest = std::mem::take(&mut self.arrived).freeze();
        let head = rest.split_to(end);
        Ok(Some((parse(self.dialect, &head)?, rest)))
    }

    /// Returns where the body begins.
    fn end(&self) -> Option<usize> {
        match &*self.arrived {
            // A head without fields.
            [b'\n', ..] => Some(1),
            [b'\r', b'\n', ..] => Some(2),
            arrived => head_end(arrived, self.searched),
        }
    }
}

fn parse(dialect: Dialect, head: &Bytes) -> Result<Head, BadHead> {
    let mut status = None;
    let mut headers = HeaderMap::with_capacity(16);
    // Each is removed once, because a script may send fields with these names too.
    let mut servers_own = match dialect {
        Dialect::Cgi => vec![],
        Dialect::Builtin => vec!["host", "date", "connection"],
    };
    for (at, line) in head.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii_end();
        if at == 0
            && let Some(rest) = line.strip_prefix(b"HTTP/")
        {
            let space = rest.iter().position(|byte| *byte == b' ').ok_or(BadHead::Status)?;
            status = Some(status_of(rest.get(space..).unwrap_or_default(), head)?);
            continue;
        }
        let Some((name, value)) = lenient_field(line) else {
            if !line.is_empty() {
                debug!(line = %String::from_utf8_lossy(line), "line of a head left out");
            }
            continue;
        };
        if name.eq_ignore_ascii_case(b"status") && dialect == Dialect::Cgi {
            status = Some(status_of(value, head)?);
            continue;
        }
        if let Some(own) =
            servers_own.iter().position(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        {
            servers_own.swap_remove(own);
            continue;
        }
        if headers.len() == MAX_FIELDS {
            return Err(BadHead::TooLarge);
        }
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        } else {
            debug!(name = %String::from_utf8_lossy(name), "response header left out");
        }
    }
    let (status, reason) = match status {
        Some(status) => status,
        // RFC 3875 section 6.2.3
        None if headers.contains_key(http::header::LOCATION) => (StatusCode::FOUND, None),
        None => (StatusCode::OK, None),
    };
    Ok(Head { status, headers, reason })
}

/// Parses `404 Not Found`; returns the reason only if it is not the standard one.
fn status_of(text: &[u8], head: &Bytes) -> Result<(StatusCode, Option<Bytes>), BadHead> {
    let (status, reason) = parse_status(text).ok_or(BadHead::Status)?;
    let own = status.canonical_reason().unwrap_or_default().as_bytes();
    let other = !reason.is_empty() && reason != own;
    Ok((status, other.then(|| head.slice_ref(reason))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(dialect: Dialect, text: &str) -> Result<Option<(Head, Bytes)>, BadHead> {
        HeadReader::new(dialect).feed(text.as_bytes())
    }

    fn fields(head: &Head) -> Vec<(&str, &str)> {
        head.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    #[test]
    fn a_cgi_head_is_read_with_its_status_order_and_duplicates() {
        let text = "Status: 418 I'm a teapot\r\nX-B: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nbody\n\n";
        let (head, rest) = read(Dialect::Cgi, text).unwrap().unwrap();
        assert_eq!(head.status, 418);
        assert_eq!(head.reason, None, "its own reason");
        assert_eq!(fields(&head), [("x-b", "2"), ("set-cookie", "a=1"), ("set-cookie", "b=2")]);
        assert_eq!(rest, "body\n\n");
        let (head, _) = read(Dialect::Cgi, "Status: 404 Not Here\n\n").unwrap().unwrap();
        assert_eq!((head.status.as_u16(), head.reason.unwrap()), (404, "Not Here".into()));
    }

    #[test]
    fn a_head_may_be_empty() {
        let (head, rest) = read(Dialect::Cgi, "\r\nbody").unwrap().unwrap();
        assert_eq!((head.status.as_u16(), head.headers.len(), &rest[..]), (200, 0, &b"body"[..]));
    }

    #[test]
    fn without_a_status_it_is_200_or_with_a_location_302() {
        let (head, _) = read(Dialect::Cgi, "Content-Type: text/plain\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.status, 200);
        let (head, _) = read(Dialect::Cgi, "Location: /b\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.status, 302);
    }

    #[test]
    fn the_builtin_servers_own_fields_are_left_out_once() {
        let text = "HTTP/1.0 500 Internal Server Error\r\nHost: a\r\nDate: then\r\nConnection: close\r\nDate: now\r\n\r\n";
        let (head, _) = read(Dialect::Builtin, text).unwrap().unwrap();
        assert_eq!((head.status.as_u16(), fields(&head)), (500, vec![("date", "now")]));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        assert_eq!(read(Dialect::Cgi, "Status: none\r\n\r\n").unwrap_err(), BadHead::Status);
        let endless = "X: y\r\n".repeat(MAX_HEAD / 6 + 1);
        assert_eq!(read(Dialect::Cgi, &endless).unwrap_err(), BadHead::TooLarge);
        let many = format!("{}\r\n", "X: y\r\n".repeat(MAX_FIELDS + 1));
        assert_eq!(read(Dialect::Cgi, &many).unwrap_err(), BadHead::TooLarge);
    }

    proptest! {
        #[test]
        fn a_head_in_pieces_is_the_same_head(
            text in "(Status: 20[0-9] x\r\n)?(X-[a-c]: [ -~]{0,9}\r?\n){1,5}\r?\n[a-z\r\n]{0,20}",
            cut in 1_usize..9,
        ) {
            let (whole, rest) = read(Dialect::Cgi, &text).unwrap().expect("it is complete");
            let mut reader = HeadReader::new(Dialect::Cgi);
            let mut pieces = text.as_bytes().chunks(cut);
            let (head, mut behind) = loop {
                let piece = pieces.next().expect("the head is complete before the text is over");
                if let Some((head, behind)) = reader.feed(piece).unwrap() {
                    break (head, behind.to_vec());
                }
            };
            pieces.for_each(|piece| behind.extend_from_slice(piece));
            prop_assert_eq!((head.status, head.headers, behind), (whole.status, whole.headers, rest.to_vec()));
        }

        #[test]
        fn any_bytes_are_the_same_head_or_error_in_any_pieces(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), any::<u8>()], 0..60),
            cut in 0_usize..60,
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut reader = HeadReader::new(Dialect::Builtin);
            let pieces = match reader.feed(first) {
                Ok(None) => reader.feed(second),
                other => other,
            };
            let seen = |read: Result<Option<(Head, Bytes)>, BadHead>| {
                read.map(|head| head.map(|(head, _)| (head.status, head.headers)))
            };
            prop_assert_eq!(seen(HeadReader::new(Dialect::Builtin).feed(&bytes)), seen(pieces));
        }
    }
}
