//! The state of the pool for `/status`, `/metrics` and people.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::databases::DatabaseStatus;
use crate::memory::{MemoryStatus, SnapshotMemory};
use crate::slow::SlowRequest;
use crate::verified::VerifiedRestores;

/// The state of a pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolStatus {
    /// PHP's version, e.g. `8.2.35`.
    pub php_version: String,
    /// Requests waiting for a worker.
    pub backlog: usize,
    /// Waiting requests that are in the socket of a busy worker already.
    pub ahead: usize,
    /// Requests are rejected because more arrive than are answered ([`crate::Options::backlog_target`]).
    pub overloaded: bool,
    /// Requests rejected since the start: no worker became free in time, or none would have.
    pub refused: u64,
    /// Requests that waited for a worker and got one, since the start.
    pub waited: u64,
    /// Total waiting time of those, in seconds.
    pub waited_seconds: f64,
    /// Longest waiting time of those, in seconds.
    pub longest_wait_seconds: f64,
    /// Wanted number of workers.
    pub wanted: usize,
    /// Minimum number of workers.
    pub least: usize,
    /// Maximum number of workers.
    pub most: usize,
    /// Workers added since the start because requests waited.
    pub grown: u64,
    /// Workers ended since the start because they were not needed for a while.
    pub shrunk: u64,
    /// Requests dispatched since the start.
    pub requests: u64,
    /// Workers that ended unexpectedly since the start.
    pub crashes: u64,
    /// Workers replaced on purpose since the start.
    pub recycled: u64,
    /// Workers that ended themselves since the start because they could not be restored (model `snapshot`).
    pub retired: u64,
    /// Reason of the last of those.
    pub last_retirement: Option<String>,
    /// Restores that were verified (model `snapshot`).
    pub restores: VerifiedRestores,
    /// Database connections that stay open across requests.
    pub databases: DatabaseStatus,
    /// Requests whose worker was killed by the time limit since the start.
    pub timeouts: u64,
    /// Memory of the zygote and the workers, read every few seconds.
    pub memory: MemoryStatus,
    /// The workers, oldest first.
    pub workers: Vec<WorkerStatus>,
    /// Requests that took longer than [`crate::Options::slow`] since the start.
    pub slow_requests: u64,
    /// The last of them, newest first.
    pub slow: Vec<SlowRequest>,
    /// The last workers that ended, newest first, without those that end with every request.
    pub ended: Vec<WorkerEnd>,
    /// Groups of workers by entry script, where scripts wait for their requests. Empty if all workers run alike.
    pub groups: Vec<GroupStatus>,
}

/// The workers of one entry script.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatus {
    /// Name of the application, if it was set ([`PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The script; `other scripts` for all that do not wait.
    pub script: String,
    /// The group's state.
    pub state: GroupState,
    /// Why it could not be booted ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Workers that it is to have now, of those that all groups share.
    pub wanted: usize,
    /// Workers that are idle or busy.
    pub ready: usize,
    /// Workers that have a request.
    pub busy: usize,
    /// Requests that wait for one.
    pub backlog: usize,
    /// Requests dispatched in this generation.
    pub requests: u64,
    /// Workers that ended unexpectedly in this generation.
    pub crashes: u64,
}

impl GroupStatus {
    pub(crate) fn of(script: &Path, state: GroupState) -> Self {
        Self {
            application: None,
            script: script.display().to_string(),
            state,
            why: None,
            wanted: 0,
            ready: 0,
            busy: 0,
            backlog: 0,
            requests: 0,
            crashes: 0,
        }
    }

    pub(crate) fn because(self, why: &str) -> Self {
        Self { why: Some(why.to_owned()), ..self }
    }
}

/// The state of a group of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// The script's workers wait in it, booted ahead.
    Waits,
    /// The script boots; until then its requests run with the other scripts.
    Booting,
    /// The script could not be booted ahead: its requests run with the other scripts.
    Failed,
    /// All scripts that do not wait.
    Rest,
}

impl GroupState {
    /// Returns its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Booting => "booting",
            Self::Failed => "failed",
            Self::Rest => "rest",
        }
    }
}

/// A worker that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerEnd {
    /// Name of the application, if it was set ([`PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Time of its end, in seconds since 1970.
    pub at: f64,
    /// Process id.
    pub pid: u32,
    /// Requests it had answered.
    pub requests: u64,
    /// Kind of its end.
    pub ending: Ending,
    /// Explanation; a worker's own message is truncated to [`WorkerEnd::REASON`] characters.
    pub reason: String,
}

impl WorkerEnd {
    /// Maximum length of a reason in characters.
    pub const REASON: usize = 300;

    pub(crate) fn now(pid: u32, requests: u64, ending: Ending, reason: &str) -> Self {
        let reason = reason.chars().take(Self::REASON).collect();
        Self { application: None, at: unix_seconds(), pid, requests, ending, reason }
    }
}

/// The kind of a worker's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The worker died.
    Crashed,
    /// The worker was replaced on purpose.
    Recycled,
    /// The worker ended itself because it could not be restored (model `snapshot`).
    Retired,
    /// The worker was killed because a request took too long.
    TimedOut,
}

/// Returns the current time in seconds since 1970.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl PoolStatus {
    /// Returns how many workers are idle or busy.
    pub fn ready(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state.is_ready()).count()
    }

    /// Sets the name of the application.
    #[must_use]
    pub fn of(mut self, application: &str) -> Self {
        let whose = || Some(application.to_owned());
        self.workers.iter_mut().for_each(|worker| worker.application = whose());
        self.slow.iter_mut().for_each(|slow| slow.application = whose());
        self.ended.iter_mut().for_each(|end| end.application = whose());
        self.groups.iter_mut().for_each(|group| group.application = whose());
        self
    }

    /// Adds a pool that runs beside this one: its counters and its current state.
    pub fn add(&mut self, mut other: Self) {
        self.databases.add(&std::mem::take(&mut other.databases));
        self.add_past(&other);
        if self.php_version.is_empty() {
            self.php_version = other.php_version;
        } else if !self.php_version.split(", ").any(|known| known == other.php_version) {
            self.php_version = format!("{}, {}", self.php_version, other.php_version);
        }
        self.backlog += other.backlog;
        self.overloaded |= other.overloaded;
        self.wanted += other.wanted;
        self.least += other.least;
        self.most += other.most;
        // A sum that begins empty has no processes yet whose memory could be unknown.
        if self.workers.is_empty() && self.memory == MemoryStatus::default() {
            self.memory = other.memory;
        } else {
            self.memory.add(&other.memory);
        }
        self.workers.extend(other.workers);
        self.groups.extend(other.groups);
        self.slow.extend(other.slow);
        self.slow.sort_by(|a, b| b.at.total_cmp(&a.at));
        self.ended.extend(other.ended);
        self.ended.sort_by(|a, b| b.at.total_cmp(&a.at));
    }

    /// Adds the counters of another pool, without its current state.
    pub fn add_past(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.waited += other.waited;
        self.waited_seconds += other.waited_seconds;
        self.longest_wait_seconds = self.longest_wait_seconds.max(other.longest_wait_seconds);
        self.grown += other.grown;
        self.shrunk += other.shrunk;
        self.crashes += other.crashes;
        self.recycled += other.recycled;
        self.retired += other.retired;
        self.restores.add(other.restores);
        self.timeouts += other.timeouts;
        self.slow_requests += other.slow_requests;
        self.databases.add_past(other.databases.clone());
        if self.last_retirement.is_none() {
            self.last_retirement.clone_from(&other.last_retirement);
        }
    }
}

/// The state of a worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Name of the application, if it was set ([`PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Process id.
    pub pid: u32,
    /// Current activity.
    pub state: WorkerState,
    /// Requests it has answered.
    pub requests: u64,
    /// Resident memory in bytes at the last check.
    pub resident_bytes: u64,
    /// Proportional set size in bytes: each page divided by the number of processes that map it. `None`: not read yet, or /proc does not show it.
    pub pss_bytes: Option<u64>,
    /// Bytes of pages that no other process maps; known when `pss_bytes` is.
    pub private_bytes: Option<u64>,
    /// The snapshot that it has taken (model `snapshot`).
    pub snapshot: Option<SnapshotMemory>,
    /// The worker's current request.
    pub running: Option<Running>,
}

/// A request being served by a worker.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// Id of the request.
    pub id: String,
    /// HTTP method.
    pub method: String,
    /// Path without the query, which may contain secrets.
    pub path: String,
    /// How long it has been running, in seconds.
    pub seconds: f64,
}

/// The activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum WorkerState {
    /// PHP or the application is starting.
    Booting,
    /// The worker waits for a request.
    Idle,
    /// The worker has a request.
    Busy,
    /// The worker was ordered to end, or is lost.
    Stopping,
}

impl WorkerState {
    pub(crate) const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Booting,
            1 => Self::Idle,
            2 => Self::Busy,
            _ => Self::Stopping,
        }
    }

    /// Returns whether such a worker is idle or busy.
    pub(crate) const fn is_ready(self) -> bool {
        matches!(self, Self::Idle | Self::Busy)
    }
}
