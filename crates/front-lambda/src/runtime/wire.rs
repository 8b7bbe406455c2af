//! HTTP/1.1 for the Runtime API: writes requests, parses responses, without I/O (RFC 9112).
//!
//! Invariants
//! - Nothing here waits or uses a socket: [`Answer::read`] is called again when more bytes have arrived.
//! - A response is bounded: its head by [`MAX_HEAD`], its body by [`MAX_BODY`].

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Maximum size of a response head. An event has a dozen fields, of which the client context may be 3583 bytes in
/// base64.
const MAX_HEAD: usize = 64 * 1024;
/// Maximum size of an event. Lambda's own limit is 6 MB; the margin allows for future growth.
const MAX_BODY: u64 = 64 * 1024 * 1024;
const MAX_FIELDS: usize = 100;

/// A response of the Runtime API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
    /// The connection cannot be reused.
    pub(crate) last: bool,
}

/// Reasons why a response is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the answer is no HTTP: {0}")]
    Syntax(#[from] httparse::Error),
    #[error("the answer has a head of more than {MAX_HEAD} bytes")]
    LongHead,
    #[error("the answer has a body of more than {MAX_BODY} bytes")]
    LongBody,
    #[error("the answer has a wrong {0}")]
    Field(HeaderName),
    #[error("the answer has a malformed chunk")]
    Chunk,
}

impl Answer {
    /// Removes the response at the beginning of `incoming` and returns it; `None` until it is complete. `ended` says
    /// that no more bytes will arrive.
    pub(crate) fn read(incoming: &mut BytesMut, ended: bool) -> Result<Option<Self>, Malformed> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut head = httparse::Response::new(&mut fields);
            let httparse::Status::Complete(length) = head.parse(incoming)? else {
                return if incoming.len() > MAX_HEAD { Err(Malformed::LongHead) } else { Ok(None) };
            };
            let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.ok_or(httparse::Error::Status)?;
            if status.is_informational() {
                incoming.advance(length);
                continue;
            }
            let one_zero = head.version == Some(0);
            let mut map = HeaderMap::with_capacity(head.headers.len());
            for field in head.headers.iter() {
                let name = HeaderName::from_bytes(field.name.as_bytes());
                let value = HeaderValue::from_bytes(field.value);
                if let (Ok(name), Ok(value)) = (name, value) {
                    map.append(name, value);
                }
            }
            let says = |name: HeaderName, word: &str| {
                let value = map.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
                value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
            };
            let close = says(CONNECTION, "close") || (one_zero && !says(CONNECTION, "keep-alive"));
            let found = if status == StatusCode::NO_CONTENT {
                Some((0..0, length, false))
            } else if says(TRANSFER_ENCODING, "chunked") {
                return Self::read_chunked(incoming, length, status, map, close);
            } else if let Some(text) = map.get(CONTENT_LENGTH) {
                let size = text.to_str().ok().and_then(|text| text.parse::<u64>().ok());
                let size = size.ok_or(Malformed::Field(CONTENT_LENGTH))?;
                if size > MAX_BODY {
                    return Err(Malformed::LongBody);
                }
                let end = length + usize::try_from(size).map_err(|_large| Malformed::LongBody)?;
                if incoming.len() < end {
                    incoming.reserve(end - incoming.len());
                    None
                } else {
                    Some((length..end, end, false))
                }
            } else if ended {
                Some((length..incoming.len(), incoming.len(), true))
            } else if incoming.len() as u64 > MAX_BODY {
                return Err(Malformed::LongBody);
            } else {
                None
            };
            let Some((body, end, ends_connection)) = found else { return Ok(None) };
            let taken = incoming.split_to(end).freeze();
            return Ok(Some(Self {
                status,
                fields: map,
                body: taken.slice(body),
                last: close || ends_connection,
            }));
        }
    }

    /// Parses a chunked body (RFC 9112 section 7.1); trailers are dropped.
    fn read_chunked(
        incoming: &mut BytesMut,
        head: usize,
        status: StatusCode,
        fields: HeaderMap,
        last: bool,
    ) -> Result<Option<Self>, Malformed> {
        let mut body = BytesMut::new();
        let mut at = head;
        loop {
            let rest = incoming.get(at..).unwrap_or_default();
            let httparse::Status::Complete((line, size)) =
                httparse::parse_chunk_size(rest).map_err(|_invalid| Malformed::Chunk)?
            else {
                return Ok(None);
            };
            at += line;
            if size == 0 {
                break;
            }
            if body.len() as u64 + size > MAX_BODY {
                return Err(Malformed::LongBody);
            }
            let size = usize::try_from(size).map_err(|_large| Malformed::LongBody)?;
            let Some(data) = incoming.get(at..at + size) else { return Ok(None) };
            body.extend_from_slice(data);
            match incoming.get(at + size..at + size + 2) {
                None => return Ok(None),
                Some(b"\r\n") => at += size + 2,
                Some(_) => return Err(Malformed::Chunk),
            }
        }
        let mut trailers = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let rest = incoming.get(at..).unwrap_or_default();
        let httparse::Status::Complete((length, _)) = httparse::parse_headers(rest, &mut trailers)?
        else {
            return if rest.len() > MAX_HEAD { Err(Malformed::LongHead) } else { Ok(None) };
        };
        incoming.advance(at + length);
        Ok(Some(Self { status, fields, body: body.freeze(), last }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, ended: bool) -> Result<Option<Answer>, Malformed> {
        Answer::read(&mut BytesMut::from(text), ended)
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let mut incoming = BytesMut::from(
            "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
        );
        let answer = Answer::read(&mut incoming, false).unwrap().unwrap();
        assert_eq!((answer.status, &*answer.body), (StatusCode::ACCEPTED, b"ok".as_slice()));
        assert!(!answer.last);
        assert_eq!(&*incoming, b"HTTP/1.1 200 OK\r\n");
    }

    #[test]
    fn chunks_are_put_together_and_trailers_dropped() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n";
        let answer = read(text, false).unwrap().unwrap();
        assert_eq!(answer.body, "abcde");
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let text = "HTTP/1.0 200 OK\r\n\r\nall of it";
        assert!(read(text, false).unwrap().is_none());
        let answer = read(text, true).unwrap().unwrap();
        assert_eq!(answer.body, "all of it");
        assert!(answer.last);
    }

    #[test]
    fn what_is_too_long_or_no_http_is_refused() {
        assert!(matches!(read("SSH-2.0-OpenSSH\r\n", false), Err(Malformed::Syntax(_))));
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BODY + 1);
        assert!(matches!(read(&long, false), Err(Malformed::LongBody)));
        let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n";
        assert!(matches!(read(chunk, false), Err(Malformed::LongBody)));
        let head = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(MAX_HEAD));
        assert!(matches!(read(&head, false), Err(Malformed::LongHead)));
    }

    proptest! {
        #[test]
        fn no_bytes_bring_it_down(bytes in proptest::collection::vec(any::<u8>(), 0..200), ended in any::<bool>()) {
            drop(Answer::read(&mut BytesMut::from(&*bytes), ended));
        }

        #[test]
        fn an_answer_is_the_same_in_pieces_of_any_size(body in "[ -~]{0,60}", at in 0..100usize) {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            let text = if body.is_empty() { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned() } else { text };
            let (first, rest) = text.split_at(at.min(text.len() - 1));
            let mut incoming = BytesMut::from(first);
            prop_assert!(Answer::read(&mut incoming, false).unwrap().is_none());
            incoming.extend_from_slice(rest.as_bytes());
            let answer = Answer::read(&mut incoming, false).unwrap().unwrap();
            prop_assert_eq!(answer.body, body);
        }
    }
}
