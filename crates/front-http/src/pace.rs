//! The minimum pace of a request body: a maximum pause, and a minimum average rate.
//!
//! Invariants
//! - Only the time in which the server waits for the client counts. While the body is not read, the client cannot
//!   send. Neither can it while other bodies hold all credit of its connection.
//! - It takes bytes and `now`, and returns decisions: it reads no clock and sets no timer.

mod unread;

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::unread::{CONNECTION_WINDOW, STREAM_WINDOW, UnreadBodies, UnreadBody};

/// Limits of how slowly a request body may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaceLimits {
    /// Longest pause.
    pub(crate) pause: Duration,
    /// Minimum rate in bytes per second, averaged over [`PaceLimits::window`]; `None` for no minimum.
    pub(crate) least_rate: Option<NonZeroU64>,
}

impl PaceLimits {
    /// No limits.
    pub(crate) const NONE: Self = Self { pause: Duration::MAX, least_rate: None };

    /// Returns the time over which the rate is averaged. It exceeds the longest allowed pause, so that such a pause
    /// alone is never too slow.
    fn window(&self) -> Duration {
        self.pause.saturating_mul(2)
    }

    /// Returns the number of bytes that must arrive in a window.
    fn least_bytes(&self) -> u64 {
        let rate = self.least_rate.map_or(0, NonZeroU64::get);
        let millis = u64::try_from(self.window().as_millis()).unwrap_or(u64::MAX);
        rate.saturating_mul(millis) / 1000
    }
}

/// Reasons why a client is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slow {
    /// The client sent nothing for this long.
    Paused(Duration),
    /// The client sent fewer bytes per second than this.
    BelowRate(u64),
}

/// The pace of one body.
#[derive(Debug)]
pub(crate) struct Pace {
    limits: PaceLimits,
    /// The current wait for the client, if the server waits.
    waits: Option<Waits>,
    /// Time waited in this window, without the current wait.
    waited: Duration,
    /// Bytes received in this window.
    received: u64,
}

/// A wait for the client.
#[derive(Clone, Copy, Debug)]
struct Waits {
    since: Instant,
    /// The part of the wait since this instant belongs to the current window.
    counted: Instant,
}

impl Pace {
    pub(crate) fn new(limits: PaceLimits) -> Self {
        Self { limits, waits: None, waited: Duration::ZERO, received: 0 }
    }

    /// Records received bytes. `now` is called only at the end of a wait.
    pub(crate) fn arrived(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        self.received = self.received.saturating_add(bytes as u64);
        if let Some(waits) = self.waits.take() {
            self.waited += now().saturating_duration_since(waits.counted);
        }
    }

    /// Records that the client cannot send: the current wait does not count. Returns the latest time for the next check.
    pub(crate) fn blocked(&mut self, now: Instant) -> Option<Instant> {
        self.waits = None;
        now.checked_add(self.limits.pause)
    }

    /// Records that no byte is available. Returns the latest time for the next check, or why the client is too slow;
    /// `None` means that there is no limit.
    pub(crate) fn wait(&mut self, now: Instant) -> Result<Option<Instant>, Slow> {
        let waits = *self.waits.get_or_insert(Waits { since: now, counted: now });
        if now.saturating_duration_since(waits.since) >= self.limits.pause {
            return Err(Slow::Paused(self.limits.pause));
        }
        let pause_ends = waits.since.checked_add(self.limits.pause);
        let Some(rate) = self.limits.least_rate else { return Ok(pause_ends) };
        let window = self.limits.window();
        let waited = self.waited + now.saturating_duration_since(waits.counted);
        let left = window.saturating_sub(waited);
        if !left.is_zero() {
            let window_ends = now.checked_add(left);
            return Ok(pause_ends.into_iter().chain(window_ends).min());
        }
        if self.received < self.limits.least_bytes() {
            return Err(Slow::BelowRate(rate.get()));
        }
        self.waits = Some(Waits { counted: now, ..waits });
        self.waited = Duration::ZERO;
        self.received = 0;
        Ok(pause_ends.into_iter().chain(now.checked_add(window)).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PaceLimits =
        PaceLimits { pause: Duration::from_secs(30), least_rate: NonZeroU64::new(240) };

    /// Sends pieces of `bytes` with a pause before each, and returns the time until the client is too slow.
    fn dripped(limits: PaceLimits, bytes: usize, pause: Duration) -> Option<(Duration, Slow)> {
        let start = Instant::now();
        let mut now = start;
        let mut pace = Pace::new(limits);
        for _ in 0..1000 {
            let next = now + pause;
            loop {
                match pace.wait(now) {
                    Err(slow) => return Some((now - start, slow)),
                    Ok(Some(look)) if look < next => now = look,
                    Ok(_) => break,
                }
            }
            now = next;
            pace.arrived(bytes, || now);
        }
        None
    }

    #[test]
    fn a_pause_at_the_limit_ends_the_body() {
        let slow = dripped(LIMITS, 1 << 20, Duration::from_secs(31));
        assert_eq!(slow, Some((LIMITS.pause, Slow::Paused(LIMITS.pause))));
        assert_eq!(dripped(LIMITS, 1 << 20, Duration::from_secs(29)), None);
    }

    #[test]
    fn a_body_below_the_minimum_rate_is_ended() {
        let second = Duration::from_secs(1);
        let window = Duration::from_mins(1);
        assert_eq!(dripped(LIMITS, 1, second), Some((window, Slow::BelowRate(240))));
        assert_eq!(dripped(LIMITS, 239, second), Some((window, Slow::BelowRate(240))));
        assert_eq!(dripped(LIMITS, 250, second), None);
        let any = PaceLimits { least_rate: None, ..LIMITS };
        assert_eq!(dripped(any, 1, second), None);
    }

    #[test]
    fn each_window_counts_for_itself() {
        let mut pace = Pace::new(LIMITS);
        let mut now = Instant::now();
        // A fast start does not make up for a slow rest.
        assert!(pace.wait(now).is_ok());
        pace.arrived(100 << 20, || now);
        let mut seconds = 0;
        let slow = loop {
            match pace.wait(now) {
                Ok(_) => {}
                Err(slow) => break slow,
            }
            now += Duration::from_secs(1);
            seconds += 1;
            pace.arrived(1, || now);
        };
        assert_eq!((seconds, slow), (120, Slow::BelowRate(240)));
    }

    #[test]
    fn time_in_which_nothing_reads_the_body_does_not_count() {
        let mut pace = Pace::new(LIMITS);
        let mut now = Instant::now();
        for _ in 0..100 {
            // PHP does something else for an hour, then a byte arrives within a second.
            now += Duration::from_hours(1);
            assert!(pace.wait(now).is_ok());
            now += Duration::from_millis(500);
            pace.arrived(1, || now);
        }
    }
}
