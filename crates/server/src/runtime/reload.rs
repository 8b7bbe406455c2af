//! Generations of `hearth serve`: boots the first one, and another one at each reload, which takes over once it has proved that it answers.
//!
//! Invariants
//! - The running generation serves until its successor takes requests; a release that cannot be read, does not boot or does not answer never takes over.
//! - One reload at a time. Requests during a reload share the next one, which starts later and therefore includes their deployments.
//! - At most [`MOST_DRAINING`] generations drain at a time, each for at most `server.shutdown_patience`; a further reload waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use front_http::{Release, Switch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::applications::Plans;
use crate::app::own_requests::context_of_ours;
use crate::app::release;
use crate::config::Settings;
use crate::failure::Failure;
use crate::ops::console::Console;
use crate::ops::notify;
use crate::ops::reloads::{Ask, Reloaded};
use crate::ops::state::{Serving, State};
use crate::ops::subsystem::Subsystem;
use crate::runtime::boot_watch::BootWatch;
use crate::runtime::generation::{Booted, Generation, Running};
use crate::runtime::proof::prove_all;
use crate::runtime::retry::Retry;
use crate::runtime::source::Source;
use crate::runtime::watch::Watched;
use crate::subsystems::connectors::Connectors;
use crate::subsystems::egress::{self, Inside};
use crate::subsystems::generation_guard::GenerationGuard;
use crate::subsystems::http::dev::Dev;
use crate::subsystems::http::{Http, front};
use crate::subsystems::processes::{Definition, Processes};
use crate::subsystems::realtime::{Php, Realtime};
use crate::subsystems::tls::{self, Tls};
use crate::subsystems::websockets::Pushes;
use crate::system::run_dir::RunDir;
use crate::system::users::PhpUser;

/// Maximum number of generations that drain at a time: each needs memory for its workers.
const MOST_DRAINING: usize = 2;

/// Boots generations, and owns everything that outlives them.
#[derive(Debug)]
pub(crate) struct Generations<'s> {
    /// The source that each reload reads again.
    pub source: Source<'s>,
    /// The settings of the generation that takes requests.
    pub settings: Settings,
    /// The user that PHP runs as by the server's own settings: connectors are for it. `None` is our own user.
    pub first: Option<PhpUser>,
    /// The state that operators see.
    pub state: &'s Arc<State>,
    /// Cancelled when the server drains.
    pub drain: &'s CancellationToken,
    /// The switch by which a generation takes over.
    pub switch: Switch<front::Php>,
    /// Addresses with their scheme.
    pub listeners: Vec<String>,
    /// The realtime hub, if there is one.
    pub realtime: Option<Arc<Realtime>>,
    /// The server's own folder.
    pub run_dir: Option<Arc<RunDir>>,
    /// The models of the previous server, by application. It still runs while the first generation boots.
    pub predecessor: Option<BTreeMap<String, Running>>,
    /// The HTTP front as operators see it.
    pub http: Arc<Http>,
    /// Certificates, if TLS is used; each reload reads them again.
    pub tls: Option<Tls>,
    /// The broker, which outlives all generations: connections stay warm.
    pub broker: Inside,
    /// The ways in for messages to clients of WebSockets.
    pub pushes: Pushes,
    /// The connectors outlive all generations, too: sessions stay logged in.
    pub connectors: Connectors,
    /// Supervised commands, which are replaced with their application.
    pub processes: Processes,
    /// The processes of the first generation, until the previous server has handed over.
    pub waiting: Option<Vec<Definition>>,
    /// The generation that takes requests.
    pub current: Option<Generation>,
    /// The generations that drain.
    pub retired: JoinSet<()>,
    /// The watched folders of the running generation.
    pub watched: Watched,
    /// Files that the boot has included, watched for changes.
    pub boot_watch: BootWatch,
    /// Development mode, if it is on.
    pub dev: Option<Arc<Dev>>,
    /// Attempts to boot what did not boot.
    pub retry: Retry,
}

fn ending() -> Failure {
    Failure::failed("the server is shutting down", "start it again")
}

impl Generations<'_> {
    /// Boots the first generation and lets it accept requests. Returns false if the server must stop already.
    pub(crate) async fn start(&mut self, plans: Plans) -> Result<bool, Failure> {
        let settings = self.settings.clone();
        let folders = plans.folders();
        let (generation, guard) = match self.boot(&settings, plans).await {
            Ok(Some(booted)) => booted,
            Ok(None) => return Ok(false),
            Err(failure) => {
                self.show_failure(failure, folders).await?;
                return Ok(true);
            }
        };
        let release = release_of(&generation)?;
        self.take_over(settings, generation, guard, release);
        self.watch().await?;
        Ok(true)
    }

    /// The first release does not boot. In development mode the browser shows the reason until a change fixes it; otherwise the server exits.
    async fn show_failure(
        &mut self,
        failure: Failure,
        folders: Vec<PathBuf>,
    ) -> Result<(), Failure> {
        let Some(dev) = self.dev.as_ref().filter(|_| self.settings.server.watch.0) else {
            return Err(failure);
        };
        let (reason, hint) = (failure.message(), failure.hint());
        tracing::error!(reason, hint, "the browser shows it until a change mends it");
        let release = front::release_of_nothing(&self.settings)?;
        self.switch.to(release, [front::Php::not_booted(Arc::clone(dev))]);
        dev.changed(Some(failure));
        let ignored = &self.settings.server.watch_ignore;
        self.watched.follow(folders, ignored, self.state, self.drain).await
    }

    /// Reloads at each request, until the server drains.
    pub(crate) async fn run(&mut self) {
        let Some(mut asked) = self.state.reloads.asked() else { return };
        loop {
            let retry_at = self.retry.at();
            let first = tokio::select! {
                biased;
                () = self.drain.cancelled() => return,
                Some(_) = self.retired.join_next() => continue,
                Some(ask) = asked.recv() => ask,
                () = Retry::due(retry_at) => {
                    self.retry().await;
                    continue;
                }
            };
            let mut asks = vec![first];
            while let Ok(ask) = asked.try_recv() {
                asks.push(ask);
            }
            let outcome = Box::pin(self.reload_for(&asks)).await;
            for answer in asks.into_iter().filter_map(|ask| ask.answer) {
                // An interrupted command no longer waits.
                drop(answer.send(outcome.clone()));
            }
        }
    }

    /// Returns the model of the application at PATH, and the number of workers of all applications.
    pub(crate) fn runs(&self) -> Option<(&'static str, usize)> {
        let current = self.current.as_ref()?;
        let model = current.applications.first()?.planned.plan.php.as_ref()?.model.name();
        let pools = current.applications.iter().filter_map(|booted| booted.pool.as_ref());
        Some((model, pools.map(|pool| pool.status().wanted).sum()))
    }

    /// Waits until the generation that is to take requests has proved that it answers.
    pub(crate) async fn prove(&self) -> Result<(), Failure> {
        match &self.current {
            Some(current) => prove_all(current).await,
            None => Ok(()),
        }
    }

    /// Returns where sockets were made beside those of the previous server, and where they belong.
    pub(crate) fn beside(&self) -> Vec<(PathBuf, PathBuf)> {
        let of_broker = self.broker.watch().into_iter().flat_map(egress::Watch::beside);
        self.connectors.beside().iter().cloned().chain(of_broker).collect()
    }

    /// Starts the processes that waited for the previous server to hand over.
    pub(crate) fn start_processes(&mut self) {
        if let Some(processes) = self.waiting.take() {
            self.processes.replace(processes);
        }
    }

    /// Stops all generations, then the broker and the connectors. Processes were asked to end when the server began to drain.
    pub(crate) async fn end(mut self, deadline: Instant) {
        const LAST_WORDS: Duration = Duration::from_secs(3);
        if let Some(current) = self.current.take() {
            current.end(deadline).await;
        }
        let retired = async { while self.retired.join_next().await.is_some() {} };
        if tokio::time::timeout_at(deadline + LAST_WORDS, retired).await.is_err() {
            tracing::warn!(
                "an older generation was cut: it took longer than `server.shutdown_patience`"
            );
        }
        // They may still use a database or the broker.
        self.processes.end().await;
        self.connectors.drain(deadline.saturating_duration_since(Instant::now())).await;
        self.broker.drain(deadline.saturating_duration_since(Instant::now())).await;
    }

    /// Performs one reload, logs it and notifies the service manager.
    async fn reload_for(&mut self, asks: &[Ask]) -> Result<Reloaded, Failure> {
        let why = &asks.first().expect("there is a request").why;
        tracing::info!(%why, asked = asks.len(), "reload");
        let manager = self.source.environment.notify_socket();
        notify::reloading(manager).await;
        self.state.reloads.note(|reloads| reloads.under_way = true);
        self.boot_watch.boot_begins().await;
        let outcome = self.reload().await;
        match &outcome {
            Ok(reloaded) => {
                let Reloaded { generation, milliseconds, explanation, .. } = reloaded;
                tracing::info!(generation, milliseconds, explanation, "generation took over");
            }
            Err(failure) if self.drain.is_cancelled() => {
                tracing::info!(reason = failure.message(), "reload given up");
            }
            Err(failure) => {
                let (reason, hint) = (failure.message(), failure.hint());
                tracing::error!(reason, hint, "reload failed, the old release continues");
            }
        }
        self.state.reloads.note(|reloads| {
            reloads.under_way = false;
            match &outcome {
                Ok(_) => {
                    reloads.done += 1;
                    reloads.last_failure = None;
                }
                Err(failure) => {
                    reloads.failed += 1;
                    reloads.last_failure = Some(failure.message());
                }
            }
        });
        if !self.drain.is_cancelled() {
            notify::notify(manager, "READY=1").await;
            if let Some(dev) = &self.dev {
                dev.changed(outcome.as_ref().err().cloned());
            }
        }
        outcome
    }

    /// Watches the folders that are served now, if `--watch` is set.
    async fn watch(&mut self) -> Result<(), Failure> {
        if let Some(current) = &self.current {
            self.boot_watch.follow(current, self.state, self.drain).await;
        }
        match &self.current {
            Some(current) if self.settings.server.watch.0 => {
                let ignored = &self.settings.server.watch_ignore;
                self.watched.follow(current.folders(), ignored, self.state, self.drain).await
            }
            _ => Ok(()),
        }
    }

    /// After an error the running generation is unchanged.
    async fn reload(&mut self) -> Result<Reloaded, Failure> {
        let places = self.connectors.fitted();
        let reloaded = self.replace().await;
        if reloaded.is_err() {
            self.connectors.put_back(&places);
        }
        reloaded
    }

    async fn replace(&mut self) -> Result<Reloaded, Failure> {
        let began = Instant::now();
        while self.retired.len() >= MOST_DRAINING {
            tokio::select! {
                _ = self.retired.join_next() => {}
                () = self.drain.cancelled() => return Err(ending()),
            }
        }
        let (settings, restart_for, plans) = self.source.read(&self.settings).await?;
        // Checks that need no start of the release.
        plans.release()?;
        let certificates = tls::read(&settings)?;
        let authorities = tls::clients(&settings)?;
        let Some((generation, guard)) = self.boot(&settings, plans).await? else {
            return Err(ending());
        };
        let proved = tokio::select! {
            proved = prove_all(&generation) => proved,
            () = self.drain.cancelled() => Err(ending()),
        };
        // A fallback may have changed its model, and with it the routes.
        let release = match proved.and_then(|()| release_of(&generation)) {
            Ok(release) => release,
            Err(failure) => {
                generation.end(Instant::now()).await;
                return Err(failure);
            }
        };
        if !restart_for.is_empty() {
            let settings = restart_for.join(", ");
            tracing::warn!(settings, "settings changed that need a restart");
        }
        self.state.reloads.note(|reloads| reloads.restart_for.clone_from(&restart_for));
        let reloaded = Reloaded {
            generation: generation.number,
            explanation: generation.explanation(),
            milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            restart_for: restart_for.into_iter().map(str::to_owned).collect(),
        };
        if let Some(tls) = &self.tls {
            // Certificates may have been renewed during the boot.
            let certificates = tls::read(&settings).unwrap_or(certificates);
            tls.show(&settings, certificates);
            if let Some(authorities) = authorities {
                tls.trust(&settings, authorities);
            }
        }
        self.take_over(settings, generation, guard, release);
        self.watch_successor().await;
        Ok(reloaded)
    }

    /// Watches the files of a generation that has taken over from another one: a server that cannot watch serves nevertheless.
    pub(crate) async fn watch_successor(&mut self) {
        if let Err(failure) = self.watch().await {
            tracing::warn!(
                reason = failure.message(),
                hint = failure.hint(),
                "changes are not seen any more"
            );
        }
    }

    /// Returns the parts of the server that operators see.
    fn subsystems(&self) -> Vec<Arc<dyn Subsystem>> {
        let mut all: Vec<Arc<dyn Subsystem>> = Vec::new();
        all.extend(self.tls.as_ref().map(|tls| Arc::new(tls.watch()) as Arc<dyn Subsystem>));
        all.push(Arc::<Http>::clone(&self.http));
        all.extend(
            self.broker.watch().cloned().map(|broker| Arc::new(broker) as Arc<dyn Subsystem>),
        );
        all.push(Arc::new(self.connectors.watches()));
        all.push(Arc::new(self.pushes.watch()));
        all.extend(self.realtime.clone().map(|realtime| realtime as Arc<dyn Subsystem>));
        all.push(self.processes.table());
        all
    }

    /// Directs every request to a generation from now on, and retires the previous one.
    pub(crate) fn take_over(
        &mut self,
        settings: Settings,
        generation: Generation,
        guard: GenerationGuard,
        release: Release,
    ) {
        let answer =
            |booted: &Booted| front::Php::new(booted.pool.clone(), guard.clone(), self.dev.clone());
        self.switch.to(release, generation.applications.iter().map(answer));
        if let Some(realtime) = &self.realtime {
            let php = generation.main().and_then(|main| {
                let context = context_of_ours(&main.planned.plan, "realtime");
                Some(Php { pool: main.pool.clone()?, context, _guard: guard })
            });
            realtime.php(php);
        }
        let serving = Serving {
            applications: generation.served(),
            listeners: self.listeners.clone(),
            explanation: generation.explanation(),
            subsystems: self.subsystems(),
            broker: self.broker.watch().map(|watch| watch.place().to_owned()),
            console: self.realtime.clone().map(|realtime| realtime as Arc<dyn Console>),
        };
        self.state.ready_with(generation.number, serving);
        let processes = self.processes_of(&settings, &generation);
        if self.predecessor.is_some() {
            self.waiting = Some(processes);
        } else {
            self.processes.replace(processes);
        }
        self.settings = settings;
        if let Some(old) = self.current.replace(generation) {
            let state = Arc::clone(self.state);
            let patience = self.settings.server.shutdown_patience;
            self.retired.spawn(async move {
                let number = old.number;
                old.retire(patience).await;
                state.workers.drained(number);
                tracing::info!(generation = number, "generation drained");
            });
        }
        self.plan_retries();
    }
}

/// Returns the release of a generation for the front. Its models may differ from the plan, and so its routes.
fn release_of(generation: &Generation) -> Result<Release, Failure> {
    release::release(generation.applications.iter().map(|booted| &booted.planned))
}
