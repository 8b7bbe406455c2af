//! Distinguishes a file from its successor.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The identity of a file at one time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Stamp(u64, u64, i64, i64, u64);

impl Stamp {
    pub(crate) fn new(file: &Metadata) -> Self {
        Self(file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len())
    }
}
