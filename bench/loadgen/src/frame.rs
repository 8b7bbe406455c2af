//! WebSocket frames as a client sees them (RFC 6455, section 5): read in place, written masked.
//!
//! Invariants
//! - Nothing is copied and nothing is allocated to read a frame.
//! - What a server must not send (a mask, reserved bits, an unknown opcode, a long control frame) is an error, not a frame.

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

/// A whole frame; `payload` points into the buffer that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) last: bool,
    pub(crate) opcode: Opcode,
    pub(crate) payload: &'a [u8],
}

/// Why bytes are no frame of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    Masked,
    Reserved,
    UnknownOpcode,
    Control,
    Length,
}

/// Returns the frame at the start of `bytes` and its whole length; `None` if it is not complete.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(Malformed::Reserved);
    }
    if second & 0x80 != 0 {
        return Err(Malformed::Masked);
    }
    let last = first & 0x80 != 0;
    let opcode = match first & 0x0f {
        0x0 => Opcode::Continuation,
        0x1 => Opcode::Text,
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xa => Opcode::Pong,
        _ => return Err(Malformed::UnknownOpcode),
    };
    let control = matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong);
    if control && (!last || second & 0x7f > 125) {
        return Err(Malformed::Control);
    }
    let (length, rest) = match second & 0x7f {
        126 => match rest.split_first_chunk::<2>() {
            Some((length, rest)) => (usize::from(u16::from_be_bytes(*length)), rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((length, rest)) => {
                let length = u64::from_be_bytes(*length);
                // More than any server would send at once: not worth collecting.
                let short = u32::try_from(length).ok().filter(|length| *length < 1 << 30);
                let short = short.and_then(|length| usize::try_from(length).ok());
                (short.ok_or(Malformed::Length)?, rest)
            }
            None => return Ok(None),
        },
        length => (usize::from(length), rest),
    };
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let whole = bytes.len() - rest.len() + length;
    Ok(Some((Frame { last, opcode, payload }, whole)))
}

/// Appends one whole frame to `out`, masked with `mask` as a client has to.
pub(crate) fn write(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    let opcode = match opcode {
        Opcode::Continuation => 0x0,
        Opcode::Text => 0x1,
        Opcode::Binary => 0x2,
        Opcode::Close => 0x8,
        Opcode::Ping => 0x9,
        Opcode::Pong => 0xa,
    };
    out.push(0x80 | opcode);
    if let Ok(short) = u8::try_from(payload.len())
        && short < 126
    {
        out.push(0x80 | short);
    } else if let Ok(medium) = u16::try_from(payload.len()) {
        out.push(0x80 | 0x7e);
        out.extend_from_slice(&medium.to_be_bytes());
    } else {
        out.push(0x80 | 0x7f);
        out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unmasked(head: &[u8], payload: &[u8]) -> Vec<u8> {
        [head, payload].concat()
    }

    #[test]
    fn the_text_frame_of_the_rfc_is_read() {
        // RFC 6455, section 5.7: a single-frame unmasked text message.
        let bytes = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];

        let (frame, length) = read(&bytes).unwrap().unwrap();

        assert_eq!(frame, Frame { last: true, opcode: Opcode::Text, payload: b"Hello" });
        assert_eq!(length, 7);
    }

    #[test]
    fn the_masked_frame_of_the_rfc_is_written() {
        let mut out = Vec::new();

        write(&mut out, Opcode::Text, b"Hello", [0x37, 0xfa, 0x21, 0x3d]);

        assert_eq!(
            out,
            [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58],
            "RFC 6455, section 5.7"
        );
    }

    #[test]
    fn only_the_first_of_two_frames_is_taken() {
        let mut bytes = unmasked(&[0x81, 2], b"ab");
        bytes.extend(unmasked(&[0x89, 1], b"c"));

        let (first, length) = read(&bytes).unwrap().unwrap();
        let (second, _) = read(&bytes[length..]).unwrap().unwrap();

        assert_eq!(first.payload, b"ab");
        assert_eq!(second, Frame { last: true, opcode: Opcode::Ping, payload: b"c" });
    }

    #[test]
    fn a_frame_is_none_until_its_last_byte() {
        for (head, length) in [(vec![0x81, 3], 3), (vec![0x81, 126, 0x01, 0x00], 256)] {
            let bytes = unmasked(&head, &vec![b'x'; length]);

            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(None), "{end} of {} bytes", bytes.len());
            }
            assert!(read(&bytes).unwrap().is_some());
        }
    }

    #[test]
    fn what_a_server_must_not_send_is_no_frame() {
        for (bytes, why) in [
            ([0x81, 0x80], Malformed::Masked),
            ([0xc1, 0x00], Malformed::Reserved),
            ([0x83, 0x00], Malformed::UnknownOpcode),
            ([0x09, 0x00], Malformed::Control),
            ([0x88, 0x7e], Malformed::Control),
        ] {
            assert_eq!(read(&bytes), Err(why));
        }
        let endless = unmasked(&[0x81, 127], &u64::MAX.to_be_bytes());
        assert_eq!(read(&endless), Err(Malformed::Length));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_within_them_or_none_or_malformed(bytes: Vec<u8>) {
            if let Ok(Some((frame, length))) = read(&bytes) {
                prop_assert!(length <= bytes.len() && frame.payload.len() + 2 <= length);
            }
        }

        #[test]
        fn what_is_written_comes_back_without_its_mask(
            payload in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                (0_usize..70_000).prop_map(|length| vec![b'x'; length]),
            ],
            mask: [u8; 4],
        ) {
            let mut bytes = Vec::new();
            write(&mut bytes, Opcode::Binary, &payload, mask);

            // A server's frame is the same without the mask bit, the mask, and its effect.
            let start = bytes.len() - payload.len();
            let mut plain = bytes[..start - 4].to_vec();
            plain[1] &= 0x7f;
            plain.extend(bytes[start..].iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
            let (frame, length) = read(&plain).unwrap().unwrap();
            prop_assert_eq!(frame.payload, &payload[..]);
            prop_assert_eq!(length, plain.len());
        }
    }
}
