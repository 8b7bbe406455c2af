//! When requests come faster than they are answered, and who is refused then. Sans-I/O.
//!
//! A queue that stands still makes everybody late and nobody served: all who are answered have waited as long as it takes to get through it.
//! So a burst may wait (the backlog is there for it), and when all who came to a worker within one whole interval had waited for longer
//! than they should, requests that would wait as long are refused at once. What this comes from: `CoDel` (RFC 8289), which looks at how
//! long packets were in a queue and not at how many they are.
//!
//! Invariants
//! - Nobody is refused before enough hand-outs were seen to know how fast they go: an application that hangs, or a zygote that starts anew,
//!   is no overload.
//! - How long requests should wait at most is never less than [`SERVICES`] times what one takes: slow applications keep a queue of that many per worker.
//! - While it sheds, a request that gets a worker has waited for no longer than [`Overload::bound`].

use std::time::Duration;

use tokio::time::Instant;

/// Requests per worker that may always wait.
const SERVICES: f64 = 4.0;
/// Hand-outs to those who had waited, before anything is concluded from them.
const SAMPLES: u32 = 16;
/// The weight of one of them.
const WEIGHT: f64 = 1.0 / 16.0;
/// One that took longer than so many usual ones counts as so many.
const OUTLIER: f64 = 8.0;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Judges a backlog.
#[derive(Debug)]
pub(crate) struct Overload {
    /// How long requests may wait for long; `None`: as long as they like.
    target: Option<Duration>,
    /// Seconds from one hand-out to the next while somebody waits.
    gap: f64,
    samples: u32,
    /// The last hand-out, if others still waited behind it.
    last: Option<Instant>,
    /// Since when everybody has waited for too long.
    above_since: Option<Instant>,
    shedding: bool,
}

impl Overload {
    pub(crate) fn new(target: Option<Duration>) -> Self {
        Self { target, gap: 0.0, samples: 0, last: None, above_since: None, shedding: false }
    }

    /// Requests are refused.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shedding
    }

    /// How long a request should wait at most, while `running` have a worker.
    fn allowed(&self, running: usize) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "far fewer workers than that")]
        let service = self.gap * running as f64;
        let usual = Duration::try_from_secs_f64(service * SERVICES).unwrap_or(Duration::MAX);
        self.target.map(|target| target.max(usual))
    }

    fn interval(allowed: Duration) -> Duration {
        allowed.max(SHORTEST_INTERVAL)
    }

    /// How many may wait now; `None`: as many as the backlog holds.
    pub(crate) fn room(&self, running: usize) -> Option<usize> {
        let allowed = self.allowed(running).filter(|_| self.shedding)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "as intended: it saturates"
        )]
        let room = (allowed.as_secs_f64() / self.gap.max(1e-9)) as usize;
        Some(room.max(1))
    }

    /// Who has waited for longer is refused; `None`: nobody is.
    pub(crate) fn bound(&self, running: usize) -> Option<Duration> {
        let allowed = self.allowed(running).filter(|_| self.shedding)?;
        Some(allowed.saturating_mul(2).saturating_add(Self::interval(allowed)))
    }

    /// Somebody got a worker after having waited; `left` still wait. True when shedding begins with it.
    pub(crate) fn handed_out(
        &mut self,
        now: Instant,
        waited: Duration,
        left: usize,
        running: usize,
    ) -> bool {
        if let Some(last) = self.last {
            let took = now.saturating_duration_since(last).as_secs_f64();
            self.gap = match self.samples {
                0 => took,
                // The mean of the first ones, then one that follows.
                few => {
                    let weight = WEIGHT.max(1.0 / f64::from(few + 1));
                    let took = if few < 4 { took } else { took.min(self.gap * OUTLIER) };
                    self.gap + (took - self.gap) * weight
                }
            };
            self.samples = self.samples.saturating_add(1);
        }
        self.last = (left > 0).then_some(now);
        let Some(allowed) = self.allowed(running) else { return false };
        if left == 0 || waited < allowed / 2 || (waited < allowed && !self.shedding) {
            self.above_since = None;
            self.shedding = false;
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        let long = now.saturating_duration_since(since) >= Self::interval(allowed);
        let begins = !self.shedding && long && self.samples >= SAMPLES;
        self.shedding |= begins;
        begins
    }

    /// Nobody waits any more.
    pub(crate) fn emptied(&mut self) {
        self.last = None;
        self.above_since = None;
        self.shedding = false;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// What came of requests that arrive at a steady rate.
    #[derive(Debug, Default)]
    struct Outcome {
        /// How long those waited that got a worker, in order.
        waits: Vec<Duration>,
        refused: usize,
        gave_up: usize,
    }

    /// `workers` that take `service` each; a request every `every`. Time is simulated.
    fn simulate(
        overload: &mut Overload,
        workers: usize,
        service: Duration,
        every: Duration,
        until: Duration,
    ) -> Outcome {
        let start = Instant::now();
        let mut free_at = VecDeque::from(vec![start; workers]);
        let mut line = VecDeque::new();
        let mut outcome = Outcome::default();
        let (mut arrives, end) = (start, start + until);
        while arrives < end {
            // Everything that ends before the next one comes.
            while let Some(&at) = free_at.front().filter(|at| **at <= arrives) {
                let Some(since) = line.pop_front() else { break };
                let at: Instant = at.max(since);
                let waited = at - since;
                if overload.bound(workers).is_some_and(|bound| waited > bound) {
                    outcome.gave_up += 1;
                    continue;
                }
                outcome.waits.push(waited);
                if overload.handed_out(at, waited, line.len(), workers) {
                    let room = overload.room(workers).unwrap_or(usize::MAX);
                    outcome.gave_up += line.len().saturating_sub(room);
                    line.truncate(room);
                }
                free_at.pop_front();
                free_at.push_back(at + service);
            }
            if line.is_empty() {
                overload.emptied();
            }
            match overload.room(workers) {
                Some(room) if line.len() >= room => outcome.refused += 1,
                _ if line.len() >= 1024 => outcome.refused += 1,
                _ => line.push_back(arrives),
            }
            arrives += every;
        }
        outcome
    }

    const TARGET: Duration = Duration::from_secs(1);
    const SERVICE: Duration = Duration::from_millis(20);

    #[test]
    fn at_three_times_what_it_can_the_waits_stay_at_the_target_and_the_workers_busy() {
        let mut overload = Overload::new(Some(TARGET));
        // Four workers: 200 a second. 600 come.
        let every = Duration::from_micros(1667);
        let outcome = simulate(&mut overload, 4, SERVICE, every, Duration::from_secs(30));
        assert!(outcome.waits.len() > 5_900, "{} of 6000 answered", outcome.waits.len());
        let longest = outcome.waits.iter().max().unwrap();
        assert!(*longest <= TARGET * 3, "{longest:?}");
        let settled = outcome.waits.iter().skip(1_500).max().unwrap();
        assert!(*settled <= TARGET + TARGET / 5, "{settled:?}");
        assert!(outcome.refused > 10_000);
        assert!(outcome.gave_up < 1_024, "those that had come before it was known");
    }

    #[test]
    fn a_burst_is_no_overload_and_neither_is_a_load_that_fits() {
        for (every, until) in [(20_000, 10_000), (5_100, 10_000), (1_000, 700)] {
            let mut overload = Overload::new(Some(TARGET));
            let (every, until) = (Duration::from_micros(every), Duration::from_millis(until));
            let outcome = simulate(&mut overload, 4, SERVICE, every, until);
            assert_eq!((outcome.refused, outcome.gave_up), (0, 0), "{every:?}");
        }
    }

    #[test]
    fn slow_requests_may_wait_for_four_of_their_kind() {
        let mut overload = Overload::new(Some(TARGET));
        // Two workers that take 3 s each, and four visitors that come one after the other: it is full and goes on like that.
        let (service, every) = (Duration::from_secs(3), Duration::from_millis(1_510));
        let outcome = simulate(&mut overload, 2, service, every, Duration::from_mins(10));
        assert_eq!((outcome.refused, outcome.gave_up), (0, 0));
        let mut overload = Overload::new(Some(TARGET));
        let outcome = simulate(&mut overload, 2, service, every / 3, Duration::from_mins(15));
        let longest = outcome.waits.iter().max().unwrap();
        assert!(*longest <= Duration::from_secs(12 * 3), "{longest:?}");
        assert!(outcome.waits.len() > 550);
    }

    #[test]
    fn it_ends_when_the_load_does() {
        let mut overload = Overload::new(Some(TARGET));
        let every = Duration::from_micros(1667);
        simulate(&mut overload, 4, SERVICE, every, Duration::from_secs(10));
        assert!(overload.is_shedding());
        let calm = Duration::from_millis(10);
        let outcome = simulate(&mut overload, 4, SERVICE, calm, Duration::from_secs(10));
        assert_eq!(outcome.gave_up, 0);
        assert!(outcome.refused <= 1, "{}", outcome.refused);
        assert!(!overload.is_shedding());
    }

    #[test]
    fn without_a_target_nobody_is_refused() {
        let mut overload = Overload::new(None);
        let every = Duration::from_micros(1667);
        let outcome = simulate(&mut overload, 4, SERVICE, every, Duration::from_secs(2));
        assert_eq!((outcome.refused, outcome.gave_up), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn whatever_the_load_nobody_who_is_served_waits_beyond_the_bound_and_no_worker_idles(
            workers in 1_usize..16,
            service in 1_u64..200,
            times in 11_u32..120,
        ) {
            let service = Duration::from_millis(service);
            let every = service * 10 / times / u32::try_from(workers).unwrap();
            let mut overload = Overload::new(Some(TARGET));
            let until = Duration::from_secs(20);
            let outcome = simulate(&mut overload, workers, service, every, until);
            let allowed = TARGET.max(service * 4);
            let longest = outcome.waits.iter().max().copied().unwrap_or_default();
            // Its idea of what a request takes may be a quarter too long.
            prop_assert!(longest <= allowed * 15 / 4, "{longest:?} of {allowed:?}");
            let capacity = until.as_secs_f64() / service.as_secs_f64() * f64::from(u32::try_from(workers).unwrap());
            let served = f64::from(u32::try_from(outcome.waits.len()).unwrap());
            prop_assert!(served >= capacity * 0.9 - 2.0 * f64::from(u32::try_from(workers).unwrap()), "{served} of {capacity}");
        }
    }
}
