//! The answer cache in `/status`.

use serde::Serialize;

/// A part of `/status`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Status {
    /// Requests answered by a fresh stored answer, since the start.
    pub hits: u64,
    /// Requests that PHP answered because no usable answer was stored.
    pub misses: u64,
    /// Requests in which the cache took no part.
    pub bypassed: u64,
    /// Requests answered by a stale answer.
    pub stale: u64,
    /// Stored answers that PHP confirmed.
    pub revalidated: u64,
    /// Requests that were answered by the answer to another one that they waited for.
    pub collapsed: u64,
    /// Answers that were stored.
    pub stored: u64,
    /// Stored answers that went because memory was needed.
    pub evictions: u64,
    /// Purges, and unsafe requests that made answers invalid.
    pub purges: u64,
    /// Memory in use and its bound.
    pub bytes: u64,
    pub bytes_limit: u64,
    /// Stored answers, their compressed forms included.
    pub entries: u64,
}
