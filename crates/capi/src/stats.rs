//! What happened in an engine, in numbers that only grow, but for those said to be of now.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The numbers of an engine.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) started: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) aborted: AtomicU64,
    /// Of now: started and not completed.
    pub(crate) active: AtomicU64,
    pub(crate) peak: AtomicU64,
    /// Of now.
    pub(crate) queued: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) redirects: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) panics: AtomicU64,
}

impl Numbers {
    /// One more is under way.
    pub(crate) fn launched(&self) {
        self.started.fetch_add(1, Relaxed);
        let active = self.active.fetch_add(1, Relaxed) + 1;
        if active > self.peak.load(Relaxed) {
            self.peak.fetch_max(active, Relaxed);
        }
    }
}
