//! `hearth lambda`: the bootstrap of an AWS Lambda function. Boots the pool in the init phase and has the Lambda front serve events.
//!
//! Invariants
//! - Whatever stands in the way of the first event is told to the Runtime API as an init error before the program ends.
//! - What Lambda's environment says is weaker than every setting and stronger than every default.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use front_lambda::{Report, Runtime};
use pool::{Model, Pool, Script};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use crate::app::detect::{self, Application, DetectError, Kind};
use crate::app::function;
use crate::app::php;
use crate::app::plan::Plan;
use crate::app::user::{check_php, prepare_for_php};
use crate::cli::LambdaTarget;
use crate::commands::emulate;
use crate::config::{self, Environment, Handler, Raw, Settings};
use crate::failure::{self, Failure};
use crate::ops::admin::{Serving, State};
use crate::ops::log;
use crate::ops::state::Served;
use crate::runtime::process;
use crate::runtime::server::{
    OwnFiles, bind_broker, boot_failure, own_files, pool_options, service_of,
};
use crate::subsystems::egress::{self, Inside, Users};
use crate::subsystems::traces::{Collector, salt};

/// How the environment came to be: `on-demand`, `provisioned-concurrency`, `snap-start` or [`MANAGED_INSTANCES`].
const INITIALIZATION: &str = "AWS_LAMBDA_INITIALIZATION_TYPE";
const LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";
const FORMAT: &str = "AWS_LAMBDA_LOG_FORMAT";
const CONCURRENCY: &str = "AWS_LAMBDA_MAX_CONCURRENCY";
const MANAGED_INSTANCES: &str = "lambda-managed-instances";

/// Serves events until a signal ends it.
pub(crate) fn run(
    target: LambdaTarget,
    emulate: Option<SocketAddr>,
    environment: &Environment,
) -> Result<(), Failure> {
    if let Some(address) = emulate {
        return emulate::run(target, address, environment);
    }
    let api =
        environment.variable("AWS_LAMBDA_RUNTIME_API").map(str::to_owned).ok_or_else(|| {
            Failure::misused(
                "AWS_LAMBDA_RUNTIME_API is not set, so there is nobody to ask for events",
                "on AWS Lambda it is; to try an event here, add `--emulate 127.0.0.1:9000`",
            )
        })?;
    let (settings, path) = match settings(target, environment) {
        Ok(settings) => settings,
        Err(failure) => return Err(tell(&api, failure)),
    };
    if let Err(failure) = prepare_for_php(&settings, environment) {
        return Err(tell(&api, failure));
    }
    let begun = Cell::new(false);
    let outcome = process::run(&settings, async {
        let outcome = process::attend_alone(&settings, async |state, drain| {
            begun.set(true);
            serve_and_drain(&settings, &path, &api, environment, state, drain).await
        });
        outcome.await
    });
    // From there on it tells by itself, for as long as there can be an init error.
    outcome.map_err(|failure| if begun.get() { failure } else { tell(&api, failure) })
}

/// Tells the Runtime API before there is a runtime.
fn tell(api: &str, failure: Failure) -> Failure {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime {
        runtime.block_on(report(api, &failure));
    }
    failure
}

/// Tells the Runtime API why there will be no events.
async fn report(api: &str, failure: &Failure) {
    let report = Report::of_hearth("InitError", failure.message());
    if let Err(error) = front_lambda::report_init_error(api, &report).await {
        tracing::warn!(error = %failure::in_one_line(&error), "init error not told");
    }
}

/// The settings, and what to serve.
pub(crate) fn settings(
    target: LambdaTarget,
    environment: &Environment,
) -> Result<(Settings, PathBuf), Failure> {
    let path = path(target.path.as_deref(), environment)?;
    let folder = match function::handler_of(&path) {
        Handler::Http => detect::folder_of(&path)?,
        Handler::Function | Handler::Console => function::folder_of(&path)?,
    };
    let platform = platform(environment);
    let config = target.config.as_deref();
    let mut settings = config::load_on(platform, &folder, config, target.flags, environment)?;
    log::start(&settings, environment)?;
    if let Some(given) = follow_lanes(&mut settings, environment) {
        tracing::warn!(
            given,
            workers = lanes(&settings),
            hint = "it is for `hearth serve`; on Lambda `lambda.concurrency` says how many",
            "`php.workers` ignored"
        );
    }
    Ok((settings, path))
}

/// How many invocations run at once.
pub(crate) fn lanes(settings: &Settings) -> NonZeroUsize {
    settings.lambda.concurrency.0.unwrap_or(NonZeroUsize::MIN)
}

/// Has a worker for each lane: with fewer invocations would wait, and what is more never has an event, but is booted. Tells what was given
/// instead.
fn follow_lanes(settings: &mut Settings, environment: &Environment) -> Option<NonZeroUsize> {
    let lanes = lanes(settings);
    let platform = concurrency(environment).parse().ok();
    let given = settings.php.workers.0.replace(lanes);
    given.filter(|given| *given != lanes && Some(*given) != platform)
}

/// What the platform says of it.
fn concurrency(environment: &Environment) -> &str {
    environment.variable(CONCURRENCY).unwrap_or("1")
}

/// What is named on the command line, else what the function is configured to run, else where its code lies, else the current folder.
fn path(named: Option<&Path>, environment: &Environment) -> Result<PathBuf, Failure> {
    let root = environment.variable("LAMBDA_TASK_ROOT").map(PathBuf::from);
    let root = root.unwrap_or_else(|| environment.current_dir.clone());
    let handler = environment.variable("_HANDLER").filter(|handler| !handler.is_empty());
    let Some(wanted) = named.or_else(|| handler.map(Path::new)) else { return Ok(root) };
    let mut places = vec![root.join(wanted)];
    if named.is_some() {
        places.insert(0, environment.current_dir.join(wanted));
    }
    places.dedup();
    if let Some(found) = places.iter().find(|place| place.exists()) {
        return Ok(found.clone());
    }
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::failed(
        format!("nothing to run: no {}", looked.join(" and no ")),
        "set the function's handler to a script in its code such as `public/index.php`, or name it: `hearth lambda PATH`",
    ))
}

/// What Lambda's environment says about settings.
fn platform(environment: &Environment) -> Vec<(&'static str, &'static str, Raw)> {
    let mut platform = vec![
        // An invocation has its own deadline, and a crowd of its own to wait in.
        ("php.request_timeout", "AWS_LAMBDA_RUNTIME_API", Raw::Text("off".into())),
    ];
    if let Some(level) = environment.variable(LEVEL) {
        let level = match level.to_ascii_lowercase().as_str() {
            "fatal" => "error".to_owned(),
            other => other.to_owned(),
        };
        platform.push(("log.level", LEVEL, Raw::Text(level)));
    }
    if let Some(format) = environment.variable(FORMAT) {
        platform.push(("log.format", FORMAT, Raw::Text(format.to_ascii_lowercase())));
    }
    platform.extend(emulate::platform(environment));
    let concurrency = concurrency(environment);
    if concurrency == "1" {
        // One invocation, one thing to do.
        platform.push(("server.threads", CONCURRENCY, Raw::Text("1".into())));
    }
    for key in ["lambda.concurrency", "php.workers"] {
        platform.push((key, CONCURRENCY, Raw::Text(concurrency.into())));
    }
    platform
}

pub(crate) async fn serve_and_drain(
    settings: &Settings,
    path: &Path,
    api: &str,
    environment: &Environment,
    state: &State,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let service = environment.variable("AWS_LAMBDA_FUNCTION_NAME").map(str::to_owned);
    let service = service.unwrap_or_else(|| service_of(path));
    let collector = match Collector::start(settings, environment, &service) {
        Ok(collector) => collector,
        Err(failure) => {
            report(api, &failure).await;
            return Err(failure);
        }
    };
    state.trace(collector.tracer());
    let mut broker = Inside::traced(collector.tracer());
    let booted = tokio::select! {
        booted = boot(settings, path, environment, state, &mut broker) => booted,
        () = drain.cancelled() => return Ok(()),
    };
    let mut booted = match booted {
        Ok(booted) => booted,
        Err(failure) => {
            report(api, &failure).await;
            return Err(failure);
        }
    };
    let initialization = environment.variable(INITIALIZATION).unwrap_or_default();
    if initialization == "snap-start" {
        tokio::select! {
            restored = restored(settings, api, &mut booted, &mut broker, collector.tracer()) => restored?,
            () = drain.cancelled() => {}
        }
    }
    let options = front_lambda::Options {
        api: api.to_owned(),
        target: booted.target,
        lanes: lanes(settings),
        deadline_margin: settings.lambda.deadline_margin,
        streaming: settings.lambda.streaming,
        stage_prefix: settings.lambda.stage_prefix,
        extension: settings.lambda.extension.0.unwrap_or(initialization != MANAGED_INSTANCES),
        api_timeout: settings.lambda.api_timeout,
        tracer: collector.tracer().cloned(),
    };
    let patience = settings.server.shutdown_patience;
    // One patience for all: what an invocation has used up is not given again.
    let deadline = OnceCell::new();
    let draining = async {
        drain.cancelled().await;
        state.draining();
        tracing::info!("draining");
        let deadline = deadline.get_or_init(|| Instant::now() + patience);
        tokio::time::sleep_until(*deadline).await;
        tracing::warn!("invocations were cut: they took longer than `server.shutdown_patience`");
    };
    let outcome = tokio::select! {
        outcome = Runtime::new(options).serve(booted.pool.clone(), drain.clone()) => outcome,
        () = draining => Ok(()),
    };
    let deadline = *deadline.get_or_init(|| Instant::now() + patience);
    booted.pool.drain(deadline.saturating_duration_since(Instant::now())).await;
    broker.drain(deadline.saturating_duration_since(Instant::now())).await;
    collector.end().await;
    tracing::info!("drained");
    outcome.map_err(|error| {
        Failure::caused(&error, "Lambda starts the function anew; its platform logs say more")
    })
}

/// What serves events.
struct Booted {
    plan: Plan,
    pool: Pool,
    target: front_lambda::Target,
    /// Kept until the pool is drained: workers that are replaced read their files again.
    own_files: Option<OwnFiles>,
    /// Where the admin address listens.
    admin: Option<SocketAddr>,
}

/// Starts the broker and the pool.
async fn boot(
    settings: &Settings,
    path: &Path,
    environment: &Environment,
    state: &State,
    broker: &mut Inside,
) -> Result<Booted, Failure> {
    let handler = settings.lambda.handler.0.unwrap_or_else(|| function::handler_of(path));
    let mut plan = match handler {
        Handler::Http => Plan::new(application(path)?, settings, environment)?,
        Handler::Function | Handler::Console => {
            Plan::of_function(path, handler, settings, environment)?
        }
    };
    if let Some(php) = plan.php.as_ref().filter(|php| php.model == Model::Snapshot) {
        let probe = php::probe(php, settings);
        if let Some(fallback) = plan.fit_to_machine(&probe) {
            fallback.warn();
        }
    }
    if !settings.databases.connectors.0.is_empty() {
        tracing::warn!(
            "connectors to databases are only in `hearth serve`: PHP connects by itself"
        );
    }
    if !settings.applications.is_empty() {
        tracing::warn!(
            "`[applications]` is only for `hearth serve`: a function is one application"
        );
    }
    check_php(&plan)?;
    let own_files = own_files(settings, &plan, environment)?;
    let admin = state.admin_address();
    let watch = start_broker(settings, &plan, own_files.as_ref(), broker, admin)?;
    let socket = watch.as_ref().map(egress::Watch::socket);
    let pool = start_pool(settings, &mut plan, own_files.as_ref(), socket).await?;
    let explanation = plan.explain(Some(&pool.status().php_version));
    log::say(&explanation);
    let model = plan.php.as_ref().map(|php| php.model.name());
    state.ready(Serving {
        applications: vec![Served::alone(pool.clone(), model, explanation.clone())],
        listeners: Vec::new(),
        explanation,
        egress: watch,
        connectors: Vec::new(),
        realtime: None,
        traffic: None,
        connections: None,
        tls: None,
    });
    let filename = answering_script(&plan, own_files.as_ref());
    let script = Script {
        name: plan.url_of(&filename).into(),
        filename: filename.into(),
        path_info: "".into(),
        document_root: plan.application.document_root.as_path().into(),
    };
    let target = match handler {
        Handler::Http => front_lambda::Target::Http(script),
        Handler::Function | Handler::Console => front_lambda::Target::Function(script),
    };
    Ok(Booted { plan, pool, target, own_files, admin })
}

/// What is run at a path. The front controller of a framework's project stands for the project: functions are configured by a script,
/// and a project can be booted ahead.
fn application(path: &Path) -> Result<Application, DetectError> {
    let named = detect::detect(path)?;
    if named.kind == Kind::FrontController && path.is_file() {
        let project = detect::detect(&named.folder);
        let project = project.ok().filter(|project| {
            matches!(project.kind, Kind::Laravel | Kind::Symfony)
                && project.front_controller == named.front_controller
        });
        return Ok(project.unwrap_or(named));
    }
    Ok(named)
}

/// The script of a request. Models that run a worker script ask it in this one's name.
fn answering_script(plan: &Plan, own_files: Option<&OwnFiles>) -> PathBuf {
    let runs_it = plan.php.as_ref().is_some_and(|php| php.model.runs_worker_script());
    let ours = own_files.and_then(OwnFiles::script);
    let ours = ours.filter(|_| plan.application.kind.is_function() && !runs_it);
    ours.map_or_else(|| plan.nominal_script(), Path::to_owned)
}

fn start_broker(
    settings: &Settings,
    plan: &Plan,
    own_files: Option<&OwnFiles>,
    broker: &mut Inside,
    admin: Option<SocketAddr>,
) -> Result<Option<egress::Watch>, Failure> {
    let Some(folder) = own_files.map(OwnFiles::folder) else { return Ok(None) };
    let user = plan.php.as_ref().and_then(|php| php.user.as_ref());
    let Some(bound) = bind_broker(settings, folder, Users::one(user), false, admin)? else {
        return Ok(None);
    };
    let watch = bound.watch();
    broker.start(bound);
    Ok(Some(watch))
}

async fn start_pool(
    settings: &Settings,
    plan: &mut Plan,
    own_files: Option<&OwnFiles>,
    socket: Option<&Path>,
) -> Result<Pool, Failure> {
    loop {
        let Some(php) = &plan.php else {
            return Err(Failure::failed(
                format!("no PHP script to run in {}", plan.application.folder.display()),
                "name the script: `hearth lambda PATH/TO/index.php`",
            ));
        };
        // As many workers as invocations at once: none ever waits.
        let options = pool::Options {
            scaling: None,
            backlog_target: None,
            ..pool_options(php, plan, settings, own_files, socket, None)
        };
        match Pool::start(options).await {
            Ok(pool) => return Ok(pool),
            Err(error) => {
                let Some(fallback) = plan.fit_to_application(&error, None) else {
                    return Err(boot_failure(&error, plan));
                };
                fallback.warn();
            }
        }
    }
}

/// Waits until the environment was restored, and replaces what must not be as it was in every other environment restored from the same
/// snapshot: connections of the broker, and workers with the random state and the credentials they hold.
async fn restored(
    settings: &Settings,
    api: &str,
    booted: &mut Booted,
    broker: &mut Inside,
    tracer: Option<&Tracer>,
) -> Result<(), Failure> {
    const AT_ONCE: Duration = Duration::ZERO;
    front_lambda::wait_for_restore(api).await.map_err(|error| {
        Failure::caused(&error, "Lambda starts the function anew; its platform logs say more")
    })?;
    if let Some(tracer) = tracer {
        tracer.reseed(salt());
    }
    let renewed = async {
        broker.replace().drain(AT_ONCE).await;
        let own_files = booted.own_files.as_ref();
        let watch = start_broker(settings, &booted.plan, own_files, broker, booted.admin)?;
        let socket = watch.as_ref().map(egress::Watch::socket);
        match booted.pool.renew().await {
            Ok(true) => Ok(()),
            Ok(false) => {
                booted.pool.drain(AT_ONCE).await;
                booted.pool = start_pool(settings, &mut booted.plan, own_files, socket).await?;
                Ok(())
            }
            Err(error) => Err(boot_failure(&error, &booted.plan)),
        }
    };
    let renewed: Result<(), Failure> = renewed.await;
    if let Err(failure) = &renewed {
        let report = Report::of_hearth("RestoreError", failure.message());
        if let Err(error) = front_lambda::report_restore_error(api, &report).await {
            tracing::warn!(%error, "restore error not told");
        }
    }
    renewed
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_front_controller_of_a_framework_stands_for_its_project() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["artisan", "bootstrap/app.php", "public/index.php", "public/other.php"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "<?php").unwrap();
        }
        let kind = |name: &str| application(&folder.path().join(name)).unwrap().kind;
        assert_eq!(kind("public/index.php"), Kind::Laravel);
        assert_eq!(kind("public/other.php"), Kind::FrontController);
        assert_eq!(kind(""), Kind::Laravel);
    }

    #[test]
    fn the_platform_is_weaker_than_every_setting_and_stronger_than_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let read = |variables: &[(&str, &str)], flags| {
            let environment = Environment::for_test(folder.path(), variables);
            config::load_on(platform(&environment), folder.path(), None, flags, &environment)
                .unwrap()
        };
        let here = [("AWS_LAMBDA_LOG_LEVEL", "WARN"), ("AWS_LAMBDA_MAX_CONCURRENCY", "4")];
        let settings = read(&here, Vec::new());
        assert_eq!(settings.log.level.0, "warn");
        assert_eq!(settings.php.request_timeout, None);
        assert_eq!(settings.php.workers.0, NonZeroUsize::new(4));
        let said = [here.as_slice(), &[("HEARTH_PHP_WORKERS", "2")]].concat();
        let settings = read(&said, vec![("log.level", Raw::Text("debug".into()))]);
        assert_eq!(settings.log.level.0, "debug");
        assert_eq!(settings.php.workers.0, NonZeroUsize::new(2));
    }

    #[test]
    fn there_are_as_many_workers_as_invocations_at_once_whatever_the_servers_settings_are() {
        let folder = tempfile::tempdir().unwrap();
        for (variables, workers, told) in [
            (&[][..], 1, None),
            (&[("HEARTH_PHP_WORKERS", "16")], 1, Some(16)),
            (&[("HEARTH_PHP_WORKERS", "1")], 1, None),
            (&[("HEARTH_LAMBDA_CONCURRENCY", "3")], 3, None),
            (&[("AWS_LAMBDA_MAX_CONCURRENCY", "4")], 4, None),
            (&[("AWS_LAMBDA_MAX_CONCURRENCY", "4"), ("HEARTH_PHP_WORKERS", "2")], 4, Some(2)),
        ] {
            let environment = Environment::for_test(folder.path(), variables);
            let platform = platform(&environment);
            let mut settings =
                config::load_on(platform, folder.path(), None, Vec::new(), &environment).unwrap();
            let given = follow_lanes(&mut settings, &environment);
            let given = given.map(NonZeroUsize::get);
            assert_eq!(
                (settings.php.workers.0, given),
                (NonZeroUsize::new(workers), told),
                "{variables:?}"
            );
        }
    }
}
