//! The head of a response: where it ends, what it says, how its body is framed (RFC 9112, 4 to 6.3).
//!
//! Invariants
//! - However the bytes arrive, the same head is read.
//! - A head that two readers could frame in two ways is rejected.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

use crate::fields::{content_length, has_word};
use crate::head_end::head_end;
use crate::shared;

/// Up to this number of fields, reading a head allocates no list of them.
const MANY: usize = 256;
/// Up to this number of fields, reading a head fills no large array.
const FEW: usize = 32;
/// A head with at most this number of bytes is checked after each piece: what is not HTTP is recognised by its beginning.
const EARLY: usize = 1 << 10;

/// The largest head that is accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeadLimits {
    /// In bytes, the empty line included.
    pub bytes: usize,
    /// Number of fields.
    pub fields: usize,
}

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// HTTP/1.1 or HTTP/1.0.
    pub version: Version,
    /// The fields, lines that continue a value joined (RFC 9112, 5.2).
    pub headers: HeaderMap,
    /// The reason phrase if it is not the status's own.
    pub reason: Option<Bytes>,
    /// The head's bytes as they arrived.
    pub written: Bytes,
    /// The bytes behind the head that share its memory. They are also still in the buffer.
    pub behind: Bytes,
    /// The connection persists after this response (RFC 9112, 9.3).
    pub keep_alive: bool,
    /// The peer has sent `Connection: keep-alive`.
    pub announces_keep_alive: bool,
    /// Whether there is a `Transfer-Encoding`.
    encoded: bool,
    /// Whether there is a `Content-Length`.
    measured: bool,
}

/// Why bytes are not the head of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadHead {
    /// The syntax is wrong.
    #[error("{0}")]
    Syntax(httparse::Error),
    /// The status is not a status code.
    #[error("invalid status code")]
    Status,
    /// The name or the value of a field is invalid.
    #[error("invalid name or value of a field")]
    Field,
    /// The head is larger than its limit.
    #[error("the head is too large")]
    TooLarge,
    /// Interim responses and empty lines exceed the limit.
    #[error("too much comes before the answer")]
    NoAnswer,
    /// `Content-Length` is not a number, or has different values.
    #[error("Content-Length is no number, or several")]
    Length,
    /// An HTTP/1.0 response has `Transfer-Encoding` (RFC 9112, 6.1).
    #[error("Transfer-Encoding in an answer of HTTP/1.0")]
    Encoding,
}

/// How the end of a response's body is found (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// After this number of bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// Reads heads of responses from a buffer.
#[derive(Debug)]
pub struct ResponseReader {
    limits: HeadLimits,
    /// Number of bytes of the current head that were searched for its end.
    seen: usize,
}

impl ResponseReader {
    /// Creates a reader with limits for each head.
    pub fn new(limits: HeadLimits) -> Self {
        Self { limits, seen: 0 }
    }

    /// Takes a head from the buffer. `None`: more has to arrive first.
    pub fn read(&mut self, input: &mut BytesMut) -> Result<Option<ResponseHead>, BadHead> {
        if self.seen == 0 {
            let blank = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            input.advance(blank);
        }
        let Some(end) = head_end(input, self.seen) else {
            if input.len() > self.limits.bytes {
                return Err(BadHead::TooLarge);
            }
            if input.len() <= EARLY {
                check_beginning(input)?;
            }
            self.seen = input.len();
            return Ok(None);
        };
        self.seen = 0;
        if end > self.limits.bytes {
            return Err(BadHead::TooLarge);
        }
        // A copy of its own: heads are small, and the buffer stays whole for what follows. A small body is part of the copy.
        let together = if input.len() <= shared::MOST { input.len() } else { end };
        let mut written = shared::copied(input.get(..together).unwrap_or_default());
        let behind = written.split_off(end);
        let head = read(&written, self.limits.fields)?;
        input.advance(end);
        Ok(Some(ResponseHead { behind, ..head }))
    }
}

/// Accepts a blank before the colon, as servers older than RFC 9112 write it: a client removes it (5.1).
fn parser() -> httparse::ParserConfig {
    let mut parser = httparse::ParserConfig::default();
    parser.allow_spaces_after_header_name_in_responses(true);
    parser
}

/// Rejects bytes that no more bytes can make a head.
fn check_beginning(bytes: &[u8]) -> Result<(), BadHead> {
    // The shortest field is `a:` and its line's end.
    let mut fields = [const { MaybeUninit::uninit() }; EARLY / 3];
    let mut response = httparse::Response::new(&mut []);
    let mut parser = parser();
    parser.allow_obsolete_multiline_headers_in_responses(true);
    let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    parsed.map(drop).map_err(BadHead::Syntax)
}

fn read(written: &Bytes, most: usize) -> Result<ResponseHead, BadHead> {
    match read_any(written, most) {
        Err(BadHead::Syntax(httparse::Error::HeaderName)) => match unfolded(written)? {
            Some(unfolded) => read_any(&unfolded, most),
            None => Err(BadHead::Syntax(httparse::Error::HeaderName)),
        },
        read => read,
    }
}

/// Joins lines that continue a value with the line before (RFC 9112, 5.2); the length stays. `None`: there are no such lines.
fn unfolded(written: &[u8]) -> Result<Option<Bytes>, BadHead> {
    let mut unfolded = Vec::with_capacity(written.len());
    // A line that continues the status line belongs to no field.
    let (mut field, mut folded) = (None, false);
    for line in written.split_inclusive(|byte| *byte == b'\n') {
        if matches!(line, [b' ' | b'\t', ..]) {
            let field: &[u8] = field.ok_or(BadHead::Field)?;
            // A value may continue in the next line, a name may not.
            if frames(field) || !field.contains(&b':') {
                return Err(BadHead::Field);
            }
            folded = true;
            // One line end only: a bare CR before it stays and is rejected.
            let end = if unfolded.ends_with(b"\r\n") { 2 } else { 1 };
            unfolded.iter_mut().rev().take(end).for_each(|byte| *byte = b' ');
        } else if !unfolded.is_empty() {
            field = Some(line);
        }
        unfolded.extend_from_slice(line);
    }
    Ok(folded.then(|| unfolded.into()))
}

/// Returns whether a field line says how long the body is. Such a line must have only one reading.
fn frames(line: &[u8]) -> bool {
    [&CONTENT_LENGTH, &TRANSFER_ENCODING].iter().any(|name| {
        let name = name.as_str().as_bytes();
        line.get(..name.len()).is_some_and(|line| line.eq_ignore_ascii_case(name))
    })
}

fn read_any(written: &Bytes, most: usize) -> Result<ResponseHead, BadHead> {
    const TOO_MANY: BadHead = BadHead::Syntax(httparse::Error::TooManyHeaders);
    let mut few = [const { MaybeUninit::uninit() }; FEW];
    match read_with(written, &mut few[..most.min(FEW)]) {
        Err(TOO_MANY) if most > FEW => {}
        read => return read,
    }
    let mut many = [const { MaybeUninit::uninit() }; MANY];
    match read_with(written, &mut many[..most.min(MANY)]) {
        Err(TOO_MANY) if most > MANY => {}
        read => return read,
    }
    let mut fields = Vec::new();
    fields.resize_with(most, MaybeUninit::uninit);
    read_with(written, &mut fields)
}

fn read_with<'a>(
    written: &'a Bytes,
    fields: &mut [MaybeUninit<httparse::Header<'a>>],
) -> Result<ResponseHead, BadHead> {
    let mut response = httparse::Response::new(&mut []);
    let parsed = parser().parse_response_with_uninit_headers(&mut response, written, fields);
    match parsed.map_err(BadHead::Syntax)? {
        httparse::Status::Complete(length) if length == written.len() => {}
        // Both search for the same empty line.
        _ => return Err(BadHead::Syntax(httparse::Error::NewLine)),
    }
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(BadHead::Status)?;
    let http11 = response.version == Some(1);
    let mut keep_alive = http11;
    let mut announces_keep_alive = false;
    let (mut encoded, mut measured) = (false, false);
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_invalid| BadHead::Field)?;
        let value = HeaderValue::from_maybe_shared(written.slice_ref(field.value));
        let value = value.map_err(|_invalid| BadHead::Field)?;
        let (measures, encodes) = (name == CONTENT_LENGTH, name == TRANSFER_ENCODING);
        if (measures || encodes) && !colon_follows(written, field) {
            return Err(BadHead::Field);
        }
        measured |= measures;
        encoded |= encodes;
        if name == CONNECTION {
            let announces = has_word(&value, b"keep-alive");
            announces_keep_alive |= announces;
            keep_alive =
                if keep_alive { !has_word(&value, b"close") } else { !http11 && announces };
        }
        headers.append(name, value);
    }
    let reason = response.reason.filter(|reason| Some(*reason) != status.canonical_reason());
    let reason = reason.map(|reason| written.slice_ref(reason.as_bytes()));
    let version = if http11 { Version::HTTP_11 } else { Version::HTTP_10 };
    Ok(ResponseHead {
        status,
        version,
        headers,
        reason,
        written: written.clone(),
        behind: Bytes::new(),
        keep_alive,
        announces_keep_alive,
        encoded,
        measured,
    })
}

/// Returns whether the colon follows the name directly. `field` points into `written`.
fn colon_follows(written: &[u8], field: &httparse::Header<'_>) -> bool {
    let from = field.name.as_ptr().addr() - written.as_ptr().addr();
    written.get(from + field.name.len()) == Some(&b':')
}

impl ResponseHead {
    /// Returns whether both `Transfer-Encoding` and `Content-Length` say how the body is framed.
    pub fn is_framed_twice(&self) -> bool {
        self.encoded && self.measured
    }

    /// Returns how the body is framed (RFC 9112, 6.3). Not for interim responses, which have no body.
    pub fn framing(&self, method: &Method) -> Result<Framing, BadHead> {
        if *method == Method::HEAD || matches!(self.status.as_u16(), 204 | 304) {
            return Ok(Framing::Length(0));
        }
        if self.encoded
            && let Some(last) = self.headers.get_all(TRANSFER_ENCODING).iter().next_back()
        {
            if self.version == Version::HTTP_10 {
                return Err(BadHead::Encoding);
            }
            let last = last.to_str().unwrap_or_default().rsplit(',').next();
            let chunked = last.is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"));
            return Ok(if chunked { Framing::Chunked } else { Framing::Close });
        }
        if !self.measured {
            return Ok(Framing::Close);
        }
        let length = content_length(&self.headers).ok_or(BadHead::Length)?;
        // As in hyper: the two greatest numbers are not lengths.
        if length >= u64::MAX - 1 { Err(BadHead::Length) } else { Ok(Framing::Length(length)) }
    }
}

/// Reads a status code and the reason phrase behind it: of a status line, or of CGI's `Status` field.
pub fn parse_status(text: &[u8]) -> Option<(StatusCode, &[u8])> {
    let text = text.trim_ascii();
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (code, reason) = text.split_at(end);
    Some((StatusCode::from_bytes(code).ok()?, reason.trim_ascii()))
}
