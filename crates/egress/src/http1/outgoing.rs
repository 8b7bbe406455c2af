//! A request as bytes: its head, its body with a length or in chunks (RFC 9112, 3, 6, 7.1). Sans I/O.
//!
//! Invariants
//! - A body is as long as was said, or the call fails: nothing of it is ever taken for the next request.
//! - Small pieces are gathered, large ones are not copied.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    HOST, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use crate::spelling::{Spelling, put_title_case};

/// Smaller pieces are copied behind what stands before them.
const COPIED: usize = 4 << 10;
/// With so much waiting nothing is taken from the body.
const FULL: usize = 16 << 10;
/// A buffer that has grown beyond it is not kept.
const KEPT: usize = 16 << 10;

/// The body ended before its length, or could not be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Short;

/// How the body of a request is framed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Framing {
    /// There is none.
    None,
    Length(u64),
    /// With the trailers that these values of `Trailer` announce.
    Chunked(Vec<HeaderValue>),
}

/// What waits to be written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    /// Behind it.
    piece: Bytes,
    /// The piece is a chunk: its line ends behind it.
    chunk: bool,
}

impl Outgoing {
    pub(super) fn empty(&self) -> bool {
        self.written == self.bytes.len() && self.piece.is_empty() && !self.chunk
    }

    /// There is room for a piece of a body.
    pub(super) fn takes(&self) -> bool {
        self.piece.is_empty() && !self.chunk && self.bytes.len() < FULL
    }

    /// For a head.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What was put there.
    pub(super) fn head(&self) -> &[u8] {
        &self.bytes
    }

    /// Nothing of it is to be written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What is to be written, in order.
    pub(super) fn slices(&self) -> [IoSlice<'_>; 3] {
        let bytes = self.bytes.get(self.written..).unwrap_or_default();
        let end: &[u8] = if self.chunk { b"\r\n" } else { b"" };
        [IoSlice::new(bytes), IoSlice::new(&self.piece), IoSlice::new(end)]
    }

    /// So much of it was written.
    pub(super) fn advance(&mut self, mut count: usize) {
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
            // Its two bytes may go one by one: what is left of them stands in the buffer.
            self.chunk = false;
            self.bytes.extend_from_slice(b"\r\n".get(count..).unwrap_or_default());
        }
    }

    /// Nothing more comes for now: a large buffer goes.
    pub(super) fn rest(&mut self) {
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.piece = Bytes::new();
    }

    fn put(&mut self, data: Bytes, chunk: bool) {
        if chunk {
            put_hexadecimal(&mut self.bytes, data.len());
            self.bytes.extend_from_slice(b"\r\n");
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

impl Framing {
    /// Puts a piece of the body. True: that was all of it.
    pub(super) fn put(&mut self, frame: Frame<Bytes>, out: &mut Outgoing) -> Result<bool, Short> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return self.finish(frame.trailers_ref(), out).map(|()| true),
        };
        match self {
            Self::None => return Ok(true),
            _ if data.is_empty() => {}
            Self::Chunked(_) => out.put(data, true),
            Self::Length(left) => {
                // What is beyond the length is nobody's.
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
                *left -= most as u64;
                out.put(data.slice(..most), false);
            }
        }
        Ok(*self == Self::Length(0))
    }

    /// There is nothing to be sent.
    pub(super) fn nothing(&self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }

    /// The body has ended.
    pub(super) fn finish(
        &mut self,
        trailers: Option<&HeaderMap>,
        out: &mut Outgoing,
    ) -> Result<(), Short> {
        match self {
            Self::None | Self::Length(0) => Ok(()),
            Self::Length(_) => Err(Short),
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

/// Whether a trailer was announced and frames or routes nothing (RFC 9110, 6.5.1).
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

/// Field lines, spelled as `written` has them.
pub(crate) fn put_fields(out: &mut Vec<u8>, fields: &HeaderMap, written: Option<&[u8]>) {
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

fn put_value(out: &mut Vec<u8>, value: &HeaderValue) {
    // As libcurl writes a field without a value.
    let colon: &[u8] = if value.is_empty() { b":" } else { b": " };
    for part in [colon, value.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn put_hexadecimal(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| {
        let digit = (number >> (place * 4)) & 0xf;
        b"0123456789ABCDEF".get(digit).copied().unwrap_or_default()
    }));
}
