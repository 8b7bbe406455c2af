//! The fields of `/status` that `hearth top` and `hearth status` read. Fields that another version lacks are not shown.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// `/status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    pub version: String,
    pub pid: u32,
    pub state: String,
    pub uptime_seconds: u64,
    pub listeners: Vec<String>,
    pub application: Option<String>,
    pub model: Option<String>,
    pub generation: Option<u64>,
    pub draining: Vec<Draining>,
    pub reloads: Reloads,
    pub problems: Vec<Problem>,
    pub traffic: Option<Traffic>,
    pub clients: Option<Clients>,
    pub pool: Option<Pool>,
    pub applications: Vec<Application>,
    pub egress: Option<Egress>,
    pub realtime: Option<Realtime>,
    pub processes: Vec<Process>,
}

impl Figures {
    /// Returns how many instances of processes run.
    pub(crate) fn instances(&self) -> u64 {
        self.processes.iter().map(|process| process.instances.len() as u64).sum()
    }

    /// Returns whether names are needed to tell applications apart.
    pub(crate) fn several(&self) -> bool {
        self.applications.len() > 1
    }

    /// Returns the requests that workers of any generation have, and the requests that wait.
    pub(crate) fn under_way(&self) -> (u64, u64) {
        let pools = self.pool.iter().chain(self.draining.iter().map(|draining| &draining.pool));
        pools.fold((0, 0), |(running, waiting), pool| {
            (running + pool.busy(), waiting + pool.backlog)
        })
    }
}

/// An application.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Application {
    pub name: String,
    pub claims: Vec<String>,
    pub model: Option<String>,
    pub php_version: String,
    pub wanted: u64,
    pub busy: u64,
    pub backlog: u64,
    pub overloaded: bool,
    pub requests: u64,
    pub refused: u64,
}

/// A supervised command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Process {
    pub name: String,
    pub cron: Option<String>,
    pub count: u64,
    pub instances: Vec<IgnoredAny>,
    pub restarts: u64,
}

/// A generation that finishes what it has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Draining {
    pub generation: u64,
    pub pool: Pool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reloads {
    pub done: u64,
    pub failed: u64,
    pub under_way: bool,
    pub restart_for: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    pub level: String,
    pub text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Traffic {
    pub requests: u64,
    pub per_second: f64,
    pub errors_per_second: f64,
    pub p50_seconds: Option<f64>,
    pub p95_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Clients {
    pub connections: u64,
    pub limit: u64,
    pub busy: u64,
    pub idle: u64,
    pub addresses: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    pub php_version: String,
    pub backlog: u64,
    pub overloaded: bool,
    pub refused: u64,
    pub least: u64,
    pub most: u64,
    pub crashes: u64,
    pub recycled: u64,
    pub retired: u64,
    pub timeouts: u64,
    pub slow_requests: u64,
    pub workers: Vec<Worker>,
    pub groups: Vec<Group>,
}

/// The workers of one entry script.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Group {
    pub application: Option<String>,
    pub script: String,
    pub state: String,
    pub why: Option<String>,
    pub wanted: u64,
    pub busy: u64,
    pub backlog: u64,
    pub requests: u64,
}

impl Pool {
    /// Returns the workers that have a request.
    pub(crate) fn busy(&self) -> u64 {
        self.workers.iter().filter(|worker| worker.state == "busy").count() as u64
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub application: Option<String>,
    pub pid: u32,
    pub state: String,
    pub requests: u64,
    pub resident_bytes: u64,
    pub running: Option<Running>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Running {
    pub method: String,
    pub path: String,
    pub seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Egress {
    pub calls: u64,
    pub callers: u64,
    pub origins: Vec<Origin>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub reused: u64,
    pub handshakes_saved: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Realtime {
    pub sockets: u64,
    pub channels: u64,
}
