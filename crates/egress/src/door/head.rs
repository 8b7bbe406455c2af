//! Is this the head of one request, and of one only? Stricter than RFC 9112 has to be: whoever reads it after us must read the same.
//!
//! Sans I/O. What passes here is parsed again by hyper, which forgives more.
//!
//! Invariants
//! - Lines end in CRLF; no CR, LF or NUL is anywhere else, and no field goes over several lines.
//! - A body is framed in one way, or there is none.

/// Why a head is refused.
pub(crate) type Malformed = &'static str;

/// What is known of a head that passed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Facts<'a> {
    /// The request target as it was written.
    pub(crate) target: &'a str,
    /// How many fields there are.
    pub(crate) fields: usize,
}

/// Where the head ends, its empty line included. `from`: so many bytes were looked at before.
pub(crate) fn end(bytes: &[u8], from: usize) -> Result<Option<usize>, Malformed> {
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

/// Looks at a whole head, its empty line included.
pub(crate) fn check(head: &[u8]) -> Result<Facts<'_>, Malformed> {
    if !head.ends_with(b"\r\n\r\n") {
        return Err("the head does not end");
    }
    // Of what is left one CR more is a bare one.
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
            // hyper would answer one that it cannot count by itself.
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

/// `METHOD SP target SP HTTP/1.1`; returns the target.
fn request_line(line: &[u8]) -> Result<&str, Malformed> {
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

/// Name and value, without the white space around the value.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
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

/// RFC 9110, 5.6.2.
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

    fn checked(head: &str) -> Result<usize, Malformed> {
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
    fn whatever_has_two_meanings_is_refused() {
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
            let refused = end(head.as_bytes(), 0).and_then(|_| checked(head).map(drop));
            assert!(refused.is_err(), "{head:?}");
        }
    }

    #[test]
    fn the_end_is_found_wherever_the_pieces_begin() {
        let bytes = b"GET / HTTP/1.1\r\nA: b\r\n\r\nbody";
        for from in 0..20 {
            assert_eq!(end(bytes, from), Ok(Some(24)));
        }
        assert_eq!(end(&bytes[..23], 0), Ok(None));
        assert!(end(b"GET / HTTP/1.1\n\n", 0).is_err());
        assert!(end(b"GET / HTTP/1.1\r\n\n", 0).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_pass_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _judged = (end(&bytes, 0), check(&bytes).is_ok());
        }

        #[test]
        fn what_passes_has_no_line_that_anybody_could_read_otherwise(
            text in "(GET|POST) [/:a-z ]{1,5} HTTP/1.1(\r\n[A-Za-z :\r\n\t]{0,12}){0,4}\r\n\r\n"
        ) {
            if let Ok(Some(at)) = end(text.as_bytes(), 0)
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
