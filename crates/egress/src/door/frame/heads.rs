//! Heads between frames and `http`: a request's is read by hyper, so that both doors read the same; an answer's is the origin's own where
//! it is known.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;

use super::super::fields as passing;
use super::super::prepare::{CHEAP_FIELDS, HEAD};

/// A head that `head::check` has passed. hyper alone keeps the case of names so that its client can write them again.
pub(super) fn request(head: &[u8], fields: usize) -> Option<Parts> {
    let read = Mutex::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        *read.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.into_parts().0);
        pending::<Result<Response<Empty<Bytes>>, Infallible>>()
    });
    let mut builder = Builder::new();
    // hyper wants room for more than the head that it takes.
    builder.preserve_header_case(true).header_read_timeout(None).max_buf_size(HEAD + (8 << 10));
    if fields > CHEAP_FIELDS {
        builder.max_headers(fields);
    }
    {
        let mut connection = pin!(builder.serve_connection(Memory(head), service));
        let _under_way = connection.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    read.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A connection of which nothing but these bytes will ever be heard.
struct Memory<'a>(&'a [u8]);

impl hyper::rt::Read for Memory<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let (now, later) = self.0.split_at(self.0.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.0 = later;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Memory<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
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
            let parts = request(head.as_bytes(), 3).unwrap();
            assert_eq!(parts.uri, "http://a.test/x");
            assert_eq!(parts.headers.get_all("x-odd").iter().count(), 2);
        }
        assert!(request(b"GET / HTTP/1.1\r\n", 0).is_none());
    }

    #[test]
    fn heads_as_large_as_they_may_be_are_read() {
        let field = format!("X-Field: {}\r\n", "x".repeat(40));
        let many = field.repeat(1000);
        let head = format!("GET http://a.test/ HTTP/1.1\r\n{many}\r\n");
        assert_eq!(request(head.as_bytes(), 1000).unwrap().headers.len(), 1000);
    }

    #[test]
    fn what_is_written_passes_as_it_is_less_what_is_ours() {
        let written = b"HTTP/1.0 200 Fine\r\nX-oDD:  1\r\nHEARTH-Declined: x\r\nX-Odd: 2\n\n";
        let head = answer(StatusCode::OK, &HeaderMap::new(), Some(written), false);
        assert_eq!(&head[..], b"HTTP/1.0 200 Fine\r\nX-oDD:  1\r\nX-Odd: 2\n\n");
    }
}
