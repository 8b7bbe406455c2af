//! How an event loop ends: first nobody new, then those there are, a few at a time.

use std::time::Duration;

use super::listener::LAST_ARRIVALS;
use crate::moment::Moment;

/// How often a slice is closed.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// A drain under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    began: Moment,
    patience: Duration,
    /// Sockets closed by it.
    pub(super) closed: usize,
    /// The next slot to look at.
    pub(super) slot: u32,
}

impl Drain {
    pub(super) fn new(now: Moment, patience: Duration) -> Self {
        Self { began: now, patience, closed: 0, slot: 0 }
    }

    /// When listeners are to be closed.
    pub(super) fn listeners_end(&self) -> Moment {
        self.began + self.patience.min(LAST_ARRIVALS)
    }

    /// How many sockets are to be closed now, when `open` are still open: as many as are needed to be done in time.
    pub(super) fn slice(&self, open: usize, now: Moment) -> usize {
        let passed = now.since(self.began).as_millis();
        let patience = self.patience.as_millis();
        if passed >= patience {
            return usize::MAX;
        }
        let all = (open + self.closed) as u128;
        let share = usize::try_from(all * passed / patience).unwrap_or(usize::MAX);
        share.saturating_sub(self.closed)
    }

    /// When whatever is left is dropped.
    pub(super) fn end(&self, close_timeout: Duration) -> Moment {
        self.began + self.patience + close_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_closed_evenly_over_the_patience() {
        let at = |millis: u64| Moment::from_millis(1000 + millis);
        let mut drain = Drain::new(at(0), Duration::from_secs(10));
        let mut open = 1000;
        for (millis, closed) in [(0, 0), (50, 5), (100, 10), (5_000, 500), (9_990, 999)] {
            let slice = drain.slice(open, at(millis));
            open -= slice;
            drain.closed += slice;
            assert_eq!(drain.closed, closed, "after {millis} ms");
        }
        assert_eq!(drain.slice(open, at(10_000)), usize::MAX);
    }
}
