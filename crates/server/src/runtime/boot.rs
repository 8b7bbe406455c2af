//! Boots a generation: the workers of all its applications, side by side.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use pool::{BootFiles, Model, Pool};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::app::applications::{Planned, Plans};
use crate::app::boot::{
    DATABASES, OwnFiles, Reason, bind_broker, boot_known, explained_boot_failure, no_run_dir,
    pool_options, with_others,
};
use crate::app::measure;
use crate::app::plan::{PhpPlan, Plan};
use crate::app::preload::{self, Learned};
use crate::config::{BootFailure, Settings, WatchedFiles};
use crate::failure::Failure;
use crate::runtime::generation::{Booted, Generation, Running, end};
use crate::runtime::reload::Generations;
use crate::subsystems::egress::{self, Users};
use crate::subsystems::generation_guard::GenerationGuard;
use crate::subsystems::realtime::{self, Publisher};
use crate::subsystems::websockets;
use crate::system::machine::processors;
use crate::system::users::PhpUser;

/// Aborts boots that are under way, and returns those that were ready already, so that the caller ends them.
async fn given_up<T: Send + 'static>(mut boots: JoinSet<Result<T, Failure>>) -> Vec<T> {
    boots.abort_all();
    let mut ready = Vec::new();
    while let Some(ended) = boots.join_next().await {
        ready.extend(ended.ok().and_then(Result::ok));
    }
    ready
}

impl Generations<'_> {
    /// Starts the workers of a release, of all its applications: one that does not start ends the others. None: the server is to end.
    pub(crate) async fn boot(
        &mut self,
        settings: &Settings,
        plans: Plans,
    ) -> Result<Option<(Generation, GenerationGuard)>, Failure> {
        let number = self.current.as_ref().map_or(1, |current| current.number + 1);
        let run_dir = self.run_dir.clone();
        // Before PHP starts: its environment names the socket.
        if self.broker.watch().is_none()
            && plans.run_php()
            && let Some(run_dir) = &run_dir
        {
            let first = self.first.as_ref();
            let others = &self.source.users[usize::from(first.is_some())..];
            let users = Users { first, others };
            let admin = self.state.admin_address();
            let bound =
                bind_broker(settings, run_dir.path(), users, self.predecessor.is_some(), admin)?;
            if let Some(bound) = bound {
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
            let running =
                running.or_else(|| self.predecessor.as_ref()?.get(&*planned.name).cloned());
            let means = Arc::clone(&means);
            // Log lines of its pool name the application, at every level.
            let span = if several {
                tracing::error_span!("application", application.name = &*planned.name)
            } else {
                tracing::Span::none()
            };
            let boot = async move {
                let name = Arc::clone(&planned.name);
                let booted = Box::pin(means.boot(planned, own_files, running)).await;
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

    /// Boots the applications again that did not boot, beside what runs in their place. None: the server is to end.
    pub(crate) async fn boot_again(
        &mut self,
        failed: Vec<Planned>,
    ) -> Result<Option<Vec<Booted>>, Failure> {
        let number = self.current.as_ref().map_or(1, |current| current.number + 1);
        let all = self.current.iter().flat_map(|current| &current.applications).map(|booted| {
            let mut planned = booted.planned.clone();
            planned.plan = booted.retried.clone().unwrap_or(planned.plan);
            planned
        });
        let all = Plans::of(all.collect());
        let (several, means) = (all.several(), self.means(&all)?);
        let mut booted = Vec::new();
        for planned in failed {
            let own_files = OwnFiles::of_generation(number, &planned, self.run_dir.as_deref())?;
            let name = Arc::clone(&planned.name);
            let one = tokio::select! {
                one = means.boot_again(planned, own_files) => one,
                () = self.drain.cancelled() => {
                    end(booted, Instant::now()).await;
                    return Ok(None);
                }
            };
            match one {
                Ok(one) => booted.push(one),
                Err(failure) => {
                    end(booted, Instant::now()).await;
                    return Err(if several { failure.of_application(&name) } else { failure });
                }
            }
        }
        Ok(Some(booted))
    }

    /// Returns the variable by which PHP sends messages to clients of WebSockets, if the application has any.
    pub(crate) fn entrance(
        &self,
        planned: &Planned,
        user: Option<&PhpUser>,
    ) -> Result<Option<(String, String)>, Failure> {
        if planned.settings.websockets.routes.0.is_empty() {
            return Ok(None);
        }
        let path = self.pushes.entrance(&planned.name, user);
        let path = path.map_err(|error| no_run_dir(&error))?;
        Ok(Some((websockets::VARIABLE.to_owned(), path.display().to_string())))
    }

    /// Returns the context in which the applications of a generation are started.
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
        let entrances = plans.iter().map(|planned| {
            Ok((Arc::clone(&planned.name), self.entrance(planned, planned_user(planned))?))
        });
        Ok(Means {
            entrances: entrances.collect::<Result<_, Failure>>()?,
            broker: self.broker.watch().cloned(),
            first: self.first.clone(),
            publisher: self
                .realtime
                .as_ref()
                .and_then(|realtime| realtime.publisher())
                .map(Arc::new),
            cache: self.http.cache(),
            names: plans.iter().map(|planned| Arc::clone(&planned.name)).collect(),
            connectors: self.connectors.env().to_vec(),
            places: self.connectors.places(most, keep)?,
            files: self.connectors.files().map(ToOwned::to_owned).collect(),
            token,
            places_at_once: Semaphore::new(processors().get()),
        })
    }
}

/// The user that the workers of an application run as, if it is not ours.
fn planned_user(planned: &Planned) -> Option<&PhpUser> {
    planned.plan.php.as_ref()?.user.as_ref()
}

/// The context that the applications of a generation share.
#[derive(Debug)]
struct Means {
    /// The broker, which has a socket for each user.
    broker: Option<egress::Watch>,
    publisher: Option<Arc<Publisher>>,
    /// Where PHP of each application sends messages to clients of WebSockets.
    entrances: HashMap<Arc<str>, Option<(String, String)>>,
    /// The answer cache, from which PHP purges.
    cache: Option<Arc<front_http::AnswerCache>>,
    /// The names of the applications, by their places in the release.
    names: Vec<Arc<str>>,
    /// The user that connectors are for.
    first: Option<PhpUser>,
    /// The environment about connectors, the text about their places, and the files of those places.
    connectors: Vec<(String, String)>,
    places: String,
    files: Vec<PathBuf>,
    /// The token for look-ups of realtime.
    token: Option<String>,
    /// The permits of boots that run at once: each has its time limit.
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
        let _place = self.places_at_once.acquire().await.expect("it is never closed");
        let runs = running.as_ref().and_then(|running| running.model);
        let mut boot_files = None;
        let mut retried = None;
        let mut preload = None;
        let pool = loop {
            if measure::is_due(&planned.plan, &planned.settings) {
                self.fit_to_costs(&mut planned, own_files.as_ref(), runs).await?;
            }
            let Some(php) = &planned.plan.php else { break None };
            let mut options = self.options(php, &planned.plan, &planned, own_files.as_ref());
            boot_files = watched_files(&planned, php);
            options.boot_files.clone_from(&boot_files);
            preload = self.preload(&planned, own_files.as_ref(), running.as_ref()).await;
            if let Some(learned) = preload.as_ref().filter(|learned| !learned.ini.is_empty()) {
                options.ini.extend(learned.ini.iter().cloned());
                boot_files = Some(Arc::new(BootFiles::of(learned.paths.clone())));
            }
            // As many as have turned out to be needed: it takes all requests at once.
            if let (Some(scaling), Some(running)) = (&mut options.scaling, &running) {
                scaling.start = running.workers;
            }
            if let Some(running) = &running {
                boot_known(&mut options, &planned.plan, &running.entries);
            }
            match Pool::start(options).await {
                Ok(pool) => break Some(pool),
                Err(error) => {
                    let Planned { name, settings, plan, .. } = &mut planned;
                    let failed = plan.clone();
                    let Some(fallback) = plan.fit_to_application(&error, runs) else {
                        return Err(explained_boot_failure(&error, plan));
                    };
                    let retries = |php: &PhpPlan| php.boot_failure == BootFailure::Retry;
                    if fallback.degraded && failed.php.as_ref().is_some_and(retries) {
                        retried = Some(failed);
                    }
                    if !measure::is_due(plan, settings) {
                        fallback.of_application(name).warn();
                    }
                }
            }
        };
        Ok(Booted { planned, pool, own_files, boot_files, retried, preload })
    }

    /// Starts the workers of an application that did not boot before, in its own model only.
    async fn boot_again(
        &self,
        planned: Planned,
        own_files: Option<OwnFiles>,
    ) -> Result<Booted, Failure> {
        let Some(php) = &planned.plan.php else {
            return Ok(Booted {
                planned,
                pool: None,
                own_files,
                retried: None,
                boot_files: None,
                preload: None,
            });
        };
        let mut options = self.options(php, &planned.plan, &planned, own_files.as_ref());
        let boot_files = watched_files(&planned, php);
        options.boot_files.clone_from(&boot_files);
        match Pool::start(options).await {
            Ok(pool) => Ok(Booted {
                planned,
                pool: Some(pool),
                own_files,
                boot_files,
                retried: None,
                preload: None,
            }),
            Err(pool::StartError::Boot { output }) => {
                let reason = Reason::of(&output);
                Err(Failure::failed(reason.line(), reason.hint))
            }
            Err(error) => Err(Failure::caused(&error, "`hearth check` says more")),
        }
    }

    /// Learns what the application preloads, if it is to, and logs that.
    async fn preload(
        &self,
        planned: &Planned,
        own_files: Option<&OwnFiles>,
        running: Option<&Running>,
    ) -> Option<Learned> {
        let Planned { plan, settings, .. } = planned;
        let php = plan.php.as_ref().filter(|_| settings.php.preload.is_some())?;
        let options = || self.options(php, plan, planned, own_files);
        let listing = running.and_then(|running| running.listing.as_ref());
        let learning = preload::learn(plan, settings, own_files, listing, options);
        let learned = Box::pin(learning).await;
        let text = learned.report.text();
        if learned.report.off.is_some() {
            tracing::warn!("{text}");
        } else {
            tracing::info!("{text}");
        }
        Some(learned)
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
        let costs = costs.map_err(|error| explained_boot_failure(&error, &planned.plan))?;
        if let Some(fallback) = planned.plan.fit_to_costs(costs) {
            fallback.of_application(&planned.name).warn();
        }
        Ok(())
    }

    /// Returns the pool's options of an application by `plan`, which may differ from the plan that it has.
    fn options(
        &self,
        php: &PhpPlan,
        plan: &Plan,
        planned: &Planned,
        own_files: Option<&OwnFiles>,
    ) -> pool::Options {
        let options = self.options_of_one(php, plan, planned, own_files);
        with_others(options, plan, &planned.settings, |php, plan| {
            self.options_of_one(php, plan, planned, own_files)
        })
    }

    /// The sink of `hearth_purge()` for the application with this name.
    fn purges(&self, name: &str) -> Option<Arc<dyn pool::PurgeSink>> {
        let place = self.names.iter().position(|known| &**known == name)?;
        Some(self.cache.as_ref()?.of_application(place))
    }

    /// Returns the options of a pool for the scripts of one model.
    fn options_of_one(
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
            purges: self.purges(&planned.name),
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
        options.env.extend(self.entrances.get(&planned.name).cloned().flatten());
        let token = self.token.clone().filter(|_| *is_at_path);
        options.env.extend(token.map(|token| (realtime::LOOKUP_VARIABLE.into(), token)));
        options
    }
}

/// The files that the boot includes, if the settings say that they are watched.
fn watched_files(planned: &Planned, php: &PhpPlan) -> Option<Arc<BootFiles>> {
    let watches = planned.settings.php.watch == Some(WatchedFiles::Boot);
    (watches && php.model.runs_worker_script()).then(|| Arc::new(BootFiles::default()))
}
