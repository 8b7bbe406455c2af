//! Generations of `hearth serve`: boots the first one, and at each reload one more beside it, which takes over when it has proved that it answers.
//!
//! Invariants
//! - What runs goes on until its successor takes requests; a release that cannot be read, does not boot or does not answer never takes over.
//! - One reload at a time. Those who ask while one runs share the next one, which begins after they asked: what they deployed is in it.
//! - At most [`MOST_DRAINING`] generations finish what they have, each for no longer than `server.shutdown_patience`; a further reload waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use front_http::{Release, Switch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::applications::Plans;
use crate::app::boot::context_of_ours;
use crate::app::release;
use crate::config::Settings;
use crate::failure::Failure;
use crate::ops::console::Console;
use crate::ops::notify;
use crate::ops::reloads::{Ask, Reloaded};
use crate::ops::state::{Serving, State};
use crate::ops::subsystem::Subsystem;
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
use crate::subsystems::realtime::{Php, Realtime};
use crate::subsystems::tls::{self, Tls};
use crate::system::run_dir::RunDir;
use crate::system::users::PhpUser;

/// The most generations that drain at once: each has its workers, and with them their memory.
const MOST_DRAINING: usize = 2;

/// Boots generations, and owns everything that outlives them.
#[derive(Debug)]
pub(crate) struct Generations<'s> {
    /// What each reload reads again.
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
    /// Channels, when there are some.
    pub realtime: Option<Arc<Realtime>>,
    /// The server's own folder.
    pub run_dir: Option<Arc<RunDir>>,
    /// What runs PHP in the server whose place this one takes, by application. It still runs when the first generation boots.
    pub predecessor: Option<BTreeMap<String, Running>>,
    /// The HTTP front as operators see it.
    pub http: Arc<Http>,
    /// Certificates, if TLS is spoken: read again at each reload, too.
    pub tls: Option<Tls>,
    /// The broker, which outlives all generations: connections stay warm.
    pub broker: Inside,
    /// The connectors outlive all generations, too: sessions stay logged in.
    pub connectors: Connectors,
    /// The one that takes requests.
    pub current: Option<Generation>,
    /// The generations that finish what they have.
    pub retired: JoinSet<()>,
    /// What is served now, watched for changes.
    pub watched: Watched,
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

    /// The first release does not boot. In development mode the browser shows why until a change mends it; else this is the end.
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
                // A command that was interrupted does not wait any more.
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

    /// Ends all generations, then what they connect by.
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
        self.connectors.drain(deadline.saturating_duration_since(Instant::now())).await;
        self.broker.drain(deadline.saturating_duration_since(Instant::now())).await;
    }

    /// Makes one reload, and logs and notifies about it.
    async fn reload_for(&mut self, asks: &[Ask]) -> Result<Reloaded, Failure> {
        let why = &asks.first().expect("there is a request").why;
        tracing::info!(%why, asked = asks.len(), "reload");
        let manager = self.source.environment.notify_socket();
        notify::reloading(manager).await;
        self.state.reloads.note(|reloads| reloads.under_way = true);
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
        match &self.current {
            Some(current) if self.settings.server.watch.0 => {
                let ignored = &self.settings.server.watch_ignore;
                self.watched.follow(current.folders(), ignored, self.state, self.drain).await
            }
            _ => Ok(()),
        }
    }

    /// An error leaves what runs as it was.
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
        // What can be known before anything is started.
        plans.release()?;
        let certificates = tls::read(&settings)?;
        let Some((generation, guard)) = self.boot(&settings, plans).await? else {
            return Err(ending());
        };
        let proved = tokio::select! {
            proved = prove_all(&generation) => proved,
            () = self.drain.cancelled() => Err(ending()),
        };
        // Its model may be another than was planned, and so what it answers.
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
            // They may have been renewed while it booted.
            let certificates = tls::read(&settings).unwrap_or(certificates);
            tls.show(&settings, certificates);
        }
        self.take_over(settings, generation, guard, release);
        if let Err(failure) = self.watch().await {
            tracing::warn!(
                reason = failure.message(),
                hint = failure.hint(),
                "changes are not seen any more"
            );
        }
        Ok(reloaded)
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
        all.extend(self.realtime.clone().map(|realtime| realtime as Arc<dyn Subsystem>));
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
