//! What an HTTP/1.1 connection is waiting for: shared between its byte stream, which keeps the time, and its requests.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

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
}

// Relaxed throughout: whoever changes the phase of an HTTP/1.1 connection runs on its task.
impl PhaseCell {
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            phase: AtomicU8::new(phase as u8),
            requests: AtomicU32::new(0),
            draining: AtomicBool::new(false),
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
        self.phase.store(Phase::Idle as u8, Ordering::Relaxed);
    }

    /// Bytes of a request came.
    pub(crate) fn bytes_came(&self) {
        if matches!(self.get(), Phase::First | Phase::Idle) {
            self.phase.store(Phase::Head as u8, Ordering::Relaxed);
        }
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
