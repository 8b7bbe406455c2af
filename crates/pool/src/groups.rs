//! The scripts of an application beside its front controller: groups that wait at a point of their own, and the rest.
//!
//! Invariants
//! - A script is looked at once, when its first request comes. Until it waits, and if it cannot, its requests run with the rest.
//! - There are at most [`Groups::MOST`] groups. A script beyond that runs with the rest.
//! - No boot delays a request, and none fails the pool: a group that does not boot says so in one line.
//! - All of them, and the front controller, share the workers of one pool ([`Seats`]).

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{Instrument as _, debug, info, warn};

use crate::backend::{self, Backend as _};
use crate::frames::Sharing;
use crate::seats::Seats;
use crate::shared::{Owner, Shared};
use crate::status::{GroupState, GroupStatus, WorkerState};
use crate::{BootFiles, Options, Others, Scaling, StartError, frames};

/// Known facts about a script.
#[derive(Debug)]
enum Group {
    /// The script does not wait, or there are too many groups.
    OfRest,
    Boots,
    Runs(Arc<Owner>),
    Failed(String),
}

/// The groups of one pool.
#[derive(Debug)]
pub(crate) struct Groups {
    entry_script: Arc<Path>,
    others: Others,
    seats: Arc<Seats>,
    rest: Arc<Owner>,
    /// Receives the files that boots include, if the front controller's are received.
    boot_files: Option<Arc<BootFiles>>,
    known: RwLock<HashMap<Arc<Path>, Group>>,
    /// Boots that are under way; `None` when the pool drains.
    boots: Mutex<Option<JoinSet<()>>>,
    /// Names the application in log lines.
    span: tracing::Span,
}

impl Groups {
    /// The most groups beside the front controller. Each keeps a booted application in memory.
    pub(crate) const MOST: usize = 16;
    /// The most scripts of which something is known.
    const SCRIPTS: usize = 4096;

    /// Starts what runs the rest. The groups that were known boot in the background.
    pub(crate) async fn start(
        entry_script: Arc<Path>,
        others: Others,
        seats: &Arc<Seats>,
        boot_files: Option<Arc<BootFiles>>,
    ) -> Result<Arc<Self>, StartError> {
        let from_none = Self::scaling(&others, seats, 0);
        let sharing = Sharing { seats: Arc::clone(seats), scaling: Some(from_none) };
        let rest = frames::start((*others.rest).clone(), Some(sharing)).await?;
        Ok(Arc::new(Self {
            entry_script,
            seats: Arc::clone(seats),
            rest,
            boot_files,
            known: RwLock::default(),
            boots: Mutex::new(Some(JoinSet::new())),
            span: tracing::Span::current(),
            others,
        }))
    }

    fn scaling(others: &Others, seats: &Seats, start: usize) -> Scaling {
        let most = std::num::NonZeroUsize::new(seats.most()).unwrap_or(std::num::NonZeroUsize::MIN);
        let Others { idle_timeout, burst, .. } = *others;
        Scaling { most, start, idle_timeout, burst }
    }

    /// Boots the groups of the last generation, and returns when all of them wait or have failed. Cancel safe.
    pub(crate) async fn boot_known(self: &Arc<Self>) {
        let known: Vec<Arc<Path>> =
            self.others.known.iter().map(|script| script.as_path().into()).collect();
        let mut boots: JoinSet<()> = known
            .into_iter()
            .filter(|script| **script != *self.entry_script)
            .filter(|script| self.is_new(script))
            .map(|script| Arc::clone(self).boot(script).instrument(self.span.clone()))
            .collect();
        while boots.join_next().await.is_some() {}
    }

    pub(crate) fn entry_script(&self) -> &Path {
        &self.entry_script
    }

    /// Returns what runs the script; `None`: the front controller's workers.
    pub(crate) fn runner(self: &Arc<Self>, script: &Arc<Path>) -> Option<Arc<Shared>> {
        if **script == *self.entry_script {
            return None;
        }
        let runner = {
            let known = self.known.read().expect("no holder panics");
            known.get(script).map(|group| match group {
                Group::Runs(owner) => Arc::clone(&owner.shared),
                Group::OfRest | Group::Boots | Group::Failed(_) => Arc::clone(&self.rest.shared),
            })
        };
        Some(runner.unwrap_or_else(|| {
            self.learn(script);
            Arc::clone(&self.rest.shared)
        }))
    }

    /// Marks the script as one that was looked at. Returns `false` if it is known.
    fn is_new(&self, script: &Arc<Path>) -> bool {
        let mut known = self.known.write().expect("no holder panics");
        let is_new = known.len() < Self::SCRIPTS && !known.contains_key(script);
        if is_new {
            known.insert(Arc::clone(script), Group::OfRest);
        }
        is_new
    }

    /// Boots the script in the background, if it waits.
    fn learn(self: &Arc<Self>, script: &Arc<Path>) {
        let mut boots = self.boots.lock().expect("no holder panics");
        let Some(boots) = &mut *boots else { return };
        while boots.try_join_next().is_some() {}
        if self.is_new(script) {
            let boot = Arc::clone(self).boot(Arc::clone(script));
            boots.spawn(boot.instrument(self.span.clone()));
        }
    }

    async fn boot(self: Arc<Self>, script: Arc<Path>) {
        let (scripts, path) = (Arc::clone(&self.others.scripts), Arc::clone(&script));
        let options = tokio::task::spawn_blocking(move || scripts.options(&path)).await;
        let Some(options) = options.ok().flatten() else {
            return;
        };
        let shown = script.display();
        if !self.may_boot(&script) {
            warn!(script = %shown, most = Self::MOST, "there are as many groups of workers as there may be: this script runs as in `request`");
            return;
        }
        let scaling = Some(Self::scaling(&self.others, &self.seats, 1));
        let sharing = Sharing { seats: Arc::clone(&self.seats), scaling };
        let options = Options { boot_files: self.boot_files.clone(), ..options };
        match frames::start(options, Some(sharing)).await {
            Ok(started) => {
                info!(script = %shown, "script is booted ahead");
                self.set(script, Group::Runs(started));
            }
            Err(error) => {
                let why = self.others.scripts.reason(&error);
                warn!(script = %shown, why, hint = "see docs/guide/await.md, or name the scripts that wait in `php.entries`", "script cannot be booted ahead: it runs as in `request`");
                self.set(script, Group::Failed(why));
            }
        }
    }

    fn set(&self, script: Arc<Path>, group: Group) {
        self.known.write().expect("no holder panics").insert(script, group);
    }

    /// Marks the script as one that boots, unless there are as many groups as there may be.
    fn may_boot(&self, script: &Arc<Path>) -> bool {
        let mut known = self.known.write().expect("no holder panics");
        let is_one = |group: &&Group| matches!(group, Group::Runs(_) | Group::Boots);
        let has_room = known.values().filter(is_one).count() < Self::MOST;
        if has_room {
            known.insert(Arc::clone(script), Group::Boots);
        }
        has_room
    }

    /// Returns the pools of all groups, that of the rest first.
    pub(crate) fn pools(&self) -> Vec<(Option<Arc<Path>>, Arc<Owner>)> {
        let known = self.known.read().expect("no holder panics");
        let mut groups: Vec<_> = known
            .iter()
            .filter_map(|(script, group)| match group {
                Group::Runs(owner) => Some((Some(Arc::clone(script)), Arc::clone(owner))),
                _ => None,
            })
            .collect();
        groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        groups.insert(0, (None, Arc::clone(&self.rest)));
        groups
    }

    /// Returns the scripts that wait, for the next generation.
    pub(crate) fn scripts(&self) -> Vec<Arc<Path>> {
        self.pools().into_iter().filter_map(|(script, _)| script).collect()
    }

    /// Returns the scripts that boot or could not.
    pub(crate) fn not_running(&self) -> Vec<GroupStatus> {
        let known = self.known.read().expect("no holder panics");
        let mut all: Vec<GroupStatus> = known
            .iter()
            .filter_map(|(script, group)| match group {
                Group::Failed(why) => {
                    Some(GroupStatus::of(script, GroupState::Failed).because(why))
                }
                Group::Boots => Some(GroupStatus::of(script, GroupState::Booting)),
                Group::OfRest | Group::Runs(_) => None,
            })
            .collect();
        all.sort_unstable_by(|one, other| one.script.cmp(&other.script));
        all
    }

    /// Rejects new requests, answers the accepted ones, and ends all processes.
    pub(crate) async fn drain(&self, patience: Duration) {
        let boots = self.boots.lock().expect("no holder panics").take();
        if let Some(mut boots) = boots {
            boots.shutdown().await;
        }
        let mut draining: JoinSet<()> = self
            .pools()
            .into_iter()
            .map(|(_, owner)| async move { backend::drain(&*owner.shared, patience).await })
            .collect();
        while draining.join_next().await.is_some() {}
        debug!("all groups have ended");
    }
}

/// The figures of the workers of one group.
pub(crate) fn status_of(script: &Path, state: GroupState, pool: &Shared) -> GroupStatus {
    let status = pool.status();
    let busy = status.workers.iter().filter(|worker| worker.state == WorkerState::Busy).count();
    GroupStatus {
        wanted: status.wanted,
        ready: status.ready(),
        busy,
        backlog: status.backlog,
        requests: status.requests,
        crashes: status.crashes,
        ..GroupStatus::of(script, state)
    }
}
