//! The files that an application's boot has included, for a server that watches them.
//!
//! Invariants
//! - The list is the last one that a process reported: every process of a pool boots the same release.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use tokio::sync::watch;

/// Receives the files of each boot ([`crate::Options::boot_files`]).
#[derive(Debug, Default)]
pub struct BootFiles(watch::Sender<Vec<PathBuf>>);

impl BootFiles {
    /// Returns the list, and its changes.
    pub fn subscribe(&self) -> watch::Receiver<Vec<PathBuf>> {
        self.0.subscribe()
    }

    pub(crate) fn report(&self, files: wire::Files<'_>) {
        let mut files: Vec<PathBuf> = files.map(|path| OsStr::from_bytes(path).into()).collect();
        files.sort_unstable();
        files.dedup();
        self.0.send_if_modified(|known| {
            let differ = *known != files;
            *known = files;
            differ
        });
    }
}
