//! Queue of sockets that have something to write.

use std::collections::VecDeque;

/// Slots, first in, first out. A socket is queued at most once; the flag is in the socket.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    slots: VecDeque<u32>,
    /// Number of slots removed so far.
    taken: u64,
    /// Value of `taken` at which all slots queued at the last [`Dirty::mark`] have been removed.
    marked: u64,
}

impl Dirty {
    pub(super) fn push(&mut self, slot: u32) {
        self.slots.push_back(slot);
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.pop_front()?;
        self.taken += 1;
        if self.slots.is_empty() && self.slots.capacity() > 4096 {
            self.slots = VecDeque::new();
        }
        Some(slot)
    }

    /// Marks the slots that are queued now.
    pub(super) fn mark(&mut self) {
        self.marked = self.taken + self.slots.len() as u64;
    }

    /// Returns whether all slots queued at the mark have been removed.
    pub(super) fn is_past_mark(&self) -> bool {
        self.taken >= self.marked
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_sockets_do_not_move_the_mark() {
        let mut dirty = Dirty::default();
        assert!(dirty.is_past_mark());
        dirty.push(1);
        dirty.push(2);
        dirty.mark();
        for later in 3..10 {
            dirty.push(later);
        }
        assert!(!dirty.is_past_mark());
        assert_eq!((dirty.pop(), dirty.pop()), (Some(1), Some(2)));
        assert!(dirty.is_past_mark() && !dirty.is_empty());
    }
}
