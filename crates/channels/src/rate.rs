//! Token buckets.

use crate::moment::Moment;

/// A token bucket that refills by a whole number of tokens per second.
///
/// Invariants
/// - At most the allowance passes at one instant, and at most twice the allowance in one second.
/// - A clock that stands still or goes back adds no tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Available tokens in thousandths.
    level: u64,
    filled: Moment,
}

/// Thousandths per token: at one token a second, each millisecond adds one thousandth.
const TOKEN: u64 = 1000;

impl Bucket {
    /// Returns a full bucket.
    pub(crate) fn full(at_once: u32, now: Moment) -> Self {
        Self { level: u64::from(at_once) * TOKEN, filled: now }
    }

    /// Takes one token if there is one.
    pub(crate) fn take(&mut self, per_second: u32, now: Moment) -> bool {
        self.take_of(per_second, per_second, now)
    }

    /// Takes one token of a bucket with the capacity `at_once` and the given refill rate.
    pub(crate) fn take_of(&mut self, at_once: u32, per_second: u32, now: Moment) -> bool {
        self.level = self.level_at(at_once, per_second, now);
        self.filled = self.filled.max(now);
        let enough = self.level >= TOKEN;
        if enough {
            self.level -= TOKEN;
        }
        enough
    }

    /// Returns whether `tokens` tokens are available.
    pub(crate) fn has(&self, tokens: usize, per_second: u32, now: Moment) -> bool {
        (tokens as u64).saturating_mul(TOKEN) <= self.level_at(per_second, per_second, now)
    }

    /// Returns whether the bucket is full and therefore need not be kept.
    pub(crate) fn is_full(&self, per_second: u32, now: Moment) -> bool {
        self.level_at(per_second, per_second, now) == u64::from(per_second) * TOKEN
    }

    fn level_at(&self, at_once: u32, per_second: u32, now: Moment) -> u64 {
        let passed = now.millis().saturating_sub(self.filled.millis());
        let back = passed.saturating_mul(u64::from(per_second));
        self.level.saturating_add(back).min(u64::from(at_once) * TOKEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_can_be_used_at_once_and_refills_evenly() {
        let at = Moment::from_millis;
        let mut bucket = Bucket::full(10, at(0));
        assert!(bucket.has(10, 10, at(0)) && !bucket.has(11, 10, at(0)));
        assert_eq!((0..20).filter(|_| bucket.take(10, at(0))).count(), 10);
        assert!(!bucket.take(10, at(99)));
        assert!(bucket.has(1, 10, at(100)) && !bucket.has(2, 10, at(100)));
        assert!(bucket.take(10, at(100)));
        assert!(!bucket.take(10, at(100)));
        assert_eq!((0..20).filter(|_| bucket.take(10, at(10_000))).count(), 10);
        assert!(!bucket.is_full(10, at(10_999)));
        assert!(bucket.is_full(10, at(11_000)));
    }

    #[test]
    fn a_large_burst_may_refill_slowly() {
        let at = Moment::from_millis;
        let mut bucket = Bucket::full(100, at(0));
        let taken = |bucket: &mut Bucket, now| {
            (0..1000).filter(|_| bucket.take_of(100, 20, at(now))).count()
        };
        assert_eq!(taken(&mut bucket, 0), 100);
        assert_eq!(taken(&mut bucket, 1000), 20);
        assert_eq!(taken(&mut bucket, 1_000_000), 100);
    }

    #[test]
    fn a_clock_that_goes_back_adds_no_tokens() {
        let at = Moment::from_millis;
        let mut bucket = Bucket::full(1, at(5000));
        assert!(bucket.take(1, at(5000)));
        assert!(!bucket.take(1, at(1000)));
        assert!(!bucket.take(1, at(5000)));
        assert!(bucket.take(1, at(6000)));
    }

    #[test]
    fn an_allowance_of_zero_rejects_everything() {
        let mut bucket = Bucket::full(0, Moment::default());
        assert!(!bucket.take(0, Moment::from_millis(u64::MAX)));
    }
}
