//! The files that an application's boot has included, for a server that watches them.
//!
//! Invariants
//! - The list of a script is the last one that a process reported: every process of a pool boots the same release.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tokio::sync::watch;

/// Receives the files of each boot ([`crate::Options::boot_files`]).
#[derive(Debug, Default)]
pub struct BootFiles {
    all: watch::Sender<Vec<PathBuf>>,
    /// Files by the script that was booted.
    of: Mutex<BTreeMap<Option<PathBuf>, Vec<PathBuf>>>,
}

impl BootFiles {
    /// A list that no boot changes.
    pub fn of(files: Vec<PathBuf>) -> Self {
        Self { all: watch::Sender::new(files), of: Mutex::default() }
    }

    /// Returns the list, and its changes.
    pub fn subscribe(&self) -> watch::Receiver<Vec<PathBuf>> {
        self.all.subscribe()
    }

    pub(crate) fn report(&self, script: Option<&Path>, files: wire::Files<'_>) {
        let files: Vec<PathBuf> = files.map(|path| OsStr::from_bytes(path).into()).collect();
        let mut of = self.of.lock().expect("no holder panics");
        of.insert(script.map(Path::to_path_buf), files);
        let mut files: Vec<PathBuf> = of.values().flatten().cloned().collect();
        files.sort_unstable();
        files.dedup();
        self.all.send_if_modified(|known| {
            let differ = *known != files;
            *known = files;
            differ
        });
    }
}
