//! FastCGI 1.0 as a web server uses it (<https://fastcgi-archives.github.io/FastCGI_Specification.html>): encodes
//! requests and decodes records, without I/O.
//!
//! Invariants
//! - A connection carries one request at a time, so every record has the same request id.
//! - A name and its value are in one PARAMS record, because php-fpm parses each record's pairs separately
//!   (`fcgi_read_request`, main/fastcgi.c).
//! - Decoding never panics on any input, and buffers no more than the current record.

use bytes::{Buf, Bytes, BytesMut};

use crate::variables::Sink;

/// Length of a record header in bytes.
pub(crate) const HEADER_LEN: usize = 8;
/// Maximum content of one record in bytes.
pub(crate) const MAX_CONTENT: usize = 65_535;

const VERSION: u8 = 1;
/// The only request id in use; 0 is that of management records.
const REQUEST_ID: u16 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const RESPONDER: u8 = 1;
const KEEP_CONN: u8 = 1;

/// The error for a variable that does not fit a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Reasons why input is not FastCGI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("record of version {0}")]
    Version(u8),
    #[error("END_REQUEST record of {0} bytes")]
    End(usize),
}

/// A record from an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A piece of the response, never empty.
    Stdout(Bytes),
    /// A piece of log output, never empty.
    Stderr(Bytes),
    /// The response is complete. A protocol status other than 0 means that the request was rejected.
    End { application: u32, protocol: u8 },
}

/// Returns the header of a record.
const fn header(kind: u8, length: u16) -> [u8; HEADER_LEN] {
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [high, low] = length.to_be_bytes();
    [VERSION, kind, id_high, id_low, high, low, 0, 0]
}

/// Returns the header of a STDIN record of `length` bytes; one of 0 bytes ends the body.
///
/// The application skips an empty one between two requests (`fcgi_read_request`, main/fastcgi.c).
pub(crate) fn stdin_header(length: usize) -> [u8; HEADER_LEN] {
    debug_assert!(
        length <= MAX_CONTENT,
        "the caller cuts a body into pieces of at most MAX_CONTENT"
    );
    header(STDIN, u16::try_from(length).unwrap_or(u16::MAX))
}

/// Writes a request's head: `BEGIN_REQUEST` for a connection that stays open, then PARAMS.
#[derive(Debug)]
pub(crate) struct RequestWriter<'a> {
    buffer: &'a mut Vec<u8>,
    /// Offset of the current PARAMS record's header.
    record: usize,
    too_large: bool,
}

impl<'a> RequestWriter<'a> {
    /// Starts a request at the end of `buffer`.
    pub(crate) fn new(buffer: &'a mut Vec<u8>) -> Self {
        buffer.extend_from_slice(&header(BEGIN_REQUEST, 8));
        buffer.extend_from_slice(&[0, RESPONDER, KEEP_CONN, 0, 0, 0, 0, 0]);
        let record = buffer.len();
        buffer.extend_from_slice(&header(PARAMS, 0));
        Self { buffer, record, too_large: false }
    }

    /// Ends the variables. The body follows in STDIN records.
    pub(crate) fn finish(mut self) -> Result<(), TooLarge> {
        self.close_record();
        if self.buffer.len() > self.record + HEADER_LEN {
            self.buffer.extend_from_slice(&header(PARAMS, 0));
        }
        if self.too_large { Err(TooLarge) } else { Ok(()) }
    }

    /// Writes the length of the current record into its header.
    fn close_record(&mut self) {
        let length = self.buffer.len() - self.record - HEADER_LEN;
        let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        if let Some(place) = self.buffer.get_mut(self.record + 4..self.record + 6) {
            place.copy_from_slice(&length);
        }
    }

    fn length(&mut self, length: usize) {
        if let Ok(short @ 0..=127) = u8::try_from(length) {
            self.buffer.push(short);
        } else {
            let long = u32::try_from(length).unwrap_or(u32::MAX) | 1 << 31;
            self.buffer.extend_from_slice(&long.to_be_bytes());
        }
    }
}

impl Sink for RequestWriter<'_> {
    fn pair_from(&mut self, name: &[u8], length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let size_of = |length: usize| if length < 128 { 1 } else { 4 };
        let size = size_of(name.len()) + size_of(length) + name.len() + length;
        if size > MAX_CONTENT {
            self.too_large = true;
            return;
        }
        if self.buffer.len() - self.record - HEADER_LEN + size > MAX_CONTENT {
            self.close_record();
            self.record = self.buffer.len();
            self.buffer.extend_from_slice(&header(PARAMS, 0));
        }
        self.length(name.len());
        self.length(length);
        self.buffer.extend_from_slice(name);
        let start = self.buffer.len();
        write(self.buffer);
        debug_assert_eq!(self.buffer.len() - start, length, "the value has the promised length");
    }
}

/// Removes and returns the next record that concerns a request; `None` while it is incomplete.
pub(crate) fn decode(arrived: &mut BytesMut) -> Result<Option<Record>, Malformed> {
    loop {
        let Some(&[version, kind, id_high, id_low, high, low, padding, _reserved]) =
            arrived.first_chunk::<HEADER_LEN>()
        else {
            return Ok(None);
        };
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if arrived.len() < HEADER_LEN + length + usize::from(padding) {
            return Ok(None);
        }
        arrived.advance(HEADER_LEN);
        let content = arrived.split_to(length).freeze();
        arrived.advance(padding.into());
        if u16::from_be_bytes([id_high, id_low]) != REQUEST_ID {
            continue;
        }
        match (kind, &*content) {
            // An empty record ends its stream; END_REQUEST implies that.
            (STDOUT | STDERR, []) => {}
            (STDOUT, _) => return Ok(Some(Record::Stdout(content))),
            (STDERR, _) => return Ok(Some(Record::Stderr(content))),
            (END_REQUEST, &[a, b, c, d, protocol, _, _, _]) => {
                let application = u32::from_be_bytes([a, b, c, d]);
                return Ok(Some(Record::End { application, protocol }));
            }
            (END_REQUEST, _) => return Err(Malformed::End(length)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses the variables of a written head as php-fpm does: record by record.
    fn read_back(mut bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        fn length(bytes: &mut &[u8]) -> usize {
            let first = bytes.get_u8();
            if first < 128 {
                return first.into();
            }
            let rest = [bytes.get_u8(), bytes.get_u8(), bytes.get_u8()];
            u32::from_be_bytes([first & 0x7f, rest[0], rest[1], rest[2]]) as usize
        }
        assert_eq!(
            bytes.split_off(..16).unwrap(),
            [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
        );
        let mut pairs = Vec::new();
        loop {
            let head = bytes.split_off(..8).unwrap();
            assert_eq!(head[..4], [1, 4, 0, 1]);
            let size = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let mut record = bytes.split_off(..size).unwrap();
            if record.is_empty() {
                assert!(bytes.is_empty(), "nothing follows the last PARAMS record");
                return pairs;
            }
            while !record.is_empty() {
                let (name, value) = (length(&mut record), length(&mut record));
                let name = record.split_off(..name).unwrap().to_vec();
                pairs.push((name, record.split_off(..value).unwrap().to_vec()));
            }
        }
    }

    #[test]
    fn a_variable_larger_than_a_record_is_refused() {
        let value = vec![b'x'; MAX_CONTENT];
        let mut buffer = Vec::new();
        let mut writer = RequestWriter::new(&mut buffer);
        writer.pair(b"A", &value);
        assert_eq!(writer.finish(), Err(TooLarge));
    }

    #[test]
    fn no_variables_are_one_empty_record() {
        let mut buffer = Vec::new();
        RequestWriter::new(&mut buffer).finish().unwrap();
        assert_eq!(read_back(&buffer), []);
    }

    #[test]
    fn records_of_others_are_skipped_and_an_answer_is_read() {
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(&[1, 10, 0, 0, 0, 2, 1, 0, 9, 9, 0]); // GET_VALUES_RESULT, one byte of padding
        bytes.extend_from_slice(&[1, 6, 0, 1, 0, 3, 2, 0, b'a', b'b', b'c', 0, 0]);
        bytes.extend_from_slice(&[1, 7, 0, 1, 0, 1, 0, 0, b'e']);
        bytes.extend_from_slice(&[1, 6, 0, 1, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 1]);
        assert_eq!(decode(&mut bytes), Ok(Some(Record::Stdout(Bytes::from_static(b"abc")))));
        assert_eq!(decode(&mut bytes), Ok(Some(Record::Stderr(Bytes::from_static(b"e")))));
        assert_eq!(decode(&mut bytes), Ok(Some(Record::End { application: 255, protocol: 0 })));
        assert_eq!(decode(&mut bytes), Ok(None));
        assert_eq!(&bytes[..], [1], "what has begun stays");
    }

    #[test]
    fn what_is_no_fastcgi_is_told_by_its_first_record() {
        assert_eq!(decode(&mut BytesMut::from("HTTP/1.1 400 Bad")), Err(Malformed::Version(b'H')));
        let short = [1, 3, 0, 1, 0, 1, 0, 0, 0];
        assert_eq!(decode(&mut BytesMut::from(&short[..])), Err(Malformed::End(1)));
    }

    proptest! {
        #[test]
        fn variables_arrive_as_they_were_written(
            pairs in proptest::collection::vec(("[A-Z_]{1,140}", 0_usize..40_000), 0..20)
        ) {
            let pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs
                .into_iter()
                .map(|(name, length)| (name.into_bytes(), vec![b'v'; length]))
                .collect();
            let mut buffer = Vec::new();
            let mut writer = RequestWriter::new(&mut buffer);
            for (name, value) in &pairs {
                writer.pair(name, value);
            }
            prop_assert_eq!(writer.finish(), Ok(()));
            prop_assert_eq!(read_back(&buffer), pairs);
        }

        #[test]
        fn any_bytes_in_any_pieces_decode_the_same(
            bytes in proptest::collection::vec(prop_oneof![0_u8..8, any::<u8>()], 0..600),
            cut in 1_usize..50,
        ) {
            let all = |arrived: &mut BytesMut| {
                let mut records = Vec::new();
                loop {
                    match decode(arrived) {
                        Ok(Some(record)) => records.push(record),
                        Ok(None) => return (records, None),
                        Err(malformed) => return (records, Some(malformed)),
                    }
                }
            };
            let at_once = all(&mut BytesMut::from(&bytes[..]));
            let mut arrived = BytesMut::new();
            let mut piece_by_piece = (Vec::new(), None);
            for piece in bytes.chunks(cut) {
                arrived.extend_from_slice(piece);
                let (records, malformed) = all(&mut arrived);
                piece_by_piece.0.extend(records);
                piece_by_piece.1 = malformed;
                if malformed.is_some() {
                    break;
                }
            }
            prop_assert_eq!(at_once, piece_by_piece);
        }
    }
}
