//! First lines and field lines as they are written, and what single fields mean.

use bytes::BufMut;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use crate::spelling::{Spelling, put_title_case};

/// Appends a request line of HTTP/1.1, or of HTTP/1.0 (RFC 9112, 3).
pub fn put_request_line(out: &mut impl BufMut, method: &str, target: &str, version: Version) {
    let version: &[u8] =
        if version == Version::HTTP_10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    for part in [method.as_bytes(), b" ", target.as_bytes(), version] {
        out.put_slice(part);
    }
}

/// Appends a status line of HTTP/1.1 (RFC 9112, 4).
pub fn put_status_line(out: &mut impl BufMut, status: &str, reason: &str) {
    for part in [b"HTTP/1.1 ", status.as_bytes(), b" ", reason.as_bytes(), b"\r\n"] {
        out.put_slice(part);
    }
}

/// Appends a field line.
pub fn put_field(out: &mut impl BufMut, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    for part in [name.as_ref(), b": ", value.as_ref(), b"\r\n"] {
        out.put_slice(part);
    }
}

/// Appends a line for each field, names in lower case.
pub fn put_all(out: &mut impl BufMut, fields: &HeaderMap) {
    for (name, value) in fields {
        put_field(out, name, value);
    }
}

/// Appends a line for each field. Names are spelled as in the head `written`, other names with capitals.
pub fn put_spelled(out: &mut Vec<u8>, fields: &HeaderMap, written: Option<&[u8]>) {
    let mut spelling = written.map(Spelling::of);
    let mut last: Option<&HeaderName> = None;
    for (name, value) in fields {
        let again = last == Some(name);
        last = Some(name);
        match spelling.as_mut().and_then(|spelling| spelling.next(name.as_str(), again)) {
            Some(spelled) => out.extend_from_slice(spelled),
            None => put_title_case(out, name.as_str()),
        }
        put_value(out, value);
    }
}

/// Appends the rest of a field line. A field without a value is written as libcurl writes it.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &HeaderValue) {
    let colon: &[u8] = if value.is_empty() { b":" } else { b": " };
    for part in [colon, value.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Returns the value of `Content-Length` if there is one and all its members are equal (RFC 9112, 6.3, rule 5).
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for number in value.as_bytes().split(|byte| *byte == b',') {
            let number = digits(number.trim_ascii())?;
            if length.is_some_and(|length| length != number) {
                return None;
            }
            length = Some(number);
        }
    }
    length
}

/// Parses a number that has digits only.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns whether a comma-separated list has the word, in any case.
pub(crate) fn has_word(value: &HeaderValue, word: &[u8]) -> bool {
    let mut list = value.as_bytes().split(|byte| *byte == b',');
    list.any(|item| item.trim_ascii().eq_ignore_ascii_case(word))
}

/// Splits a field line at its colon without judging the name: for heads of CGI programs. `None`: the line has no colon.
pub fn lenient_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
}
