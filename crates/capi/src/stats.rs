//! Statistics of an engine. Numbers only grow, except those marked as current.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The statistics of an engine.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) started: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) aborted: AtomicU64,
    /// Current: started and not completed.
    pub(crate) active: AtomicU64,
    pub(crate) peak: AtomicU64,
    /// Current.
    pub(crate) queued: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) redirects: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) mail: MailNumbers,
    /// The statistics of ended runtimes.
    pub(crate) ended: Mutex<HttpNumbers>,
}

/// Connections to origins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HttpNumbers {
    /// Current: open.
    pub(crate) connections: u64,
    pub(crate) connects: u64,
    /// Requests over a reused connection.
    pub(crate) reused: u64,
    pub(crate) handshakes: u64,
    pub(crate) handshakes_saved: u64,
}

impl HttpNumbers {
    /// Adds the statistics of a runtime.
    pub(crate) fn and(mut self, origins: &[egress::OriginReport]) -> Self {
        for egress::OriginReport { stats, .. } in origins {
            self.connections += stats.connections as u64;
            self.connects += stats.connects;
            self.reused += stats.reused;
            self.handshakes += stats.handshakes;
            self.handshakes_saved += stats.handshakes_saved;
        }
        self
    }
}

/// Connections to mail servers.
#[derive(Debug, Default)]
pub(crate) struct MailNumbers {
    /// Current: open.
    pub(crate) connections: AtomicU64,
    pub(crate) connects: AtomicU64,
    /// Messages over a reused connection.
    pub(crate) reused: AtomicU64,
}

/// Counts a connection to a mail server for as long as it is open.
#[derive(Debug)]
pub(crate) struct Open(Arc<Numbers>);

impl Open {
    pub(crate) fn new(numbers: &Arc<Numbers>) -> Self {
        numbers.mail.connects.fetch_add(1, Relaxed);
        numbers.mail.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(numbers))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.mail.connections.fetch_sub(1, Relaxed);
    }
}

impl Numbers {
    /// Counts one more request under way.
    pub(crate) fn launched(&self) {
        self.started.fetch_add(1, Relaxed);
        let active = self.active.fetch_add(1, Relaxed) + 1;
        if active > self.peak.load(Relaxed) {
            self.peak.fetch_max(active, Relaxed);
        }
    }
}
