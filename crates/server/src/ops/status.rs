//! The model of `/status`: plain data that subsystems fill in, and that `/status` and the dashboard show.

pub(crate) mod clients;
pub(crate) mod egress;
pub(crate) mod processes;
pub(crate) mod realtime;
pub(crate) mod tls;

use std::time::Duration;

use front_http::{CacheReport, SocketReport};
use pool::PoolStatus;
use serde::Serialize;

use crate::ops::fallback::Fallback;
use crate::ops::footprint::Footprint;
use crate::ops::preloaded::Preloaded;
use crate::ops::problems::Problem;

/// `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub version: &'static str,
    pub pid: u32,
    pub state: &'static str,
    pub uptime_seconds: u64,
    pub listeners: Vec<String>,
    pub application: Option<String>,
    pub model: Option<&'static str>,
    pub generation: Option<u64>,
    /// The current problems, the worst first.
    pub problems: Vec<Problem>,
    pub traffic: Option<Traffic>,
    pub clients: Option<clients::Status>,
    /// The answer cache, if it is on.
    pub cache: Option<CacheReport>,
    /// The workers of all applications together.
    pub pool: Option<PoolStatus>,
    pub applications: Vec<OfApplication>,
    pub draining: Vec<Draining>,
    pub reloads: Reloads,
    /// An application did not boot, and another model runs in its place.
    pub degraded: bool,
    pub boot_retries: BootRetriesStatus,
    pub egress: Option<egress::Status>,
    pub connectors: Vec<dbproxy::Report>,
    pub processes: Vec<processes::Status>,
    pub realtime: Option<realtime::Status>,
    /// WebSockets that applications handle.
    pub websockets: Vec<SocketReport>,
    pub certificates: Vec<tls::Status>,
    pub acme: Option<tls::AcmeStatus>,
    /// The last minutes of traffic, step by step, for the charts of the dashboard.
    #[serde(skip)]
    pub history: Vec<front_http::Report>,
}

impl Status {
    /// Returns the status of this process before any subsystem has filled in its part.
    pub(crate) fn empty() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            state: "starting",
            uptime_seconds: 0,
            listeners: Vec::new(),
            application: None,
            model: None,
            generation: None,
            problems: Vec::new(),
            traffic: None,
            clients: None,
            cache: None,
            pool: None,
            applications: Vec::new(),
            draining: Vec::new(),
            reloads: Reloads::default(),
            degraded: false,
            boot_retries: BootRetriesStatus::default(),
            egress: None,
            connectors: Vec::new(),
            processes: Vec::new(),
            realtime: None,
            websockets: Vec::new(),
            certificates: Vec::new(),
            acme: None,
            history: Vec::new(),
        }
    }
}

/// A generation that takes no new requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Draining {
    /// The number of the generation.
    pub generation: u64,
    /// The workers that it still has.
    pub pool: PoolStatus,
}

/// The outcomes of reloads.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Reloads {
    /// New generations that took over.
    pub done: u64,
    /// New generations that did not; the old one stayed.
    pub failed: u64,
    /// A reload is under way.
    pub under_way: bool,
    /// The reason of the last failure; empty after a success.
    pub last_failure: Option<String>,
    /// Settings that were changed and need a restart.
    pub restart_for: Vec<&'static str>,
}

/// Further attempts to boot an application that did not boot.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct BootRetriesStatus {
    /// Attempts that succeeded: the application has taken over.
    pub succeeded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The reason of the last failure; empty after a success.
    pub last_failure: Option<String>,
    /// Seconds until the next attempt.
    pub next_in_seconds: Option<u64>,
}

/// An application and its figures.
#[derive(Debug, Serialize)]
pub(crate) struct OfApplication {
    pub name: String,
    /// The requests that are for it.
    pub claims: Vec<String>,
    pub application: String,
    pub model: Option<&'static str>,
    /// The fallback, if it runs in another model than requested.
    pub fallback: Option<Fallback>,
    /// The costs of `fork` and `request` in words, where they decided between the two.
    pub costs: Option<String>,
    /// The preloaded files, if `php.preload` is set.
    pub preload: Option<Preloaded>,
    /// PSS of all its processes together.
    pub pss_bytes: Option<u64>,
    /// Memory of each further worker, and memory that is taken once.
    pub footprint: Option<Footprint>,
    pub php_version: String,
    /// The number of workers that the load needs now, the least and the most.
    pub wanted: usize,
    pub least: usize,
    pub most: usize,
    /// Workers that can take a request or have one.
    pub ready: usize,
    pub busy: usize,
    pub backlog: usize,
    pub overloaded: bool,
    pub requests: u64,
    pub refused: u64,
    pub crashes: u64,
    pub timeouts: u64,
    pub slow_requests: u64,
}

/// The traffic of the HTTP front: since the start, and in the last minute.
#[derive(Debug, Serialize)]
pub(crate) struct Traffic {
    pub requests: u64,
    pub errors: u64,
    pub per_second: f64,
    pub errors_per_second: f64,
    pub p50_seconds: Option<f64>,
    pub p95_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
}

impl Traffic {
    pub(crate) fn of(traffic: &front_http::Traffic) -> Self {
        let last = traffic.last(front_http::STEPS_A_MINUTE);
        let seconds = |took: Option<Duration>| took.map(|took| took.as_secs_f64());
        Self {
            requests: traffic.requests(),
            errors: traffic.errors(),
            per_second: last.per_second(),
            errors_per_second: last.errors_per_second(),
            p50_seconds: seconds(last.p50),
            p95_seconds: seconds(last.p95),
            p99_seconds: seconds(last.p99),
        }
    }
}
