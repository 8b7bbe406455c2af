//! Supervised commands as operators see them: which are wanted, which run, and how they have ended.
//!
//! Invariants
//! - Counters of a name count since the start of the server, whatever releases have come and gone.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tokio::time::Instant;

use super::Definition;
use crate::failure::Failure;
use crate::ops::status::processes::{self as status, Exit};

/// All processes by name.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable(Mutex<BTreeMap<Arc<str>, Entry>>);

/// One process.
#[derive(Debug)]
pub(super) struct Entry {
    /// The definition of the release that is served; `None` once no release has it.
    definition: Option<Arc<Definition>>,
    last: Arc<Definition>,
    running: BTreeMap<usize, Running>,
    pub(super) restarts: u64,
    pub(super) runs: u64,
    pub(super) overlaps: u64,
    pub(super) killed: u64,
    last_exit: Option<Exit>,
    pub(super) next_run: Option<Timestamp>,
    /// Why instances could not be started, and which of them fail again and again.
    pub(super) cannot_start: Option<String>,
    pub(super) failing: BTreeSet<usize>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    generation: u64,
    since: Instant,
    stopping: bool,
}

impl ProcessTable {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Entry>> {
        self.0.lock().expect("no holder panics")
    }

    /// Takes the definitions of a release; a name may come several times.
    pub(super) fn want<'d>(&self, definitions: impl Iterator<Item = &'d Arc<Definition>>) {
        let mut all = self.all();
        for entry in all.values_mut() {
            entry.definition = None;
        }
        for definition in definitions {
            let entry =
                all.entry(Arc::clone(&definition.name)).or_insert_with(|| Entry::new(definition));
            entry.definition = Some(Arc::clone(definition));
            entry.last = Arc::clone(definition);
            entry.cannot_start = definition.launcher.as_ref().err().map(Failure::message);
            entry.next_run = None;
        }
    }

    /// Changes the entry of a process that was wanted once.
    pub(super) fn of(&self, definition: &Definition, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.all().get_mut(&definition.name) {
            change(entry);
        }
    }

    /// Returns the state of each process that is wanted or still runs.
    pub(super) fn status(&self) -> Vec<status::Status> {
        let all = self.all();
        let shown = |entry: &&Entry| entry.definition.is_some() || !entry.running.is_empty();
        all.values().filter(shown).map(Entry::status).collect()
    }
}

impl Entry {
    fn new(definition: &Arc<Definition>) -> Self {
        Self {
            definition: None,
            last: Arc::clone(definition),
            running: BTreeMap::new(),
            restarts: 0,
            runs: 0,
            overlaps: 0,
            killed: 0,
            last_exit: None,
            next_run: None,
            cannot_start: None,
            failing: BTreeSet::new(),
        }
    }

    pub(super) fn started(&mut self, number: usize, pid: u32, generation: u64) {
        let since = Instant::now();
        self.running.insert(number, Running { pid, generation, since, stopping: false });
        self.cannot_start = None;
    }

    pub(super) fn stopping(&mut self, number: usize) {
        if let Some(running) = self.running.get_mut(&number) {
            running.stopping = true;
        }
    }

    pub(super) fn ended(&mut self, number: usize, status: ExitStatus) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.running.remove(&number);
        self.last_exit = Some(Exit { how: how(status), code: code(status), at });
    }

    fn status(&self) -> status::Status {
        let definition = &self.last;
        let instances = self.running.iter().map(|(number, running)| status::Instance {
            number: *number,
            pid: running.pid,
            generation: running.generation,
            seconds: running.since.elapsed().as_secs(),
            stopping: running.stopping,
        });
        status::Status {
            name: definition.name.to_string(),
            application: definition.application.to_string(),
            command: definition.command.clone(),
            cron: definition.cron.as_ref().map(|(cron, _)| cron.to_string()),
            next_run: self.next_run.map(|next| next.to_string()),
            count: self.definition.as_ref().map_or(0, |definition| definition.count),
            instances: instances.collect(),
            restarts: self.restarts,
            runs: self.runs,
            overlaps: self.overlaps,
            killed: self.killed,
            last_exit: self.last_exit.clone(),
            cannot_start: self.cannot_start.clone(),
            fails: !self.failing.is_empty(),
            stop_timeout_seconds: definition.stop_timeout.as_secs(),
        }
    }
}

/// Describes the end of an instance.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1)
}
