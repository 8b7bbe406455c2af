//! Heads of requests and responses, the only frames with separate writer types.

use crate::encode::{begin, finish};
use crate::reader::{NOT_ZERO, Reader};
use crate::{Kind, MAX_PAIRS, MAX_PAYLOAD, Malformed, Pairs, TooLarge};

/// A request's head as a worker receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The client's HTTP version times ten: 10, 11, 20 or 30.
    pub protocol: u8,
    /// Length of the body in bytes, or [`crate::NO_LENGTH`].
    pub content_length: u64,
    /// The CGI variables.
    pub pairs: Pairs<'a>,
}

impl<'a> RequestHead<'a> {
    /// Decodes and validates the payload of REQUEST.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut read = Reader { rest: payload };
        let protocol = read.u8()?;
        if !matches!(protocol, 10 | 11 | 20 | 30) {
            return Err(Malformed::Payload("unknown protocol"));
        }
        if read.u8()? != 0 {
            return Err(NOT_ZERO);
        }
        let left = read.u16()?;
        let content_length = read.u64()?;
        let pairs = Pairs { rest: read.rest, left, terminated: true }.check()?;
        Ok(Self { protocol, content_length, pairs })
    }
}

/// A response's head as the server receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// Status code, 100 to 999.
    pub status: u16,
    /// The reason phrase; empty for the standard one.
    pub reason: &'a [u8],
    /// The header fields in order, including duplicates.
    pub pairs: Pairs<'a>,
}

impl<'a> ResponseHead<'a> {
    /// Decodes and validates the payload of HEAD or INFORM.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut read = Reader { rest: payload };
        let status = read.u16()?;
        if !(100..=999).contains(&status) {
            return Err(Malformed::Payload("status out of range"));
        }
        let left = read.u16()?;
        let reason = usize::from(read.u16()?);
        let reason = read.bytes(reason)?;
        if reason.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return Err(Malformed::Payload("forbidden byte in the reason phrase"));
        }
        let pairs = Pairs { rest: read.rest, left, terminated: false }.check()?;
        Ok(Self { status, reason, pairs })
    }
}

/// Writes a REQUEST frame pair by pair. The buffer contains no valid frame until [`RequestWriter::finish`] has
/// returned `Ok`.
#[derive(Debug)]
pub struct RequestWriter<'b> {
    buffer: &'b mut Vec<u8>,
    start: usize,
    pairs: usize,
    /// A length did not fit its field, so there will be no frame.
    overlong: bool,
}

impl<'b> RequestWriter<'b> {
    /// Starts a frame at the end of `buffer`. `protocol` is the HTTP version times ten; `content_length` the body's
    /// length in bytes or [`crate::NO_LENGTH`].
    pub fn new(buffer: &'b mut Vec<u8>, protocol: u8, content_length: u64) -> Self {
        let start = begin(buffer);
        buffer.extend_from_slice(&[protocol, 0, 0, 0]);
        buffer.extend_from_slice(&content_length.to_le_bytes());
        Self { buffer, start, pairs: 0, overlong: false }
    }

    /// Adds a variable. A value with a NUL cannot be a CGI variable and is truncated there, as C would read it.
    pub fn pair(&mut self, name: &[u8], value: &[u8]) {
        self.pair_from(name, value.len(), |out| out.extend_from_slice(value));
    }

    /// Adds a variable whose value of exactly `len` bytes is written by `value` directly into the frame.
    pub fn pair_from(&mut self, name: &[u8], len: usize, value: impl FnOnce(&mut Vec<u8>)) {
        self.pairs += 1;
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u32::try_from(len)) else {
            self.overlong = true;
            return;
        };
        self.buffer.reserve(name.len() + len + 8);
        let mut lengths = [0; 6];
        lengths[..2].copy_from_slice(&name_len.to_le_bytes());
        lengths[2..].copy_from_slice(&value_len.to_le_bytes());
        self.buffer.extend_from_slice(&lengths);
        self.buffer.extend_from_slice(name);
        self.buffer.push(0);
        let before = self.buffer.len();
        value(self.buffer);
        debug_assert_eq!(self.buffer.len() - before, len, "the value has the length it announced");
        self.buffer.push(0);
    }

    /// Ends the frame; `last` says that no body follows. On an error the buffer is as it was before
    /// [`RequestWriter::new`].
    pub fn finish(self, last: bool) -> Result<(), TooLarge> {
        if self.overlong {
            self.buffer.truncate(self.start);
            return Err(TooLarge { bytes: usize::MAX, pairs: self.pairs });
        }
        let count_at = self.start + crate::HEADER_LEN + 2;
        let flags = if last { Kind::LAST } else { 0 };
        finish_head(self.buffer, self.start, count_at, self.pairs, Kind::Request, flags)
    }
}

/// Writes a HEAD or INFORM frame pair by pair, for the testkit's worker and the vectors.
#[derive(Debug)]
pub struct ResponseWriter<'b> {
    buffer: &'b mut Vec<u8>,
    start: usize,
    pairs: usize,
    kind: Kind,
}

impl<'b> ResponseWriter<'b> {
    /// Starts a frame at the end of `buffer`: INFORM for a status below 200, otherwise HEAD.
    pub fn new(buffer: &'b mut Vec<u8>, status: u16, reason: &str) -> Self {
        let start = begin(buffer);
        buffer.extend_from_slice(&status.to_le_bytes());
        buffer.extend_from_slice(&[0, 0]);
        let len = u16::try_from(reason.len()).unwrap_or(u16::MAX);
        buffer.extend_from_slice(&len.to_le_bytes());
        buffer.extend_from_slice(reason.as_bytes());
        let kind = if status < 200 { Kind::Inform } else { Kind::Head };
        Self { buffer, start, pairs: 0, kind }
    }

    /// Adds a header field.
    pub fn pair(&mut self, name: &[u8], value: &[u8]) {
        self.pairs += 1;
        let name_len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        let value_len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.buffer.extend_from_slice(&name_len.to_le_bytes());
        self.buffer.extend_from_slice(&value_len.to_le_bytes());
        self.buffer.extend_from_slice(name);
        self.buffer.extend_from_slice(value);
    }

    /// Ends the frame. On an error the buffer is as it was before [`ResponseWriter::new`].
    pub fn finish(self) -> Result<(), TooLarge> {
        let count_at = self.start + crate::HEADER_LEN + 2;
        finish_head(self.buffer, self.start, count_at, self.pairs, self.kind, 0)
    }
}

fn finish_head(
    buffer: &mut Vec<u8>,
    start: usize,
    count_at: usize,
    pairs: usize,
    kind: Kind,
    flags: u8,
) -> Result<(), TooLarge> {
    let payload = buffer.len() - start - crate::HEADER_LEN;
    if pairs > MAX_PAIRS || payload > MAX_PAYLOAD {
        buffer.truncate(start);
        return Err(TooLarge { bytes: payload, pairs });
    }
    let count = u16::try_from(pairs).expect("MAX_PAIRS fits 16 bits");
    if let Some(place) = buffer.get_mut(count_at..count_at + 2) {
        place.copy_from_slice(&count.to_le_bytes());
    }
    finish(buffer, start, kind, flags);
    Ok(())
}
