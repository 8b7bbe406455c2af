//! Paths at which nothing was found a moment ago: a request for one of them is routed without asking the file system.
//!
//! Invariants
//! - A path is forgotten after [`TRUST`] at the latest, and at once when a request that may write files is answered.
//!   Only the absence of a file is remembered: a file that disappears is noticed at once.
//! - The memory is fixed: a place holds a keyed hash of the path, the time and the number of writes. There is no lock.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum time for which a path is trusted to be missing.
pub(crate) const TRUST: Duration = Duration::from_millis(100);

/// Number of paths: one for each value of a byte.
const PLACES: usize = 256;

/// The paths of one document root at which nothing was found.
#[derive(Debug)]
pub(crate) struct MissingPaths {
    keys: RandomState,
    places: Box<[AtomicU64]>,
    /// Number of answered requests that may have written files.
    writes: AtomicU64,
}

impl MissingPaths {
    pub(crate) fn new() -> Self {
        let places = std::iter::repeat_with(|| AtomicU64::new(0)).take(PLACES).collect();
        Self { keys: RandomState::new(), places, writes: AtomicU64::new(0) }
    }

    /// Returns the mark of a path at `now`, in milliseconds. It is to be taken before the file system is asked.
    pub(crate) fn mark(&self, path: &[u8], now: u32) -> Mark {
        let trust = u32::try_from(TRUST.as_millis()).unwrap_or(u32::MAX);
        let mut hasher = self.keys.build_hasher();
        hasher.write_u32(now / trust);
        hasher.write_u64(self.writes.load(Ordering::Relaxed));
        hasher.write(path);
        Mark(hasher.finish())
    }

    pub(crate) fn contains(&self, mark: Mark) -> bool {
        self.place(mark).load(Ordering::Relaxed) == mark.0
    }

    pub(crate) fn add(&self, mark: Mark) {
        self.place(mark).store(mark.0, Ordering::Relaxed);
    }

    /// Forgets all paths: files may have been written.
    pub(crate) fn clear(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    fn place(&self, mark: Mark) -> &AtomicU64 {
        let [place, ..] = mark.0.to_le_bytes();
        &self.places[usize::from(place)]
    }
}

/// A path at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_forgotten_after_its_time_and_after_a_write() {
        let paths = MissingPaths::new();
        let trust = u32::try_from(TRUST.as_millis()).unwrap();
        assert!(!paths.contains(paths.mark(b"/a", 0)));
        paths.add(paths.mark(b"/a", 0));
        assert!(paths.contains(paths.mark(b"/a", 0)));
        assert!(paths.contains(paths.mark(b"/a", trust - 1)));
        assert!(!paths.contains(paths.mark(b"/a", trust)));
        assert!(!paths.contains(paths.mark(b"/b", 0)));
        paths.clear();
        assert!(!paths.contains(paths.mark(b"/a", 0)));
    }

    #[test]
    fn what_was_looked_up_before_a_write_is_not_trusted_after_it() {
        let paths = MissingPaths::new();
        let before = paths.mark(b"/a", 0);
        paths.clear();
        paths.add(before);
        assert!(!paths.contains(paths.mark(b"/a", 0)));
    }
}
