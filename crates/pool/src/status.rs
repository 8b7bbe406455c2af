//! What the pool tells about itself: for `/status`, `/metrics` and people.

use serde::Serialize;

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
        self.databases.add_past(&other.databases);
        if self.last_retirement.is_none() {
            self.last_retirement.clone_from(&other.last_retirement);
        }
    }
}

/// Connections of databases that workers keep across requests (model `snapshot`), all workers together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DatabaseStatus {
    /// Open now.
    pub kept: u64,
    /// Sessions put back after a request, since the start.
    pub resets: u64,
    /// From writing those resets to the servers' proof, added up, in seconds. The worker put itself back meanwhile.
    pub reset_seconds: f64,
    /// Workers that ended because of such a connection, since the start.
    pub retired: u64,
}

impl DatabaseStatus {
    pub(crate) fn add(&mut self, other: &Self) {
        self.kept += other.kept;
        self.add_past(other);
    }

    /// What a worker that has ended leaves to count.
    pub(crate) fn add_past(&mut self, other: &Self) {
        self.resets += other.resets;
        self.reset_seconds += other.reset_seconds;
        self.retired += other.retired;
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
