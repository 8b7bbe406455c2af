//! Generations of `hearth serve`: boots the first one, and at each reload one more beside it, which takes over when it has proved that it answers.
//!
//! Invariants
//! - What runs goes on until its successor takes requests; a release that cannot be read, does not boot or does not answer never takes over.
//! - One reload at a time. Those who ask while one runs share the next one, which begins after they asked: what they deployed is in it.
//! - At most [`MOST_DRAINING`] generations finish what they have, each for no longer than `server.shutdown_patience`; a further reload waits.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use front_http::{Release, Switch};
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use pool::{Model, Pool};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::app::applications::{self, Planned, Plans};
use crate::app::detect;
use crate::app::plan::{PhpPlan, Plan, processors};
use crate::app::user::PhpUser;
use crate::cli::Target;
use crate::config::{self, Environment, Settings};
use crate::failure::Failure;
use crate::ops::admin::{Serving, State};
use crate::ops::notify;
use crate::ops::state::{Ask, Reloaded};
use crate::runtime::generation::{Booted, Generation, Running, Stay, end};
use crate::runtime::measure;
use crate::runtime::server::{
    DATABASES, OwnFiles, bind_broker, boot_failure, context_of_ours, pool_options, request_of_ours,
};
use crate::runtime::watch::Watch;
use crate::subsystems::connectors::Connectors;
use crate::subsystems::egress::{self, Inside, Users};
use crate::subsystems::front;
use crate::subsystems::realtime::{self, Php, Publisher, Realtime};
use crate::subsystems::tls::{self, Tls};
use crate::system::run_dir::RunDir;

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
    /// As whom PHP runs by the server's own settings: connectors are for it. None: our own user.
    pub first: Option<PhpUser>,
    /// All whom PHP can run as, since the start.
    pub users: Vec<PhpUser>,
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
    pub run_dir: Option<Arc<RunDir>>,
    /// It takes another server's place, which still lives when the first generation boots.
    pub succeeds: bool,
    /// What runs PHP there, by application.
    pub running_before: BTreeMap<String, Running>,
    /// What the front has answered lately.
    pub traffic: Arc<front_http::Traffic>,
    pub connections: Arc<front_http::Connections>,
    /// Certificates, where TLS is spoken: read anew at each reload, too.
    pub tls: Option<Tls>,
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
    pub watched: Option<(Vec<PathBuf>, JoinSet<()>)>,
}

/// The settings for what was named on the command line, as they are now.
pub(crate) fn settings(target: &Target, environment: &Environment) -> Result<Settings, Failure> {
    let folder = detect::folder_of(&target.path)?;
    Ok(config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?)
}

/// Gives up what is being started, which ends by itself; what was ready before it heard of it is given back, to be ended.
async fn given_up<T: Send + 'static>(mut boots: JoinSet<Result<T, Failure>>) -> Vec<T> {
    boots.abort_all();
    let mut ready = Vec::new();
    while let Some(ended) = boots.join_next().await {
        ready.extend(ended.ok().and_then(Result::ok));
    }
    ready
}

/// Errs on a user of PHP's that was not named when the server started: it has not joined his group, nor kept what it takes.
fn must_be_known(
    known: &[PhpUser],
    settings: &Settings,
    environment: &Environment,
) -> Result<(), Failure> {
    for user in PhpUser::all_of(settings, environment)? {
        if !known.iter().any(|known| known.is(&user)) {
            return Err(Failure::failed(
                format!(
                    "PHP is to run as user {}, whom no setting named when the server started",
                    user.name()
                ),
                "`hearth upgrade`, or a restart, has the server prepare for him",
            ));
        }
    }
    Ok(())
}

fn ending() -> Failure {
    Failure::failed("the server is shutting down", "start it again")
}

impl Generations<'_> {
    /// Boots the first generation and has it take requests. False: the server is to end already.
    pub(crate) async fn start(&mut self, plans: Plans) -> Result<bool, Failure> {
        let settings = self.settings.clone();
        let Some((generation, stay)) = self.boot(&settings, plans).await? else { return Ok(false) };
        let release = release(&generation)?;
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

    /// Waits until the generation that is to take requests has proved that it answers.
    pub(crate) async fn prove(&self) -> Result<(), Failure> {
        match &self.current {
            Some(current) => prove_all(current).await,
            None => Ok(()),
        }
    }

    /// Where sockets are that were made beside those of the server before, and where they belong.
    pub(crate) fn beside(&self) -> Vec<(PathBuf, PathBuf)> {
        let of_broker = self.watch.iter().flat_map(egress::Watch::beside);
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

    /// One reload, and what there is to say about it.
    async fn reload_for(&mut self, asks: &[Ask]) -> Result<Reloaded, Failure> {
        let why = &asks.first().expect("somebody has asked").why;
        tracing::info!(%why, asked = asks.len(), "reload");
        let manager = self.environment.notify_socket();
        notify::reloading(manager).await;
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
            notify::notify(manager, "READY=1").await;
        }
        outcome
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
        let (settings, restart_for, plans) = self.read().await?;
        // What can be known before anything is started.
        plans.release()?;
        let certificates = tls::read(&settings)?;
        let Some((generation, stay)) = self.boot(&settings, plans).await? else {
            return Err(ending());
        };
        let proved = tokio::select! {
            proved = prove_all(&generation) => proved,
            () = self.drain.cancelled() => Err(ending()),
        };
        // Its model may be another than was planned, and so what it answers.
        let release = match proved.and_then(|()| release(&generation)) {
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
        if let Some(tls) = &self.tls {
            // They may have been renewed while it booted.
            let certificates = tls::read(&settings).unwrap_or(certificates);
            tls.show(&settings, certificates);
        }
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
        let folders = current.folders();
        if self.watched.as_ref().is_some_and(|(watched, _)| *watched == folders) {
            return Ok(());
        }
        self.watched = None;
        let (of, ignored) = (folders.clone(), self.settings.server.watch_ignore.clone());
        let walking = tokio::task::spawn_blocking(move || {
            of.iter().map(|folder| Watch::of(folder, &ignored)).collect::<Result<Vec<_>, _>>()
        });
        let watches = walking.await.unwrap_or_else(|error| {
            Err(Failure::caused_by(
                "cannot watch the application's files",
                &error,
                "please report this",
            ))
        })?;
        let mut tasks = JoinSet::new();
        for watch in watches {
            tasks.spawn(watch.run(Arc::clone(self.state), self.drain.clone()));
        }
        self.watched = Some((folders, tasks));
        Ok(())
    }

    /// Settings, and what would run by them. Files are read and a program may be asked: on a thread where nobody waits for that.
    async fn read(&self) -> Result<(Settings, Vec<&'static str>, Plans), Failure> {
        let (target, environment) = (self.target.clone(), self.environment.clone());
        let (old, users) = (self.settings.clone(), self.users.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let (settings, restart_for) = settings(&target, &environment)?.in_place_of(&old);
            must_be_known(&users, &settings, &environment)?;
            let plans = Plans::read(&target, &settings, &environment)?;
            Ok((settings, restart_for, plans))
        });
        reading.await.unwrap_or_else(|error| {
            Err(Failure::caused_by("cannot read the settings", &error, "please report this"))
        })
    }

    /// Starts the workers of a release, of all its applications: one that does not start ends the others. None: the server is to end.
    async fn boot(
        &mut self,
        settings: &Settings,
        plans: Plans,
    ) -> Result<Option<(Generation, Stay)>, Failure> {
        let number = self.current.as_ref().map_or(1, |current| current.number + 1);
        let run_dir = self.run_dir.clone();
        // Before PHP starts: it is told of the socket in its environment.
        if self.watch.is_none()
            && plans.run_php()
            && let Some(run_dir) = &run_dir
        {
            let first = self.first.as_ref();
            let others = &self.users[usize::from(first.is_some())..];
            let users = Users { first, others };
            let admin = self.state.admin_address();
            let bound = bind_broker(settings, run_dir.path(), users, self.succeeds, admin)?;
            if let Some(bound) = bound {
                self.watch = Some(bound.watch());
                self.broker.start(bound);
            }
        }
        let several = plans.several();
        let means = Arc::new(self.means(&plans)?);
        // For all of them before any is started: an error leaves nothing behind.
        let with_files = |planned| {
            let own_files = OwnFiles::of_generation(number, &planned, run_dir.as_deref())?;
            Ok((planned, own_files))
        };
        let planned: Result<Vec<_>, Failure> =
            plans.into_vec().into_iter().map(with_files).collect();
        let mut boots = JoinSet::new();
        for (place, (planned, own_files)) in planned?.into_iter().enumerate() {
            let running = self.current.as_ref().and_then(|current| current.running(&planned.name));
            let running = running.or_else(|| self.running_before.get(&*planned.name).copied());
            let means = Arc::clone(&means);
            // What its pool logs says whose it is, whatever the level.
            let span = if several {
                tracing::error_span!("application", application.name = &*planned.name)
            } else {
                tracing::Span::none()
            };
            let boot = async move {
                let name = Arc::clone(&planned.name);
                let booted = means.boot(planned, own_files, running).await;
                let named = |failure: Failure| {
                    if several { failure.of_application(&name) } else { failure }
                };
                booted.map(|booted| (place, booted)).map_err(named)
            };
            boots.spawn(boot.instrument(span));
        }
        let mut booted = Vec::new();
        let started = loop {
            let ended = tokio::select! {
                ended = boots.join_next() => ended,
                () = self.drain.cancelled() => break Ok(false),
            };
            match ended {
                None => break Ok(true),
                Some(Ok(Ok(one))) => booted.push(one),
                Some(Ok(Err(failure))) => break Err(failure),
                Some(Err(error)) => {
                    let what = "an application was not started";
                    break Err(Failure::caused_by(what, &error, "please report this"));
                }
            }
        };
        booted.extend(given_up(boots).await);
        booted.sort_unstable_by_key(|(place, _)| *place);
        let booted = booted.into_iter().map(|(_, booted)| booted).collect();
        if !matches!(started, Ok(true)) {
            end(booted, Instant::now()).await;
            return started.map(|_ending| None);
        }
        Ok(Some(Generation::new(number, booted)))
    }

    /// What the applications of a generation are started with.
    fn means(&self, plans: &Plans) -> Result<Means, Failure> {
        // They count together which sessions of connectors are theirs to keep.
        let first = self.first.as_ref();
        let pools = || {
            let all = plans.iter();
            let all = all.filter_map(|planned| Some((planned, planned.plan.php.as_ref()?)));
            all.filter(|(_, php)| PhpUser::same(php.user.as_ref(), first))
        };
        let most = pools().map(|(_, php)| php.workers_max.unwrap_or(php.workers).get()).sum();
        let keep = pools()
            .any(|(planned, php)| planned.settings.databases.keep && php.model == Model::Snapshot);
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        let token = self.realtime.as_ref().and_then(|realtime| realtime.lookup_token());
        Ok(Means {
            broker: self.watch.clone(),
            first: self.first.clone(),
            publisher: self.publisher.clone(),
            connectors: self.connectors.env().to_vec(),
            places: self.connectors.places(most, keep)?,
            files: self.connectors.files().map(ToOwned::to_owned).collect(),
            token,
            places_at_once: Semaphore::new(processors().get()),
        })
    }

    /// Has a generation take every request from now on, and the one before it finish what it has.
    fn take_over(
        &mut self,
        settings: Settings,
        generation: Generation,
        stay: Stay,
        release: Release,
    ) {
        let answer = |booted: &Booted| front::Php::new(booted.pool.clone(), stay.clone());
        self.switch.to(release, generation.applications.iter().map(answer));
        if let Some(realtime) = &self.realtime {
            let php = generation.main().and_then(|main| {
                let context = context_of_ours(&main.planned.plan, "realtime");
                Some(Php { pool: main.pool.clone()?, context, _stay: stay })
            });
            realtime.php(php);
        }
        let serving = Serving {
            applications: generation.served(),
            listeners: self.listeners.clone(),
            explanation: generation.explanation(),
            egress: self.watch.clone(),
            connectors: self.connectors.watches(),
            realtime: self.realtime.clone(),
            traffic: Some(Arc::clone(&self.traffic)),
            connections: Some(Arc::clone(&self.connections)),
            tls: self.tls.as_ref().map(Tls::watch),
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

/// What the applications of a generation have in common.
#[derive(Debug)]
struct Means {
    /// Has a socket for each user.
    broker: Option<egress::Watch>,
    publisher: Option<Arc<Publisher>>,
    /// Whose PHP connectors are for.
    first: Option<PhpUser>,
    /// What it finds in its environment of connectors, what it is told of their places, and the files of those.
    connectors: Vec<(String, String)>,
    places: String,
    files: Vec<PathBuf>,
    /// For look-ups of realtime.
    token: Option<String>,
    /// So many boot at once: each has its time limit.
    places_at_once: Semaphore,
}

impl Means {
    /// Starts the workers of one application.
    async fn boot(
        &self,
        mut planned: Planned,
        own_files: Option<OwnFiles>,
        running: Option<Running>,
    ) -> Result<Booted, Failure> {
        let _place = self.places_at_once.acquire().await.expect("nobody closes it");
        let runs = running.and_then(|running| running.model);
        let pool = loop {
            if measure::is_due(&planned.plan, &planned.settings) {
                self.fit_to_costs(&mut planned, own_files.as_ref(), runs).await?;
            }
            let Some(php) = &planned.plan.php else { break None };
            let mut options = self.options(php, &planned.plan, &planned, own_files.as_ref());
            // As many as have turned out to be needed: it takes all requests at once.
            if let (Some(scaling), Some(running)) = (&mut options.scaling, running) {
                scaling.start = running.workers;
            }
            match Pool::start(options).await {
                Ok(pool) => break Some(pool),
                Err(error) => {
                    let Planned { name, settings, plan, .. } = &mut planned;
                    let Some(fallback) = plan.fit_to_application(&error, runs) else {
                        return Err(boot_failure(&error, plan));
                    };
                    if !measure::is_due(plan, settings) {
                        fallback.of_application(name).warn();
                    }
                }
            }
        };
        Ok(Booted { planned, pool, own_files })
    }

    /// Measures which of the models that could take the place of `snapshot` is cheaper, and takes that.
    async fn fit_to_costs(
        &self,
        planned: &mut Planned,
        own_files: Option<&OwnFiles>,
        runs: Option<Model>,
    ) -> Result<(), Failure> {
        let options = |plan: &Plan| {
            let php = plan.php.as_ref().expect("only what runs PHP is measured");
            self.options(php, plan, planned, own_files)
        };
        let costs = measure::costs(&planned.plan, &planned.settings, runs, options).await;
        let costs = costs.map_err(|error| boot_failure(&error, &planned.plan))?;
        if let Some(fallback) = planned.plan.fit_to_costs(costs) {
            fallback.of_application(&planned.name).warn();
        }
        Ok(())
    }

    /// The pool's options for an application as it was planned, or, where `plan` differs, as it would run then.
    fn options(
        &self,
        php: &PhpPlan,
        plan: &Plan,
        planned: &Planned,
        own_files: Option<&OwnFiles>,
    ) -> pool::Options {
        let Planned { settings, is_at_path, .. } = planned;
        let publisher = self.publisher.as_ref().filter(|_| *is_at_path);
        let user = php.user.as_ref();
        let mut options = pool::Options {
            events: publisher
                .map(|publisher| Arc::<Publisher>::clone(publisher) as Arc<dyn pool::EventSink>),
            ..pool_options(
                php,
                plan,
                settings,
                own_files,
                self.broker.as_ref().and_then(|broker| broker.socket_of(user)),
                publisher.map(|publisher| &**publisher),
            )
        };
        if PhpUser::same(user, self.first.as_ref()) {
            options.env.extend(self.connectors.iter().cloned());
            let mut env = options.env.iter_mut();
            if let Some((_, told)) = env.find(|(name, _)| name == DATABASES) {
                told.push_str(&self.places);
            }
            if let Some(sandbox) = &mut options.sandbox {
                sandbox.own_writable.extend(self.files.iter().cloned());
            }
        }
        let token = self.token.clone().filter(|_| *is_at_path);
        options.env.extend(token.map(|token| (realtime::LOOKUP_VARIABLE.into(), token)));
        options
    }
}

/// What a generation brings along for the front. Models may be others than were planned, and so what they answer.
fn release(generation: &Generation) -> Result<Release, Failure> {
    applications::release(generation.applications.iter().map(|booted| &booted.planned))
}

async fn filled(pool: &Pool, patience: Duration) -> Result<(), Failure> {
    if tokio::time::timeout(patience, pool.filled()).await.is_ok() {
        return Ok(());
    }
    let status = pool.status();
    Err(Failure::failed(
        format!(
            "the application did not boot: {} of {} workers were ready within {patience:?}",
            status.ready(),
            status.wanted
        ),
        "the log says what became of the others; `php.boot_timeout` gives them longer",
    ))
}

/// Each application has proved that it answers.
async fn prove_all(generation: &Generation) -> Result<(), Failure> {
    for booted in &generation.applications {
        prove(booted).await.map_err(|failure| generation.about(booted, failure))?;
    }
    Ok(())
}

/// Every worker is ready, and one of them answers a request that no client sent.
async fn prove(booted: &Booted) -> Result<(), Failure> {
    let Booted { planned: Planned { settings, plan, .. }, pool, .. } = booted;
    let Some(pool) = pool else { return Ok(()) };
    let patience = settings.php.boot_timeout;
    let deadline = Instant::now() + patience;
    filled(pool, patience).await?;
    let (path, named) = match &settings.php.reload_check.0 {
        None => (http::uri::PathAndQuery::from_static("/"), false),
        Some(None) => return Ok(()),
        Some(Some(path)) => (path.0.clone(), true),
    };
    if !named && plan.application.front_controller.is_none() {
        return Ok(());
    }
    let hint =
        "correct the application, or name another path in `php.reload_check` (`off` asks for none)";
    let mut request = request_of_ours(path.clone(), plan, "reload");
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
