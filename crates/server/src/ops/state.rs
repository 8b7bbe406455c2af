//! What a command says of itself while it runs: to the admin address, the control socket and the service manager; and what it is asked for.
//!
//! Invariants
//! - Numbers of the pool count since the start of the server, whatever generations have come and gone.
//! - Requests for a reload are bounded by [`ASKS`]; one more is refused.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use front_http::AccessLogFile;
use pool::{Pool, PoolStatus};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use crate::app::fallback::Fallback;
use crate::config::MAIN;
use crate::failure::Failure;
use crate::ops::log;
use crate::runtime::upgrade::Upgraded;
use crate::subsystems::egress;
use crate::subsystems::realtime::Realtime;
use crate::subsystems::tls;

/// How many may wait for a reload; all of them get the outcome of one.
const ASKS: usize = 128;

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// Shared between the server that fills it and those who tell of it.
#[derive(Debug)]
pub(crate) struct State {
    started: Instant,
    ending: Ending,
    phase: AtomicU8,
    serving: RwLock<Option<Arc<Serving>>>,
    generations: Mutex<Generations>,
    asks: mpsc::Sender<Ask>,
    asked: Mutex<Option<mpsc::Receiver<Ask>>>,
    /// This command reloads nothing.
    no_reloads: AtomicBool,
    /// To the one who sees to them; none until there is one.
    upgrades: OnceLock<mpsc::Sender<UpgradeAsk>>,
    /// Why there will be none.
    no_upgrades: OnceLock<Failure>,
    /// One was asked for, and nothing has become of it yet.
    upgrading: AtomicBool,
    /// Cancelled when another process has taken the place of this one.
    succeeded: CancellationToken,
    /// The socket of the admin address, for that process.
    admin: Mutex<Option<AdminSocket>>,
    /// Where that listens.
    admin_address: OnceLock<SocketAddr>,
    /// Where spans begin, if anybody wants some.
    tracer: OnceLock<Tracer>,
    /// The file of the access log, where it goes into one.
    access_log: OnceLock<AccessLogFile>,
}

/// A socket for the admin address that was bound elsewhere.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    pub listener: TcpListener,
    /// A service manager has passed it: `admin.listen` is not looked at.
    pub passed: bool,
}

/// Where the outcome of an upgrade is waited for.
pub(crate) type UpgradeAsk = oneshot::Sender<Result<Upgraded, Failure>>;

/// How far the end has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// What runs is finished, and nothing new is begun.
    pub drain: CancellationToken,
    /// Nothing is waited for.
    pub at_once: CancellationToken,
}

impl Ending {
    /// A signal has come: the first one asks for an end in order, the second one does not wait.
    pub(crate) fn one_more(&self) {
        if self.drain.is_cancelled() {
            self.at_once.cancel();
        } else {
            self.drain.cancel();
        }
    }

    /// Ends without waiting.
    pub(crate) fn at_once(&self) {
        self.drain.cancel();
        self.at_once.cancel();
    }
}

/// Known once the server is ready.
#[derive(Debug)]
pub(crate) struct Serving {
    /// What runs PHP or serves files, the one at PATH first.
    pub applications: Vec<Served>,
    /// Addresses with their scheme.
    pub listeners: Vec<String>,
    /// The line that explains what runs.
    pub explanation: String,
    /// The egress broker, when there is one.
    pub egress: Option<egress::Watch>,
    /// The connectors to databases.
    pub connectors: Vec<dbproxy::Watch>,
    /// Channels, when there are some.
    pub realtime: Option<Arc<Realtime>>,
    /// What the HTTP front has answered lately, where there is one.
    pub traffic: Option<Arc<front_http::Traffic>>,
    /// The connections of its clients.
    pub connections: Option<Arc<front_http::Connections>>,
    /// Certificates, where TLS is spoken.
    pub tls: Option<tls::Watch>,
}

/// One application.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// What it is called.
    pub name: Arc<str>,
    /// The requests that are for it.
    pub claims: Vec<String>,
    /// PHP, unless only files are served.
    pub pool: Option<Pool>,
    /// The name of the model, unless only files are served.
    pub model: Option<&'static str>,
    /// That model runs in the place of another.
    pub fallback: Option<Fallback>,
    /// The line that explains what runs.
    pub explanation: String,
}

impl Served {
    /// There is no other, and PHP runs.
    pub(crate) fn alone(pool: Pool, model: Option<&'static str>, explanation: String) -> Self {
        let claims = vec![front_http::Claim::everything().to_string()];
        Self { name: MAIN.into(), claims, pool: Some(pool), model, fallback: None, explanation }
    }
}

impl Serving {
    /// Whether names are needed to tell applications apart.
    pub(crate) fn several(&self) -> bool {
        self.applications.iter().any(|served| &*served.name != MAIN)
    }

    /// Says what runs, to whoever has started it.
    pub(crate) fn say(&self) {
        if !self.several() {
            return log::say(&self.explanation);
        }
        for Served { name, claims, explanation, .. } in &self.applications {
            log::say(&format!("{name} ({}): {explanation}", claims.join(", ")));
        }
        if self.applications.iter().all(|served| &*served.name != MAIN) {
            log::say(
                "no application at PATH: what none of these claims gets 421, or 404 on a host of theirs",
            );
        }
    }

    fn pools(&self) -> Vec<NamedPool> {
        let named = |served: &Served| Some((Arc::clone(&served.name), served.pool.clone()?));
        self.applications.iter().filter_map(named).collect()
    }
}

/// The pool of one application, with its name.
type NamedPool = (Arc<str>, Pool);

#[derive(Debug, Default)]
struct Generations {
    /// Of the one that takes requests.
    number: Option<u64>,
    /// Those that finish what they have.
    draining: Vec<(u64, Vec<NamedPool>)>,
    /// What those have counted that are gone, by application.
    past: BTreeMap<Arc<str>, PoolStatus>,
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
            ending: Ending::default(),
            phase: AtomicU8::new(STARTING),
            serving: RwLock::default(),
            generations: Mutex::default(),
            asks,
            asked: Mutex::new(Some(asked)),
            no_reloads: AtomicBool::new(false),
            upgrades: OnceLock::new(),
            no_upgrades: OnceLock::new(),
            upgrading: AtomicBool::new(false),
            succeeded: CancellationToken::new(),
            admin: Mutex::default(),
            admin_address: OnceLock::new(),
            tracer: OnceLock::new(),
            access_log: OnceLock::new(),
        })
    }

    /// Spans begin there, for who counts them.
    pub(crate) fn trace(&self, tracer: Option<&Tracer>) {
        if let Some(tracer) = tracer {
            self.tracer.get_or_init(|| tracer.clone());
        }
    }

    /// Where spans begin, if anybody wants some.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.get()
    }

    /// Requests are logged there from now on.
    pub(crate) fn access_log(&self, file: Option<AccessLogFile>) {
        if let Some(file) = file {
            self.access_log.get_or_init(|| file);
        }
    }

    /// Has the file of the access log opened anew, which somebody may have renamed. False: there is none.
    pub(crate) fn reopen_access_log(&self) -> bool {
        self.access_log.get().map(AccessLogFile::reopen).is_some()
    }

    /// By which an end is asked for.
    pub(crate) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Requests are answered from now on.
    pub(crate) fn ready(&self, serving: Serving) {
        *self.serving.write().expect("no holder panics") = Some(Arc::new(serving));
        self.phase.store(READY, Ordering::Release);
    }

    /// Requests are answered by this generation from now on.
    pub(crate) fn ready_with(&self, generation: u64, serving: Serving) {
        let mut generations = self.generations.lock().expect("no holder panics");
        let old = self.serving().map(|serving| serving.pools()).unwrap_or_default();
        if let Some(number) = generations.number.filter(|_| !old.is_empty()) {
            generations.draining.push((number, old));
        }
        generations.number = Some(generation);
        self.ready(serving);
    }

    /// Nothing of this generation is left.
    pub(crate) fn drained(&self, generation: u64) {
        let mut generations = self.generations.lock().expect("no holder panics");
        let Generations { draining, past, .. } = &mut *generations;
        for (_, pools) in draining.extract_if(.., |(number, _)| *number == generation) {
            for (name, pool) in pools {
                past.entry(name).or_default().add_past(&pool.status());
            }
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

    /// By application: its workers in the generation that takes requests, and what those of all generations have counted. One that is gone has
    /// only counted.
    pub(crate) fn pools(&self) -> BTreeMap<Arc<str>, PoolStatus> {
        let generations = self.generations.lock().expect("no holder panics");
        let serving = self.serving();
        let mut pools = generations.past.clone();
        for (name, pool) in generations.draining.iter().flat_map(|(_, pools)| pools) {
            pools.entry(Arc::clone(name)).or_default().add_past(&pool.status());
        }
        for (name, pool) in serving.map(|serving| serving.pools()).unwrap_or_default() {
            let mut status = pool.status().of(&name);
            if let Some(past) = pools.get(&name) {
                status.add_past(past);
            }
            pools.insert(name, status);
        }
        pools
    }

    /// The number of the generation that takes requests, and those that finish what they have.
    pub(crate) fn generations(&self) -> (Option<u64>, Vec<Draining>) {
        let generations = self.generations.lock().expect("no holder panics");
        let draining = generations.draining.iter().map(|(generation, pools)| {
            let mut pool = PoolStatus::default();
            for (name, one) in pools {
                pool.add(one.status().of(name));
            }
            Draining { generation: *generation, pool }
        });
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

    /// Nobody will see to requests for reloads in this command.
    pub(crate) fn cannot_reload(&self) {
        self.no_reloads.store(true, Ordering::Release);
    }

    /// Whether somebody sees to them, now or once what boots is ready.
    pub(crate) fn reloads_here(&self) -> bool {
        !self.no_reloads.load(Ordering::Acquire)
    }

    /// Asks for an upgrade. Errs when nobody takes such requests, or while one runs.
    pub(crate) fn ask_upgrade(&self, answer: UpgradeAsk) -> Result<(), Failure> {
        let refused = |message, hint| Err(Failure::failed(message, hint));
        if self.succeeded.is_cancelled() {
            return refused("another process has taken its place", "ask that one");
        }
        if let Some(why) = self.no_upgrades.get() {
            return Err(why.clone());
        }
        let Some(upgrades) = self.upgrades.get() else {
            return refused("there is nothing to upgrade here", "restart it");
        };
        if self.upgrading.swap(true, Ordering::AcqRel) {
            return refused("an upgrade is under way", "the log says what becomes of it");
        }
        upgrades.try_send(answer).or_else(|_ended| {
            self.upgrade_ended();
            refused("the server is shutting down", "start it again")
        })
    }

    /// Something has become of the one that was asked for: another one may be.
    pub(crate) fn upgrade_ended(&self) {
        self.upgrading.store(false, Ordering::Release);
    }

    /// Requests for upgrades, for the one who sees to them from now on. To be called once.
    pub(crate) fn upgrades_asked(&self) -> mpsc::Receiver<UpgradeAsk> {
        let (upgrades, asked) = mpsc::channel(1);
        self.upgrades.set(upgrades).expect("there is one who sees to them");
        asked
    }

    /// Nobody will see to them.
    pub(crate) fn cannot_upgrade(&self, why: Failure) {
        self.no_upgrades.get_or_init(|| why);
    }

    /// Cancelled when another process has taken the place of this one.
    pub(crate) fn succeeded(&self) -> &CancellationToken {
        &self.succeeded
    }

    /// Keeps the admin address's socket for a process that takes the place of this one.
    pub(crate) fn share_admin(&self, socket: AdminSocket) {
        if let Ok(address) = socket.listener.local_addr() {
            self.admin_address.get_or_init(|| address);
        }
        *self.admin.lock().expect("no holder panics") = Some(socket);
    }

    /// Where the admin address listens.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address.get().copied()
    }

    /// Everywhere it listens for others, as URLs.
    pub(crate) fn listens_on(&self) -> Vec<String> {
        let serving = self.serving();
        let serving = serving.as_deref();
        let mut all = serving.map(|serving| serving.listeners.clone()).unwrap_or_default();
        all.extend(self.admin_address.get().map(|address| format!("http://{address}")));
        let broker = serving.and_then(|serving| serving.egress.as_ref());
        all.extend(broker.map(|watch| format!("unix:{}", watch.place().display())));
        all
    }

    /// That socket.
    pub(crate) fn admin_socket(&self) -> Option<AdminSocket> {
        self.admin.lock().expect("no holder panics").take()
    }
}

/// The pools of all applications in one; none where there are none.
pub(crate) fn in_one(pools: BTreeMap<Arc<str>, PoolStatus>) -> Option<PoolStatus> {
    pools.into_values().reduce(|mut sum, pool| {
        sum.add(pool);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_upgrade_is_refused_until_something_has_become_of_the_first() {
        let state = State::starting();
        let ask = || state.ask_upgrade(oneshot::channel().0).map_err(|why| why.message());
        assert_eq!(ask(), Err("there is nothing to upgrade here".to_owned()));
        let mut asked = state.upgrades_asked();
        assert_eq!(ask(), Ok(()));
        drop(asked.recv().await.unwrap());
        assert_eq!(ask(), Err("an upgrade is under way".to_owned()));
        state.upgrade_ended();
        assert_eq!(ask(), Ok(()));
        drop(asked.recv().await.unwrap());
        state.upgrade_ended();
        drop(asked);
        assert_eq!(ask(), Err("the server is shutting down".to_owned()));
        state.succeeded().cancel();
        assert_eq!(ask(), Err("another process has taken its place".to_owned()));
    }
}
