//! Responses that are read whole: for clients that need the body in one piece.
//!
//! Invariants
//! - Each byte is looked at once, however many pieces the response arrives in.
//! - A body with a length is not copied.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};

use crate::decoder::{BadChunk, Decoder, Piece};
use crate::response::{BadHead, Framing, HeadLimits, ResponseHead, ResponseReader};

/// Interim responses in front of one response.
const INTERIM: usize = 100;

/// A response with its whole body.
#[derive(Debug)]
pub struct Response {
    /// The head. Its `keep_alive` is false if the body has ended with the connection.
    pub head: ResponseHead,
    /// The body, chunks joined.
    pub body: Bytes,
}

impl Response {
    /// Returns the first value of a field if it is text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

/// Why bytes are not a response that is accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CollectError {
    /// The head is malformed or too large.
    #[error("{0}")]
    Head(#[from] BadHead),
    /// The chunked coding is malformed.
    #[error("{0}")]
    Chunk(#[from] BadChunk),
    /// The body is larger than its limit.
    #[error("the body has more than {0} bytes")]
    LongBody(usize),
}

/// Reads whole responses to requests that have a body in their response: not to HEAD, not to CONNECT.
#[derive(Debug)]
pub struct Collector {
    head: ResponseReader,
    limits: HeadLimits,
    /// Limit for the body, in bytes.
    most: usize,
    interim: usize,
    /// The response whose head was read.
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    head: ResponseHead,
    decoder: Decoder,
    body: BytesMut,
}

impl Collector {
    /// Creates a collector with a limit for each body, in bytes.
    pub fn new(limits: HeadLimits, body: usize) -> Self {
        Self { head: ResponseReader::new(limits), limits, most: body, interim: 0, begun: None }
    }

    /// Discards a started response: the next bytes are another connection's.
    pub fn reset(&mut self) {
        *self = Self::new(self.limits, self.most);
    }

    /// Takes a response from the buffer, skipping interim responses. `None`: more has to arrive first.
    ///
    /// `ended`: nothing more will arrive. Then `None` means that the response is cut off.
    pub fn read(
        &mut self,
        input: &mut BytesMut,
        ended: bool,
    ) -> Result<Option<Response>, CollectError> {
        while self.begun.is_none() {
            let Some(mut head) = self.head.read(input)? else { return Ok(None) };
            if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
                self.interim += 1;
                if self.interim > INTERIM {
                    return Err(BadHead::NoAnswer.into());
                }
                continue;
            }
            let framing = head.framing(&Method::GET)?;
            head.keep_alive &= framing != Framing::Close;
            let decoder = Decoder::new(framing);
            self.begun = Some(Begun { head, decoder, body: BytesMut::new() });
        }
        let most = self.most;
        let Some(begun) = &mut self.begun else { return Ok(None) };
        let Some(body) = begun.body(input, ended, most)? else { return Ok(None) };
        self.interim = 0;
        Ok(self.begun.take().map(|begun| Response { head: begun.head, body }))
    }
}

impl Begun {
    fn body(
        &mut self,
        input: &mut BytesMut,
        ended: bool,
        most: usize,
    ) -> Result<Option<Bytes>, CollectError> {
        let too_long = CollectError::LongBody(most);
        // In one piece, out of the buffer.
        if let Some(left) = self.decoder.left() {
            let left = usize::try_from(left).map_err(|_large| too_long)?;
            if left > most {
                return Err(too_long);
            }
            if input.len() < left {
                input.reserve(left - input.len());
                return Ok(None);
            }
            return Ok(Some(input.split_to(left).freeze()));
        }
        loop {
            match self.decoder.take(input)? {
                Piece::Data(data) if self.body.len() + data.len() > most => return Err(too_long),
                Piece::Data(data) => self.body.extend_from_slice(&data),
                Piece::Trailers(_) | Piece::End => break,
                Piece::More if self.decoder.announces_more_than(most - self.body.len()) => {
                    return Err(too_long);
                }
                Piece::More if ended && self.decoder.end() => break,
                Piece::More => return Ok(None),
            }
        }
        Ok(Some(std::mem::take(&mut self.body).freeze()))
    }
}

/// Reads a response that was received up to the connection's end. `None`: it is malformed, cut off, or has bytes behind its end.
pub fn parse_response(bytes: &[u8]) -> Option<Response> {
    let limits = HeadLimits { bytes: bytes.len(), fields: 256 };
    let mut input = BytesMut::from(bytes);
    let response = Collector::new(limits, bytes.len()).read(&mut input, true).ok()??;
    input.is_empty().then_some(response)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_HEAD: usize = 64 << 10;
    const MAX_BODY: usize = 64 << 20;

    fn collector() -> Collector {
        Collector::new(HeadLimits { bytes: MAX_HEAD, fields: 100 }, MAX_BODY)
    }

    fn read(text: &str, ended: bool) -> Result<Option<Response>, CollectError> {
        collector().read(&mut BytesMut::from(text), ended)
    }

    #[test]
    fn a_response_ends_where_its_length_says() {
        let mut incoming = BytesMut::from(
            "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
        );
        let response = collector().read(&mut incoming, false).unwrap().unwrap();
        assert_eq!((response.head.status.as_u16(), &*response.body), (202, b"ok".as_slice()));
        assert!(response.head.keep_alive);
        assert_eq!(&*incoming, b"HTTP/1.1 200 OK\r\n");
    }

    #[test]
    fn chunks_are_joined_and_trailers_dropped() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(read(text, false).unwrap().unwrap().body, "abcde");
    }

    #[test]
    fn interim_responses_are_skipped_up_to_a_limit() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let response = "HTTP/1.1 204 No Content\r\n\r\n";
        let text = interim.repeat(INTERIM) + response;
        assert_eq!(read(&text, false).unwrap().unwrap().head.status, 204);
        let error = read(&(interim.to_owned() + &text), false).unwrap_err();
        assert_eq!(error, CollectError::Head(BadHead::NoAnswer));
    }

    #[test]
    fn a_response_without_a_length_ends_with_its_connection() {
        let text = "HTTP/1.0 200 OK\r\n\r\nall of it";
        assert!(read(text, false).unwrap().is_none());
        let response = read(text, true).unwrap().unwrap();
        assert_eq!(response.body, "all of it");
        assert!(!response.head.keep_alive);
    }

    #[test]
    fn a_truncated_response_is_rejected() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        ] {
            assert!(read(text, true).unwrap().is_none(), "{text:?}");
            assert!(parse_response(text.as_bytes()).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_received_response_is_read_whole_or_not_at_all() {
        let response =
            parse_response(b"HTTP/1.0 200 OK\r\nX-A: b\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert_eq!((response.field("x-a"), &*response.body), (Some("b"), b"{}".as_slice()));
        assert_eq!(parse_response(b"HTTP/1.0 200 OK\r\n\r\nabc").unwrap().body, "abc");
        assert!(
            parse_response(b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n{}").is_none(),
            "bytes behind its end"
        );
    }

    #[test]
    fn too_long_and_non_http_responses_are_rejected() {
        assert!(matches!(read("SSH-2.0-OpenSSH\r\n", false), Err(CollectError::Head(_))));
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BODY + 1);
        assert_eq!(read(&long, false).unwrap_err(), CollectError::LongBody(MAX_BODY));
        let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n";
        assert_eq!(read(chunk, false).unwrap_err(), CollectError::LongBody(MAX_BODY));
        let head = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(MAX_HEAD));
        assert_eq!(read(&head, false).unwrap_err(), CollectError::Head(BadHead::TooLarge));
    }

    #[test]
    fn a_response_in_small_chunks_costs_time_in_proportion_to_its_length() {
        let (mut collector, mut input) = (collector(), BytesMut::new());
        input.extend_from_slice(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..200_000 {
            input.extend_from_slice(b"1\r\nx\r\n");
            assert!(collector.read(&mut input, false).unwrap().is_none());
            assert!(input.is_empty(), "what was read is not looked at a second time");
        }
        input.extend_from_slice(b"0\r\n\r\n");
        assert_eq!(collector.read(&mut input, false).unwrap().unwrap().body.len(), 200_000);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), ended in any::<bool>()) {
            drop(collector().read(&mut BytesMut::from(&*bytes), ended));
            drop(parse_response(&bytes));
        }

        #[test]
        fn a_response_is_the_same_in_pieces_of_any_size(body in "[ -~]{0,60}", at in 0..100usize) {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            let text = if body.is_empty() { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned() } else { text };
            let (first, rest) = text.split_at(at.min(text.len() - 1));
            let (mut collector, mut incoming) = (collector(), BytesMut::from(first));
            prop_assert!(collector.read(&mut incoming, false).unwrap().is_none());
            incoming.extend_from_slice(rest.as_bytes());
            let response = collector.read(&mut incoming, false).unwrap().unwrap();
            prop_assert_eq!(response.body, body);
        }
    }
}
