//! The head of an answer: where it ends, what it says, how its body is framed (RFC 9112, 4 to 6.3). Sans I/O.
//!
//! Invariants
//! - However the bytes arrive, the same is read.
//! - What two readers could frame in two ways is refused.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use hyper::ext::ReasonPhrase;

/// Fields of an answer, at most: as many as libcurl takes (lib/http.h, `MAX_HTTP_RESP_HEADER_COUNT`).
const FIELDS: usize = 5000;
/// As many cost no allocation.
const MANY: usize = 256;
/// As many cost no large array.
const FEW: usize = 32;
/// The largest head, and the most that may come before the answer's.
pub(super) const LARGEST: usize = 400 << 10;
/// While no more has come, each piece is looked at at once: what is no HTTP is known by its beginning.
const EARLY: usize = 1 << 10;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    /// Where it is not the status's own.
    pub(super) reason: Option<ReasonPhrase>,
    /// As it came.
    pub(super) written: Bytes,
    /// The origin keeps the connection.
    pub(super) keeps: bool,
    /// It has said so, in `Connection: keep-alive`.
    pub(super) announced: bool,
}

/// Why it is no head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("{0}")]
    Syntax(httparse::Error),
    #[error("the status is none")]
    Status,
    #[error("the name or the value of a field is none")]
    Field,
    #[error("the head is too large")]
    TooLarge,
    #[error("too much comes before the answer")]
    NoAnswer,
    #[error("Content-Length is no number, or several")]
    Length,
    #[error("Transfer-Encoding in an answer of HTTP/1.0")]
    Encoding,
}

/// How long the body is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    /// It ends with the connection.
    Close,
}

/// Takes a head from what came, once it is whole. `seen`: so much of it was looked at; 0 for the next head.
pub(super) fn take(input: &mut BytesMut, seen: &mut usize) -> Result<Option<Head>, Malformed> {
    if *seen == 0 {
        let blank = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        input.advance(blank);
    }
    let Some(end) = end(input, *seen) else {
        if input.len() > LARGEST {
            return Err(Malformed::TooLarge);
        }
        if input.len() <= EARLY {
            judge(input)?;
        }
        *seen = input.len();
        return Ok(None);
    };
    *seen = 0;
    if end > LARGEST {
        return Err(Malformed::TooLarge);
    }
    // Its own copy: small, and the buffer stays whole for what comes.
    let written = Bytes::copy_from_slice(input.get(..end).unwrap_or_default());
    let head = read(&written)?;
    input.advance(end);
    Ok(Some(head))
}

/// Behind the empty line; lines may end in a bare LF (RFC 9112, 2.2).
fn end(bytes: &[u8], from: usize) -> Option<usize> {
    // An end may have begun before.
    let mut at = from.saturating_sub(2);
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'\n')? + 1;
        match bytes.get(at..) {
            Some([b'\n', ..]) => return Some(at + 1),
            Some([b'\r', b'\n', ..]) => return Some(at + 2),
            _ => {}
        }
    }
}

/// As servers write it that are older than RFC 9112: a blank before the colon is the client's to take away (5.1).
fn parser() -> httparse::ParserConfig {
    let mut parser = httparse::ParserConfig::default();
    parser.allow_spaces_after_header_name_in_responses(true);
    parser
}

/// Whether it may become a head.
fn judge(bytes: &[u8]) -> Result<(), Malformed> {
    // The shortest field is `a:` and its line's end.
    let mut fields = [const { MaybeUninit::uninit() }; EARLY / 3];
    let mut response = httparse::Response::new(&mut []);
    let mut parser = parser();
    parser.allow_obsolete_multiline_headers_in_responses(true);
    let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    parsed.map(drop).map_err(Malformed::Syntax)
}

fn read(written: &Bytes) -> Result<Head, Malformed> {
    match read_any(written) {
        Err(Malformed::Syntax(httparse::Error::HeaderName)) => match unfolded(written)? {
            Some(unfolded) => read_any(&unfolded),
            None => Err(Malformed::Syntax(httparse::Error::HeaderName)),
        },
        read => read,
    }
}

/// With the lines that go on with their field's value in its line (RFC 9112, 5.2), as long as it was; `None`: there are none.
fn unfolded(written: &[u8]) -> Result<Option<Bytes>, Malformed> {
    let mut unfolded = Vec::with_capacity(written.len());
    // What goes on behind the status line is no field's.
    let (mut field, mut folded) = (None, false);
    for line in written.split_inclusive(|byte| *byte == b'\n') {
        if matches!(line, [b' ' | b'\t', ..]) {
            let field: &[u8] = field.ok_or(Malformed::Field)?;
            // Only a value goes on in the next line, not a name.
            if frames(field) || !field.contains(&b':') {
                return Err(Malformed::Field);
            }
            folded = true;
            // One line's end alone: a bare CR before it stays, and is refused.
            let end = if unfolded.ends_with(b"\r\n") { 2 } else { 1 };
            unfolded.iter_mut().rev().take(end).for_each(|byte| *byte = b' ');
        } else if !unfolded.is_empty() {
            field = Some(line);
        }
        unfolded.extend_from_slice(line);
    }
    Ok(folded.then(|| unfolded.into()))
}

/// Whether a field's line says how long the body is: there may be one way to read it.
fn frames(line: &[u8]) -> bool {
    [&CONTENT_LENGTH, &TRANSFER_ENCODING].iter().any(|name| {
        let name = name.as_str().as_bytes();
        line.get(..name.len()).is_some_and(|line| line.eq_ignore_ascii_case(name))
    })
}

fn read_any(written: &Bytes) -> Result<Head, Malformed> {
    const TOO_MANY: Malformed = Malformed::Syntax(httparse::Error::TooManyHeaders);
    match read_with(written, &mut [const { MaybeUninit::uninit() }; FEW]) {
        Err(TOO_MANY) => {}
        read => return read,
    }
    match read_with(written, &mut [const { MaybeUninit::uninit() }; MANY]) {
        Err(TOO_MANY) => {}
        read => return read,
    }
    let mut fields = Vec::new();
    fields.resize_with(FIELDS, MaybeUninit::uninit);
    read_with(written, &mut fields)
}

fn read_with<'a>(
    written: &'a Bytes,
    fields: &mut [MaybeUninit<httparse::Header<'a>>],
) -> Result<Head, Malformed> {
    let mut response = httparse::Response::new(&mut []);
    let parsed = parser().parse_response_with_uninit_headers(&mut response, written, fields);
    match parsed.map_err(Malformed::Syntax)? {
        httparse::Status::Complete(length) if length == written.len() => {}
        // Both look for the same empty line.
        _ => return Err(Malformed::Syntax(httparse::Error::NewLine)),
    }
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Malformed::Status)?;
    let http11 = response.version == Some(1);
    let mut keeps = http11;
    let mut announced = false;
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_invalid| Malformed::Field)?;
        let value = HeaderValue::from_maybe_shared(written.slice_ref(field.value));
        let value = value.map_err(|_invalid| Malformed::Field)?;
        if (name == CONTENT_LENGTH || name == TRANSFER_ENCODING) && !colon_follows(written, field) {
            return Err(Malformed::Field);
        }
        if name == CONNECTION {
            announced |= has(&value, "keep-alive");
            keeps =
                if keeps { !has(&value, "close") } else { !http11 && has(&value, "keep-alive") };
        }
        headers.append(name, value);
    }
    let reason = response.reason.filter(|reason| Some(*reason) != status.canonical_reason());
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
    let version = if http11 { Version::HTTP_11 } else { Version::HTTP_10 };
    Ok(Head { status, version, headers, reason, written: written.clone(), keeps, announced })
}

/// Whether no blank stands before the colon. `field`: out of `written`.
fn colon_follows(written: &[u8], field: &httparse::Header<'_>) -> bool {
    let from = field.name.as_ptr().addr() - written.as_ptr().addr();
    written.get(from + field.name.len()) == Some(&b':')
}

/// Whether a list has the word.
fn has(value: &HeaderValue, word: &str) -> bool {
    let list = value.to_str().unwrap_or_default();
    list.split(',').any(|item| item.trim().eq_ignore_ascii_case(word))
}

impl Head {
    /// How its body is framed (RFC 9112, 6.3). Not for interim answers.
    pub(super) fn framing(&self, method: &Method) -> Result<Framing, Malformed> {
        if *method == Method::HEAD || matches!(self.status.as_u16(), 204 | 304) {
            return Ok(Framing::Length(0));
        }
        if let Some(last) = self.headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            if self.version == Version::HTTP_10 {
                return Err(Malformed::Encoding);
            }
            let last = last.to_str().unwrap_or_default().rsplit(',').next();
            let chunked = last.is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"));
            return Ok(if chunked { Framing::Chunked } else { Framing::Close });
        }
        if !self.headers.contains_key(CONTENT_LENGTH) {
            return Ok(Framing::Close);
        }
        let length = length(&self.headers).ok_or(Malformed::Length)?;
        // As hyper has it: the two greatest numbers are no lengths.
        if length >= u64::MAX - 1 { Err(Malformed::Length) } else { Ok(Framing::Length(length)) }
    }
}

/// What `Content-Length` says, where all of it says the same (RFC 9112, 6.3, 5.).
pub(crate) fn length(headers: &HeaderMap) -> Option<u64> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for number in value.to_str().ok()?.split(',') {
            let number = number.trim();
            // `parse` would take a sign.
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let number: u64 = number.parse().ok()?;
            if length.is_some_and(|length| length != number) {
                return None;
            }
            length = Some(number);
        }
    }
    length
}
