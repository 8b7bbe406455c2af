//! The body of an answer out of what came: of a length, in chunks (RFC 9112, 7.1), or until the end. Sans I/O.
//!
//! Invariants
//! - What belongs to a body is known from its head and its own bytes alone: of what stands behind it nothing is taken.
//! - Lines of chunks end in CRLF, extensions and trailers are bounded: 16 KiB each.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::head::Framing;

/// Smaller pieces are copied out, so that the buffer stays; of larger ones it is given away.
const COPIED: usize = 4 << 10;
/// Extensions of all chunks together, and trailers, in bytes; hyper's.
const LIMIT: usize = 16 << 10;
/// Trailers, at most; hyper's.
const TRAILERS: usize = 100;

/// The chunks of a body are none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Malformed;

/// What is next.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// Nothing: that was the end.
    End,
    /// More has to come first.
    More,
}

/// A body that is being read.
#[derive(Debug)]
pub(super) enum Body {
    /// So much is to come.
    Length(u64),
    Chunked(Chunks),
    /// Until the connection's end.
    Close,
    Over,
}

#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Of this chunk.
    size: u64,
    extensions: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum At {
    /// The first digit of a size.
    #[default]
    Start,
    Digits,
    Blanks,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The line behind the last chunk: empty, or the first trailer's.
    Trailers,
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Over,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunks::default()),
            Framing::Close => Self::Close,
        }
    }

    /// It was read to its end.
    pub(super) fn over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// So much is to come, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Over => Some(0),
            Self::Chunked(_) | Self::Close => None,
        }
    }

    /// Takes the next piece of it.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        let piece = match self {
            Self::Over => return Ok(Piece::End),
            Self::Close | Self::Length(_) if input.is_empty() => return Ok(Piece::More),
            Self::Close => return Ok(Piece::Data(piece(input, u64::MAX))),
            Self::Length(left) => {
                let data = piece(input, *left);
                *left -= data.len() as u64;
                if *left == 0 {
                    *self = Self::Over;
                }
                return Ok(Piece::Data(data));
            }
            Self::Chunked(chunks) => chunks.take(input)?,
        };
        if matches!(piece, Piece::End | Piece::Trailers(_)) {
            *self = Self::Over;
        }
        Ok(piece)
    }

    /// The connection has ended. False: in the middle of it.
    pub(super) fn end(&mut self) -> bool {
        let whole = matches!(self, Self::Close | Self::Over);
        *self = Self::Over;
        whole
    }
}

/// At most so much of it.
fn piece(input: &mut BytesMut, most: u64) -> Bytes {
    let length = usize::try_from(most).map_or(input.len(), |most| most.min(input.len()));
    if length > COPIED {
        return input.split_to(length).freeze();
    }
    let copy = Bytes::copy_from_slice(input.get(..length).unwrap_or_default());
    input.advance(length);
    copy
}

impl Chunks {
    fn take(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            let Some(&byte) = input.first() else { return Ok(Piece::More) };
            match self.at {
                At::Data => {
                    let data = piece(input, self.size);
                    self.size -= data.len() as u64;
                    if self.size == 0 {
                        self.at = At::DataCr;
                    }
                    return Ok(Piece::Data(data));
                }
                At::Trailers => return self.end(input),
                _ => {
                    self.at = self.frame(byte)?;
                    input.advance(1);
                }
            }
        }
    }

    /// One byte between data.
    fn frame(&mut self, byte: u8) -> Result<At, Malformed> {
        let next = match (self.at, byte) {
            (At::Start | At::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                let size =
                    self.size.checked_mul(16).and_then(|size| size.checked_add(digit.into()));
                self.size = size.ok_or(Malformed)?;
                At::Digits
            }
            (At::Digits | At::Blanks, b' ' | b'\t') => At::Blanks,
            (At::Digits | At::Blanks, b';') => At::Extension,
            (At::Digits | At::Blanks | At::Extension, b'\r') => At::SizeLf,
            // Who overlooks that a line has no CR sees another chunk.
            (At::Extension, b'\n') => return Err(Malformed),
            (At::Extension, _) => {
                self.extensions += 1;
                if self.extensions >= LIMIT {
                    return Err(Malformed);
                }
                At::Extension
            }
            (At::SizeLf, b'\n') if self.size == 0 => At::Trailers,
            (At::SizeLf, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Start,
            _ => return Err(Malformed),
        };
        Ok(next)
    }

    /// Behind the last chunk.
    fn end(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        while let Some(&byte) = input.first() {
            // A CR ends a line and stands nowhere else; a line that is empty ends the trailers.
            match (self.trailers.last(), byte) {
                (Some(b'\r'), b'\n') => {}
                (Some(b'\r'), _) => return Err(Malformed),
                _ => {}
            }
            input.advance(1);
            self.trailers.push(byte);
            if self.trailers == b"\r\n" {
                return Ok(Piece::End);
            }
            if self.trailers.ends_with(b"\r\n\r\n") {
                return trailers(&self.trailers).map(Piece::Trailers);
            }
            if self.trailers.len() >= LIMIT {
                return Err(Malformed);
            }
        }
        Ok(Piece::More)
    }
}

fn trailers(bytes: &[u8]) -> Result<HeaderMap, Malformed> {
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS];
    let parsed = httparse::parse_headers(bytes, &mut fields);
    let Ok(httparse::Status::Complete((length, fields))) = parsed else { return Err(Malformed) };
    if length != bytes.len() {
        return Err(Malformed);
    }
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else { return Err(Malformed) };
        trailers.append(name, value);
    }
    Ok(trailers)
}
