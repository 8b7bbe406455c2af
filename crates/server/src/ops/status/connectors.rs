//! A database connector's part of `/status`.

use serde::Serialize;

/// A connector's part of `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub name: String,
    pub server: String,
    pub used: usize,
    pub idle: usize,
    pub limit: usize,
    pub waiting: usize,
    pub clients: u64,
    pub opened: u64,
    pub reused: u64,
    pub dropped: u64,
    pub refused: u64,
}

impl Status {
    /// Describes the connector in one line.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} ({}): {} of {} sessions used, {} idle, {} waiting, {} refused",
            self.name, self.server, self.used, self.limit, self.idle, self.waiting, self.refused
        )
    }
}
