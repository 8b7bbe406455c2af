//! What a connector has done.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted since the start.
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

/// How a connector is.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Its protocol's scheme.
    pub server: String,
    /// Sessions that clients use.
    pub used: usize,
    /// Sessions that wait for clients.
    pub idle: usize,
    /// How many there may be.
    pub limit: usize,
    /// Clients that wait for a session.
    pub waiting: usize,
    /// Clients so far.
    pub clients: u64,
    /// Sessions opened: connections, handshakes and logins.
    pub opened: u64,
    /// Clients that got a session which another had left.
    pub reused: u64,
    /// Sessions that could not be proved to be as new.
    pub dropped: u64,
    /// Clients that got none.
    pub refused: u64,
}
