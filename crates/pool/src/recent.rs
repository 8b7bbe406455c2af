//! The most recent items of a kind, for display.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Maximum number of items.
const KEPT: usize = 50;

/// The last [`KEPT`] items; a new one replaces the oldest.
#[derive(Debug)]
pub(crate) struct Recent<T>(Mutex<VecDeque<T>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<T: Clone> Recent<T> {
    pub(crate) fn push(&self, item: T) {
        let mut items = self.0.lock().expect("no holder panics");
        items.truncate(KEPT - 1);
        items.push_front(item);
    }

    /// Returns all items, the newest first.
    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().expect("no holder panics").iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_newest_first() {
        let recent = Recent::default();
        for number in 0..KEPT + 7 {
            recent.push(number);
        }
        let all = recent.all();
        assert_eq!(all.len(), KEPT);
        assert_eq!((all[0], all[KEPT - 1]), (KEPT + 6, 7));
    }
}
