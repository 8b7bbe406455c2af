//! Certificates in `/status`.

use serde::Serialize;

/// A certificate in `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    /// `files`, `authority` or `local`.
    pub from: &'static str,
    /// The names and addresses it is for.
    pub names: Vec<String>,
    /// The end of its validity, in seconds since 1970.
    pub not_after: u64,
    /// The days until the end, below zero after it.
    pub days_left: i64,
    /// An OCSP response goes with it.
    pub stapled: bool,
}

/// The state of an ACME authority's certificate, in `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct AcmeStatus {
    /// The names of the certificate.
    pub domains: Vec<String>,
    /// Certificates since the start.
    pub issued: u64,
    /// Tries that failed since then.
    pub failed: u64,
    /// The reason of the last failure; empty after a success.
    pub last_failure: Option<String>,
    /// The time of the next try or renewal, in seconds since 1970.
    pub next: Option<u64>,
}
