//! Heads between frames and `http`: an answer's is the origin's own where it is known.

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};

use super::super::fields as passing;
use crate::spelling::Spelled;

/// Fields of most heads: they cost no allocation.
const FEW: usize = 32;

/// A head that `head::check` has passed, with so many fields. Its names are spelled as they are here wherever it goes.
pub(super) fn request(head: &Bytes, fields: usize) -> Option<Parts> {
    let mut few = [httparse::EMPTY_HEADER; FEW];
    let mut many = Vec::new();
    let found = if fields <= FEW {
        &mut few[..]
    } else {
        many.resize(fields, httparse::EMPTY_HEADER);
        &mut many[..]
    };
    let mut read = httparse::Request::new(found);
    if read.parse(head) != Ok(httparse::Status::Complete(head.len())) {
        return None;
    }
    let mut parts = Request::new(()).into_parts().0;
    parts.method = Method::from_bytes(read.method?.as_bytes()).ok()?;
    parts.uri = Uri::from_maybe_shared(head.slice_ref(read.path?.as_bytes())).ok()?;
    parts.headers.reserve(read.headers.len());
    for field in read.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value)).ok()?;
        parts.headers.append(name, value);
    }
    parts.extensions.insert(Spelled(head.clone()));
    Some(parts)
}

/// An answer's head for the caller: as it was written, less what is ours; else made of its fields.
pub(in crate::door) fn answer(
    status: StatusCode,
    fields: &HeaderMap,
    written: Option<&[u8]>,
    http2: bool,
) -> BytesMut {
    let Some(written) = written else { return made(status, fields, http2) };
    let mut head = BytesMut::with_capacity(written.len());
    for line in written.split_inclusive(|byte| *byte == b'\n') {
        if !line.get(..7).is_some_and(|name| name.eq_ignore_ascii_case(b"hearth-")) {
            head.extend_from_slice(line);
        }
    }
    head
}

fn made(status: StatusCode, fields: &HeaderMap, http2: bool) -> BytesMut {
    let mut head = BytesMut::with_capacity(512);
    if http2 {
        // As libcurl writes it, lib/http2.c.
        head.extend_from_slice(format!("HTTP/2 {:03} \r\n", status.as_u16()).as_bytes());
    } else {
        let reason = status.canonical_reason().unwrap_or_default();
        head.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).as_bytes());
    }
    head.unsplit(self::fields(fields.clone()));
    head.extend_from_slice(b"\r\n");
    head
}

/// Field lines.
pub(super) fn fields(fields: HeaderMap) -> BytesMut {
    let fields = passing::of_answer(fields);
    let mut lines = BytesMut::with_capacity(256);
    for (name, value) in &fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_with_and_without_a_body_to_come() {
        for more in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
            let head =
                format!("POST http://a.test/x HTTP/1.1\r\nX-oDD: 1\r\n{more}x-odd: 2\r\n\r\n");
            let fields = 2 + usize::from(!more.is_empty());
            let parts = request(&head.into(), fields).unwrap();
            assert_eq!(parts.uri, "http://a.test/x");
            assert_eq!(parts.headers.get_all("x-odd").iter().count(), 2);
        }
        assert!(request(&Bytes::from_static(b"GET / HTTP/1.1\r\n"), 0).is_none());
    }

    #[test]
    fn heads_as_large_as_they_may_be_are_read() {
        let field = format!("X-Field: {}\r\n", "x".repeat(40));
        let many = field.repeat(1000);
        let head = format!("GET http://a.test/ HTTP/1.1\r\n{many}\r\n");
        assert_eq!(request(&head.into(), 1000).unwrap().headers.len(), 1000);
    }

    #[test]
    fn what_is_written_passes_as_it_is_less_what_is_ours() {
        let written = b"HTTP/1.0 200 Fine\r\nX-oDD:  1\r\nHEARTH-Declined: x\r\nX-Odd: 2\n\n";
        let head = answer(StatusCode::OK, &HeaderMap::new(), Some(written), false);
        assert_eq!(&head[..], b"HTTP/1.0 200 Fine\r\nX-oDD:  1\r\nX-Odd: 2\n\n");
    }
}
