//! Realtime's part of `/status`.

use serde::Serialize;

/// Realtime's part of `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub sockets: u64,
    pub channels: usize,
    /// Other nodes; none without an adapter.
    pub nodes: Option<u64>,
    /// Look-ups of applications; `None` without a look-up.
    pub lookup: Option<Looked>,
    pub applications: Vec<Application>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Looked {
    pub known: usize,
    pub waiting: usize,
    pub found: u64,
    pub absent: u64,
    pub failed: u64,
    pub changed: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Application {
    pub id: String,
    pub connections: u64,
    pub subscriptions: u64,
    pub published: u64,
    pub sent: u64,
    pub received: u64,
}
