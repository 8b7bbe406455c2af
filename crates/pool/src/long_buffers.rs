//! Buffers into which long response bodies are read. They are used again, because memory fresh from the system costs
//! more than what is copied into it.
//!
//! Invariants
//! - A buffer is handed out only when nothing that was read into it is in use.
//! - At most [`KEPT`] wait for their next use, for each thread; those in use are bounded by what readers hold.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::BytesMut;

/// Four pieces of full length, which are then read by one call.
const SIZE: usize = 4 * (wire::HEADER_LEN + wire::MAX_BODY);
/// Two megabytes in total.
const KEPT: usize = 8;

thread_local! {
    /// The longest unused first.
    static WAITING: RefCell<VecDeque<BytesMut>> = const { RefCell::new(VecDeque::new()) };
}

/// Returns an empty buffer.
pub(crate) fn take() -> BytesMut {
    let used = WAITING.with_borrow_mut(|waiting| {
        // The first was read the longest ago: if its bytes are still in use, so are most others'.
        let is_free = waiting.front_mut().is_some_and(|first| first.try_reclaim(SIZE));
        if is_free { waiting.pop_front() } else { None }
    });
    used.unwrap_or_else(|| BytesMut::with_capacity(SIZE))
}

/// Takes a buffer back, parts of which may still be in use.
pub(crate) fn give_back(mut buffer: BytesMut) {
    buffer.clear();
    WAITING.with_borrow_mut(|waiting| {
        if waiting.len() == KEPT {
            waiting.pop_front();
        }
        waiting.push_back(buffer);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nothing_of_it_is_in_use() {
        let mut buffer = take();
        buffer.extend_from_slice(&[1; 100]);
        let place = buffer.as_ptr();
        let piece = buffer.split().freeze();
        give_back(buffer);
        let other = take();
        assert_ne!(other.as_ptr(), place, "its piece is in use");
        assert_eq!(*piece, [1; 100]);
        drop(piece);
        let again = take();
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        assert!(again.capacity() >= SIZE && other.capacity() >= SIZE);
    }

    #[test]
    fn few_buffers_wait() {
        for _ in 0..3 * KEPT {
            give_back(BytesMut::with_capacity(SIZE));
        }
        assert_eq!(WAITING.with_borrow(VecDeque::len), KEPT);
    }
}
