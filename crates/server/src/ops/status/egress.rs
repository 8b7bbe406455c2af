//! The egress broker's part of `/status`.

use std::path::PathBuf;

use egress::OriginStats;
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

#[derive(Debug, Serialize)]
pub(crate) struct Origin {
    #[serde(rename = "origin")]
    pub url: String,
    #[serde(flatten)]
    pub stats: OriginStats,
}
