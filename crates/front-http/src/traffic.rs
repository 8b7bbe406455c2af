//! Request counts and durations of the last five minutes, in steps of five seconds, for people.
//!
//! Invariants
//! - A request costs a few atomic additions and no lock, except the first one of each step.
//! - Memory is bounded. There is no background task: recording starts new steps, and reading adds them up.
//! - A duration that is read is at most an eighth longer than the recorded one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

/// Seconds in a step.
pub const STEP: u64 = 5;
/// Number of steps kept.
pub const STEPS: usize = 60;
/// Steps in a minute.
pub const STEPS_A_MINUTE: usize = 12;
const _: () = assert!(STEPS_A_MINUTE as u64 * STEP == 60);
/// Number of buckets for each power of two of microseconds.
const PARTS: usize = 8;
/// Buckets reach up to 2^27 µs, more than two minutes; longer durations are in the last one.
const BUCKETS: usize = 25 * PARTS;

/// The front's responses, step by step.
#[derive(Debug)]
pub struct Traffic {
    began: Instant,
    total: AtomicU64,
    errors: AtomicU64,
    steps: Vec<Step>,
    /// Held while a step is reused.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Step {
    /// Number of the step since the start, plus one; 0 if it is unused.
    number: AtomicU64,
    errors: AtomicU32,
    took: [AtomicU32; BUCKETS],
}

/// Summary of some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Length of the time in seconds.
    pub seconds: f64,
    /// Number of answered requests.
    pub requests: u64,
    /// Number of requests answered with a status of 500 or above.
    pub errors: u64,
    /// Median duration; `None` without requests.
    pub p50: Option<Duration>,
    /// 95th percentile of durations.
    pub p95: Option<Duration>,
    /// 99th percentile of durations.
    pub p99: Option<Duration>,
}

impl Report {
    /// Returns the number of requests per second.
    pub fn per_second(&self) -> f64 {
        rate(self.requests, self.seconds)
    }

    /// Returns the number of errors per second.
    pub fn errors_per_second(&self) -> f64 {
        rate(self.errors, self.seconds)
    }
}

/// Divides by at least one second.
#[expect(clippy::cast_precision_loss, reason = "no count is that large")]
fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1.0)
}

impl Traffic {
    pub(crate) fn new() -> Self {
        let step = || Step {
            number: AtomicU64::new(0),
            errors: AtomicU32::new(0),
            took: [const { AtomicU32::new(0) }; BUCKETS],
        };
        Self {
            began: Instant::now(),
            total: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            steps: std::iter::repeat_with(step).take(STEPS).collect(),
            turn: Mutex::new(()),
        }
    }

    /// Counts one request that took `took` and was answered `now`.
    pub(crate) fn record(&self, status: StatusCode, took: Duration, now: Instant) {
        let failed = status.is_server_error();
        self.total.fetch_add(1, Ordering::Relaxed);
        let number = self.number(now);
        let step = &self.steps[place(number)];
        if step.number.load(Ordering::Acquire) != number && !self.turn_over(step, number) {
            return;
        }
        step.took[bucket(took)].fetch_add(1, Ordering::Relaxed);
        if failed {
            self.errors.fetch_add(1, Ordering::Relaxed);
            step.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of requests answered since the start.
    pub fn requests(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the number of requests answered with a status of 500 or above since the start.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns the summary of the last `steps` complete steps and the current one.
    pub fn last(&self, steps: usize) -> Report {
        let now = self.number(Instant::now());
        let first = now - (steps as u64).min(STEPS as u64 - 1).min(now - 1);
        let began = Duration::from_secs((first - 1) * STEP);
        let seconds = self.began.elapsed().saturating_sub(began).as_secs_f64();
        self.report(first..=now, seconds)
    }

    /// Returns the complete steps of the last five minutes, the oldest first.
    pub fn history(&self) -> Vec<Report> {
        let now = self.number(Instant::now());
        let first = now.saturating_sub(STEPS as u64 - 1).max(1);
        let seconds = Duration::from_secs(STEP).as_secs_f64();
        (first..now).map(|number| self.report(number..=number, seconds)).collect()
    }

    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs() / STEP + 1
    }

    /// Reuses an old step for a new one. Returns `false` if it is used by a still newer step.
    #[cold]
    fn turn_over(&self, step: &Step, number: u64) -> bool {
        let _turning = self.turn.lock().expect("no holder panics");
        let there = step.number.load(Ordering::Acquire);
        if there < number {
            step.errors.store(0, Ordering::Relaxed);
            for count in &step.took {
                count.store(0, Ordering::Relaxed);
            }
            step.number.store(number, Ordering::Release);
        }
        there <= number
    }

    fn report(&self, numbers: std::ops::RangeInclusive<u64>, seconds: f64) -> Report {
        let mut took = [0_u64; BUCKETS];
        let mut errors = 0;
        for number in numbers {
            let step = &self.steps[place(number)];
            if step.number.load(Ordering::Acquire) != number {
                continue;
            }
            errors += u64::from(step.errors.load(Ordering::Relaxed));
            for (sum, count) in took.iter_mut().zip(&step.took) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
        }
        let requests: u64 = took.iter().sum();
        let within = |percent: u64| {
            // The smallest rank that this percentage does not exceed.
            let rank = (requests * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let found = took.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            found.map(upper_bound)
        };
        Report { seconds, requests, errors, p50: within(50), p95: within(95), p99: within(99) }
    }
}

/// Returns the index of a step.
fn place(number: u64) -> usize {
    usize::try_from(number % STEPS as u64).expect("it is below STEPS")
}

/// Returns the bucket of a duration. Microseconds below 16 have a bucket each; above, a power of two has [`PARTS`].
fn bucket(took: Duration) -> usize {
    let micros = usize::try_from(took.as_micros()).unwrap_or(usize::MAX).max(1);
    let power = micros.ilog2() as usize;
    if power < 3 {
        return micros;
    }
    let part = (micros >> (power - 3)) & (PARTS - 1);
    ((power - 2) * PARTS + part).min(BUCKETS - 1)
}

/// Returns the longest duration of a bucket.
fn upper_bound(bucket: usize) -> Duration {
    let (power, part) = (bucket / PARTS + 2, bucket % PARTS);
    let micros = if bucket < PARTS { bucket } else { ((PARTS + part + 1) << (power - 3)) - 1 };
    Duration::from_micros(micros as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Asserts that a duration is equal, or up to an eighth longer.
    fn assert_close(read: Option<Duration>, recorded: Duration) {
        let read = read.expect("there were requests");
        assert!(read >= recorded && read <= recorded + recorded / 8, "{read:?} for {recorded:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn percentiles_are_those_of_what_was_recorded() {
        let traffic = Traffic::new();
        for number in 1..=100 {
            let failed = number > 97;
            let status = if failed { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
            traffic.record(status, millis(number), Instant::now());
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        let report = traffic.last(12);
        assert_eq!((report.requests, report.errors), (100, 3));
        assert!((report.seconds - 2.0).abs() < 1e-6, "{report:?}");
        assert_close(report.p50, millis(50));
        assert_close(report.p95, millis(95));
        assert_close(report.p99, millis(99));
        assert_eq!((traffic.requests(), traffic.errors()), (100, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn samples_older_than_five_minutes_are_reused() {
        let traffic = Traffic::new();
        traffic.record(StatusCode::OK, millis(1), Instant::now());
        tokio::time::advance(Duration::from_secs(STEP)).await;
        traffic.record(StatusCode::OK, millis(2), Instant::now());
        assert_eq!(traffic.last(12).requests, 2);
        assert_eq!(traffic.last(0).requests, 1);
        assert_eq!(traffic.history().len(), 1);
        tokio::time::advance(Duration::from_secs(STEP * (STEPS as u64 - 1))).await;
        traffic.record(StatusCode::INTERNAL_SERVER_ERROR, millis(3), Instant::now());
        let history = traffic.history();
        assert_eq!(history.len(), STEPS - 1);
        assert_eq!(history.iter().map(|step| step.requests).sum::<u64>(), 1, "the second one");
        assert_eq!(history[0].requests, 1);
        assert_eq!(traffic.last(STEPS).requests, 2);
        assert_eq!(traffic.last(0).errors, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn without_requests_there_is_no_percentile() {
        let report = Traffic::new().last(12);
        assert_eq!((report.requests, report.p50, report.p99), (0, None, None));
    }

    proptest! {
        #[test]
        fn a_time_is_read_at_most_an_eighth_longer(micros in 1_u64..1 << 27) {
            let took = Duration::from_micros(micros);
            let read = upper_bound(bucket(took));
            prop_assert!(read >= took && read <= took + took / 8, "{read:?} for {took:?}");
        }

        #[test]
        fn any_time_has_a_bucket(nanos in any::<u64>()) {
            prop_assert!(bucket(Duration::from_nanos(nanos)) < BUCKETS);
        }
    }
}
