//! Sockets that have something to be written, in the order in which they got it.

use std::collections::VecDeque;

/// Slots, first in, first out. A socket stands there at most once: it knows itself whether it does.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    slots: VecDeque<u32>,
    /// So many have been taken out.
    taken: u64,
    /// When so many have been taken out, all are that stood here at [`Dirty::mark`].
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

    /// Remembers those who stand here now.
    pub(super) fn mark(&mut self) {
        self.marked = self.taken + self.slots.len() as u64;
    }

    /// Have all been taken out that stood here at the mark?
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
    fn those_who_come_later_do_not_move_the_mark() {
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
