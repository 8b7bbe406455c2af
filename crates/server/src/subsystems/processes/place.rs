//! Places of slots across an upgrade: while the previous server still has an instance, its successor starts none.
//!
//! Invariants
//! - A place is a lock on a file of the server that has it: it is free when that server lets go of it, or dies.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::system::run_dir::RunDir;

/// How often the place of another server is tried.
const BEAT: Duration = Duration::from_millis(100);

/// The folders of the places: our own, and that of the server whose place this one takes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    own: Option<RunDir>,
    before: Option<PathBuf>,
}

impl Places {
    /// Returns the name of a server's folder of places in its run folder.
    fn name(server: u32) -> String {
        format!("{server}-processes")
    }

    /// Makes our folder in `run_dir`. `before`: the run folder and the process id of the previous server.
    pub(crate) fn new(run_dir: Option<&RunDir>, before: Option<(&Path, u32)>) -> Self {
        let own = run_dir.map(|run_dir| run_dir.inside(&Self::name(std::process::id())));
        let own = own.and_then(|made| {
            made.inspect_err(|error| {
                tracing::warn!(%error, "an upgrade will not wait for the work of processes");
            })
            .ok()
        });
        let before = before.map(|(folder, server)| folder.join(Self::name(server)));
        Self { own, before }
    }

    /// Returns the place of one slot.
    pub(super) fn of(&self, name: &str, number: usize) -> Place {
        let file = format!("{name}.{number}");
        Place {
            own: self.own.as_ref().map(|own| own.path().join(&file)),
            before: self.before.as_ref().map(|before| before.join(&file)),
        }
    }
}

/// The place of one slot, before it is taken.
#[derive(Debug)]
pub(super) struct Place {
    own: Option<PathBuf>,
    before: Option<PathBuf>,
}

impl Place {
    /// Takes our place, and waits until the previous server has left its own. Cancel safe.
    pub(super) async fn take(&self) -> Option<File> {
        let own = self.own.as_deref().map(|path| {
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            file.try_lock().map_err(io::Error::from)?;
            io::Result::Ok(file)
        });
        let own = own.and_then(|taken| {
            taken.inspect_err(|error| tracing::debug!(%error, "no lock for a process")).ok()
        });
        while self.before.as_deref().is_some_and(is_taken) {
            sleep(BEAT).await;
        }
        own
    }
}

/// Returns whether another server holds this lock.
fn is_taken(path: &Path) -> bool {
    // One that is not there is gone with its server.
    let Ok(file) = File::open(path) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}
