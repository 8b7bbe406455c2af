//! What a command says of itself while it runs: to the admin address, the control socket and the service manager; and what it is asked for.
//!
//! Invariants
//! - Numbers of the pool count since the start of the server, whatever generations have come and gone.
//! - Requests for a reload are bounded by [`ASKS`]; one more is refused.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use pool::{Pool, PoolStatus};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::egress;
use crate::failure::Failure;
use crate::realtime::Realtime;

/// How many may wait for a reload; all of them get the outcome of one.
const ASKS: usize = 128;

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// Shared between the server that fills it and those who tell of it.
#[derive(Debug)]
pub(crate) struct State {
    started: Instant,
    phase: AtomicU8,
    serving: RwLock<Option<Arc<Serving>>>,
    generations: Mutex<Generations>,
    asks: mpsc::Sender<Ask>,
    asked: Mutex<Option<mpsc::Receiver<Ask>>>,
}

/// Known once the server is ready.
#[derive(Debug)]
pub(crate) struct Serving {
    /// PHP, unless only files are served.
    pub pool: Option<Pool>,
    /// Addresses with their scheme.
    pub listeners: Vec<String>,
    /// The name of the model, unless only files are served.
    pub model: Option<&'static str>,
    /// The line that explains what runs.
    pub explanation: String,
    /// The egress broker, when there is one.
    pub egress: Option<egress::Watch>,
    /// The connectors to databases.
    pub connectors: Vec<connector::Watch>,
    /// Channels, when there are some.
    pub realtime: Option<Arc<Realtime>>,
}

#[derive(Debug, Default)]
struct Generations {
    /// Of the one that takes requests.
    number: Option<u64>,
    /// Those that finish what they have.
    draining: Vec<(u64, Pool)>,
    /// What those have counted that are gone.
    past: PoolStatus,
    reloads: Reloads,
}

/// What became of reloads.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Reloads {
    /// New generations that took over.
    pub done: u64,
    /// New generations that did not; the old one stayed.
    pub failed: u64,
    /// One is being booted now.
    pub under_way: bool,
    /// Why the last one failed; nothing once one has succeeded.
    pub last_failure: Option<String>,
    /// Settings that were changed and need a restart.
    pub restart_for: Vec<&'static str>,
}

/// A generation that takes no new requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Draining {
    /// Its number.
    pub generation: u64,
    /// What it still does.
    pub pool: PoolStatus,
}

/// A new generation has taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// Its number.
    pub generation: u64,
    /// The line that explains what runs.
    pub explanation: String,
    /// From the beginning of the reload to the moment it took over.
    pub milliseconds: u64,
    /// Settings that were changed and need a restart.
    pub restart_for: Vec<String>,
}

/// Somebody wants a reload.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Who or what, for the log.
    pub why: String,
    /// Where the outcome is waited for.
    pub answer: Option<oneshot::Sender<Result<Reloaded, Failure>>>,
}

impl State {
    /// A server that has just begun to start.
    pub(crate) fn starting() -> Arc<Self> {
        let (asks, asked) = mpsc::channel(ASKS);
        Arc::new(Self {
            started: Instant::now(),
            phase: AtomicU8::new(STARTING),
            serving: RwLock::default(),
            generations: Mutex::default(),
            asks,
            asked: Mutex::new(Some(asked)),
        })
    }

    /// Requests are answered from now on.
    pub(crate) fn ready(&self, serving: Serving) {
        *self.serving.write().expect("no holder panics") = Some(Arc::new(serving));
        self.phase.store(READY, Ordering::Release);
    }

    /// Requests are answered by this generation from now on.
    pub(crate) fn ready_with(&self, generation: u64, serving: Serving) {
        let mut generations = self.generations.lock().expect("no holder panics");
        let old = self.serving().and_then(|serving| serving.pool.clone());
        if let (Some(pool), Some(number)) = (old, generations.number) {
            generations.draining.push((number, pool));
        }
        generations.number = Some(generation);
        self.ready(serving);
    }

    /// Nothing of this generation is left.
    pub(crate) fn drained(&self, generation: u64) {
        let mut generations = self.generations.lock().expect("no holder panics");
        let Generations { draining, past, .. } = &mut *generations;
        for (_, pool) in draining.extract_if(.., |(number, _)| *number == generation) {
            past.add_past(&pool.status());
        }
    }

    /// No new requests are taken.
    pub(crate) fn draining(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// `starting`, `ready` or `draining`.
    pub(crate) fn phase(&self) -> &'static str {
        match self.phase.load(Ordering::Acquire) {
            STARTING => "starting",
            READY => "ready",
            _ => "draining",
        }
    }

    /// How long ago it started.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// What is served.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        self.serving.read().expect("no holder panics").clone()
    }

    /// The workers of the generation that takes requests, and what all have counted.
    pub(crate) fn pool(&self) -> Option<PoolStatus> {
        let generations = self.generations.lock().expect("no holder panics");
        let mut status = self.serving()?.pool.as_ref()?.status();
        status.add_past(&generations.past);
        for (_, pool) in &generations.draining {
            status.add_past(&pool.status());
        }
        Some(status)
    }

    /// The number of the generation that takes requests, and those that finish what they have.
    pub(crate) fn generations(&self) -> (Option<u64>, Vec<Draining>) {
        let generations = self.generations.lock().expect("no holder panics");
        let draining = generations.draining.iter();
        let draining = draining
            .map(|(generation, pool)| Draining { generation: *generation, pool: pool.status() });
        (generations.number, draining.collect())
    }

    /// What became of reloads.
    pub(crate) fn reloads(&self) -> Reloads {
        self.generations.lock().expect("no holder panics").reloads.clone()
    }

    /// Something has become of one.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Reloads)) {
        change(&mut self.generations.lock().expect("no holder panics").reloads);
    }

    /// Asks for a reload. False when nobody takes such requests, or too many wait already.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }

    /// Requests for reloads, for the one who sees to them. Those that have come already are among them.
    pub(crate) fn asked(&self) -> Option<mpsc::Receiver<Ask>> {
        self.asked.lock().expect("no holder panics").take()
    }

    /// Nobody sees to requests for reloads in this command.
    pub(crate) fn cannot_reload(&self) -> bool {
        self.asked.lock().expect("no holder panics").is_some()
    }
}
