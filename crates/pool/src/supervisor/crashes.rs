//! Counts crashes by memory errors of one zygote's workers. All of them have one address-space layout, so each such
//! crash may be a try of an attacker to find addresses. After [`MOST`] the zygote must be executed again, which gives
//! its workers a new layout (docs/soundness.md).
//!
//! Invariants
//! - A zygote is replaced for this reason at most once in [`PAUSE`], so that a request that always crashes does not
//!   make the application boot all the time.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

/// The number of crashes that one layout may have.
const MOST: u32 = 20;
/// The minimum time between two replacements.
const PAUSE: Duration = Duration::from_mins(1);
/// Signals of memory errors, and of libc's and the kernel's checks against them (signal(7)).
const MEMORY_ERRORS: [Signal; 5] =
    [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::ABORT, Signal::TRAP];

/// The crashes of the current layout.
#[derive(Debug, Default)]
pub(super) struct Crashes {
    count: u32,
    replaced: Option<Instant>,
}

impl Crashes {
    /// Counts the end of a worker with this wait status. Returns whether the zygote must be replaced.
    pub(super) fn count(&mut self, status: u32, now: Instant) -> bool {
        let signal = status & 0x7f;
        if !MEMORY_ERRORS.iter().any(|error| error.as_raw().unsigned_abs() == signal) {
            return false;
        }
        self.count += 1;
        self.count >= MOST && self.replaced.is_none_or(|at| now.duration_since(at) >= PAUSE)
    }

    /// Starts counting again, for a new zygote.
    pub(super) fn replaced(&mut self, now: Instant) {
        *self = Self { count: 0, replaced: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGV: u32 = 11;
    const KILL: u32 = 9;

    #[test]
    fn a_layout_ends_after_twenty_memory_errors_and_at_most_once_a_minute() {
        let start = Instant::now();
        let mut crashes = Crashes::default();
        assert!((0..100).all(|_| !crashes.count(KILL, start) && !crashes.count(1 << 8, start)));
        assert!((1..MOST).all(|_| !crashes.count(SEGV, start)));
        assert!(crashes.count(SEGV | 0x80, start), "with a core dump");
        crashes.replaced(start);
        let early = start + PAUSE.checked_sub(Duration::from_secs(1)).unwrap();
        assert!((0..100).all(|_| !crashes.count(SEGV, early)));
        assert!(crashes.count(SEGV, start + PAUSE));
    }
}
