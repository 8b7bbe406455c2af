//! permessage-deflate (RFC 7692) without context takeover on either side.

use std::fmt;

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::decoder::Violation;

/// The end of each DEFLATE message, which is omitted on the wire (RFC 7692, 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
/// First bytes of final text and binary frames with RSV1.
const COMPRESSED_TEXT: u8 = 0xc1;
const COMPRESSED_BINARY: u8 = 0xc2;
/// Compression level. Higher levels gain almost nothing for messages of this size.
const LEVEL: u32 = 1;

/// The response to an accepted offer.
pub(super) const ACCEPTED: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

/// Returns whether one of the offers of a `Sec-WebSocket-Extensions` field can be accepted with [`ACCEPTED`].
///
/// An offer that requires a smaller server window is rejected, because one compressed frame is sent to all. So are
/// offers with an unknown or repeated parameter, or an invalid value (RFC 7692, 7.1).
pub(super) fn is_offered(field: &str) -> bool {
    field.split(',').any(is_acceptable)
}

fn is_acceptable(offer: &str) -> bool {
    let mut parts = offer.split(';').map(str::trim);
    if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case("permessage-deflate")) {
        return false;
    }
    let mut seen = Vec::new();
    parts.all(|parameter| {
        let (name, value) = match parameter.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim().trim_matches('"'))),
            None => (parameter, None),
        };
        let again = seen.contains(&name);
        seen.push(name);
        !again
            && match name {
                "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
                "client_max_window_bits" => value.is_none_or(is_window),
                "server_max_window_bits" => value == Some("15"),
                _ => false,
            }
    })
}

fn is_window(value: &str) -> bool {
    matches!(value, "8" | "9" | "10" | "11" | "12" | "13" | "14" | "15")
}

/// Compresses frames. There is one per event loop; it uses about 300 KiB after its first use.
#[derive(Default)]
pub struct Deflater(Option<Compress>);

impl Deflater {
    /// Returns `text` as one compressed frame of a server.
    pub fn frame(&mut self, text: &[u8]) -> Bytes {
        self.message(false, text)
    }

    /// Returns a text or binary message as one compressed frame of a server.
    pub fn message(&mut self, binary: bool, text: &[u8]) -> Bytes {
        let compress = self.0.get_or_insert_with(|| Compress::new(Compression::new(LEVEL), false));
        compress.reset();
        // Stored blocks are DEFLATE's worst case: five bytes for each 16 KiB, and the tail.
        let mut payload = Vec::with_capacity(text.len() + text.len() / 1024 + 64);
        loop {
            let done = usize::try_from(compress.total_in()).expect("no more than was given");
            let before = payload.len();
            let (_, rest) = text.split_at(done);
            let status = compress.compress_vec(rest, &mut payload, FlushCompress::Sync);
            let all = usize::try_from(compress.total_in()).is_ok_and(|done| done == text.len());
            // The flush is complete if it left room.
            if status.is_err()
                || (all && payload.len() < payload.capacity())
                || (payload.len() == before && all)
            {
                break;
            }
            payload.reserve(256);
        }
        if payload.ends_with(&TAIL) {
            payload.truncate(payload.len() - TAIL.len());
        }
        super::frame::data(if binary { COMPRESSED_BINARY } else { COMPRESSED_TEXT }, &payload)
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}

/// Decompresses messages. There is one per event loop; it uses about 50 KiB after its first use.
#[derive(Default)]
pub struct Inflater(Option<Box<Inflation>>);

struct Inflation {
    decompress: Decompress,
    piece: [u8; 8192],
}

impl Inflater {
    /// Decompresses the payload of a message, up to `limit` bytes. Memory grows with the output and never beyond the
    /// limit.
    pub fn inflate(&mut self, payload: &[u8], limit: usize) -> Result<Vec<u8>, Violation> {
        let Inflation { decompress, piece } = &mut **self.0.get_or_insert_with(|| {
            Box::new(Inflation { decompress: Decompress::new(false), piece: [0; 8192] })
        });
        decompress.reset(false);
        let mut text = Vec::new();
        let mut ended = false;
        for mut input in [payload, &TAIL] {
            loop {
                if ended {
                    // A client may end its DEFLATE stream; an empty byte then precedes the tail (RFC 7692, 7.2.3.4).
                    if !(input.is_empty() || input == [0] || input == TAIL) {
                        return Err(Violation::Data(
                            "there is more after the end of compressed data",
                        ));
                    }
                    break;
                }
                let (read, written) = (decompress.total_in(), decompress.total_out());
                let status = decompress
                    .decompress(input, piece, FlushDecompress::Sync)
                    .map_err(|_bad| Violation::Data("compressed data are none"))?;
                let read =
                    usize::try_from(decompress.total_in() - read).expect("part of the input");
                let written =
                    usize::try_from(decompress.total_out() - written).expect("fits the piece");
                input = input.split_at(read).1;
                if text.len() + written > limit {
                    return Err(Violation::TooLarge { limit });
                }
                text.extend_from_slice(&piece[..written]);
                ended = status == Status::StreamEnd;
                if !ended && input.is_empty() && written < piece.len() {
                    break;
                }
                if !ended && read == 0 && written == 0 {
                    return Err(Violation::Data("compressed data are none"));
                }
            }
        }
        Ok(text)
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offers_with_a_shared_window_of_15_bits_are_accepted() {
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; client_max_window_bits=10; server_no_context_takeover",
            "permessage-deflate; server_max_window_bits=\"15\"",
            "x-webkit-deflate-frame, permessage-deflate",
            "permessage-deflate; server_max_window_bits=10, permessage-deflate",
        ] {
            assert!(is_offered(offer), "{offer}");
        }
        for offer in [
            "",
            "deflate-frame",
            "permessage-deflate; server_max_window_bits=10",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=08",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; mux",
        ] {
            assert!(!is_offered(offer), "{offer}");
        }
    }

    #[test]
    fn the_examples_of_rfc_7692_are_decoded() {
        let hello: &[&[u8]] = &[
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], // 7.2.3.1
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00], // 7.2.3.3: no compression
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00], // 7.2.3.4: a final block
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00], // 7.2.3.5: two blocks
        ];
        let mut inflater = Inflater::default();
        for payload in hello {
            assert_eq!(inflater.inflate(payload, 5).as_deref(), Ok(&b"Hello"[..]), "{payload:x?}");
        }
        assert_eq!(inflater.inflate(&[0x00], 0).as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn a_compression_bomb_is_rejected_at_the_limit() {
        let bomb = Deflater::default().frame(&vec![0; 50_000_000]);
        let payload = bomb.split_at(bomb.len() - usize::try_from(length_of(&bomb)).unwrap()).1;
        assert!(payload.len() < 1_000_000);
        assert_eq!(
            Inflater::default().inflate(payload, 10_000),
            Err(Violation::TooLarge { limit: 10_000 })
        );
    }

    #[test]
    fn invalid_compressed_data_is_rejected() {
        let mut inflater = Inflater::default();
        for payload in [
            &[0xff, 0xff][..],
            &[0x07],
            b"Hello",
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00, 0x01, 0x02],
        ] {
            assert!(
                matches!(inflater.inflate(payload, 1000), Err(Violation::Data(_))),
                "{payload:x?}"
            );
        }
        // A rejected message leaves no state for the next one.
        assert!(inflater.inflate(&[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], 5).is_ok());
    }

    fn length_of(frame: &[u8]) -> u64 {
        match frame[1] {
            127 => u64::from_be_bytes(*frame[2..].first_chunk().unwrap()),
            126 => u64::from(u16::from_be_bytes(*frame[2..].first_chunk().unwrap())),
            short => u64::from(short),
        }
    }
}
