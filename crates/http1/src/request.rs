//! The head of a request (RFC 9112, 3 and 5): parsed, and checked for having one meaning only.
//!
//! [`check`] is stricter than RFC 9112: a head that passes is read by every later reader in the same way.
//!
//! Invariants of a head that passes [`check`]
//! - Lines end in CRLF; there is no other CR, LF or NUL, and no field continues in a second line.
//! - The body is framed in one way, or there is none.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use crate::response::Framing;

pub use httparse::{EMPTY_HEADER as EMPTY_FIELD, Header as Field};

/// Heads with at most this number of fields are read without an allocation.
const FEW: usize = 32;

/// A request head whose parts point into the bytes it was parsed from.
#[derive(Debug)]
pub struct RequestHead<'f, 'b> {
    /// The method.
    pub method: &'b str,
    /// The request target.
    pub target: &'b str,
    /// The minor version: 1 for HTTP/1.1.
    pub minor: u8,
    /// The fields, in order.
    pub fields: &'f [Field<'b>],
    /// Length of the head in bytes.
    pub length: usize,
}

impl<'b> RequestHead<'_, 'b> {
    /// Returns the first value of a field if it is text.
    pub fn field(&self, name: &str) -> Option<&'b str> {
        let field = self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(field.value).ok()
    }
}

impl RequestHead<'_, '_> {
    /// Returns how the body is framed (RFC 9112, 6.3). `None`: the fields are invalid or contradict each other.
    pub fn framing(&self) -> Option<Framing> {
        let mut framing = None;
        for field in self.fields {
            let value = str::from_utf8(field.value).ok()?.trim();
            let stated = if field.name.eq_ignore_ascii_case("transfer-encoding") {
                value.eq_ignore_ascii_case("chunked").then_some(Framing::Chunked)?
            } else if field.name.eq_ignore_ascii_case("content-length") {
                // `parse` would accept a sign.
                let digits = value.bytes().all(|byte| byte.is_ascii_digit());
                Framing::Length(digits.then(|| value.parse().ok())??)
            } else {
                continue;
            };
            if framing.is_some_and(|framing| framing != stated) {
                return None;
            }
            framing = Some(stated);
        }
        Some(framing.unwrap_or(Framing::Length(0)))
    }
}

/// Parses the head at the beginning of `bytes`. `None`: more has to arrive first. `fields`: room for as many fields as are accepted.
pub fn parse<'f, 'b>(
    bytes: &'b [u8],
    fields: &'f mut [Field<'b>],
) -> Result<Option<RequestHead<'f, 'b>>, httparse::Error> {
    let mut request = httparse::Request::new(fields);
    let httparse::Status::Complete(length) = request.parse(bytes)? else { return Ok(None) };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Ok(None);
    };
    Ok(Some(RequestHead { method, target, minor, fields: request.headers, length }))
}

/// Converts a head that [`check`] has accepted, with its number of fields. The values share the head's bytes.
pub fn to_parts(head: &Bytes, fields: usize) -> Option<Parts> {
    let mut few = [EMPTY_FIELD; FEW];
    let mut many = Vec::new();
    let found = if fields <= FEW {
        &mut few[..]
    } else {
        many.resize(fields, EMPTY_FIELD);
        &mut many[..]
    };
    let read = parse(head, found).ok()??;
    if read.length != head.len() {
        return None;
    }
    let mut parts = Request::new(()).into_parts().0;
    parts.method = Method::from_bytes(read.method.as_bytes()).ok()?;
    parts.uri = Uri::from_maybe_shared(head.slice_ref(read.target.as_bytes())).ok()?;
    parts.headers.reserve(read.fields.len());
    for field in read.fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value)).ok()?;
        parts.headers.append(name, value);
    }
    Some(parts)
}

/// Why a head is rejected.
type Rejected = &'static str;

/// The result of [`check`].
#[derive(Debug, Eq, PartialEq)]
pub struct Facts<'a> {
    /// The request target as it was written.
    pub target: &'a str,
    /// The number of fields.
    pub fields: usize,
}

/// Returns where the head ends, its empty line included. Rejects a line without CR. `from`: how many bytes an earlier call has searched.
pub fn strict_end(bytes: &[u8], from: usize) -> Result<Option<usize>, Rejected> {
    for at in from..bytes.len() {
        if bytes[at] == b'\n' {
            match bytes[..at] {
                [.., b'\r', b'\n', b'\r'] => return Ok(Some(at + 1)),
                [.., b'\r'] => {}
                _ => return Err("a line of the head ends without CR"),
            }
        }
    }
    Ok(None)
}

/// Checks a complete head, its empty line included.
pub fn check(head: &[u8]) -> Result<Facts<'_>, Rejected> {
    if !head.ends_with(b"\r\n\r\n") {
        return Err("the head does not end");
    }
    // A further CR in what is left is a bare one.
    let mut lines = head[..head.len() - 2]
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r\n").unwrap_or(line));
    let target = request_line(lines.next().unwrap_or_default())?;
    let (mut fields, mut lengths, mut encodings, mut hosts) = (0, 0, 0, 0);
    for line in lines {
        let (name, value) = field(line)?;
        fields += 1;
        if name.eq_ignore_ascii_case(b"content-length") {
            lengths += 1;
            if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
                return Err("Content-Length is no number");
            }
            // Readers count in signed numbers, too.
            if str::from_utf8(value).ok().and_then(|digits| digits.parse::<i64>().ok()).is_none() {
                return Err("Content-Length is beyond all bounds");
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            encodings += 1;
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err("Transfer-Encoding is not `chunked`");
            }
        } else if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        }
    }
    match (lengths, encodings, hosts) {
        (1.., 1.., _) => Err("both Content-Length and Transfer-Encoding"),
        (2.., ..) => Err("more than one Content-Length"),
        (_, 2.., _) => Err("more than one Transfer-Encoding"),
        (.., 2..) => Err("more than one Host"),
        _ => Ok(Facts { target, fields }),
    }
}

/// Checks `METHOD SP target SP HTTP/1.1` and returns the target.
fn request_line(line: &[u8]) -> Result<&str, Rejected> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("the request line has not three parts");
    };
    if version != b"HTTP/1.1" {
        return Err("the version is not HTTP/1.1");
    }
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err("the method is no token");
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err("the target is empty or not ASCII");
    }
    Ok(str::from_utf8(target).expect("it is ASCII"))
}

/// Splits a field line into name and value, without white space around the value.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Rejected> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Err("a field goes over several lines");
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a field has no colon")?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err("the name of a field is no token");
    }
    if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
        return Err("the value of a field holds a control character");
    }
    Ok((name, value.trim_ascii()))
}

/// Returns whether a byte may be part of a token (RFC 9110, 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(head: &str) -> Result<usize, Rejected> {
        check(head.as_bytes()).map(|facts| facts.fields)
    }

    #[test]
    fn requests_pass() {
        for (head, fields) in [
            ("GET http://a/ HTTP/1.1\r\n\r\n", 0),
            ("POST / HTTP/1.1\r\nHost: hearth\r\nX:\r\nContent-Length: 0\r\n\r\n", 3),
            ("PURGE /%20 HTTP/1.1\r\nTransfer-Encoding:\tChunked \r\nX: \u{fc}\r\n\r\n", 2),
        ] {
            assert_eq!(checked(head), Ok(fields), "{head:?}");
        }
        assert_eq!(check(b"GET /a?b HTTP/1.1\r\n\r\n").unwrap().target, "/a?b");
    }

    #[test]
    fn a_head_with_two_meanings_is_rejected() {
        for head in [
            "GET / HTTP/1.0\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 \r\n\r\n",
            "GET /\tx HTTP/1.1\r\n\r\n",
            "G(T / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\nX: c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\r\n\r\n",
            "GET / HTTP/1.1\r\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\0\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\n: b\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let refused = strict_end(head.as_bytes(), 0).and_then(|_| checked(head).map(drop));
            assert!(refused.is_err(), "{head:?}");
        }
    }

    #[test]
    fn the_end_is_found_wherever_an_earlier_search_stopped() {
        let bytes = b"GET / HTTP/1.1\r\nA: b\r\n\r\nbody";
        for from in 0..20 {
            assert_eq!(strict_end(bytes, from), Ok(Some(24)));
        }
        assert_eq!(strict_end(&bytes[..23], 0), Ok(None));
        assert!(strict_end(b"GET / HTTP/1.1\n\n", 0).is_err());
        assert!(strict_end(b"GET / HTTP/1.1\r\n\n", 0).is_err());
    }

    #[test]
    fn a_request_is_read_with_and_without_a_body_to_come() {
        for more in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
            let head =
                format!("POST http://a.test/x HTTP/1.1\r\nX-oDD: 1\r\n{more}x-odd: 2\r\n\r\n");
            let fields = 2 + usize::from(!more.is_empty());
            let parts = to_parts(&head.into(), fields).unwrap();
            assert_eq!(parts.uri, "http://a.test/x");
            assert_eq!(parts.headers.get_all("x-odd").iter().count(), 2);
        }
        assert!(to_parts(&Bytes::from_static(b"GET / HTTP/1.1\r\n"), 0).is_none());
    }

    #[test]
    fn heads_at_the_size_limit_are_read() {
        let field = format!("X-Field: {}\r\n", "x".repeat(40));
        let many = field.repeat(1000);
        let head = format!("GET http://a.test/ HTTP/1.1\r\n{many}\r\n");
        assert_eq!(to_parts(&head.into(), 1000).unwrap().headers.len(), 1000);
    }

    #[test]
    fn a_head_is_parsed_once_it_is_complete() {
        let bytes = b"GET /a?b HTTP/1.0\r\nHost: a\r\nX: \xff\r\n\r\nmore";
        for cut in 0..bytes.len() - 4 {
            assert!(parse(&bytes[..cut], &mut [EMPTY_FIELD; 2]).unwrap().is_none(), "{cut}");
        }
        let mut fields = [EMPTY_FIELD; 2];
        let head = parse(bytes, &mut fields).unwrap().unwrap();
        assert_eq!((head.method, head.target, head.minor), ("GET", "/a?b", 0));
        assert_eq!((head.field("hOST"), head.field("x"), head.fields.len()), (Some("a"), None, 2));
        assert_eq!(head.length, bytes.len() - 4);
        assert!(parse(bytes, &mut [EMPTY_FIELD; 1]).is_err(), "more fields than accepted");
    }

    #[test]
    fn a_body_is_framed_in_one_way_or_not_at_all() {
        for (fields, expected) in [
            ("", Some(Framing::Length(0))),
            ("Content-Length: 7\r\n", Some(Framing::Length(7))),
            ("Content-Length: 7\r\ncontent-length: 7\r\n", Some(Framing::Length(7))),
            ("Transfer-Encoding: Chunked\r\n", Some(Framing::Chunked)),
            ("Transfer-Encoding: gzip\r\n", None),
            ("Content-Length: +7\r\n", None),
            ("Content-Length: 7\r\nContent-Length: 8\r\n", None),
            ("Content-Length: 7\r\nTransfer-Encoding: chunked\r\n", None),
        ] {
            let text = format!("POST / HTTP/1.1\r\n{fields}\r\n");
            let mut found = [EMPTY_FIELD; 2];
            let head = parse(text.as_bytes(), &mut found).unwrap().unwrap();
            assert_eq!(head.framing(), expected, "{fields:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_pass_or_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _checked = (strict_end(&bytes, 0), check(&bytes).is_ok());
        }

        #[test]
        fn an_accepted_head_has_no_ambiguous_line(
            text in "(GET|POST) [/:a-z ]{1,5} HTTP/1.1(\r\n[A-Za-z :\r\n\t]{0,12}){0,4}\r\n\r\n"
        ) {
            if let Ok(Some(at)) = strict_end(text.as_bytes(), 0)
                && let Ok(facts) = check(&text.as_bytes()[..at])
            {
                let head = text.get(..at).unwrap();
                prop_assert_eq!(head.matches('\r').count(), head.matches("\r\n").count());
                prop_assert_eq!(head.matches("\r\n").count(), facts.fields + 2);
                prop_assert!(!head.contains("\r\n ") && !head.contains("\r\n\t"));
            }
        }
    }
}
