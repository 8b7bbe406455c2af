//! The prelude of a streamed HTTP response: JSON with status, header fields and cookies, followed by eight NUL bytes
//! and the body.

use bytes::{Bytes, BytesMut};

use super::reply::{BadReply, Head};

/// Media type of responses with a prelude.
pub(super) const MEDIA_TYPE: &str = "application/vnd.awslambda.http-integration-response";
/// End of the prelude.
const DELIMITER: [u8; 8] = [0; 8];
/// Maximum size of a prelude; header fields of a response are far smaller.
const MAX: usize = 1 << 20;

/// Collects chunks until the prelude is complete.
#[derive(Debug, Default)]
pub(super) struct Prelude {
    received: BytesMut,
}

impl Prelude {
    /// Adds a chunk. Returns the head and the beginning of the body once the prelude is complete.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<Option<(Head, Bytes)>, BadReply> {
        // The delimiter may be split between two chunks.
        let from = self.received.len().saturating_sub(DELIMITER.len() - 1);
        self.received.extend_from_slice(chunk);
        let found = self.received[from..].windows(DELIMITER.len()).position(|w| w == DELIMITER);
        let Some(at) = found else {
            return if self.received.len() > MAX {
                Err(BadReply("the prelude of a streamed answer has no end".into()))
            } else {
                Ok(None)
            };
        };
        let json = self.received.split_to(from + at);
        let rest = self.received.split_off(DELIMITER.len()).freeze();
        let value = serde_json::from_slice(&json)
            .map_err(|error| BadReply(format!("the prelude of a streamed answer: {error}")))?;
        Ok(Some((Head::of_prelude(&value)?, rest)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_prelude_is_parsed_in_any_pieces(
            cuts in proptest::collection::vec(1..9_usize, 1..40),
            body in proptest::collection::vec(any::<u8>(), 0..30),
        ) {
            let mut whole = br#"{"statusCode":201,"headers":{"x-a":"b"}}"#.to_vec();
            whole.extend(DELIMITER);
            whole.extend(&body);
            let mut prelude = Prelude::default();
            let mut left = whole.as_slice();
            let mut head = None;
            let mut rest = Vec::new();
            for cut in cuts.into_iter().cycle() {
                let (chunk, after) = left.split_at(cut.min(left.len()));
                left = after;
                if head.is_some() {
                    rest.extend(chunk);
                } else if let Some((found, first)) = prelude.push(chunk).unwrap() {
                    head = Some(found);
                    rest.extend(first);
                }
                if left.is_empty() {
                    break;
                }
            }
            let head = head.expect("the prelude was whole");
            prop_assert_eq!(head.status.as_u16(), 201);
            prop_assert_eq!(&head.headers["x-a"], "b");
            prop_assert_eq!(rest, body);
        }
    }

    #[test]
    fn an_invalid_prelude_is_rejected() {
        assert!(Prelude::default().push(b"<html>\0\0\0\0\0\0\0\0").is_err());
        assert!(Prelude::default().push(&vec![b' '; MAX + 1]).is_err());
        assert!(Prelude::default().push(b"{\"statusCode\":200}\0\0\0").unwrap().is_none());
    }
}
