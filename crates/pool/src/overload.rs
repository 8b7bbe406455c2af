//! Detects overload and decides which requests to reject. Sans-I/O.
//!
//! A standing queue delays all requests and serves no more of them: each has waited as long as it takes to get through
//! the queue. A burst may therefore wait in the backlog. But if all requests that got a worker within one whole
//! interval had waited too long, later ones that would wait as long are rejected at once. This is the method of `CoDel`
//! (RFC 8289), which measures how long packets were queued, not how many there are.
//!
//! Invariants
//! - No request is rejected before the rate of answered requests is known: an application that hangs, or a restarting
//!   zygote, is no overload.
//! - The target waiting time is never less than [`SERVICES`] times the time of one request: slow applications keep a
//!   queue of that many per worker.
//! - While shedding, a request that gets a worker has waited at most [`Overload::bound`].

use std::time::Duration;

use tokio::time::Instant;

/// Requests per worker that may always wait.
const SERVICES: f64 = 4.0;
/// Number of hand-outs to waiting requests before anything is concluded from them.
const SAMPLES: u32 = 16;
/// Weight of one sample.
const WEIGHT: f64 = 1.0 / 16.0;
/// A sample of more than this many average ones counts as this many.
const OUTLIER: f64 = 8.0;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Evaluates a backlog.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Target waiting time; `None` for no target.
    target: Option<Duration>,
    /// Average seconds between two hand-outs while requests wait.
    gap: f64,
    samples: u32,
    /// Time of the last hand-out, if other requests were still waiting.
    last: Option<Instant>,
    /// Start of the time in which all requests have waited too long.
    above_since: Option<Instant>,
    shedding: bool,
}

impl Overload {
    pub(crate) fn new(target: Option<Duration>) -> Self {
        Self { target, gap: 0.0, samples: 0, last: None, above_since: None, shedding: false }
    }

    /// Returns whether requests are rejected.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shedding
    }

    /// Returns the maximum waiting time while `running` requests have a worker.
    fn allowed(&self, running: usize) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "far fewer workers than that")]
        let service = self.gap * running as f64;
        let usual = Duration::try_from_secs_f64(service * SERVICES).unwrap_or(Duration::MAX);
        self.target.map(|target| target.max(usual))
    }

    fn interval(allowed: Duration) -> Duration {
        allowed.max(SHORTEST_INTERVAL)
    }

    /// Returns how many may wait now; `None` for the size of the backlog.
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

    /// Returns the waiting time above which requests are rejected; `None` for no limit.
    pub(crate) fn bound(&self, running: usize) -> Option<Duration> {
        let allowed = self.allowed(running).filter(|_| self.shedding)?;
        Some(allowed.saturating_mul(2).saturating_add(Self::interval(allowed)))
    }

    /// Records that a waiting request got a worker; `left` still wait. Returns `true` if shedding begins with it.
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
                // The mean of the first samples, then a moving average.
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

    /// Records that no request waits any more.
    pub(crate) fn emptied(&mut self) {
        self.last = None;
        self.above_since = None;
        self.shedding = false;
    }
}

/// Statistics of waiting times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) number: u64,
    pub(crate) sum: Duration,
    pub(crate) longest: Duration,
}

impl Waits {
    pub(crate) fn add(&mut self, waited: Duration) {
        self.number += 1;
        self.sum += waited;
        self.longest = self.longest.max(waited);
    }
}

/// State of the backlog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) backlog: usize,
    pub(crate) ahead: usize,
    pub(crate) overloaded: bool,
    /// Number of requests that were rejected.
    pub(crate) refused: u64,
    pub(crate) waits: Waits,
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Result of requests that arrive at a steady rate.
    #[derive(Debug, Default)]
    struct Outcome {
        /// Sorted waiting times of the requests that got a worker.
        waits: Vec<Duration>,
        refused: usize,
        gave_up: usize,
    }

    /// Simulates `workers` that take `service` each, with a request every `every`.
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
            // Everything that ends before the next one arrives.
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
        // Four workers: 200 a second. 600 arrive.
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
        // Two workers that take 3 s each, and four clients that send one request after the other: the queue is full
        // and stays so.
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
            // Its estimate of a request's time may be a quarter too long.
            prop_assert!(longest <= allowed * 15 / 4, "{longest:?} of {allowed:?}");
            let capacity = until.as_secs_f64() / service.as_secs_f64() * f64::from(u32::try_from(workers).unwrap());
            let served = f64::from(u32::try_from(outcome.waits.len()).unwrap());
            prop_assert!(served >= capacity * 0.9 - 2.0 * f64::from(u32::try_from(workers).unwrap()), "{served} of {capacity}");
        }
    }
}
