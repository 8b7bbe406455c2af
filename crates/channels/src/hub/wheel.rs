//! The timer wheel of an event loop: one tick per second, one bucket for each of the next 64.
//!
//! A socket's deadline moves with each message, without updating the wheel. When its entry expires, the loop checks
//! the current deadline and adds the socket again. Keeping a socket alive therefore costs nothing here.
//!
//! Invariants
//! - An entry expires at its tick or later, never before. An entry beyond the width of the wheel expires early and is
//!   added again.
//! - The loop skips an entry that was superseded by an earlier one of the same socket: the socket stores the tick of
//!   its valid entry.

use std::time::Duration;

use crate::moment::Moment;

const BUCKETS: usize = 64;

/// Seconds since the clock started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    /// A tick later than all others.
    pub(super) const NEVER: Self = Self(u64::MAX);

    /// Returns the first tick that is not before `moment`.
    pub(super) fn not_before(moment: Moment) -> Self {
        Self(moment.millis().div_ceil(1000))
    }
}

/// Entries by the tick at which they expire.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    buckets: Box<[Vec<(Tick, T)>]>,
    /// The next tick to process.
    next: Tick,
    entries: usize,
}

impl<T> Wheel<T> {
    pub(super) fn new(now: Moment) -> Self {
        let next = Tick(now.millis() / 1000 + 1);
        Self { buckets: (0..BUCKETS).map(|_| Vec::new()).collect(), next, entries: 0 }
    }

    /// Adds an entry for `tick`, or for the next tick if that is past. Returns the tick at which it expires.
    pub(super) fn add(&mut self, tick: Tick, entry: T) -> Tick {
        let last = Tick(self.next.0 + BUCKETS as u64 - 1);
        let tick = tick.clamp(self.next, last);
        self.bucket(tick).push((tick, entry));
        self.entries += 1;
        tick
    }

    /// Moves the entries that have expired by `now` into `due`, with their ticks.
    pub(super) fn due(&mut self, now: Moment, due: &mut Vec<(Tick, T)>) {
        let reached = Tick(now.millis() / 1000);
        // After a long sleep each bucket is checked once.
        let rounds = (reached.0 + 1).saturating_sub(self.next.0).min(BUCKETS as u64);
        for tick in 0..rounds {
            let bucket = self.bucket(Tick(self.next.0 + tick));
            let before = due.len();
            due.append(bucket);
            // A burst must not leave its memory in every bucket.
            *bucket = Vec::new();
            self.entries -= due.len() - before;
        }
        self.next = self.next.max(Tick(reached.0 + 1));
    }

    /// Returns the time until the next tick; `None` if the wheel is empty.
    pub(super) fn wait(&self, now: Moment) -> Option<Duration> {
        let next = Moment::from_millis(self.next.0.saturating_mul(1000));
        (self.entries > 0).then(|| next.since(now))
    }

    fn bucket(&mut self, tick: Tick) -> &mut Vec<(Tick, T)> {
        let at = usize::try_from(tick.0 % BUCKETS as u64).expect("below 64");
        &mut self.buckets[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn due(wheel: &mut Wheel<u32>, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.due(at(now), &mut due);
        due.into_iter().map(|(_, entry)| entry).collect()
    }

    #[test]
    fn an_entry_expires_at_its_tick_and_not_before() {
        let mut wheel = Wheel::new(at(5_500));
        wheel.add(Tick::not_before(at(7_001)), 1);
        wheel.add(Tick::not_before(at(7_000)), 2);
        wheel.add(Tick::not_before(at(0)), 3);
        assert_eq!(wheel.wait(at(5_500)), Some(Duration::from_millis(500)));
        assert!(due(&mut wheel, 5_999).is_empty());
        assert_eq!(due(&mut wheel, 6_000), [3]);
        assert_eq!(due(&mut wheel, 7_999), [2]);
        assert_eq!(due(&mut wheel, 8_000), [1]);
        assert_eq!(wheel.wait(at(8_000)), None);
    }

    #[test]
    fn a_distant_entry_expires_early_and_a_long_sleep_loses_none() {
        let mut wheel = Wheel::new(at(0));
        let tick = wheel.add(Tick::not_before(at(3_600_000)), 1);
        assert_eq!(tick, Tick(BUCKETS as u64));
        for entry in 2..100 {
            wheel.add(Tick(u64::from(entry)), entry);
        }
        let mut all = due(&mut wheel, 10_000_000);
        all.sort_unstable();
        assert_eq!(all, (1..100).collect::<Vec<_>>());
        assert_eq!(wheel.add(Tick(0), 1), Tick(10_001));
    }
}
