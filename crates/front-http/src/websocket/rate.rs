//! A limit on a client's messages per second: a token bucket that holds the messages of one second.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

/// The bucket of one connection.
#[derive(Debug)]
pub(super) struct Rate {
    limit: Option<NonZeroU32>,
    /// The time at which the bucket is full again: the theoretical arrival time of the generic cell rate algorithm.
    full: Option<Instant>,
}

impl Rate {
    pub(super) fn new(limit: Option<NonZeroU32>) -> Self {
        Self { limit, full: None }
    }

    /// Counts a message. Returns whether it is within the limit.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let Some(limit) = self.limit else { return true };
        let full =
            self.full.map_or(now, |full| full.max(now)) + Duration::from_secs(1) / limit.get();
        if full > now + Duration::from_secs(1) {
            return false;
        }
        self.full = Some(full);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_messages_may_come_at_once_and_no_more() {
        let start = Instant::now();
        let mut rate = Rate::new(NonZeroU32::new(5));
        assert!((0..5).all(|_| rate.allows(start)));
        assert!(!rate.allows(start));
        assert!(rate.allows(start + Duration::from_millis(200)));
        assert!(!rate.allows(start + Duration::from_millis(200)));
        assert!((0..1000).all(|_| Rate::new(None).allows(start)));
    }
}
