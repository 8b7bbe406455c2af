//! Entry points of fuzz targets. Each asserts the main invariant of its part.

use crate::websocket::{Decoder, Inflater, Rules, Violation};

/// Decodes frames of a client. The first byte is the length of the pieces into which the rest is cut. The result must
/// not depend on it, and the memory held must be bounded.
pub fn websocket(input: &[u8]) {
    let Some((cut, input)) = input.split_first() else { return };
    let pieces = decode(input, usize::from(*cut).max(1));
    let whole = decode(input, usize::MAX);
    assert_eq!(pieces, whole, "cut into pieces of {cut}");
}

/// Sends a request of a stranger to a Mercure hub: a line with a token, one with the query, and a form. Nothing is
/// published without a signature, and no update adds a field to its event.
pub fn mercure(input: &[u8]) {
    crate::mercure::fuzz(input);
}

fn decode(input: &[u8], piece: usize) -> (Vec<String>, Option<Violation>) {
    let rules = Rules { message: 4096, deflate: true };
    let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
    let mut messages = Vec::new();
    for piece in input.chunks(piece) {
        let mut piece = piece.to_vec();
        let mut at = 0;
        loop {
            match decoder.next(&mut piece[at..], rules, &mut inflater) {
                Err(violation) => return (messages, Some(violation)),
                Ok(step) => {
                    at += step.consumed;
                    let Some(message) = step.message else { break };
                    messages.push(format!("{message:?}"));
                }
            }
        }
        assert_eq!(at, piece.len(), "without a message, all is consumed");
        assert!(decoder.held() <= rules.message * 2 + 512);
    }
    (messages, None)
}
