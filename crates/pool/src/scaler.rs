//! Decides the number of workers. Sans-I/O. It grows while requests wait and every worker is busy, and shrinks when
//! some workers were not needed for a while.
//!
//! Invariants
//! - The number stays within `least..=most`, and one evaluation either increases or decreases it, or neither.
//! - It grows only when all workers are busy and a request has waited for [`STALL`]: a burst that the workers can
//!   handle does not count.
//! - One step starts one worker, the next two, then four, up to `burst`; the next step begins when all workers of the
//!   last one are busy.
//! - It shrinks by a worker only when no moment of the last `idle_timeout` needed that many, so a grown pool stays
//!   stable for that time.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::Scaling;

/// Waiting time after which another worker may start. It is about the time of a short request: below it, a worker
/// becomes free before a new one would be ready.
pub(crate) const STALL: Duration = Duration::from_millis(10);
/// Time without waiting requests after which the next step starts with one worker again.
const CALM: Duration = Duration::from_secs(1);

/// The current load of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Number of requests with a worker.
    pub running: usize,
    /// Maximum number of those since the last evaluation.
    pub peak: usize,
    /// Number of waiting requests.
    pub waiting: usize,
    /// Time at which the first of them began to wait.
    pub since: Option<Instant>,
}

/// The scaling decision.
#[derive(Debug)]
pub(crate) struct Scaler {
    least: usize,
    most: usize,
    idle_timeout: Duration,
    burst: usize,
    /// Entry `i` is the time at which `least + i` workers were last needed at once. The times decrease, because a need
    /// for three includes a need for two.
    needed: Vec<Instant>,
    /// Number of workers started in the last step.
    go: usize,
    /// When a request was last seen waiting.
    waited_at: Option<Instant>,
}

impl Scaler {
    /// Starts with `scaling.start` workers, within the bounds.
    pub(crate) fn new(least: usize, scaling: Option<&Scaling>, now: Instant) -> Self {
        let most = scaling.map_or(least, |scaling| scaling.most.get().max(least));
        let start = scaling.map_or(least, |scaling| scaling.start.clamp(least, most));
        Self {
            least,
            most,
            idle_timeout: scaling.map_or(Duration::ZERO, |scaling| scaling.idle_timeout),
            burst: scaling.map_or(1, |scaling| scaling.burst.get()),
            needed: vec![now; start - least],
            go: 0,
            waited_at: None,
        }
    }

    /// Returns the wanted number of workers.
    pub(crate) fn wanted(&self) -> usize {
        self.least + self.needed.len()
    }

    /// Evaluates the load. Call again after [`STALL`] while it returns `true`, and whenever a request starts to wait.
    pub(crate) fn look(&mut self, now: Instant, load: Load) -> bool {
        let full = self.wanted();
        let used = if load.waiting > 0 { full } else { load.peak.max(load.running).min(full) };
        for needed in self.needed.iter_mut().take(used.saturating_sub(self.least)) {
            *needed = now;
        }
        if load.waiting == 0 {
            let idle = |needed: &Instant| now.duration_since(*needed) >= self.idle_timeout;
            while self.needed.last().is_some_and(idle) {
                self.needed.pop();
            }
            return false;
        }
        let waited_at = self.waited_at.replace(now);
        if full == self.most {
            return false;
        }
        // Where there is no worker, none becomes free.
        let stalled =
            full == 0 || load.since.is_some_and(|since| now.duration_since(since) >= STALL);
        if load.running >= full && stalled {
            let calm = waited_at.is_none_or(|at| now.duration_since(at) >= CALM);
            let go = if calm { 1 } else { (self.go * 2).clamp(1, self.burst) };
            let more = go.min(load.waiting).min(self.most - full);
            self.go = more;
            self.needed.extend(std::iter::repeat_n(now, more));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use proptest::prelude::*;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    fn scaling(most: usize, burst: usize) -> Scaling {
        Scaling {
            most: NonZeroUsize::new(most).unwrap(),
            start: 0,
            idle_timeout: IDLE,
            burst: NonZeroUsize::new(burst).unwrap(),
        }
    }

    fn busy(running: usize, waiting: usize, since: Instant) -> Load {
        Load { running, peak: running, waiting, since: Some(since) }
    }

    #[tokio::test(start_paused = true)]
    async fn workers_start_in_goes_of_one_two_four_and_only_when_all_have_a_request() {
        let since = Instant::now();
        let mut scaler = Scaler::new(1, Some(&scaling(20, 4)), since);
        assert!(scaler.look(since, busy(1, 100, since)), "it has not waited for long");
        assert_eq!(scaler.wanted(), 1);
        let mut steps = Vec::new();
        let mut running = 1;
        for step in 1..=12 {
            let now = since + STALL * step;
            scaler.look(now, busy(running, 100, since));
            steps.push(scaler.wanted());
            // The new ones need a moment: nothing more starts in the meantime.
            scaler.look(now + STALL / 2, busy(running, 100, since));
            assert_eq!(scaler.wanted(), *steps.last().unwrap());
            running = scaler.wanted();
        }
        assert_eq!(steps[..7], [2, 4, 8, 12, 16, 20, 20]);
        // After a second without waiting requests it starts with one again.
        let later = since + Duration::from_mins(1);
        let idle = Load::default();
        scaler.look(later, idle);
        assert_eq!(scaler.wanted(), 1, "all of them were idle for the time");
        scaler.look(later + STALL, busy(1, 9, later));
        assert_eq!(scaler.wanted(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fixed_number_stays() {
        let now = Instant::now();
        let mut scaler = Scaler::new(3, None, now);
        assert!(!scaler.look(now + CALM, busy(3, 50, now)));
        scaler.look(now + IDLE * 100, Load::default());
        assert_eq!(scaler.wanted(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn only_workers_that_nobody_needed_go() {
        let start = Instant::now();
        let mut scaler = Scaler::new(1, Some(&Scaling { start: 8, ..scaling(8, 8) }), start);
        assert_eq!(scaler.wanted(), 8);
        for second in 1..=9 {
            let now = start + Duration::from_secs(second);
            // Between two evaluations three ran at once, but not at this moment.
            scaler.look(now, Load { running: 0, peak: 3, waiting: 0, since: None });
            assert_eq!(scaler.wanted(), 8);
        }
        scaler.look(start + IDLE, Load { running: 1, peak: 3, waiting: 0, since: None });
        assert_eq!(scaler.wanted(), 3);
        scaler.look(start + IDLE * 2, Load { running: 1, peak: 1, waiting: 0, since: None });
        assert_eq!(scaler.wanted(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_keeps_its_bounds_and_never_starts_what_it_has_just_ended(
            (least, most) in (1_usize..5).prop_flat_map(|least| (Just(least), least..20)),
            burst in 1_usize..8,
            steps in prop::collection::vec((1_u64..4_000, 0_usize..25), 1..200),
        ) {
            let mut now = tokio_start();
            let mut scaler = Scaler::new(least, Some(&scaling(most, burst)), now);
            let mut grew_at = now;
            let mut last_go = 0;
            for (milliseconds, demand) in steps {
                now += Duration::from_millis(milliseconds);
                let before = scaler.wanted();
                let running = demand.min(before);
                let waiting = demand - running;
                let since = (waiting > 0).then(|| now.checked_sub(STALL * 2).unwrap());
                scaler.look(now, Load { running, peak: running, waiting, since });
                let after = scaler.wanted();
                prop_assert!((least..=most).contains(&after));
                if after > before {
                    prop_assert!(waiting > 0 && running == before, "none was idle");
                    prop_assert!(after - before <= burst.min(waiting));
                    prop_assert!(after - before <= (last_go * 2).max(1));
                    last_go = after - before;
                    grew_at = now;
                }
                if after < before {
                    prop_assert!(waiting == 0 && after >= running.max(least));
                    prop_assert!(now - grew_at >= IDLE, "what grew stays for the time");
                }
            }
        }

        #[test]
        fn under_a_steady_load_it_comes_to_rest_and_stays_there(
            (least, most) in (1_usize..5).prop_flat_map(|least| (Just(least), least..20)),
            demand in 0_usize..30,
        ) {
            let mut now = tokio_start();
            let mut scaler = Scaler::new(least, Some(&scaling(most, 4)), now);
            let mut numbers = Vec::new();
            for _ in 0..2_000 {
                now += STALL;
                let running = demand.min(scaler.wanted());
                let waiting = demand - running;
                let since = (waiting > 0).then(|| now.checked_sub(STALL * 2).unwrap());
                scaler.look(now, Load { running, peak: running, waiting, since });
                numbers.push(scaler.wanted());
            }
            numbers.dedup();
            prop_assert!(numbers.is_sorted(), "up to what is needed, and never back: {numbers:?}");
            prop_assert_eq!(scaler.wanted(), demand.clamp(least, most));
        }
    }

    /// Returns a moment that allows earlier ones.
    fn tokio_start() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }
}
