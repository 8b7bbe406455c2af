//! The state of a connector.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub clients: AtomicU64,
    pub opened: AtomicU64,
    pub reused: AtomicU64,
    pub dropped: AtomicU64,
    pub refused: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The state of a connector.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the connector.
    pub name: String,
    /// Scheme of its protocol.
    pub server: String,
    /// Sessions used by clients.
    pub used: usize,
    /// Idle sessions.
    pub idle: usize,
    /// Maximum number of sessions.
    pub limit: usize,
    /// Clients waiting for a session.
    pub waiting: usize,
    /// Clients since the start.
    pub clients: u64,
    /// Sessions opened: connections, handshakes and logins.
    pub opened: u64,
    /// Clients that got a session left by another.
    pub reused: u64,
    /// Sessions whose reset could not be proved.
    pub dropped: u64,
    /// Clients without a session.
    pub refused: u64,
}

/// The connector in one line, for the dashboard.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, server, used, idle, limit, waiting, refused, .. } = self;
        write!(
            f,
            "{name} ({server}): {used} of {limit} sessions used, {idle} idle, {waiting} waiting, {refused} refused"
        )
    }
}
