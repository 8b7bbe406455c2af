//! Frames (RFC 6455, 5.2): parses the head of client frames, and builds control frames of the server.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::close::CloseCode;
use super::decoder::Violation;

/// Maximum payload of a control frame (5.5).
pub(super) const MAX_CONTROL: usize = 125;
/// Longest head: two bytes, a length of eight, a mask of four.
pub(super) const MAX_HEAD: usize = 14;

/// The opcode of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a frame from a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) fin: bool,
    /// RSV1: the message is compressed (RFC 7692, 6).
    pub(super) compressed: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: [u8; 4],
    pub(super) length: u64,
}

impl Head {
    /// Parses the head at the start of `bytes` and returns it with its length; `None` while more bytes are needed.
    ///
    /// An error is reported as soon as it is visible, not only when the head is complete.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Violation> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        if first & 0x30 != 0 {
            return Err(Violation::Protocol("a reserved bit is set"));
        }
        let opcode = match first & 0x0f {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xa => Opcode::Pong,
            _ => return Err(Violation::Protocol("a reserved opcode")),
        };
        let (fin, compressed) = (first & 0x80 != 0, first & 0x40 != 0);
        if compressed && !matches!(opcode, Opcode::Text | Opcode::Binary) {
            return Err(Violation::Protocol("a reserved bit is set"));
        }
        if opcode.is_control() && !fin {
            return Err(Violation::Protocol("a control frame is fragmented"));
        }
        let Some((&second, rest)) = rest.split_first() else { return Ok(None) };
        if second & 0x80 == 0 {
            return Err(Violation::Protocol("a client's frame is not masked"));
        }
        let short = second & 0x7f;
        if opcode.is_control() && usize::from(short) > MAX_CONTROL {
            return Err(Violation::Protocol("a control frame is longer than 125 bytes"));
        }
        let (length, rest) = match short {
            126 => {
                let Some((bytes, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
                let length = u64::from(u16::from_be_bytes(*bytes));
                if length < 126 {
                    return Err(Violation::Protocol("a length is not in its shortest form"));
                }
                (length, rest)
            }
            127 => {
                let Some((bytes, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
                let length = u64::from_be_bytes(*bytes);
                if length >> 63 != 0 {
                    return Err(Violation::Protocol("the highest bit of a length is set"));
                }
                if u16::try_from(length).is_ok() {
                    return Err(Violation::Protocol("a length is not in its shortest form"));
                }
                (length, rest)
            }
            short => (u64::from(short), rest),
        };
        let Some((mask, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let head = Self { fin, compressed, opcode, mask: *mask, length };
        Ok(Some((head, bytes.len() - rest.len())))
    }
}

/// Returns the pong for a ping with this payload, which is truncated to the maximum of a control frame.
pub fn pong_frame(payload: &[u8]) -> Box<[u8]> {
    control(0x8a, &[], payload)
}

/// Returns a close frame, empty if there is no code. A long reason is truncated at a character boundary.
pub fn close_frame(code: Option<CloseCode>, reason: &str) -> Box<[u8]> {
    let Some(code) = code else { return control(0x88, &[], &[]) };
    let fits = reason.floor_char_boundary(MAX_CONTROL - 2);
    control(0x88, &code.get().to_be_bytes(), reason.as_bytes().split_at(fits).0)
}

fn control(first: u8, prefix: &[u8], payload: &[u8]) -> Box<[u8]> {
    let payload = payload.split_at(payload.len().min(MAX_CONTROL - prefix.len())).0;
    let length = u8::try_from(prefix.len() + payload.len()).expect("at most 125");
    [&[first, length], prefix, payload].concat().into_boxed_slice()
}

/// Returns a complete text or binary message of a server.
pub fn message_frame(binary: bool, payload: &[u8]) -> Bytes {
    data(if binary { 0x82 } else { 0x81 }, payload)
}

/// Returns a ping without payload.
pub fn ping_frame() -> Bytes {
    Bytes::from_static(&[0x89, 0])
}

/// Returns a complete data frame of a server.
pub(crate) fn data(first: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(payload.len() + 10);
    frame.put_u8(first);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..126), _) => frame.put_u8(length),
        (_, Ok(length)) => {
            frame.put_u8(126);
            frame.put_u16(length);
        }
        _ => {
            frame.put_u8(127);
            frame.put_u64(payload.len() as u64);
        }
    }
    frame.put_slice(payload);
    frame.freeze()
}
