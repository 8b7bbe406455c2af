//! Generations of `hearth serve`: boots the first one, and at each reload one more beside it, which takes over when it has proved that it answers.
//!
//! Invariants
//! - What runs goes on until its successor takes requests; a release that cannot be read, does not boot or does not answer never takes over.
//! - One reload at a time. Those who ask while one runs share the next one, which begins after they asked: what they deployed is in it.
//! - At most [`MOST_DRAINING`] generations finish what they have, each for no longer than `server.shutdown_patience`; a further reload waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use front_http::{Release, Switch};
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use pool::{Model, Pool};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{Serving, State};
use crate::cli::Target;
use crate::config::{self, Environment, LookupTarget, Settings, WebhookTarget};
use crate::connectors::Connectors;
use crate::detect;
use crate::egress::{self, Inside};
use crate::failure::Failure;
use crate::front;
use crate::generation::{Generation, Stay};
use crate::plan::Plan;
use crate::realtime::{self, Php, Publisher, Realtime};
use crate::run_dir::RunDir;
use crate::serve::{
    OwnFiles, bind_broker, boot_failure, context_of_ours, pool_options, request_of_ours,
};
use crate::state::{Ask, Reloaded};
use crate::watch::Watch;
use crate::{notify, php};

/// Generations that finish what they have at once: each has its workers, and with them their memory.
const MOST_DRAINING: usize = 2;

/// Who boots generations, and all that outlives them.
#[derive(Debug)]
pub(crate) struct Generations<'s> {
    /// What was named on the command line: read anew each time, links included.
    pub target: &'s Target,
    /// The process's.
    pub environment: &'s Environment,
    /// Those that the server runs by now.
    pub settings: Settings,
    /// Who is told.
    pub state: &'s Arc<State>,
    /// Cancelled when the server is to end.
    pub drain: &'s CancellationToken,
    /// By which a generation takes over.
    pub switch: Switch<front::Php>,
    /// Addresses with their scheme.
    pub listeners: Vec<String>,
    /// Channels, when there are some.
    pub realtime: Option<Arc<Realtime>>,
    /// Where events go that PHP publishes.
    pub publisher: Option<Arc<Publisher>>,
    /// The server's own folder.
    pub run_dir: Option<RunDir>,
    /// Outlives all generations: connections stay warm.
    pub broker: Inside,
    /// They do, too: sessions stay logged in.
    pub connectors: Connectors,
    /// Its view, once it is there.
    pub watch: Option<egress::Watch>,
    /// The one that takes requests.
    pub current: Option<Generation>,
    /// Those that finish what they have.
    pub retired: JoinSet<()>,
    /// Who looks for changes, and where.
    pub watched: Option<(PathBuf, JoinSet<()>)>,
}

/// The settings for what was named on the command line, as they are now.
pub(crate) fn settings(target: &Target, environment: &Environment) -> Result<Settings, Failure> {
    let folder = detect::folder_of(&target.path)?;
    Ok(config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?)
}

/// What would run now. Waits for a program in the model `snapshot`: it is asked what this machine can do.
pub(crate) fn plan(
    target: &Target,
    settings: &Settings,
    environment: &Environment,
) -> Result<Plan, Failure> {
    let mut plan = Plan::new(detect::detect(&target.path)?, settings, environment)?;
    if let Some(php) = plan.php.as_ref().filter(|php| php.model == Model::Snapshot) {
        let probe = php::probe(&php.worker, settings);
        if let Some(fallback) = plan.fit_to_machine(&probe) {
            fallback.warn();
        }
    }
    if let Some(LookupTarget(WebhookTarget::Php(_))) = settings.realtime.lookup
        && plan.php.is_none()
    {
        return Err(realtime::no_php());
    }
    Ok(plan)
}

fn ending() -> Failure {
    Failure::failed("the server is shutting down", "start it again")
}

impl Generations<'_> {
    /// Boots the first generation and has it take requests. False: the server is to end already.
    pub(crate) async fn start(&mut self, plan: Plan) -> Result<bool, Failure> {
        let settings = self.settings.clone();
        let Some((generation, stay)) = self.boot(&settings, plan).await? else { return Ok(false) };
        let release = front::release(&settings, &generation.plan)?;
        self.take_over(settings, generation, stay, release);
        self.watch().await?;
        Ok(true)
    }

    /// Reloads whenever somebody asks for it, until the server is to end.
    pub(crate) async fn run(&mut self) {
        let Some(mut asked) = self.state.asked() else { return };
        loop {
            let first = tokio::select! {
                biased;
                () = self.drain.cancelled() => return,
                Some(_) = self.retired.join_next() => continue,
                Some(ask) = asked.recv() => ask,
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

    /// One reload, and what there is to say about it.
    async fn reload_for(&mut self, asks: &[Ask]) -> Result<Reloaded, Failure> {
        let why = &asks.first().expect("somebody has asked").why;
        tracing::info!(%why, asked = asks.len(), "reload");
        let manager = self.environment.notify_socket();
        notify::reloading(manager);
        self.state.note(|reloads| reloads.under_way = true);
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
                tracing::error!(reason, hint, "reload failed, what ran goes on");
            }
        }
        self.state.note(|reloads| {
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
            notify::notify(manager, "READY=1");
        }
        outcome
    }

    async fn reload(&mut self) -> Result<Reloaded, Failure> {
        let began = Instant::now();
        while self.retired.len() >= MOST_DRAINING {
            tokio::select! {
                _ = self.retired.join_next() => {}
                () = self.drain.cancelled() => return Err(ending()),
            }
        }
        let (settings, restart_for, plan) = self.read().await?;
        // What can be known before anything is started.
        front::release(&settings, &plan)?;
        let Some((generation, stay)) = self.boot(&settings, plan).await? else {
            return Err(ending());
        };
        let proved = tokio::select! {
            proved = prove(&generation, &settings) => proved,
            () = self.drain.cancelled() => Err(ending()),
        };
        // Its model may be another than was planned, and so what it answers.
        let release = match proved.and_then(|()| front::release(&settings, &generation.plan)) {
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
        self.state.note(|reloads| reloads.restart_for.clone_from(&restart_for));
        let reloaded = Reloaded {
            generation: generation.number,
            explanation: generation.explanation(),
            milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            restart_for: restart_for.into_iter().map(str::to_owned).collect(),
        };
        self.take_over(settings, generation, stay, release);
        if let Err(failure) = self.watch().await {
            tracing::warn!(
                reason = failure.message(),
                hint = failure.hint(),
                "changes are not seen any more"
            );
        }
        Ok(reloaded)
    }

    /// Has changes of what is served now looked for, if that is wanted.
    async fn watch(&mut self) -> Result<(), Failure> {
        let Some(current) = self.current.as_ref().filter(|_| self.settings.server.watch.0) else {
            return Ok(());
        };
        let folder = current.plan.application.folder.clone();
        if self.watched.as_ref().is_some_and(|(watched, _)| *watched == folder) {
            return Ok(());
        }
        self.watched = None;
        let (of, ignored) = (folder.clone(), self.settings.server.watch_ignore.clone());
        let walking = tokio::task::spawn_blocking(move || Watch::of(&of, &ignored));
        let watch = walking.await.unwrap_or_else(|error| {
            Err(Failure::caused_by(
                "cannot watch the application's files",
                &error,
                "please report this",
            ))
        })?;
        let mut task = JoinSet::new();
        task.spawn(watch.run(Arc::clone(self.state), self.drain.clone()));
        self.watched = Some((folder, task));
        Ok(())
    }

    /// Settings, and what would run by them. Files are read and a program may be asked: on a thread where nobody waits for that.
    async fn read(&self) -> Result<(Settings, Vec<&'static str>, Plan), Failure> {
        let (target, environment) = (self.target.clone(), self.environment.clone());
        let old = self.settings.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let (settings, restart_for) = settings(&target, &environment)?.in_place_of(&old);
            let plan = plan(&target, &settings, &environment)?;
            Ok((settings, restart_for, plan))
        });
        reading.await.unwrap_or_else(|error| {
            Err(Failure::caused_by("cannot read the settings", &error, "please report this"))
        })
    }

    /// Starts the workers of a release. None: the server is to end.
    async fn boot(
        &mut self,
        settings: &Settings,
        mut plan: Plan,
    ) -> Result<Option<(Generation, Stay)>, Failure> {
        let number = self.current.as_ref().map_or(1, |current| current.number + 1);
        let own_files = OwnFiles::of_generation(number, &plan, self.run_dir.as_ref())?;
        // Before PHP starts: it is told of the socket in its environment.
        if self.watch.is_none()
            && plan.php.is_some()
            && let Some(run_dir) = &self.run_dir
            && let Some(bound) = bind_broker(settings, run_dir.path())?
        {
            self.watch = Some(bound.watch());
            self.broker.start(bound);
        }
        let pool = loop {
            let Some(php) = &plan.php else { break None };
            let socket = self.watch.as_ref().map(egress::Watch::socket);
            let publisher = self.publisher.as_deref();
            let token = self.realtime.as_ref().and_then(|realtime| realtime.lookup_token());
            let mut options = pool::Options {
                events: self.publisher.as_ref().map(|publisher| {
                    Arc::<Publisher>::clone(publisher) as Arc<dyn pool::EventSink>
                }),
                ..pool_options(php, &plan, settings, own_files.as_ref(), socket, publisher)
            };
            options.env.extend(self.connectors.env().iter().cloned());
            options.env.extend(token.map(|token| (realtime::LOOKUP_VARIABLE.into(), token)));
            let started = tokio::select! {
                started = Pool::start(options) => started,
                () = self.drain.cancelled() => return Ok(None),
            };
            match started {
                Ok(pool) => break Some(pool),
                Err(error) => {
                    let Some(fallback) = plan.fit_to_application(&error) else {
                        return Err(boot_failure(&error, &plan));
                    };
                    fallback.warn();
                }
            }
        };
        Ok(Some(Generation::new(number, plan, pool, own_files)))
    }

    /// Has a generation take every request from now on, and the one before it finish what it has.
    fn take_over(
        &mut self,
        settings: Settings,
        generation: Generation,
        stay: Stay,
        release: Release,
    ) {
        let pool = &generation.pool;
        self.switch.to(release, front::Php::new(pool.clone(), stay.clone()));
        if let Some(realtime) = &self.realtime {
            let context = || context_of_ours(&generation.plan, "realtime");
            let php = pool.clone().map(|pool| Php { pool, context: context(), _stay: stay });
            realtime.php(php);
        }
        let serving = Serving {
            pool: pool.clone(),
            listeners: self.listeners.clone(),
            model: generation.model(),
            explanation: generation.explanation(),
            egress: self.watch.clone(),
            connectors: self.connectors.watches(),
            realtime: self.realtime.clone(),
        };
        self.state.ready_with(generation.number, serving);
        self.settings = settings;
        if let Some(old) = self.current.replace(generation) {
            let state = Arc::clone(self.state);
            let patience = self.settings.server.shutdown_patience;
            self.retired.spawn(async move {
                let number = old.number;
                old.retire(patience).await;
                state.drained(number);
                tracing::info!(generation = number, "generation drained");
            });
        }
    }
}

/// Every worker is ready, and one of them answers a request that no client sent.
async fn prove(generation: &Generation, settings: &Settings) -> Result<(), Failure> {
    let Some(pool) = &generation.pool else { return Ok(()) };
    let patience = settings.php.boot_timeout;
    let deadline = Instant::now() + patience;
    if tokio::time::timeout_at(deadline, pool.filled()).await.is_err() {
        let status = pool.status();
        return Err(Failure::failed(
            format!(
                "the application did not boot: {} of {} workers were ready within {patience:?}",
                status.ready(),
                settings.php.workers.0.map_or(status.workers.len(), std::num::NonZeroUsize::get)
            ),
            "the log says what became of the others; `php.boot_timeout` gives them longer",
        ));
    }
    let (path, named) = match &settings.php.reload_check.0 {
        None => (http::uri::PathAndQuery::from_static("/"), false),
        Some(None) => return Ok(()),
        Some(Some(path)) => (path.0.clone(), true),
    };
    if !named && generation.plan.application.front_controller.is_none() {
        return Ok(());
    }
    let hint =
        "correct the application, or name another path in `php.reload_check` (`off` asks for none)";
    let mut request = request_of_ours(path.clone(), &generation.plan, "reload");
    if let Some(context) = request.extensions_mut().get_mut::<pool::RequestContext>() {
        context.deadline = Some(deadline.max(Instant::now() + Duration::from_secs(1)));
        context.variables.push(("HEARTH_WARM_UP", bytes::Bytes::from_static(b"1")));
    }
    let response = pool.dispatch(request.map(|()| Empty::<bytes::Bytes>::new())).await;
    let response = response.map_err(|error| {
        Failure::caused_by(format!("the new release does not answer {path}"), &error, hint)
    })?;
    let status = response.status();
    // Heard to its end, so that PHP does not see a client that went away.
    let whole = response.into_body().collect().await;
    let fails = |status: StatusCode| {
        if named { status.as_u16() >= 400 } else { status == StatusCode::INTERNAL_SERVER_ERROR }
    };
    if fails(status) {
        return Err(Failure::failed(format!("the new release answers {path} with {status}"), hint));
    }
    whole.map(drop).map_err(|error| {
        Failure::caused_by(format!("the new release breaks off its answer to {path}"), &error, hint)
    })
}
