//! Supervised commands: queue workers, the scheduler, and whatever else an application needs beside its requests.
//!
//! Invariants
//! - Never more instances than `count`, and no two runs of `cron` at once, also while a release replaces another: an
//!   instance of the new one starts when that of the old one has ended. The same holds for an upgrade.
//! - A command that cannot run stops neither the server nor another command.
//! - At the end of the server no instance is left.

mod backoff;
mod guards;
mod instance;
mod place;
mod report;
mod schedule;
mod slot;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use pool::{Launcher, ProgramOptions};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::guards::Guards;
pub(crate) use self::place::Places;
use self::slot::Slot;
pub(crate) use self::table::ProcessTable;
use crate::config::Cron;
use crate::failure::Failure;

/// A process as one release has it.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) application: Arc<str>,
    /// The command as it was written.
    pub(crate) command: String,
    /// The generation of the application.
    pub(crate) generation: u64,
    pub(crate) count: usize,
    /// When it is started, if not always.
    pub(crate) cron: Option<(Cron, TimeZone)>,
    pub(crate) stop_signal: Signal,
    pub(crate) stop_timeout: Duration,
    /// The program that starts it, or why it cannot be started.
    pub(crate) launcher: Result<Launcher, Failure>,
}

/// Prepares a program; a sandbox that the kernel refuses is a failure.
pub(crate) fn launcher(options: ProgramOptions) -> Result<Launcher, Failure> {
    Launcher::new(options)
        .map_err(|error| Failure::caused_by("it cannot be confined", &error, "correct `[sandbox]`"))
}

/// The work of one slot.
type Wanted = Option<Arc<Definition>>;

/// All supervised commands of a server. They outlive generations.
#[derive(Debug)]
pub(crate) struct Processes {
    /// Slots by name and number. One that is not wanted any more is kept: it may still have an instance.
    slots: BTreeMap<(Arc<str>, usize), watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    table: Arc<ProcessTable>,
    guards: Arc<Guards>,
    places: Places,
    drain: CancellationToken,
}

impl Processes {
    /// Starts nothing yet. Instances are asked to end when `drain` is cancelled.
    pub(crate) fn new(places: Places, drain: CancellationToken) -> Self {
        let (slots, tasks) = (BTreeMap::new(), JoinSet::new());
        Self { slots, tasks, table: Arc::default(), guards: Arc::default(), places, drain }
    }

    /// Returns the processes as operators see them.
    pub(crate) fn table(&self) -> Arc<ProcessTable> {
        Arc::clone(&self.table)
    }

    /// Replaces what runs: each instance of the old release ends, and one of the new release takes its place.
    pub(crate) fn replace(&mut self, definitions: Vec<Definition>) {
        let mut wanted: BTreeMap<(Arc<str>, usize), Arc<Definition>> = BTreeMap::new();
        for definition in definitions.into_iter().map(Arc::new) {
            if let Err(failure) = &definition.launcher {
                let (process, reason, hint) =
                    (&*definition.name, failure.message(), failure.hint());
                tracing::error!(process.name = process, reason, hint, "process cannot be started");
            }
            for number in 1..=definition.count {
                let key = (Arc::clone(&definition.name), number);
                wanted.insert(key, Arc::clone(&definition));
            }
        }
        self.table.want(wanted.values());
        for (key, sender) in &self.slots {
            sender.send_replace(wanted.remove(key));
        }
        for ((name, number), definition) in wanted {
            let (sender, receiver) = watch::channel(Some(definition));
            let shown = (Arc::clone(&self.table), Arc::clone(&self.guards));
            let place = self.places.of(&name, number);
            let slot = Slot::new((number, place), receiver, shown, self.drain.clone());
            self.tasks.spawn(slot.run());
            self.slots.insert((name, number), sender);
        }
    }

    /// Waits until no instance is left. Each has its own time limit.
    pub(crate) async fn end(mut self) {
        self.drain.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
