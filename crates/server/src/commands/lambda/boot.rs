//! The init phase of a function: the broker and the pool, and their renewal after a restore.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use front_lambda::Report;
use pool::{Model, Pool, Script};
use traces::Tracer;

use super::unapplied;
use crate::app::boot::{
    OwnFiles, bind_broker, boot_known, explained_boot_failure, own_files, pool_options, with_others,
};
use crate::app::detect::{self, Application, DetectError, Kind};
use crate::app::function;
use crate::app::php;
use crate::app::plan::{PhpPlan, Plan};
use crate::config::{Environment, Handler, Settings};
use crate::failure::Failure;
use crate::ops::log;
use crate::ops::state::{Serving, State};
use crate::ops::subsystem::Subsystem;
use crate::ops::workers::Served;
use crate::subsystems::egress::{self, Inside, Users};
use crate::subsystems::traces::salt;

/// The booted function.
pub(super) struct Booted {
    pub(super) plan: Plan,
    pub(super) pool: Pool,
    pub(super) target: front_lambda::Target,
    pub(super) websocket_script: Option<Script>,
    /// Kept until the pool is drained: workers that are replaced read their files again.
    pub(super) own_files: Option<OwnFiles>,
    /// The admin address of this process.
    pub(super) admin: Option<SocketAddr>,
}

/// Starts the broker and the pool.
pub(super) async fn boot(
    settings: &Settings,
    path: &Path,
    environment: &Environment,
    state: &State,
    broker: &mut Inside,
) -> Result<Booted, Failure> {
    let handler = settings.lambda.handler.0.unwrap_or_else(|| function::handler_of(path));
    if handler == Handler::Http {
        if let Some(failure) = unapplied::protecting(settings).into_iter().next() {
            return Err(failure);
        }
        for setting in unapplied::others(settings) {
            tracing::warn!(setting, hint = unapplied::HINT, "rule is not applied on Lambda");
        }
    }
    let mut plan = match handler {
        Handler::Http => Plan::new(application(path)?, settings, environment)?,
        Handler::Function | Handler::Console => {
            Plan::of_function(path, handler, settings, environment)?
        }
    };
    if let Some(php) = plan.php.as_ref().filter(|php| php.model == Model::Snapshot) {
        let probe = php::probe(&php.worker, php.user.as_ref(), settings);
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
    plan.check_user()?;
    let own_files = own_files(settings, &plan, environment)?;
    let admin = state.admin_address();
    let watch = start_broker(settings, &plan, own_files.as_ref(), broker, admin)?;
    let socket = watch.as_ref().map(egress::Watch::socket);
    let pool = start_pool(settings, &mut plan, own_files.as_ref(), socket).await?;
    let explanation = plan.explain(Some(&pool.status().php_version));
    log::line(&explanation);
    let model = plan.php.as_ref().map(|php| php.model.name());
    state.ready(Serving {
        applications: vec![Served::alone(pool.clone(), model, explanation.clone())],
        explanation,
        broker: watch.as_ref().map(|watch| watch.place().to_owned()),
        subsystems: watch.into_iter().map(|watch| Arc::new(watch) as Arc<dyn Subsystem>).collect(),
        ..Serving::default()
    });
    let filename = answering_script(&plan, own_files.as_ref());
    let script = Script {
        name: plan.url_of(&filename).into(),
        filename: filename.into(),
        path_info: "".into(),
        document_root: plan.application.document_root.as_path().into(),
    };
    let websocket_script = websocket_script(settings, &plan, &script);
    let target = match handler {
        Handler::Http => front_lambda::Target::Http(script),
        Handler::Function | Handler::Console => front_lambda::Target::Function(script),
    };
    Ok(Booted { plan, pool, target, websocket_script, own_files, admin })
}

/// Detects the application at a path. The front controller of a framework's project stands for the project: functions are configured by a
/// script, and a project can be booted ahead.
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

/// The handler of WebSockets, if it is a script of its own, as `hearth serve` would run it: its path in the URL space, and its file.
fn websocket_file<'s>(settings: &'s Settings, plan: &Plan) -> Option<(&'s str, PathBuf)> {
    let path = settings.websockets.routes.0.first()?.target();
    let file = plan.application.document_root.join(path.trim_start_matches('/'));
    let is_script =
        Path::new(path).extension().is_some_and(|ending| ending == "php") && file.is_file();
    is_script.then_some((path, file))
}

fn websocket_script(settings: &Settings, plan: &Plan, script: &Script) -> Option<Script> {
    let (path, file) = websocket_file(settings, plan)?;
    Some(Script { filename: file.into(), name: path.into(), ..script.clone() })
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
    broker.start(bound);
    Ok(broker.watch().cloned())
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
        let of = |php: &PhpPlan, plan: &Plan| pool::Options {
            scaling: None,
            backlog_target: None,
            ..pool_options(php, plan, settings, own_files, socket, None)
        };
        let mut options = of(php, plan);
        let own = websocket_file(settings, plan);
        let own = own.filter(|(_, file)| plan.application.front_controller.as_ref() != Some(file));
        // A front controller that waits has workers that run nothing else.
        if let Some((path, _)) = own.filter(|_| plan.is_entry()) {
            options = with_others(options, plan, settings, of);
            // In the init phase: between events the environment may be frozen.
            boot_known(&mut options, plan, &[path.to_owned()]);
        }
        match Pool::start(options).await {
            Ok(pool) => return Ok(pool),
            Err(error) => {
                let Some(fallback) = plan.fit_to_application(&error, None) else {
                    return Err(explained_boot_failure(&error, plan));
                };
                fallback.warn();
            }
        }
    }
}

/// Waits until the environment was restored, and replaces what must not be as it was in every other environment restored from the same
/// snapshot: connections of the broker, and workers with the random state and the credentials they hold.
pub(super) async fn restored(
    settings: &Settings,
    api: &str,
    booted: &mut Booted,
    broker: &mut Inside,
    tracer: Option<&Tracer>,
) -> Result<(), Failure> {
    const AT_ONCE: Duration = Duration::ZERO;
    front_lambda::wait_for_restore(api).await.map_err(|error| {
        Failure::caused(&error, "Lambda starts the function again; its platform logs say more")
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
            Err(error) => Err(explained_boot_failure(&error, &booted.plan)),
        }
    };
    let renewed: Result<(), Failure> = renewed.await;
    if let Err(failure) = &renewed {
        let report = Report::of_hearth("RestoreError", failure.message());
        if let Err(error) = front_lambda::report_restore_error(api, &report).await {
            tracing::warn!(%error, "restore error not reported");
        }
    }
    renewed
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_front_controller_path_means_its_project() {
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
}
