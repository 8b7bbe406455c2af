//! `php.watch = "boot"`: a reload when a file that the boot has included was changed, for applications that update themselves. The same for
//! preloaded files (`php.preload`).
//!
//! Invariants
//! - A change is other content: a file that is written again as it was is none.
//! - Changes that come together are one reload: it begins when nothing has changed for [`QUIET`], or at the latest after [`LONGEST`].
//! - A release that did not take over is tried again at the next change, and after pauses that grow to [`LONGEST_PAUSE`]: what was missing
//!   may be a file that the old release does not know.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::WatchedFiles;
use crate::ops::reloads::Ask;
use crate::ops::state::State;
use crate::runtime::generation::{Booted, Generation};
use crate::runtime::watch::{is_gone, matters, until_quiet, why};

/// The pause after the last change: an update writes many files, and works between them.
const QUIET: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The time between two looks at all files where the kernel has no room for watches.
const POLL: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// The contents of watched files as the newest boot has found them, by path.
type Known = Arc<Mutex<HashMap<PathBuf, u64>>>;

/// Watches the files of the generation that takes requests.
#[derive(Debug, Default)]
pub(crate) struct BootWatch {
    known: Known,
    tasks: JoinSet<()>,
    /// A generation without a boot is running, and the log has a line about it.
    has_no_boot: bool,
    /// A line about the missing room was logged.
    has_said: Arc<AtomicBool>,
}

impl BootWatch {
    /// Watches the files of this generation from the return on, and no others.
    pub(crate) async fn follow(
        &mut self,
        current: &Generation,
        state: &Arc<State>,
        drain: &CancellationToken,
    ) {
        self.tasks = JoinSet::new();
        let had_no_boot = std::mem::take(&mut self.has_no_boot);
        for booted in &current.applications {
            if !watches(booted) {
                continue;
            }
            let Some(files) = &booted.boot_files else {
                if let Some(php) = booted.planned.plan.php.as_ref()
                    && !std::mem::replace(&mut self.has_no_boot, true)
                    && !had_no_boot
                {
                    let model = php.model.name();
                    tracing::info!(
                        model,
                        "`php.watch` does nothing: this model keeps no boot, each request reads the files"
                    );
                }
                continue;
            };
            let mut task = Task {
                files: files.subscribe(),
                known: Arc::clone(&self.known),
                has_said: Arc::clone(&self.has_said),
                state: Arc::clone(state),
            };
            let look = task.look().await;
            let drain = drain.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = drain.cancelled() => {}
                    () = task.run(look) => {}
                }
            });
        }
        let watched = current.applications.iter().filter(|booted| watches(booted));
        let lists = watched.filter_map(|booted| booted.boot_files.as_ref());
        keep_listed(&self.known, lists.map(|files| files.subscribe().borrow().clone()).collect());
    }

    /// A boot begins, and finds the files as they are now: what differs when it is over has changed meanwhile.
    pub(crate) async fn boot_begins(&self) {
        let known = Arc::clone(&self.known);
        let reading = tokio::task::spawn_blocking(move || {
            let paths: Vec<PathBuf> = lock(&known).keys().cloned().collect();
            let contents: Vec<u64> = paths.iter().map(|path| content(path)).collect();
            lock(&known).extend(paths.into_iter().zip(contents));
        });
        if let Err(error) = reading.await {
            tracing::debug!(%error, "watched files were not read");
        }
    }
}

fn watches(booted: &Booted) -> bool {
    booted.planned.settings.php.watch == Some(WatchedFiles::Boot)
        || booted.preload.as_ref().is_some_and(|learned| !learned.paths.is_empty())
}

/// Forgets files that no boot includes any more. A boot that has not listed its files yet keeps all.
fn keep_listed(known: &Known, lists: Vec<Vec<PathBuf>>) {
    if lists.iter().all(|list| !list.is_empty()) {
        let listed: HashSet<PathBuf> = lists.into_iter().flatten().collect();
        lock(known).retain(|path, _| listed.contains(path));
    }
}

fn lock(known: &Known) -> std::sync::MutexGuard<'_, HashMap<PathBuf, u64>> {
    known.lock().expect("no holder panics")
}

/// Returns which of these files have other contents than the newest boot has found. Those that it did not know it knows from now on. Blocks
/// while it reads them.
fn differing(known: &Known, paths: &[PathBuf]) -> Vec<PathBuf> {
    let contents: Vec<u64> = paths.iter().map(|path| content(path)).collect();
    let mut known = lock(known);
    let pairs = paths.iter().zip(contents);
    let differ = pairs
        .filter(|(path, content)| *known.entry((*path).clone()).or_insert(*content) != *content);
    differ.map(|(path, _)| path.clone()).collect()
}

/// Returns a number for the contents of a file; of one that only PHP may read, for its metadata.
fn content(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    match fs::read(path) {
        Ok(bytes) => bytes.hash(&mut hasher),
        Err(_) => metadata(path).hash(&mut hasher),
    }
    hasher.finish()
}

fn metadata(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Watches the files of one application.
#[derive(Debug)]
struct Task {
    files: watch::Receiver<Vec<PathBuf>>,
    known: Known,
    has_said: Arc<AtomicBool>,
    state: Arc<State>,
}

impl Task {
    /// Asks for reloads until it is dropped: by the next generation, or at the end.
    async fn run(mut self, mut look: Option<Look>) {
        let mut retries = 0;
        // The file that caused a reload which failed.
        let mut failed: Option<String> = None;
        loop {
            let taken = match look.take() {
                Some(look) => Some(look),
                None => self.look().await,
            };
            let Some(Look { paths, mut source, mut changed }) = taken else { return };
            let mut is_retry = false;
            while changed.is_empty() && !is_retry {
                tokio::select! {
                    listed = self.files.changed() => match listed {
                        Ok(()) => break,
                        // The pool has ended, and so does this.
                        Err(_) => std::future::pending().await,
                    },
                    () = source.changed() => {
                        source.settle().await;
                        let (known, paths) = (Arc::clone(&self.known), paths.clone());
                        let compared = tokio::task::spawn_blocking(move || differing(&known, &paths));
                        changed = compared.await.unwrap_or_default();
                    }
                    () = tokio::time::sleep(pool::pause_after(retries, FIRST_PAUSE, LONGEST_PAUSE)), if failed.is_some() => is_retry = true,
                }
            }
            let why = match (changed.as_slice(), &failed) {
                ([first, others @ ..], _) => {
                    let first = first.display().to_string();
                    let why = why(&first, others.len());
                    retries = 0;
                    failed = Some(first);
                    why
                }
                ([], Some(first)) if is_retry => {
                    retries += 1;
                    format!("{first} changed, and the last try failed")
                }
                ([], _) => continue,
            };
            if self.reload(why).await {
                failed = None;
            }
        }
    }

    /// Watches the files that the boot has included.
    async fn look(&mut self) -> Option<Look> {
        let paths = self.files.borrow_and_update().clone();
        let (known, has_said) = (Arc::clone(&self.known), Arc::clone(&self.has_said));
        let looking = tokio::task::spawn_blocking(move || {
            let source = Source::of(&paths).unwrap_or_else(|error| {
                if !has_said.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        "`php.watch` has no room for watches, and looks at the files every {} s: raise fs.inotify.max_user_watches \
                         or max_user_instances (sysctl)",
                        POLL.as_secs()
                    );
                }
                Source::poll(&paths)
            });
            let changed = differing(&known, &paths);
            Look { paths, source, changed }
        });
        looking.await.ok()
    }

    /// Returns whether the new release has taken over.
    async fn reload(&self, why: String) -> bool {
        let (answer, outcome) = oneshot::channel();
        self.state.reloads.ask(Ask { why, answer: Some(answer) })
            && matches!(outcome.await, Ok(Ok(_)))
    }
}

/// Watched files.
#[derive(Debug)]
struct Look {
    paths: Vec<PathBuf>,
    source: Source,
    /// Files that have changed since the newest boot began.
    changed: Vec<PathBuf>,
}

/// Where changes are learned from.
#[derive(Debug)]
enum Source {
    Kernel { _watcher: RecommendedWatcher, events: mpsc::Receiver<()> },
    Poll { paths: Vec<PathBuf>, seen: Vec<Option<(u64, u64, i64, i64)>> },
}

impl Source {
    /// Watches the folders of these files: a file that is replaced has another inode. Blocks.
    fn of(paths: &[PathBuf]) -> notify::Result<Self> {
        let (sender, events) = mpsc::channel(1);
        let sorted = paths.to_vec();
        let is_ours = move |event: &Event| {
            matters(event.kind) && event.paths.iter().any(|path| sorted.binary_search(path).is_ok())
        };
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<Event>| match event {
                // Full: the one before it is not yet looked at.
                Ok(event) if is_ours(&event) => drop(sender.try_send(())),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "watching for changes"),
            })?;
        let mut folders: Vec<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        folders.dedup();
        for folder in folders {
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(Self::Kernel { _watcher: watcher, events })
    }

    fn poll(paths: &[PathBuf]) -> Self {
        let seen = paths.iter().map(|path| metadata(path)).collect();
        Self::Poll { paths: paths.to_vec(), seen }
    }

    /// Waits until a file may have changed. Cancel safe.
    async fn changed(&mut self) {
        match self {
            Self::Kernel { events, .. } => {
                if events.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
            }
            Self::Poll { paths, seen } => loop {
                tokio::time::sleep(POLL).await;
                let of = paths.clone();
                let looking = tokio::task::spawn_blocking(move || {
                    of.iter().map(|path| metadata(path)).collect::<Vec<_>>()
                });
                let now = looking.await.unwrap_or_default();
                if now != *seen {
                    *seen = now;
                    return;
                }
            },
        }
    }

    /// Waits until nothing changes any more. A poll is slow enough by itself.
    async fn settle(&mut self) {
        if let Self::Kernel { events, .. } = self {
            until_quiet(events, QUIET, LONGEST, drop).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_content_is_a_change_and_the_same_content_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.php");
        let (known, paths) = (Known::default(), [path.clone()]);
        fs::write(&path, "<?php // 1").unwrap();
        assert!(differing(&known, &paths).is_empty(), "seen for the first time");
        fs::write(&path, "<?php // 1").unwrap();
        assert!(differing(&known, &paths).is_empty(), "written again");
        fs::write(&path, "<?php // 2").unwrap();
        assert_eq!(differing(&known, &paths), paths);
        fs::write(&path, "<?php // 1").unwrap();
        assert!(differing(&known, &paths).is_empty(), "as the boot has found it");
        fs::remove_file(&path).unwrap();
        assert_eq!(differing(&known, &paths), paths);
    }

    #[test]
    fn files_that_no_boot_includes_any_more_are_forgotten() {
        let paths = ["/a.php", "/b.php"].map(PathBuf::from);
        let known: Known = Arc::new(Mutex::new(paths.iter().cloned().zip([1, 2]).collect()));
        keep_listed(&known, vec![vec![paths[1].clone()], Vec::new()]);
        assert_eq!(lock(&known).len(), 2, "one boot has not listed its files yet");
        keep_listed(&known, vec![vec![paths[1].clone()]]);
        assert_eq!(lock(&known).keys().collect::<Vec<_>>(), [&paths[1]]);
    }
}
