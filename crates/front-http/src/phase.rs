//! The state of one connection: what it waits for, and since when.
//!
//! The connection's task writes it, and the connection table ([`crate::connections`]) reads it to find connections to
//! close. A request costs three stores and two reads of the kernel's coarse clock, and no lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The event that a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of its first request.
    First,
    /// The first byte of a further request.
    Idle,
    /// The rest of a head.
    Head,
    /// A response.
    Busy,
}

/// The phase of one connection.
#[derive(Debug)]
pub(crate) struct PhaseCell {
    phase: AtomicU8,
    /// Number of requests received so far; wraps.
    requests: AtomicU32,
    draining: AtomicBool,
    /// When the current wait for the client began, by [`now`].
    since: AtomicU32,
    /// The client does not read what was written to its socket.
    stalled: AtomicBool,
}

// Relaxed ordering is enough: only the connection's own task changes the phase. A reader that sees an old value
// closes nothing by it, because the task checks again before it ends.
impl PhaseCell {
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            phase: AtomicU8::new(phase as u8),
            requests: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            since: AtomicU32::new(now()),
            stalled: AtomicBool::new(false),
        }
    }

    pub(crate) fn get(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::First,
            1 => Phase::Idle,
            2 => Phase::Head,
            _ => Phase::Busy,
        }
    }

    /// Returns the number of requests, which distinguishes one wait from the next.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Marks that a request is being answered.
    pub(crate) fn busy(&self) {
        self.requests.store(self.requests().wrapping_add(1), Ordering::Relaxed);
        self.phase.store(Phase::Busy as u8, Ordering::Relaxed);
    }

    /// Marks that the response is complete.
    pub(crate) fn answered(&self) {
        self.since.store(now(), Ordering::Relaxed);
        self.phase.store(Phase::Idle as u8, Ordering::Relaxed);
    }

    /// Marks that bytes of a request arrived.
    pub(crate) fn bytes_came(&self) {
        match self.get() {
            Phase::First => self.phase.store(Phase::Head as u8, Ordering::Relaxed),
            Phase::Idle => {
                self.since.store(now(), Ordering::Relaxed);
                self.phase.store(Phase::Head as u8, Ordering::Relaxed);
            }
            Phase::Head | Phase::Busy => {}
        }
    }

    /// Returns how long the connection has waited for what its phase names. The value is meaningless while a request
    /// is being answered.
    ///
    /// The time of a first head counts from the start of the connection.
    pub(crate) fn waited(&self) -> Duration {
        let since = self.since.load(Ordering::Relaxed);
        // A wait that began after `now` was read counts as zero. Both values wrap after 49 days.
        let waited = now().wrapping_sub(since).cast_signed().max(0);
        Duration::from_millis(u64::from(waited.unsigned_abs()))
    }

    /// Marks that the client stopped or resumed reading.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Returns whether response bytes wait because the client does not read.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Marks that no further request is accepted.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection must end now: no request is being answered and none is accepted.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) && self.get() != Phase::Busy
    }
}

/// Returns milliseconds of the kernel's coarse clock, which is read without a system call and advances every few
/// milliseconds. Wraps.
pub(crate) fn now() -> u32 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let milliseconds = now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000);
    // Only the low half counts: differences are taken modulo 2^32.
    (milliseconds & i64::from(u32::MAX)).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_starts_at_a_response_or_a_new_head() {
        let cell = PhaseCell::new(Phase::First);
        std::thread::sleep(Duration::from_millis(60));
        assert!(cell.waited() >= Duration::from_millis(40));
        cell.bytes_came();
        assert_eq!(cell.get(), Phase::Head);
        assert!(cell.waited() >= Duration::from_millis(40), "a first head counts from the start");
        cell.busy();
        cell.answered();
        assert_eq!(cell.get(), Phase::Idle);
        assert!(cell.waited() < Duration::from_secs(30));
        let answered = cell.since.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(60));
        cell.bytes_came();
        assert_ne!(cell.since.load(Ordering::Relaxed), answered);
    }

    #[test]
    fn a_wait_that_starts_after_the_check_is_ignored() {
        let cell = PhaseCell::new(Phase::Idle);
        cell.since.store(now().wrapping_add(5_000), Ordering::Relaxed);
        assert_eq!(cell.waited(), Duration::ZERO);
    }
}
