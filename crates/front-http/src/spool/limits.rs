//! The limits of byte queues: of each one, and of all of them together.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Gauge, describe_gauge, gauge};
use rustix::process::{Resource, getrlimit};

/// Limits of one queue, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum in memory. Further bytes go to a file.
    pub(crate) memory: u64,
    /// Maximum in a file. With zero there is none.
    pub(crate) file: u64,
}

/// Memory and disk space shared by all queues.
#[derive(Debug)]
pub(crate) struct Spools {
    pub(super) memory: Meter,
    pub(super) disk: Meter,
    /// Temporary files. Each uses a descriptor, which connections and workers need more.
    pub(super) files: Meter,
    directory: PathBuf,
    /// The first descriptor that no temporary file may use.
    ceiling: RawFd,
}

impl Spools {
    /// Creates the shared limits: `memory` and `disk` bound the bytes of all queues together. Temporary files are
    /// created in `directory`. The gauges use the recorder installed by now.
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
            ceiling: RawFd::MAX,
        }
    }

    /// Reserves the descriptors from `ceiling` on for other uses.
    #[must_use]
    pub(crate) fn below(self, ceiling: Option<RawFd>) -> Self {
        Self { ceiling: ceiling.unwrap_or(RawFd::MAX), ..self }
    }

    /// Creates a temporary file without a name. Blocks.
    pub(super) fn file(&self) -> io::Result<File> {
        let file = tempfile::tempfile_in(&self.directory)?;
        if file.as_raw_fd() >= self.ceiling {
            let why = "too few descriptors are left for a temporary file";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        Ok(file)
    }

    #[cfg(test)]
    pub(super) fn limit_files(&mut self, most: u64) {
        self.files = Meter::new(most, Gauge::noop());
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Returns a quarter of the process's descriptor limit.
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

// Relaxed ordering is enough: the numbers guard no other memory.
impl Meter {
    fn new(limit: u64, gauge: Gauge) -> Self {
        Self { used: AtomicU64::new(0), limit, gauge }
    }

    pub(super) fn has_room(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.limit
    }

    /// Adds bytes, unless the limit would be exceeded.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.limit)
        });
        if taken.is_ok() {
            self.gauge.increment(as_gauge(bytes));
        }
        taken.is_ok()
    }

    /// Adds bytes that exist already.
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
