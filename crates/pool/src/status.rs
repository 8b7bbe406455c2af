//! What the pool tells about itself: for `/status`, `/metrics` and people.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::databases::DatabaseStatus;
use crate::memory::{MemoryStatus, SnapshotMemory};
use crate::slow::SlowRequest;

/// One look at the pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolStatus {
    /// PHP's version, e.g. `8.2.35`.
    pub php_version: String,
    /// Requests waiting for a worker.
    pub backlog: usize,
    /// Requests are refused because more come than are answered ([`crate::Options::backlog_target`]).
    pub overloaded: bool,
    /// Requests that were refused since the start: no worker became free in time, or none would have.
    pub refused: u64,
    /// Requests that got a worker after having waited for it, since the start.
    pub waited: u64,
    /// How long all of those have waited together, in seconds.
    pub waited_seconds: f64,
    /// How long the most patient of them has waited, in seconds.
    pub longest_wait_seconds: f64,
    /// How many workers there are to be by now.
    pub wanted: usize,
    /// The least of them.
    pub least: usize,
    /// The most of them.
    pub most: usize,
    /// Workers that were added since the start because requests waited.
    pub grown: u64,
    /// Workers that have ended since the start because they were not needed for a while.
    pub shrunk: u64,
    /// Requests dispatched since the start.
    pub requests: u64,
    /// Workers that ended without being told to since the start.
    pub crashes: u64,
    /// Workers replaced on purpose since the start.
    pub recycled: u64,
    /// Workers that ended by themselves since the start because they could not be put back as they were (model `snapshot`).
    pub retired: u64,
    /// Why the last of those did.
    pub last_retirement: Option<String>,
    /// Connections of databases that stay open across requests.
    pub databases: DatabaseStatus,
    /// Requests that lost their worker to the time limit since the start.
    pub timeouts: u64,
    /// Memory of the zygote and the workers, read every few seconds.
    pub memory: MemoryStatus,
    /// The workers, oldest first.
    pub workers: Vec<WorkerStatus>,
    /// Requests that took longer than [`crate::Options::slow`] since the start.
    pub slow_requests: u64,
    /// The last of them, newest first.
    pub slow: Vec<SlowRequest>,
    /// The last workers that ended, newest first; those that end with every request are not among them.
    pub ended: Vec<WorkerEnd>,
}

/// A worker that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerEnd {
    /// Whose it was, where somebody has said it ([`PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// When, in seconds since 1970.
    pub at: f64,
    /// Process id.
    pub pid: u32,
    /// Requests it had answered.
    pub requests: u64,
    /// Of what kind its end was.
    pub ending: Ending,
    /// In words; what a worker says of itself is cut to [`WorkerEnd::REASON`] characters.
    pub reason: String,
}

impl WorkerEnd {
    /// Characters of a reason.
    pub const REASON: usize = 300;

    pub(crate) fn now(pid: u32, requests: u64, ending: Ending, reason: &str) -> Self {
        let reason = reason.chars().take(Self::REASON).collect();
        Self { application: None, at: unix_seconds(), pid, requests, ending, reason }
    }
}

/// Of what kind a worker's end was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It died.
    Crashed,
    /// It was replaced on purpose.
    Recycled,
    /// It ended by itself because it could not be put back (model `snapshot`).
    Retired,
    /// It was killed because a request took too long.
    TimedOut,
}

/// Now, in seconds since 1970.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl PoolStatus {
    /// How many workers wait for a request or serve one.
    pub fn ready(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state.is_ready()).count()
    }

    /// Says whose pool it is.
    #[must_use]
    pub fn of(mut self, application: &str) -> Self {
        let whose = || Some(application.to_owned());
        self.workers.iter_mut().for_each(|worker| worker.application = whose());
        self.slow.iter_mut().for_each(|slow| slow.application = whose());
        self.ended.iter_mut().for_each(|end| end.application = whose());
        self
    }

    /// Adds a pool that runs beside this one: what it has counted, and what it does now.
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
        self.slow.extend(other.slow);
        self.slow.sort_by(|a, b| b.at.total_cmp(&a.at));
        self.ended.extend(other.ended);
        self.ended.sort_by(|a, b| b.at.total_cmp(&a.at));
    }

    /// Adds what another pool has counted since its start, and nothing of what it is doing now.
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
        self.timeouts += other.timeouts;
        self.slow_requests += other.slow_requests;
        self.databases.add_past(other.databases.clone());
        if self.last_retirement.is_none() {
            self.last_retirement.clone_from(&other.last_retirement);
        }
    }
}

/// One look at a worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Whose it is, where somebody has said it ([`PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Process id.
    pub pid: u32,
    /// What it does.
    pub state: WorkerState,
    /// Requests it has answered.
    pub requests: u64,
    /// Resident memory in bytes, when it was last looked at.
    pub resident_bytes: u64,
    /// Proportional set size in bytes: each page divided by the number of processes that map it. `None`: not read yet, or /proc does not show it.
    pub pss_bytes: Option<u64>,
    /// Bytes of pages that no other process maps; known when `pss_bytes` is.
    pub private_bytes: Option<u64>,
    /// The snapshot that it has taken (model `snapshot`).
    pub snapshot: Option<SnapshotMemory>,
    /// The request that it has.
    pub running: Option<Running>,
}

/// A request that a worker has.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// Its id.
    pub id: String,
    /// Its method.
    pub method: String,
    /// Its path. Not its query, in which there may be secrets.
    pub path: String,
    /// Since when it runs, in seconds.
    pub seconds: f64,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum WorkerState {
    /// PHP or the application starts.
    Booting,
    /// Waits for a request.
    Idle,
    /// Has a request.
    Busy,
    /// Told to end, or lost.
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

    /// Whether such a worker waits for a request or serves one.
    pub(crate) const fn is_ready(self) -> bool {
        matches!(self, Self::Idle | Self::Busy)
    }
}
