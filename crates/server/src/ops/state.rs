//! The state of a running command, as the admin address, the control socket and the service manager see it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, RwLock};

use front_http::{AccessLogFile, AnswerCache};

use crate::config::MAIN;
use crate::ops::boot_retries::BootRetries;
use crate::ops::console::Console;
use crate::ops::lifecycle::Lifecycle;
use crate::ops::log;
use crate::ops::problems::Problems;
use crate::ops::reloads::ReloadQueue;
use crate::ops::status::Status;
use crate::ops::subsystem::Subsystem;
use crate::ops::upgrades::UpgradeQueue;
use crate::ops::workers::{Served, Workers};

/// The state that a command shares with the admin address, the control socket and its signals.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) reloads: Arc<ReloadQueue>,
    pub(crate) boot_retries: Arc<BootRetries>,
    pub(crate) upgrades: UpgradeQueue,
    pub(crate) workers: Arc<Workers>,
    /// The subsystems that every command has, and those that are shown before it is ready.
    subsystems: RwLock<Vec<Arc<dyn Subsystem>>>,
    serving: RwLock<Option<Arc<Serving>>>,
    /// The answer cache, if it is on.
    cache: OnceLock<Arc<AnswerCache>>,
    /// The admin address.
    admin_address: OnceLock<SocketAddr>,
    /// The file of the access log, if it goes into one.
    access_log: OnceLock<AccessLogFile>,
}

/// The contents of a command that is ready.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    /// The applications, the one at PATH first.
    pub applications: Vec<Served>,
    /// Addresses with their scheme.
    pub listeners: Vec<String>,
    /// The line that explains what runs.
    pub explanation: String,
    /// Further parts of the server that operators see.
    pub subsystems: Vec<Arc<dyn Subsystem>>,
    /// The socket of the egress broker, when there is one.
    pub broker: Option<PathBuf>,
    /// The debug console of realtime, when there is one.
    pub console: Option<Arc<dyn Console>>,
}

impl Serving {
    /// Returns whether names are needed to tell applications apart.
    pub(crate) fn several(&self) -> bool {
        self.applications.iter().any(|served| &*served.name != MAIN)
    }

    /// Prints what is served, for the user who started it.
    pub(crate) fn announce(&self) {
        if !self.several() {
            return log::line(&self.explanation);
        }
        for Served { name, claims, explanation, .. } in &self.applications {
            log::line(&format!("{name} ({}): {explanation}", claims.join(", ")));
        }
        if self.applications.iter().all(|served| &*served.name != MAIN) {
            log::line(
                "no application at PATH: what none of these claims gets 421, or 404 on a host of theirs",
            );
        }
    }
}

impl State {
    /// Returns the state of a command that starts now.
    pub(crate) fn starting() -> Arc<Self> {
        let lifecycle = Arc::new(Lifecycle::starting());
        let (reloads, workers) = (Arc::<ReloadQueue>::default(), Arc::<Workers>::default());
        let boot_retries = Arc::<BootRetries>::default();
        let subsystems: Vec<Arc<dyn Subsystem>> = vec![
            Arc::<Lifecycle>::clone(&lifecycle),
            Arc::<Workers>::clone(&workers),
            Arc::<ReloadQueue>::clone(&reloads),
            Arc::<BootRetries>::clone(&boot_retries),
        ];
        Arc::new(Self {
            lifecycle,
            reloads,
            boot_retries,
            upgrades: UpgradeQueue::default(),
            workers,
            subsystems: RwLock::new(subsystems),
            serving: RwLock::default(),
            cache: OnceLock::new(),
            admin_address: OnceLock::new(),
            access_log: OnceLock::new(),
        })
    }

    /// Shows a subsystem from now on, before the command is ready.
    pub(crate) fn register(&self, subsystem: Option<impl Subsystem + 'static>) {
        let subsystem = subsystem.map(|one| Arc::new(one) as Arc<dyn Subsystem>);
        self.subsystems.write().expect("no holder panics").extend(subsystem);
    }

    /// Returns all subsystems that are shown now.
    pub(crate) fn subsystems(&self) -> Vec<Arc<dyn Subsystem>> {
        let mut all = self.subsystems.read().expect("no holder panics").clone();
        if let Some(serving) = self.serving() {
            all.extend(serving.subsystems.iter().cloned());
        }
        all
    }

    /// Returns the status that all subsystems have filled in.
    pub(crate) fn status(&self) -> Status {
        let mut status = Status::empty();
        if let Some(serving) = self.serving() {
            status.listeners.clone_from(&serving.listeners);
            status.application = Some(serving.explanation.clone());
        }
        let subsystems = self.subsystems();
        for subsystem in &subsystems {
            subsystem.status(&mut status);
        }
        let mut problems = Problems::default();
        for subsystem in &subsystems {
            subsystem.problems(&status, &mut problems);
        }
        status.problems = problems.worst_first();
        status
    }

    /// Returns whether an application did not boot, and another model runs in its place.
    pub(crate) fn is_degraded(&self) -> bool {
        self.serving().is_some_and(|serving| serving.applications.iter().any(Served::is_degraded))
    }

    /// Remembers the file of the access log.
    pub(crate) fn access_log(&self, file: Option<AccessLogFile>) {
        if let Some(file) = file {
            self.access_log.get_or_init(|| file);
        }
    }

    /// Remembers the answer cache.
    pub(crate) fn has_cache(&self, cache: Option<Arc<AnswerCache>>) {
        if let Some(cache) = cache {
            self.cache.get_or_init(|| cache);
        }
    }

    /// Returns the answer cache, if it is on.
    pub(crate) fn cache(&self) -> Option<&Arc<AnswerCache>> {
        self.cache.get()
    }

    /// Opens the file of the access log again, after log rotation has renamed it. Returns false when there is none.
    pub(crate) fn reopen_access_log(&self) -> bool {
        self.access_log.get().map(AccessLogFile::reopen).is_some()
    }

    /// Marks the command as ready: it answers requests as `serving` describes.
    pub(crate) fn ready(&self, serving: Serving) {
        self.show(None, serving);
    }

    /// Marks the command as ready, with a generation that takes requests from now on.
    pub(crate) fn ready_with(&self, generation: u64, serving: Serving) {
        self.show(Some(generation), serving);
    }

    fn show(&self, generation: Option<u64>, serving: Serving) {
        self.workers.show(generation, serving.applications.clone());
        *self.serving.write().expect("no holder panics") = Some(Arc::new(serving));
        self.lifecycle.ready();
    }

    /// Returns what is served.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        self.serving.read().expect("no holder panics").clone()
    }

    /// Remembers where the admin address listens.
    pub(crate) fn admin_listens(&self, address: SocketAddr) {
        self.admin_address.get_or_init(|| address);
    }

    /// Returns where the admin address listens.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address.get().copied()
    }

    /// Returns every address at which the command listens, as URLs.
    pub(crate) fn listens_on(&self) -> Vec<String> {
        let serving = self.serving();
        let serving = serving.as_deref();
        let mut all = serving.map(|serving| serving.listeners.clone()).unwrap_or_default();
        all.extend(self.admin_address.get().map(|address| format!("http://{address}")));
        let broker = serving.and_then(|serving| serving.broker.as_ref());
        all.extend(broker.map(|socket| format!("unix:{}", socket.display())));
        all
    }
}
