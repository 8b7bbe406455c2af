//! The pool's clock. It measures the time in which the server itself ran.
//!
//! Invariants
//! - Time in which the whole server was stopped does not count (SIGSTOP, a frozen control group, a suspended machine).
//!   No limit passes during such a pause.
//! - A time-out is decided only after the sockets were polled again: a frame that arrived in time wins.
//! - The clock never goes back by more than a pause that it has just detected.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The error for a limit that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// One reading of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The real instant, pauses included.
    pub(crate) real: Instant,
    /// Milliseconds in which the server had been stopped by then.
    stood_still: u64,
}

/// Counts milliseconds since its creation, without those in which the server was stopped.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Time of the last reading, in real milliseconds since `started`.
    read_at: AtomicU64,
    /// Milliseconds in which the server was stopped.
    stood_still: AtomicU64,
    /// Held while a pause is added, so that each pause is added once.
    adding: Mutex<()>,
}

impl Clock {
    /// A pool reads its clock at least this often while the server runs.
    pub(crate) const PULSE: Duration = Duration::from_millis(250);
    /// Milliseconds without a reading after which the server counts as having been stopped.
    const PAUSE: u64 = 1_000;
    /// How long a future may still become ready after its limit has passed. When a process continues after SIGSTOP,
    /// `epoll_wait` fails with EINTR, and tokio fires timers before it has polled any socket. A second timer fires
    /// after a poll.
    const LAST_LOOK: Duration = Duration::from_millis(10);

    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            read_at: AtomicU64::new(0),
            stood_still: AtomicU64::new(0),
            adding: Mutex::new(()),
        }
    }

    /// Returns the milliseconds that the server has run since the clock was created, plus one: never zero.
    pub(crate) fn now(&self) -> u64 {
        self.moment_of(&self.read())
    }

    /// Returns the current instant minus all pauses.
    pub(crate) fn instant(&self) -> Instant {
        self.instant_of(&self.read())
    }

    /// Reads the clock once, for several uses.
    pub(crate) fn read(&self) -> Reading {
        loop {
            let stood_still = self.stood_still.load(Ordering::Acquire);
            let at = Instant::now();
            let real = self.real(at);
            let read_at = self.read_at.load(Ordering::Acquire);
            if real >= read_at.saturating_add(Self::PAUSE) {
                self.add_pause();
                continue;
            }
            if real > read_at {
                self.read_at.fetch_max(real, Ordering::Release);
            }
            // Otherwise a pause was added in the meantime, and `real` may be from before or after it.
            if self.stood_still.load(Ordering::Acquire) == stood_still {
                return Reading { real: at, stood_still };
            }
        }
    }

    /// Returns the value of [`Clock::now`] at a reading.
    pub(crate) fn moment_of(&self, reading: &Reading) -> u64 {
        self.real(reading.real).saturating_sub(reading.stood_still).saturating_add(1)
    }

    /// Returns the value of [`Clock::instant`] at a reading.
    pub(crate) fn instant_of(&self, reading: &Reading) -> Instant {
        let stood_still = Duration::from_millis(reading.stood_still);
        reading.real.checked_sub(stood_still).unwrap_or(self.started)
    }

    /// Converts a real instant to the scale of [`Clock::now`], assuming no further pause; zero for `None`.
    pub(crate) fn moment(&self, at: Option<Instant>) -> u64 {
        let Some(at) = at else { return 0 };
        // Adds a pause that was not detected yet.
        self.now();
        let stood_still = self.stood_still.load(Ordering::Acquire);
        self.real(at).saturating_sub(stood_still).saturating_add(1)
    }

    /// Returns the time since `since`, which is on the scale of [`Clock::now`].
    pub(crate) fn since(&self, since: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(since))
    }

    /// Waits for `future`, but not for longer than `limit`. Cancel safe if `future` is.
    pub(crate) async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = std::pin::pin!(future);
        let end = self.after(limit);
        while let Some(left) = self.left(end) {
            if let Ok(output) = tokio::time::timeout(left, &mut future).await {
                return Ok(output);
            }
        }
        tokio::time::timeout(Self::LAST_LOOK, future).await.map_err(|_elapsed| Elapsed)
    }

    /// Waits until [`Clock::now`] is `end`; forever without one. Cancel safe.
    pub(crate) async fn reached(&self, end: Option<u64>) {
        let Some(end) = end else { return std::future::pending().await };
        while let Some(left) = self.left(end) {
            tokio::time::sleep(left).await;
        }
        tokio::time::sleep(Self::LAST_LOOK).await;
    }

    /// Returns the value of [`Clock::now`] when the server has run for `limit` from now on.
    pub(crate) fn after(&self, limit: Duration) -> u64 {
        self.now().saturating_add(milliseconds(limit))
    }

    /// Returns how long to sleep before checking again; `None` when the time has come.
    fn left(&self, end: u64) -> Option<Duration> {
        let left = Duration::from_millis(end.saturating_sub(self.now()));
        (!left.is_zero()).then(|| left.min(Self::PULSE))
    }

    fn real(&self, at: Instant) -> u64 {
        milliseconds(at.saturating_duration_since(self.started))
    }

    /// Adds the time since the last reading to the time in which the server was stopped.
    fn add_pause(&self) {
        let _one = self.adding.lock().expect("no holder panics");
        let (real, read_at) = (self.real(Instant::now()), self.read_at.load(Ordering::Acquire));
        if real >= read_at.saturating_add(Self::PAUSE) {
            let stood_still = real - read_at;
            self.stood_still.fetch_add(stood_still, Ordering::AcqRel);
            self.read_at.store(real, Ordering::Release);
            // Only at debug level, because on Lambda an environment is frozen between any two events.
            tracing::debug!(
                milliseconds = stood_still,
                "the server stood still: time limits do not count that time"
            );
        }
    }
}

/// Returns a duration in whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_mins(2);

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_ran_does_not_count() {
        let clock = Clock::new();
        let first = clock.now();
        tokio::time::sleep(Clock::PULSE).await;
        assert_eq!(clock.since(first), Clock::PULSE);
        tokio::time::advance(PAUSE).await;
        assert_eq!(clock.since(first), Clock::PULSE);
        tokio::time::sleep(Clock::PULSE).await;
        assert_eq!(clock.since(first), Clock::PULSE * 2);
        let deadline = Instant::now() + Clock::PULSE;
        assert_eq!(clock.moment(Some(deadline)), first + milliseconds(Clock::PULSE * 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_not_over_because_of_a_pause() {
        let clock = Clock::new();
        let limit = Duration::from_secs(2);
        let waiting = clock.timeout(limit, std::future::pending::<()>());
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Clock::PULSE, &mut waiting).await.is_err());
        tokio::time::advance(PAUSE).await;
        let rest = Duration::from_secs(1);
        assert!(tokio::time::timeout(rest, &mut waiting).await.is_err(), "a second is left");
        assert_eq!(tokio::time::timeout(limit, waiting).await, Ok(Err(Elapsed)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_when_the_limit_passes_wins() {
        let clock = Clock::new();
        let limit = Duration::from_millis(100);
        // Becomes ready when polled after the timer has fired, like a socket whose event was not fetched before.
        let late = tokio::time::sleep(limit + Duration::from_millis(1));
        assert_eq!(clock.timeout(limit, late).await, Ok(()));
    }
}
