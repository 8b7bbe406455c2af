//! Heads of responses for frames: the origin's own bytes, if they are known.

use ::http1::{put_all, put_status_line};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode};

use super::super::fields as passing;

/// Returns the head for the caller: the received one without Hearth's fields, or one built from its fields.
pub(in crate::listener) fn answer(
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
        for part in [b"HTTP/2 ", status.as_str().as_bytes(), b" \r\n"] {
            head.extend_from_slice(part);
        }
    } else {
        let reason = status.canonical_reason().unwrap_or_default();
        put_status_line(&mut head, status.as_str(), reason);
    }
    put_fields(&mut head, fields);
    head.extend_from_slice(b"\r\n");
    head
}

/// Returns the field lines.
pub(super) fn fields(fields: &HeaderMap) -> BytesMut {
    let mut lines = BytesMut::with_capacity(256);
    put_fields(&mut lines, fields);
    lines
}

fn put_fields(lines: &mut BytesMut, fields: &HeaderMap) {
    if passing::all_pass(fields) {
        put_all(lines, fields);
    } else {
        put_all(lines, &passing::of_answer(fields.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_pass_unchanged_without_broker_fields() {
        let written = b"HTTP/1.0 200 Fine\r\nX-oDD:  1\r\nHEARTH-Declined: x\r\nX-Odd: 2\n\n";
        let head = answer(StatusCode::OK, &HeaderMap::new(), Some(written), false);
        assert_eq!(&head[..], b"HTTP/1.0 200 Fine\r\nX-oDD:  1\r\nX-Odd: 2\n\n");
    }
}
