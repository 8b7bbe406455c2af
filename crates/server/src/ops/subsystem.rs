//! The view of operators on each part of a running server.

use std::fmt::Debug;

use super::problems::Problems;
use super::status::Status;

/// A part of a running server that `/status`, `/metrics` and the dashboard show.
///
/// A new metric is a line in one implementation of [`Self::metrics`]; no other code refers to it.
pub(crate) trait Subsystem: Debug + Send + Sync {
    /// Fills in its part of `/status`.
    fn status(&self, _status: &mut Status) {}

    /// Describes its Prometheus metrics and copies their values, at each scrape.
    fn metrics(&self) {}

    /// Adds what an operator should know, by the `status` that all subsystems have filled in.
    fn problems(&self, _status: &Status, _problems: &mut Problems) {}
}
