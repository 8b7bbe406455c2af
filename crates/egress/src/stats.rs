//! What happened at one origin, in plain numbers that only grow, unless said otherwise. For metrics.

use crate::{Fate, Reason, Scheme};

/// The numbers of one origin: of all keys with the same scheme, host and port.
#[derive(Clone, Debug, Default)]
pub struct OriginStats {
    /// Calls that were asked for.
    pub calls: u64,
    /// Calls that went over a connection that had been there.
    pub reused: u64,
    /// Connections that were made.
    pub connects: u64,
    /// TLS handshakes that were made.
    pub handshakes: u64,
    /// TLS handshakes that calls did without.
    pub handshakes_saved: u64,
    /// Calls that were made again (docs/internals/egress.md, "Never twice").
    pub repeated: u64,
    /// Calls that wait now.
    pub waiting: usize,
    /// Connections that are open now.
    pub connections: usize,
    /// Calls that have no answer, by what came of them and why.
    pub unanswered: Vec<(Fate, Reason, u64)>,
}

/// One origin and its numbers.
#[derive(Clone, Debug)]
pub struct OriginReport {
    /// With TLS or without.
    pub scheme: Scheme,
    /// Name or address.
    pub host: std::sync::Arc<str>,
    /// Port.
    pub port: u16,
    /// Its numbers.
    pub stats: OriginStats,
}
