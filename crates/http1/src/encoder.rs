//! Bodies as they are written: with a length, or in chunks (RFC 9112, 6 and 7.1), and the buffer that gathers a message.
//!
//! Invariants
//! - A body is exactly as long as its head says, or writing it fails: no byte of it can be read as the next message.
//! - Small pieces are gathered, large pieces are not copied.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    HOST, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use crate::fields::put_value;
use crate::spelling::put_title_case;

/// Pieces up to this size are copied into the buffer.
const COPIED: usize = 4 << 10;
/// With this number of bytes waiting, the buffer takes no further piece.
const FULL: usize = 16 << 10;
/// A buffer that has grown beyond this is freed between messages.
const KEPT: usize = 16 << 10;

/// The body has ended before its length.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the body has ended before its length")]
pub struct TooShort;

/// A body that is being written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Encoder {
    /// There is no body, or it has ended.
    None,
    /// This number of bytes is still to come.
    Length(u64),
    /// In chunks, with those trailers that these values of `Trailer` announce.
    Chunked(Vec<HeaderValue>),
}

/// Bytes of a message that wait to be written.
#[derive(Debug, Default)]
pub struct WriteBuffer {
    bytes: Vec<u8>,
    written: usize,
    /// Follows `bytes`.
    piece: Bytes,
    /// The piece is a chunk: a line end follows.
    chunk: bool,
}

impl WriteBuffer {
    /// Returns whether everything was written.
    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len() && self.piece.is_empty() && !self.chunk
    }

    /// Returns whether there is room for a piece of a body.
    pub fn has_room(&self) -> bool {
        self.piece.is_empty() && !self.chunk && self.bytes.len() < FULL
    }

    /// The buffer, to append a head to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The head that was appended.
    pub fn head(&self) -> &[u8] {
        &self.bytes
    }

    /// Discards everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The bytes to write, in order.
    pub fn slices(&self) -> [IoSlice<'_>; 3] {
        let bytes = self.bytes.get(self.written..).unwrap_or_default();
        let end: &[u8] = if self.chunk { b"\r\n" } else { b"" };
        [IoSlice::new(bytes), IoSlice::new(&self.piece), IoSlice::new(end)]
    }

    /// Removes the first `count` bytes: they were written.
    pub fn advance(&mut self, mut count: usize) {
        let bytes = count.min(self.bytes.len() - self.written);
        self.written += bytes;
        count -= bytes;
        let piece = count.min(self.piece.len());
        self.piece.advance(piece);
        count -= piece;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
        if self.chunk && self.piece.is_empty() && self.bytes.is_empty() {
            // The two bytes of its line end may be written one by one: the rest goes into the buffer.
            self.chunk = false;
            self.bytes.extend_from_slice(b"\r\n".get(count..).unwrap_or_default());
        }
    }

    /// Frees a large buffer at the end of a message.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.piece = Bytes::new();
    }

    fn put(&mut self, data: Bytes, chunk: bool) {
        if chunk {
            put_chunk_size(&mut self.bytes, data.len());
        }
        if data.len() <= COPIED {
            self.bytes.extend_from_slice(&data);
            if chunk {
                self.bytes.extend_from_slice(b"\r\n");
            }
        } else {
            self.piece = data;
            self.chunk = chunk;
        }
    }
}

impl Encoder {
    /// Appends a piece of the body. Returns whether the body has ended with it.
    pub fn put(&mut self, frame: Frame<Bytes>, out: &mut WriteBuffer) -> Result<bool, TooShort> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return self.finish(frame.trailers_ref(), out).map(|()| true),
        };
        match self {
            Self::None => return Ok(true),
            _ if data.is_empty() => {}
            Self::Chunked(_) => out.put(data, true),
            Self::Length(left) => {
                // Bytes beyond the length are dropped.
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
                *left -= most as u64;
                out.put(data.slice(..most), false);
            }
        }
        Ok(*self == Self::Length(0))
    }

    /// Returns whether no byte of a body is to be written.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }

    /// Ends the body.
    pub fn finish(
        &mut self,
        trailers: Option<&HeaderMap>,
        out: &mut WriteBuffer,
    ) -> Result<(), TooShort> {
        match self {
            Self::None | Self::Length(0) => Ok(()),
            Self::Length(_) => Err(TooShort),
            Self::Chunked(announced) => {
                out.bytes.extend_from_slice(b"0\r\n");
                for (name, value) in
                    trailers.into_iter().flatten().filter(|(name, _)| may_trail(name, announced))
                {
                    put_title_case(&mut out.bytes, name.as_str());
                    put_value(&mut out.bytes, value);
                }
                out.bytes.extend_from_slice(b"\r\n");
                *self = Self::None;
                Ok(())
            }
        }
    }
}

/// Returns whether a trailer was announced and does not frame or route the message (RFC 9110, 6.5.1).
fn may_trail(name: &HeaderName, announced: &[HeaderValue]) -> bool {
    const NEVER: [HeaderName; 12] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
        TRANSFER_ENCODING,
        TE,
    ];
    let mut names =
        announced.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    !NEVER.contains(name)
        && names.any(|announced| announced.trim().eq_ignore_ascii_case(name.as_str()))
}

/// Appends the line in front of a chunk (RFC 9112, 7.1).
pub fn put_chunk_size(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| {
        let digit = (size >> (place * 4)) & 0xf;
        b"0123456789ABCDEF".get(digit).copied().unwrap_or_default()
    }));
    out.extend_from_slice(b"\r\n");
}
