//! The state of one connection: what it waits for, and since when.
//!
//! The task of the connection writes it, and the connection table ([`crate::connections`]) reads it when it looks for connections to close.
//! A request costs three stores and two reads of the kernel's coarse clock, and no lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of its first request.
    First,
    /// The first byte of a further request.
    Idle,
    /// The rest of a head.
    Head,
    /// An answer.
    Busy,
}

/// One connection's phase.
#[derive(Debug)]
pub(crate) struct PhaseCell {
    phase: AtomicU8,
    /// Requests that came in so far; wraps.
    requests: AtomicU32,
    draining: AtomicBool,
    /// When it last began to wait for the client, by [`now`].
    since: AtomicU32,
    /// The client does not take what was written to its socket.
    stalled: AtomicBool,
}

// Relaxed throughout: only the connection's own task changes the phase, and a reader that sees an old one closes nothing by it: the
// connection's task looks again before it ends.
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

    /// Tells one wait from the next.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// A request is being answered.
    pub(crate) fn busy(&self) {
        self.requests.store(self.requests().wrapping_add(1), Ordering::Relaxed);
        self.phase.store(Phase::Busy as u8, Ordering::Relaxed);
    }

    /// Its answer is complete.
    pub(crate) fn answered(&self) {
        self.since.store(now(), Ordering::Relaxed);
        self.phase.store(Phase::Idle as u8, Ordering::Relaxed);
    }

    /// Bytes of a request came.
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

    /// The time since the connection began to wait for what its phase says. It has no meaning while a request is being answered.
    ///
    /// The time of a first head counts from the start of the connection.
    pub(crate) fn waited(&self) -> Duration {
        let since = self.since.load(Ordering::Relaxed);
        // A wait that began after `now` was read is no wait yet. Both wrap after 49 days.
        let waited = now().wrapping_sub(since).cast_signed().max(0);
        Duration::from_millis(u64::from(waited.unsigned_abs()))
    }

    /// The client has stopped, or begun again, to take what is written to its socket.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Whether bytes of an answer wait because the client does not take them.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// No further request is wanted.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the connection is to end now: no request is being answered and none is wanted.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) && self.get() != Phase::Busy
    }
}

/// Milliseconds of the kernel's coarse clock, which is read without a system call and steps every few milliseconds. Wraps.
fn now() -> u32 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let milliseconds = now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000);
    // The low half is what counts: differences are taken modulo 2^32.
    (milliseconds & i64::from(u32::MAX)).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_with_an_answer_and_with_the_first_byte_of_a_further_head() {
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
    fn a_wait_that_begins_later_than_the_look_is_none() {
        let cell = PhaseCell::new(Phase::Idle);
        cell.since.store(now().wrapping_add(5_000), Ordering::Relaxed);
        assert_eq!(cell.waited(), Duration::ZERO);
    }
}
