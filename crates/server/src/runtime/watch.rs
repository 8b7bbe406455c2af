//! `--watch`, for development: looks for changes of the application's files and asks for a reload.
//!
//! Invariants
//! - Several changes cause one reload: it starts after [`QUIET`] without a change, or at the latest after [`LONGEST`].
//! - Files that the application itself writes (caches, logs, sessions) cause no reload if `server.watch_ignore` names them.
//! - Ignored folders are not scanned, because each watch uses kernel memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::ops::reloads::Ask;
use crate::ops::state::State;

/// The pause after the last change: as long as an editor takes to write what it saves, or a tool to write the next file.
const QUIET: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// The most changes that may wait. One that does not fit is implied by those before it.
const EVENTS: usize = 1024;

/// The folders that are watched, and the tasks that watch them.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    folders: Vec<PathBuf>,
    tasks: JoinSet<()>,
}

impl Watched {
    /// Watches these folders from now on, and no others. A failure leaves none.
    pub(crate) async fn follow(
        &mut self,
        folders: Vec<PathBuf>,
        ignored: &[String],
        state: &Arc<State>,
        drain: &CancellationToken,
    ) -> Result<(), Failure> {
        if self.folders == folders {
            return Ok(());
        }
        *self = Self::default();
        let (of, ignored) = (folders.clone(), ignored.to_vec());
        let walking = tokio::task::spawn_blocking(move || {
            of.iter().map(|folder| Watch::of(folder, &ignored)).collect::<Result<Vec<_>, _>>()
        });
        let watches = walking.await.unwrap_or_else(|error| {
            Err(Failure::caused_by(
                "cannot watch the application's files",
                &error,
                "please report this",
            ))
        })?;
        for watch in watches {
            self.tasks.spawn(watch.run(Arc::clone(state), drain.clone()));
        }
        self.folders = folders;
        Ok(())
    }
}

/// The ignored paths.
#[derive(Clone, Debug)]
struct Ignored(Vec<String>);

impl Ignored {
    /// `path` is relative to the application's folder.
    fn holds(&self, path: &Path) -> bool {
        let names = || path.components().filter_map(|part| part.as_os_str().to_str());
        self.0.iter().any(|ignored| match ignored.strip_prefix('*') {
            Some(end) => names().any(|name| name.ends_with(end)),
            None if ignored.contains('/') => path.starts_with(ignored),
            None => names().any(|name| name == ignored),
        })
    }
}

/// A watched folder and its changes.
#[derive(Debug)]
struct Watch {
    events: mpsc::Receiver<Event>,
    tree: Tree,
}

/// A folder and those in it, without the ignored ones.
#[derive(Debug)]
struct Tree {
    watcher: RecommendedWatcher,
    folder: PathBuf,
    ignored: Ignored,
}

impl Watch {
    /// Starts to watch a folder. Blocks while it walks through the folder.
    fn of(folder: &Path, ignored: &[String]) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel(EVENTS);
        let watcher =
            notify::recommended_watcher(move |event: notify::Result<Event>| match event {
                // Full: those before it will be enough.
                Ok(event) if matters(event.kind) => drop(sender.try_send(event)),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "watching for changes"),
            })
            .map_err(|error| failure(&error))?;
        let ignored =
            Ignored(ignored.iter().map(|text| text.trim_end_matches('/').to_owned()).collect());
        let mut tree = Tree { watcher, folder: folder.to_owned(), ignored };
        tree.look_into(folder).map_err(|error| failure(&error))?;
        Ok(Self { events, tree })
    }

    /// Asks for reloads until `drain` is cancelled.
    pub(crate) async fn run(self, state: Arc<State>, drain: CancellationToken) {
        let Self { mut events, mut tree } = self;
        loop {
            let event = tokio::select! {
                biased;
                () = drain.cancelled() => return,
                event = events.recv() => event,
            };
            let Some(event) = event else { return };
            let Some(first) = tree.changed(&event) else { continue };
            let mut others = 0;
            until_quiet(&mut events, QUIET, LONGEST, |event| {
                others += usize::from(tree.changed(&event).is_some());
            })
            .await;
            if !state.reloads.ask(Ask { why: why(&first, others), answer: None }) {
                tracing::debug!("many wait for a reload already, or the server is shutting down");
            }
        }
    }
}

impl Tree {
    /// A folder, and those in it that are not ignored.
    fn look_into(&mut self, folder: &Path) -> notify::Result<()> {
        self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            // No links: they may lead in a circle.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !self.is_ignored(&path) {
                match self.look_into(&path) {
                    Err(error) if !is_gone(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn is_ignored(&self, path: &Path) -> bool {
        path.strip_prefix(&self.folder).is_ok_and(|relative| self.ignored.holds(relative))
    }

    /// Returns the path of an event that counts, for people. Watches folders that are new.
    fn changed(&mut self, event: &Event) -> Option<String> {
        let path = event.paths.iter().rfind(|path| !self.is_ignored(path))?.clone();
        let moved =
            matches!(event.kind, EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_)));
        if moved
            && path.is_dir()
            && let Err(error) = self.look_into(&path)
            && !is_gone(&error)
        {
            tracing::warn!(path = %path.display(), %error, "changes in here will not be seen");
        }
        let relative = path.strip_prefix(&self.folder).unwrap_or(&path);
        Some(relative.display().to_string())
    }
}

/// Receives until nothing has come for `quiet`, or at the latest after `longest`.
pub(crate) async fn until_quiet<T>(
    events: &mut mpsc::Receiver<T>,
    quiet: Duration,
    longest: Duration,
    mut each: impl FnMut(T),
) {
    let latest = Instant::now() + longest;
    loop {
        let end = (Instant::now() + quiet).min(latest);
        match tokio::time::timeout_at(end, events.recv()).await {
            Ok(Some(event)) => each(event),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Returns why a reload is asked for.
pub(crate) fn why(first: &str, others: usize) -> String {
    match others {
        0 => format!("{first} changed"),
        others => format!("{first} changed, and {others} more"),
    }
}

/// Returns whether an event changes a file: others only read it.
pub(crate) fn matters(kind: EventKind) -> bool {
    match kind {
        EventKind::Create(_) | EventKind::Remove(_) => true,
        EventKind::Modify(what) => !matches!(what, ModifyKind::Metadata(_)),
        _ => false,
    }
}

pub(crate) fn is_gone(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn failure(error: &notify::Error) -> Failure {
    let hint = match error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "name large folders in `server.watch_ignore`, or raise fs.inotify.max_user_watches (sysctl)"
        }
        _ => "raise fs.inotify.max_user_instances (sysctl), or leave out `--watch`",
    };
    Failure::caused_by("cannot watch the application's files", error, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_endings_are_ignored() {
        let ignored = Ignored(["vendor", "bootstrap/cache", "*.log"].map(str::to_owned).to_vec());
        for path in
            ["vendor", "vendor/a/b.php", "modules/x/vendor/y.php", "bootstrap/cache/p.php", "a.log"]
        {
            assert!(ignored.holds(Path::new(path)), "{path}");
        }
        for path in
            ["app/vendor.php", "bootstrap/app.php", "x/bootstrap/cache/y", "log", "a.log.php"]
        {
            assert!(!ignored.holds(Path::new(path)), "{path}");
        }
    }
}
