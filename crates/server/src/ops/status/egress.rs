//! The egress broker's part of `/status`.

use std::path::PathBuf;

use serde::Serialize;

/// The broker's part of `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub socket: PathBuf,
    pub callers: usize,
    pub calls: u64,
    pub declined: Vec<Unanswered>,
    pub failed: Vec<Unanswered>,
    pub origins: Vec<Origin>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Unanswered {
    pub reason: &'static str,
    pub calls: u64,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Origin {
    #[serde(rename = "origin")]
    pub url: String,
    pub calls: u64,
    pub reused: u64,
    pub connects: u64,
    pub handshakes: u64,
    pub handshakes_saved: u64,
    pub repeated: u64,
    pub closed: u64,
    pub passed_over: u64,
    pub unasked: u64,
    pub waiting: usize,
    pub connections: usize,
}
