//! The options of the pool that runs one application.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pool::Model;

use super::files::OwnFiles;
use crate::app::own_requests::request_of_ours;
use crate::app::plan::{PhpPlan, Plan, WorkerScript};
use crate::config::{self, Databases, Settings};
use crate::subsystems::egress;
use crate::subsystems::realtime::{self, Publisher};
use crate::system::users::PhpUser;

pub(crate) fn pool_options(
    php: &PhpPlan,
    plan: &Plan,
    settings: &Settings,
    own_files: Option<&OwnFiles>,
    egress_socket: Option<&Path>,
    publisher: Option<&Publisher>,
) -> pool::Options {
    let mut env = environment(settings, &php.env, php.user.as_ref(), egress_socket);
    if let Some(publisher) = publisher.filter(|_| !php.model.is_foreign()) {
        env.push((realtime::VARIABLE.into(), publisher.limits()));
    }
    if matches!(php.model, Model::Snapshot | Model::Fork) {
        env.push((DATABASES.into(), databases(&settings.databases, php.model)));
    }
    let sandbox = sandbox(&settings.sandbox).map(|sandbox| {
        let missing = sandbox.missing();
        if !missing.is_empty() {
            let missing = missing.join("; ");
            tracing::warn!(missing, "this kernel supports only a part of PHP's sandbox");
        }
        with_token(sandbox, &env)
    });
    let mut ini = settings.php.ini.0.clone();
    let mut default = |name: &str, value: &str| {
        if !ini.iter().any(|(set, _)| set == name) {
            ini.push((name.into(), value.into()));
        }
    };
    if let Some(own) = own_files.filter(|_| !settings.sandbox.writable.is_empty()) {
        default("opcache.lockfile_path", &own.locks().display().to_string());
    }
    if php.model.boots_in_zygote() {
        default(RESTART_TIMEOUT, "0");
    }
    if php.model == Model::Snapshot {
        // The counters of hot functions are restored too, so no function would ever become hot.
        default("opcache.jit", "disable");
    }
    let own_script = own_files.and_then(|own| own.script());
    let worker_script = match (&php.script, own_script) {
        (Some(WorkerScript::Ours { .. }), Some(own)) => {
            // It lies outside the application and finds it by this; in most models it has nothing to put back after a request.
            env.push(("HEARTH_APP_DIR".into(), plan.application.folder.display().to_string()));
            env.push(("HEARTH_MODEL".into(), php.model.name().into()));
            // In the others it is the script of each request.
            Some(own.to_owned()).filter(|_| php.model.runs_worker_script())
        }
        (Some(WorkerScript::File(path) | WorkerScript::Entry(path)), _) => Some(path.clone()),
        // This also holds if a fallback replaced a model with a worker script.
        (Some(WorkerScript::Ours { .. }) | None, _) => None,
    };
    pool::Options {
        program: php.worker.program.clone(),
        model: php.model,
        worker_script,
        entry: plan.is_entry().then(|| pool::Entry {
            document_root: plan.application.document_root.clone(),
            await_after: plan.await_after(settings),
            learn_classes: plan.is_booted_by_recipe(settings),
            others: None,
        }),
        directory: plan.application.folder.clone(),
        run_dir: own_files.map(|own| own.folder().to_owned()).unwrap_or_default(),
        ini,
        env,
        hidden: php.user.as_ref().map(|user| user.hidden.clone()).unwrap_or_default(),
        identity: php.user.as_ref().map(|user| user.identity.clone()),
        warm_up: plan
            .warm_up(settings)
            .into_iter()
            .map(|path| request_of_ours(path, plan, "warm-up"))
            .collect(),
        rehearse: plan.rehearses(settings),
        verify_restores: settings.php.verify_restores.0,
        workers: php.workers,
        scaling: php.workers_max.map(|most| pool::Scaling {
            most,
            start: 0,
            idle_timeout: settings.php.workers_idle_timeout,
            burst: settings.php.workers_burst,
        }),
        backlog: settings.php.backlog,
        backlog_timeout: settings.php.backlog_timeout,
        backlog_target: settings.php.backlog_target,
        request_timeout: settings.php.request_timeout,
        slow: settings.log.slow_requests,
        boot_timeout: settings.php.boot_timeout,
        max_requests: settings.php.max_requests,
        memory_limit: settings.php.memory_limit,
        sandbox,
        events: None,
        purges: None,
        boot_files: None,
        boot_trace: None,
    }
}

/// Returns the variables of an application's programs: those of the settings, those that a worker script expects, the
/// user's own, and the broker's socket.
pub(super) fn environment(
    settings: &Settings,
    of_script: &[(String, String)],
    user: Option<&PhpUser>,
    egress_socket: Option<&Path>,
) -> Vec<(String, String)> {
    let mut env = settings.php.env.0.clone();
    env.extend(of_script.iter().cloned());
    let of_user = user.into_iter().flat_map(|user| &user.env);
    let missing = of_user.filter(|(name, _)| !env.iter().any(|(set, _)| set == name)).cloned();
    env.extend(missing.collect::<Vec<_>>());
    if let Some(socket) = egress_socket
        && !env.iter().any(|(name, _)| name == egress::VARIABLE)
    {
        env.push((egress::VARIABLE.into(), socket.display().to_string()));
        if user.is_some() {
            let owner = rustix::process::geteuid().as_raw();
            env.push((egress::OWNER_VARIABLE.into(), owner.to_string()));
        }
    }
    env
}

/// Lets a sandbox read the token of the broker that `env` names.
pub(super) fn with_token(mut sandbox: pool::Sandbox, env: &[(String, String)]) -> pool::Sandbox {
    // The socket that PHP finds in its environment may be another broker's.
    let told = env.iter().find(|(name, value)| name == egress::VARIABLE && !value.is_empty());
    let token = told.map(|(_, socket)| egress::token_of(Path::new(socket)));
    sandbox.own_readable.extend(token);
    sandbox
}

/// The sandbox of PHP, if it has one.
pub(crate) fn sandbox(settings: &config::Sandbox) -> Option<pool::Sandbox> {
    let named = |paths: &[PathBuf]| (!paths.is_empty()).then(|| paths.to_owned());
    let sandbox = pool::Sandbox {
        readable: named(&settings.readable),
        writable: named(&settings.writable),
        ..pool::Sandbox::default()
    };
    let wanted = settings.enabled.0 || sandbox != pool::Sandbox::default();
    wanted.then_some(sandbox)
}

/// The variable with the settings for kept database connections: `read_settings()` in native/sapi/databases/databases.c.
pub(crate) const DATABASES: &str = "HEARTH_DATABASES";

/// Writes the settings for kept connections. The model `fork` keeps none: it uses the time limits of a server only.
fn databases(settings: &Databases, model: Model) -> String {
    let milliseconds = |limit: Option<Duration>| limit.map_or(0, |limit| limit.as_millis().max(1));
    format!(
        "{} {} {} {} {}",
        u8::from(settings.keep && model == Model::Snapshot),
        milliseconds(settings.max_idle),
        milliseconds(settings.max_lifetime),
        milliseconds(Some(settings.reset_timeout)),
        milliseconds(Some(settings.connect_timeout)),
    )
}

/// The setting of how many seconds a restart of OPcache (full, or `opcache_reset()`) waits for its readers before it kills them with
/// SIGKILL (`accel_is_inactive()`, `kill_all_lockers()` in ext/opcache/ZendAccelerator.c). A zygote that has booted the application reads
/// OPcache for as long as it lives. With 0 OPcache waits: a full cache at worst, where a kill costs every worker.
const RESTART_TIMEOUT: &str = "opcache.force_restart_timeout";
