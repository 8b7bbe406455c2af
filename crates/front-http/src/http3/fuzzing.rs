//! Entry point of the fuzz target `http3`: what our own code reads of a client's packets and streams before quinn and h3 do, and of
//! packets that another process passes on.

use bytes::Bytes;

use super::filter::{Excess, Filter};
use super::ids::Process;
use super::socket::Envelope;

/// Limit of frames that are no part of a body.
const LIMIT: u64 = 1000;

/// The first byte of the input chooses the kind of stream, and into what pieces it is cut.
pub(crate) fn any(input: &[u8]) {
    let _process = Process::of_packet(input);
    if let Some((envelope, packet)) = Envelope::open(input) {
        let again = envelope.seal(packet);
        assert_eq!(Envelope::open(&again), Some((envelope, packet)));
    }
    let Some((&choice, stream)) = input.split_first() else { return };
    let filter = || {
        if choice & 1 == 0 { Filter::of_request(LIMIT) } else { Filter::of_unidirectional(LIMIT) }
    };
    let whole = pass(filter(), [stream]);
    let pieces = pass(filter(), stream.chunks(usize::from(choice >> 1) + 1));
    assert_eq!(whole, pieces, "pieces make no difference");
    if let Ok((passed, body)) = whole {
        assert!(passed.len() <= stream.len() && body <= passed.len() as u64);
        assert_eq!(pass(filter(), [&passed[..]]), Ok((passed, body)), "nothing more is dropped");
    }
}

fn pass<'a>(
    mut filter: Filter,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, u64), Excess> {
    let (mut all, mut bodies) = (Vec::new(), 0);
    for piece in pieces {
        let passed = filter.pass(Bytes::copy_from_slice(piece))?;
        all.extend(passed.bytes);
        bodies += passed.body;
    }
    Ok((all, bodies))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_handled_and_pieces_make_no_difference(
            choice: u8,
            frames in prop::collection::vec((0_u8..16, 0_u8..64, prop::collection::vec(any::<u8>(), 0..64)), 0..8),
            end in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut input = vec![choice];
            for (kind, more, payload) in frames {
                // Mostly whole frames, some of them cut or too long.
                let length = if more == 0 { 63 } else { u8::try_from(payload.len()).unwrap() };
                input.extend([kind, length]);
                input.extend(payload);
            }
            input.extend(end);
            super::any(&input);
        }
    }
}
