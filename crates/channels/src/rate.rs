//! Token buckets: so many at once, and as many again each second.

use crate::moment::Moment;

/// What is left of an allowance of some whole number a second.
///
/// Invariants
/// - No more than the allowance passes in any one instant, and no more than twice of it in any one second.
/// - A clock that stands still or goes back gives nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Thousandths of a token.
    level: u64,
    filled: Moment,
}

/// Thousandths: an allowance of one a second gives one of them each millisecond.
const TOKEN: u64 = 1000;

impl Bucket {
    /// A full one.
    pub(crate) fn full(at_once: u32, now: Moment) -> Self {
        Self { level: u64::from(at_once) * TOKEN, filled: now }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, per_second: u32, now: Moment) -> bool {
        self.take_of(per_second, per_second, now)
    }

    /// The same of an allowance of `at_once`, some of which comes back each second.
    pub(crate) fn take_of(&mut self, at_once: u32, per_second: u32, now: Moment) -> bool {
        self.level = self.level_at(at_once, per_second, now);
        self.filled = self.filled.max(now);
        let enough = self.level >= TOKEN;
        if enough {
            self.level -= TOKEN;
        }
        enough
    }

    /// Would so many be there to be taken?
    pub(crate) fn has(&self, tokens: usize, per_second: u32, now: Moment) -> bool {
        (tokens as u64).saturating_mul(TOKEN) <= self.level_at(per_second, per_second, now)
    }

    /// Does it say no more than a new one would?
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
    fn an_allowance_passes_at_once_and_comes_back_evenly() {
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
    fn much_at_once_may_come_back_slowly() {
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
    fn a_clock_that_goes_back_gives_nothing() {
        let at = Moment::from_millis;
        let mut bucket = Bucket::full(1, at(5000));
        assert!(bucket.take(1, at(5000)));
        assert!(!bucket.take(1, at(1000)));
        assert!(!bucket.take(1, at(5000)));
        assert!(bucket.take(1, at(6000)));
    }

    #[test]
    fn an_allowance_of_nothing_passes_nothing() {
        let mut bucket = Bucket::full(0, Moment::default());
        assert!(!bucket.take(0, Moment::from_millis(u64::MAX)));
    }
}
