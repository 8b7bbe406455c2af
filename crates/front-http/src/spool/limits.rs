//! The limits of byte queues: of each one, and of all of them together.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Gauge, describe_gauge, gauge};
use rustix::process::{Resource, getrlimit};

/// Limits of one queue, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In memory. What exceeds it goes to a file.
    pub(crate) memory: u64,
    /// In a file. Zero: there is none.
    pub(crate) file: u64,
}

/// Memory and disk space that all queues share.
#[derive(Debug)]
pub(crate) struct Spools {
    pub(super) memory: Meter,
    pub(super) disk: Meter,
    /// Temporary files. Each is an open descriptor, of which connections and workers need the most.
    pub(super) files: Meter,
    directory: PathBuf,
}

impl Spools {
    /// `memory` and `disk`: most bytes of all queues together. Temporary files are created in `directory`. The gauges go to the recorder that is
    /// installed by now.
    pub(crate) fn new(memory: u64, disk: u64, directory: PathBuf) -> Self {
        describe_gauge!(
            "hearth_spool_memory_bytes",
            "Bytes of request and response bodies that wait in memory for a slow side"
        );
        describe_gauge!(
            "hearth_spool_file_bytes",
            "Bytes of request and response bodies that wait in temporary files"
        );
        Self {
            memory: Meter::new(memory, gauge!("hearth_spool_memory_bytes")),
            disk: Meter::new(disk, gauge!("hearth_spool_file_bytes")),
            files: Meter::new(most_files(), Gauge::noop()),
            directory,
        }
    }

    #[cfg(test)]
    pub(super) fn limit_files(&mut self, most: u64) {
        self.files = Meter::new(most, Gauge::noop());
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// A quarter of the descriptors that this process may have.
fn most_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}

/// Counts bytes or files against a limit.
#[derive(Debug)]
pub(super) struct Meter {
    used: AtomicU64,
    limit: u64,
    gauge: Gauge,
}

// Relaxed throughout: the numbers guard no other memory.
impl Meter {
    fn new(limit: u64, gauge: Gauge) -> Self {
        Self { used: AtomicU64::new(0), limit, gauge }
    }

    pub(super) fn has_room(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.limit
    }

    /// Counts bytes, unless the limit would be exceeded.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.limit)
        });
        if taken.is_ok() {
            self.gauge.increment(as_gauge(bytes));
        }
        taken.is_ok()
    }

    /// Counts bytes that are there already.
    pub(super) fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.gauge.increment(as_gauge(bytes));
    }

    pub(super) fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.gauge.decrement(as_gauge(bytes));
        }
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 bytes")]
fn as_gauge(bytes: u64) -> f64 {
    bytes as f64
}
