//! What comes from a client before h3 reads it. h3 0.0.8 collects a frame of any length, takes an empty DATA frame for
//! the end of the body, and reads ahead of the application without bound; this filter bounds all three.
//!
//! Invariants
//! - A frame other than DATA is passed on only if it is at most `limit` bytes long.
//! - Empty DATA frames and frames of unknown types, which mean nothing (RFC 9114, section 9), are not passed on, and
//!   their number has a bound.
//! - `PRIORITY_UPDATE` frames of a control stream (RFC 9218) are not passed on either. Their number has no bound, because
//!   browsers send one for each request whose priority is not the default.
//! - Bytes are passed on in their order, whatever pieces they arrive in.

use bytes::{Buf, BufMut, Bytes, BytesMut};

const DATA: u64 = 0;
/// Types that h3 has to see: it reads them, or refuses them (RFC 9114, sections 7.2 and 11.2.1).
const KNOWN: [u64; 10] = [DATA, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const MAX_PUSH_ID: u64 = 0xd;
/// `PRIORITY_UPDATE` for a request and for a push (RFC 9218, section 7.2). Hearth has no priorities, and may ignore them.
const PRIORITY_UPDATE: [u64; 2] = [0xf0700, 0xf0701];
/// Most frames of one stream that mean nothing. Clients send one or two, to keep servers used to them.
const MEANINGLESS: usize = 64;
/// Longest head of a frame: two integers of 8 bytes.
const HEAD: usize = 16;

/// Reasons why a stream ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error("a frame of {0} bytes")]
    Frame(u64),
    #[error("too many frames without meaning")]
    Meaningless,
}

/// The filter of one stream.
#[derive(Debug)]
pub(super) struct Filter {
    limit: u64,
    head: BytesMut,
    /// Bytes of the current frame that have not come yet.
    left: u64,
    frame: Kind,
    meaningless: usize,
    /// A unidirectional stream begins with its type; only control streams have frames.
    stream: Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Kept,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Request,
    Control,
    Unknown,
    Other,
}

/// Bytes to pass on, and how many of them are of bodies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: Bytes,
    pub(super) body: u64,
}

impl Filter {
    /// Creates the filter of a request's stream.
    pub(super) fn of_request(limit: u64) -> Self {
        Self {
            limit,
            head: BytesMut::new(),
            left: 0,
            frame: Kind::Dropped,
            meaningless: 0,
            stream: Stream::Request,
        }
    }

    /// Creates the filter of a unidirectional stream.
    pub(super) fn of_unidirectional(limit: u64) -> Self {
        Self { stream: Stream::Unknown, ..Self::of_request(limit) }
    }

    /// Returns what is passed on of a piece.
    pub(super) fn pass(&mut self, mut piece: Bytes) -> Result<Passed, Excess> {
        let mut passed = BytesMut::new();
        if self.stream == Stream::Unknown {
            while self.stream == Stream::Unknown && piece.has_remaining() {
                self.head.put_u8(piece.get_u8());
                if let Some(kind) = integer(&mut &self.head[..]) {
                    passed = std::mem::take(&mut self.head);
                    self.stream = if kind == 0 { Stream::Control } else { Stream::Other };
                }
            }
        }
        if self.stream == Stream::Other {
            if passed.is_empty() {
                return Ok(Passed { bytes: piece, body: 0 });
            }
            passed.put(piece);
            return Ok(Passed { bytes: passed.freeze(), body: 0 });
        }
        let mut body = 0;
        while piece.has_remaining() {
            if self.left == 0 {
                self.read_head(&mut piece, &mut passed)?;
                continue;
            }
            let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len());
            self.left -= length as u64;
            let part = piece.split_to(length);
            if self.frame == Kind::Dropped {
                continue;
            }
            if self.frame == Kind::Data {
                body += length as u64;
            }
            // Mostly the piece is of one frame, and costs no copy.
            if passed.is_empty() && piece.is_empty() {
                return Ok(Passed { bytes: part, body });
            }
            passed.put(part);
        }
        Ok(Passed { bytes: passed.freeze(), body })
    }

    fn read_head(&mut self, piece: &mut Bytes, passed: &mut BytesMut) -> Result<(), Excess> {
        self.head.put_u8(piece.get_u8());
        debug_assert!(self.head.len() <= HEAD, "two integers are complete by then");
        let mut head = &self.head[..];
        let (Some(kind), Some(length)) = (integer(&mut head), integer(&mut head)) else {
            return Ok(());
        };
        let known = KNOWN.contains(&kind) || kind == MAX_PUSH_ID;
        let means_nothing = !known || (kind == DATA && length == 0);
        if kind != DATA && length > self.limit {
            return Err(Excess::Frame(length));
        }
        if self.stream == Stream::Control && PRIORITY_UPDATE.contains(&kind) {
            // Dropped below, as a frame of an unknown type.
        } else if means_nothing {
            self.meaningless += 1;
            if self.meaningless > MEANINGLESS {
                return Err(Excess::Meaningless);
            }
        } else {
            passed.put(&self.head[..]);
        }
        self.frame = match kind {
            DATA => Kind::Data,
            _ if known => Kind::Kept,
            _ => Kind::Dropped,
        };
        self.left = length;
        self.head.clear();
        Ok(())
    }
}

/// Reads an integer of variable length (RFC 9000, section 16), if all of it is there.
fn integer(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let (all, rest) = bytes.split_at_checked(length)?;
    let more = all.iter().skip(1);
    let value = more.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    *bytes = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(filter: &mut Filter, pieces: &[&[u8]]) -> Result<(Vec<u8>, u64), Excess> {
        let (mut all, mut bodies) = (Vec::new(), 0);
        for piece in pieces {
            let Passed { bytes, body } = filter.pass(Bytes::copy_from_slice(piece))?;
            all.extend(bytes);
            bodies += body;
        }
        Ok((all, bodies))
    }

    #[test]
    fn frames_are_passed_on_whatever_pieces_they_arrive_in() {
        let stream: &[u8] = b"\x01\x03abc\x00\x02de\x00\x00\x21\x02xx\x00\x40\x04fghi";
        let expected = (b"\x01\x03abc\x00\x02de\x00\x40\x04fghi".to_vec(), 6);
        for size in 1..=stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            let outcome = passed(&mut Filter::of_request(100), &pieces);
            assert_eq!(outcome, Ok(expected.clone()), "pieces of {size}");
        }
    }

    #[test]
    fn a_long_frame_that_is_no_body_is_refused_by_its_head() {
        let outcome = passed(&mut Filter::of_request(100), &[b"\x01\x40\x65"]);
        assert_eq!(outcome, Err(Excess::Frame(101)));
        let data = passed(&mut Filter::of_request(100), &[b"\x00\x7f\xffabc"]);
        assert_eq!(data, Ok((b"\x00\x7f\xffabc".to_vec(), 3)));
    }

    #[test]
    fn frames_that_mean_nothing_are_counted() {
        let mut filter = Filter::of_request(100);
        let most = b"\x00\x00".repeat(MEANINGLESS);
        assert_eq!(passed(&mut filter, &[&most]), Ok((Vec::new(), 0)));
        assert_eq!(passed(&mut filter, &[b"\x21\x00"]), Err(Excess::Meaningless));
    }

    #[test]
    fn priorities_are_dropped_uncounted_on_a_control_stream_alone() {
        let (of_request, of_push) = (b"\x80\x0f\x07\x00\x01x", b"\x80\x0f\x07\x01\x01x");
        let mut control = Filter::of_unidirectional(16);
        for piece in [&b"\x00"[..], &of_request.repeat(1000), &of_push.repeat(1000)] {
            assert!(passed(&mut control, &[piece]).unwrap().0.len() <= 1);
        }
        let most = b"\x21\x00".repeat(MEANINGLESS);
        assert_eq!(passed(&mut control, &[&most]), Ok((Vec::new(), 0)));
        assert_eq!(passed(&mut control, &[b"\x21\x00"]), Err(Excess::Meaningless));
        let mut long = Filter::of_unidirectional(16);
        let long = passed(&mut long, &[b"\x00\x80\x0f\x07\x00\x11"]);
        assert_eq!(long, Err(Excess::Frame(17)));
        let mut request = Filter::of_request(16);
        let counted = passed(&mut request, &[&of_request.repeat(MEANINGLESS + 1)]);
        assert_eq!(counted, Err(Excess::Meaningless));
    }

    #[test]
    fn a_control_stream_has_frames_and_others_have_not() {
        let mut control = Filter::of_unidirectional(16);
        let outcome = passed(&mut control, &[b"\x00", b"\x04\x01x\x21\x01y"]);
        assert_eq!(outcome, Ok((b"\x00\x04\x01x".to_vec(), 0)));
        assert_eq!(passed(&mut control, &[b"\x04\x11"]), Err(Excess::Frame(17)));
        let mut encoder = Filter::of_unidirectional(16);
        let outcome = passed(&mut encoder, &[b"\x02\xff\xff\xff", b"\xff"]);
        assert_eq!(outcome, Ok((b"\x02\xff\xff\xff\xff".to_vec(), 0)));
    }
}
