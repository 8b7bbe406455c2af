//! What the pool tells about itself: for `/status`, `/metrics` and people.

use serde::Serialize;

use crate::databases::DatabaseStatus;

/// One look at the pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolStatus {
    /// PHP's version, e.g. `8.2.35`.
    pub php_version: String,
    /// Requests waiting for a worker.
    pub backlog: usize,
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
    /// The workers, oldest first.
    pub workers: Vec<WorkerStatus>,
}

impl PoolStatus {
    /// How many workers wait for a request or serve one.
    pub fn ready(&self) -> usize {
        let ready = |state| matches!(state, WorkerState::Idle | WorkerState::Busy);
        self.workers.iter().filter(|worker| ready(worker.state)).count()
    }

    /// Adds what another pool has counted since its start, and nothing of what it is doing now.
    pub fn add_past(&mut self, other: &Self) {
        self.requests += other.requests;
        self.crashes += other.crashes;
        self.recycled += other.recycled;
        self.retired += other.retired;
        self.timeouts += other.timeouts;
        self.databases.add_past(other.databases.clone());
        if self.last_retirement.is_none() {
            self.last_retirement.clone_from(&other.last_retirement);
        }
    }
}

/// One look at a worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Process id.
    pub pid: u32,
    /// What it does.
    pub state: WorkerState,
    /// Requests it has answered.
    pub requests: u64,
    /// Resident memory in bytes, when it was last looked at.
    pub resident_bytes: u64,
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
    /// Told to end.
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
}
