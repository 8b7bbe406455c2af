//! Certificates in `/status`.

use serde::Serialize;

/// One certificate, in `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    /// `files`, `authority` or `local`.
    pub from: &'static str,
    /// The names and addresses it is for.
    pub names: Vec<String>,
    /// Seconds since 1970.
    pub not_after: u64,
    /// Less than nothing when it is over.
    pub days_left: i64,
    /// An OCSP response goes with it.
    pub stapled: bool,
}

/// What became of asking an authority, in `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct AcmeStatus {
    /// Whose certificate it is.
    pub domains: Vec<String>,
    /// Certificates since the start.
    pub issued: u64,
    /// Tries that failed since then.
    pub failed: u64,
    /// Why the last one failed; nothing once one has not.
    pub last_failure: Option<String>,
    /// When it is tried again or renewed: seconds since 1970.
    pub next: Option<u64>,
}
