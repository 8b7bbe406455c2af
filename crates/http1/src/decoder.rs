//! Bodies as they are read: with a length, in chunks (RFC 9112, 7.1), or until the connection ends.
//!
//! Invariants
//! - No byte behind the body's end is taken.
//! - Lines of the chunked coding end in CRLF; extensions and trailers are limited to 16 KiB each.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::response::Framing;

/// Pieces up to this size are copied, so that the buffer can be reused; larger pieces take their part of the buffer with them.
const COPIED: usize = 4 << 10;
/// Limit for the extensions of all chunks, and for the trailers, in bytes; the same as in hyper.
const LIMIT: usize = 16 << 10;
/// Limit for the number of trailers; the same as in hyper.
const TRAILERS: usize = 100;

/// The chunked coding of a body is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("malformed chunk")]
pub struct BadChunk;

/// The next part of a body.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Bytes of the body.
    Data(Bytes),
    /// Trailer fields; the body has ended.
    Trailers(HeaderMap),
    /// The body has ended.
    End,
    /// More has to arrive first.
    More,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Decoder(State);

#[derive(Debug)]
enum State {
    /// This number of bytes is still to come.
    Length(u64),
    Chunked(Chunks),
    /// The body ends with the connection.
    Close,
    Over,
}

#[derive(Debug, Default)]
struct Chunks {
    at: At,
    /// Bytes of the current chunk that are still to come.
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
    /// The line behind the last chunk: empty, or the first trailer.
    Trailers,
}

impl Decoder {
    /// Starts a body.
    pub fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::Length(0) => State::Over,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Chunks::default()),
            Framing::Close => State::Close,
        })
    }

    /// A body that has been read to its end.
    pub const fn over() -> Self {
        Self(State::Over)
    }

    /// Returns whether the body was read to its end.
    pub fn is_over(&self) -> bool {
        matches!(self.0, State::Over)
    }

    /// Returns the number of bytes still to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        match &self.0 {
            State::Length(left) => Some(*left),
            State::Over => Some(0),
            State::Chunked(_) | State::Close => None,
        }
    }

    /// Takes the next piece of the body from the buffer.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Piece, BadChunk> {
        let piece = match &mut self.0 {
            State::Over => return Ok(Piece::End),
            State::Close | State::Length(_) if input.is_empty() => return Ok(Piece::More),
            State::Close => return Ok(Piece::Data(piece(input, u64::MAX))),
            State::Length(left) => {
                let data = piece(input, *left);
                *left -= data.len() as u64;
                if *left == 0 {
                    self.0 = State::Over;
                }
                return Ok(Piece::Data(data));
            }
            State::Chunked(chunks) => chunks.take(input)?,
        };
        if matches!(piece, Piece::End | Piece::Trailers(_)) {
            self.0 = State::Over;
        }
        Ok(piece)
    }

    /// Takes the rest of a body with a length from the buffer, if all of it is there, and drops it. Returns whether it was.
    pub fn skip_rest(&mut self, input: &mut BytesMut) -> bool {
        let State::Length(left) = self.0 else { return false };
        let Some(left) = usize::try_from(left).ok().filter(|left| *left <= input.len()) else {
            return false;
        };
        input.advance(left);
        self.0 = State::Over;
        true
    }

    /// Ends the body with the connection. Returns whether it is complete.
    pub fn end(&mut self) -> bool {
        let whole = matches!(self.0, State::Close | State::Over);
        self.0 = State::Over;
        whole
    }

    /// Returns whether the current chunk has more than `most` bytes to come.
    pub(crate) fn announces_more_than(&self, most: usize) -> bool {
        match &self.0 {
            State::Chunked(chunks) if chunks.at == At::Data => {
                usize::try_from(chunks.size).map_or(true, |size| size > most)
            }
            _ => false,
        }
    }

    /// Returns whether a chunk has just ended: tests see by it how a peer divides its body.
    pub fn is_between_chunks(&self) -> bool {
        matches!(&self.0, State::Chunked(chunks) if chunks.at == At::Start)
    }
}

/// Takes at most `most` bytes.
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
    fn take(&mut self, input: &mut BytesMut) -> Result<Piece, BadChunk> {
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

    /// Interprets one byte outside of chunk data.
    fn frame(&mut self, byte: u8) -> Result<At, BadChunk> {
        let next = match (self.at, byte) {
            (At::Start | At::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                let size =
                    self.size.checked_mul(16).and_then(|size| size.checked_add(digit.into()));
                self.size = size.ok_or(BadChunk)?;
                At::Digits
            }
            (At::Digits | At::Blanks, b' ' | b'\t') => At::Blanks,
            (At::Digits | At::Blanks, b';') => At::Extension,
            (At::Digits | At::Blanks | At::Extension, b'\r') => At::SizeLf,
            // A reader that accepts a line without CR would see another chunk here.
            (At::Extension, b'\n') => return Err(BadChunk),
            (At::Extension, _) => {
                self.extensions += 1;
                if self.extensions >= LIMIT {
                    return Err(BadChunk);
                }
                At::Extension
            }
            (At::SizeLf, b'\n') if self.size == 0 => At::Trailers,
            (At::SizeLf, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Start,
            _ => return Err(BadChunk),
        };
        Ok(next)
    }

    /// Reads what follows the last chunk.
    fn end(&mut self, input: &mut BytesMut) -> Result<Piece, BadChunk> {
        while let Some(&byte) = input.first() {
            // A CR is valid only in a line end; an empty line ends the trailers.
            match (self.trailers.last(), byte) {
                (Some(b'\r'), b'\n') => {}
                (Some(b'\r'), _) => return Err(BadChunk),
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
                return Err(BadChunk);
            }
        }
        Ok(Piece::More)
    }
}

fn trailers(bytes: &[u8]) -> Result<HeaderMap, BadChunk> {
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS];
    let parsed = httparse::parse_headers(bytes, &mut fields);
    let Ok(httparse::Status::Complete((length, fields))) = parsed else { return Err(BadChunk) };
    if length != bytes.len() {
        return Err(BadChunk);
    }
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else { return Err(BadChunk) };
        trailers.append(name, value);
    }
    Ok(trailers)
}
