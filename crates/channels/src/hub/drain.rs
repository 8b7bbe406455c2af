//! How an event loop stops: it first accepts no new connections, then closes the open ones in small groups.

use std::time::Duration;

use super::listener::LAST_ARRIVALS;
use crate::moment::Moment;

/// Maximum time per socket; closing a few sockets takes no longer than needed.
const PACE: Duration = Duration::from_millis(20);
/// How long a client may take to answer a close frame when the process stops. Its close frame has been sent by then.
pub(super) const CLOSING: Duration = Duration::from_secs(2);
/// Interval between two groups.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// A drain in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    began: Moment,
    /// How long the listeners stay open.
    listening: Duration,
    /// Time over which closing is spread.
    spread: Duration,
    /// Number of sockets closed by the drain.
    pub(super) closed: usize,
    /// The next slot to check.
    pub(super) slot: u32,
}

impl Drain {
    /// Starts a drain of `open` sockets.
    pub(super) fn new(now: Moment, patience: Duration, open: usize) -> Self {
        let spread = PACE.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX)).min(patience);
        Self { began: now, listening: patience.min(LAST_ARRIVALS), spread, closed: 0, slot: 0 }
    }

    /// Returns when the listeners are closed.
    pub(super) fn listeners_end(&self) -> Moment {
        self.began + self.listening
    }

    /// Returns how many of the `open` remaining sockets must be closed now to finish in time.
    pub(super) fn slice(&self, open: usize, now: Moment) -> usize {
        let passed = now.since(self.began).as_millis();
        let spread = self.spread.as_millis();
        if passed >= spread {
            return usize::MAX;
        }
        let all = (open + self.closed) as u128;
        let share = usize::try_from(all * passed / spread).unwrap_or(usize::MAX);
        share.saturating_sub(self.closed)
    }

    /// Returns when the remaining connections are dropped.
    pub(super) fn end(&self, close_timeout: Duration) -> Moment {
        self.began + self.spread.max(self.listening) + close_timeout.min(CLOSING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_closed_evenly_over_the_patience() {
        let at = |millis: u64| Moment::from_millis(1000 + millis);
        let mut drain = Drain::new(at(0), Duration::from_secs(10), 1000);
        let mut open = 1000;
        for (millis, closed) in [(0, 0), (50, 5), (100, 10), (5_000, 500), (9_990, 999)] {
            let slice = drain.slice(open, at(millis));
            open -= slice;
            drain.closed += slice;
            assert_eq!(drain.closed, closed, "after {millis} ms");
        }
        assert_eq!(drain.slice(open, at(10_000)), usize::MAX);
    }

    #[test]
    fn a_few_sockets_are_closed_faster_than_the_patience_allows() {
        let at = |millis: u64| Moment::from_millis(1000 + millis);
        let (patience, close_timeout) = (Duration::from_secs(30), Duration::from_secs(5));
        let drain = Drain::new(at(0), patience, 10);
        assert_eq!((drain.slice(10, at(100)), drain.slice(10, at(200))), (5, usize::MAX));
        // Connections whose handshake had started are accepted first.
        assert_eq!(drain.listeners_end(), at(900));
        assert_eq!(drain.end(close_timeout), at(2_900));
        let immediate = Drain::new(at(0), Duration::ZERO, 10);
        assert_eq!((immediate.listeners_end(), immediate.end(close_timeout)), (at(0), at(2_000)));
    }
}
