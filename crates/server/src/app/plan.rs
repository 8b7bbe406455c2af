//! The plan: the detected application, the settings and the available PHP, turned into options for the engines.
//!
//! Invariants
//! - Everything a person could have got wrong is refused here, before a socket is bound or a process started.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use pool::Model;
use rustix::fs::Access;

use crate::app::detect::{self, Application, Kind};
use crate::app::php::{self, Worker};
use crate::app::runners::{is_for_frankenphp, octane_environment, symfony_runtime};
use crate::config::{BootFailure, Environment, Settings, workers};
use crate::failure::Failure;
use crate::ops::fallback::Fallback;
use crate::system::machine::processors;
use crate::system::users::PhpUser;

/// Hearth's worker script for Laravel.
const LARAVEL_WORKER: &str = include_str!("workers/laravel.php");
/// Hearth's worker script for Symfony.
const SYMFONY_WORKER: &str = include_str!("workers/symfony.php");

/// The files that both worker scripts include, which have to be in the same folder: names and texts.
const BESIDE_WORKERS: &[(&str, &str)] = &[
    ("application_state.php", include_str!("workers/application_state.php")),
    ("connectors.php", include_str!("workers/connectors.php")),
    ("databases.php", include_str!("workers/databases.php")),
    ("laravel_termination.php", include_str!("workers/laravel_termination.php")),
    ("sqlite_file.php", include_str!("workers/sqlite_file.php")),
];

/// The plan of how one application is served.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The detected application, with the overrides of the settings applied.
    pub application: Application,
    /// The plan of how PHP runs; `None` when only files are served.
    pub php: Option<PhpPlan>,
}

/// The plan of how PHP runs.
#[derive(Clone, Debug)]
pub(crate) struct PhpPlan {
    /// The program that runs PHP: Hearth's own, or PHP's in the models of their names.
    pub worker: Worker,
    /// The model that runs.
    pub model: Model,
    /// The requested model, by the settings or by default: differs from `model` after a fallback.
    pub wished: Model,
    /// The last fallback, if there was one.
    pub fallback: Option<Fallback>,
    /// Its handling if it does not boot.
    pub boot_failure: BootFailure,
    /// The reason why the front controller is not booted ahead, although it could be.
    pub not_ahead: Option<&'static str>,
    /// The script that answers, in models that run one.
    pub script: Option<WorkerScript>,
    /// The environment that the worker script expects.
    pub env: Vec<(String, String)>,
    /// The user that PHP runs as, if that is not the server's own user.
    pub user: Option<PhpUser>,
    /// The number of processes.
    pub workers: NonZeroUsize,
    /// The largest number of processes, if their number follows the load.
    pub workers_max: Option<NonZeroUsize>,
}

impl PhpPlan {
    /// Returns whether PHP needs a folder of Hearth's own: for scripts, or for sockets of PHP's own programs.
    pub(crate) fn needs_files(&self) -> bool {
        self.model.is_foreign() || matches!(self.script, Some(WorkerScript::Ours { .. }))
    }
}

/// The origin of a worker script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkerScript {
    /// A file of the application, with a loop.
    File(PathBuf),
    /// A script of the application that is no worker script: it waits by `hearth_await_request()`, or after a file that it includes.
    Entry(PathBuf),
    /// Hearth's own, written into the run folder under this name.
    Ours {
        /// File name.
        name: &'static str,
        /// PHP source.
        text: &'static str,
        /// Names and texts of the files that it includes: they have to be beside it.
        beside: &'static [(&'static str, &'static str)],
    },
}

impl fmt::Display for WorkerScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Entry(path) => write!(f, "{}", path.display()),
            Self::Ours { name, .. } => write!(f, "Hearth's own {name}"),
        }
    }
}

impl Plan {
    /// Makes the plan. It reads the application's folder and scripts, and starts nothing.
    pub(crate) fn new(
        application: Application,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let application = overridden(application, settings)?;
        if application.kind == Kind::StaticFiles {
            return match settings.php.model.0 {
                None => Ok(Self { application, php: None }),
                Some(_) => Err(Failure::failed(
                    format!("no PHP script to run in {}", application.folder.display()),
                    "name the script (`hearth serve PATH/TO/index.php`), or leave out `--model` to serve the files",
                )),
            };
        }
        let model = model(&application, settings);
        let script = if model.runs_worker_script() {
            Some(worker_script(&application, settings, environment, model)?)
        } else {
            None
        };
        let env = match &script {
            Some(WorkerScript::File(file))
                if application.kind == Kind::Laravel && is_for_frankenphp(file) =>
            {
                octane_environment(&application, settings, environment)
            }
            _ => Vec::new(),
        };
        let (workers, workers_max) = numbers(model, settings)?;
        let worker = php::program(model, settings, environment)?;
        // A model that a setting names is not replaced silently.
        let named = settings.php.model.0.is_some() || settings.php.worker_script.0.is_some();
        let usual = if named { BootFailure::Exit } else { BootFailure::Retry };
        let php = PhpPlan {
            worker,
            model,
            wished: model,
            fallback: None,
            not_ahead: None,
            boot_failure: settings.php.boot_failure.0.unwrap_or(usual),
            script,
            env,
            user: PhpUser::of(settings, environment)?,
            workers,
            workers_max,
        };
        Ok(Self { application, php: Some(php) })
    }

    /// Fails when PHP's user cannot reach what it is to run.
    pub(crate) fn check_user(&self) -> Result<(), Failure> {
        let Some(php) = &self.php else { return Ok(()) };
        let Some(user) = &php.user else { return Ok(()) };
        let application = &self.application;
        let enter = Access::EXEC_OK;
        let mut paths = vec![
            (&*php.worker.program, enter),
            (&*application.folder, enter),
            (&*application.document_root, enter),
        ];
        paths.extend(application.front_controller.as_deref().map(|file| (file, Access::READ_OK)));
        if let Some(WorkerScript::File(file) | WorkerScript::Entry(file)) = &php.script {
            paths.push((file, Access::READ_OK));
        }
        user.must_reach(&paths)
    }

    /// Returns the paths that the booted application answers before the first request.
    pub(crate) fn warm_up(&self, settings: &Settings) -> Vec<PathAndQuery> {
        // PHP's caches for each place in the code that looks something up fill at the first request, some at the second.
        const TIMES: usize = 3;
        if !self.php.as_ref().is_some_and(|php| php.model.boots_in_zygote())
            || self.application.kind.is_function()
        {
            return Vec::new();
        }
        let (paths, times) = match &settings.php.warm_up.0 {
            Some(named) => {
                let times = if self.is_entry() { 1 } else { TIMES };
                let own = |path: &&PathAndQuery| !self.is_entry() || self.answers(path);
                let named = named.iter().flatten().map(|path| &path.0);
                (named.filter(own).cloned().collect(), times)
            }
            None => (vec![self.page()], if self.rehearses(settings) { 1 } else { TIMES }),
        };
        paths.iter().flat_map(|path| std::iter::repeat_n(path.clone(), times)).collect()
    }

    /// Returns the path of a page of the application: `/`, unless that is known to redirect.
    fn page(&self) -> PathAndQuery {
        let page = self.application.known.as_ref().map_or("/", |known| known.page);
        PathAndQuery::from_static(page)
    }

    /// Returns the file after whose inclusion the front controller waits, if it does not wait by a line of its own.
    pub(crate) fn await_after(&self, settings: &Settings) -> Option<PathBuf> {
        let application = &self.application;
        if let Some(file) = &settings.php.await_after {
            return Some(application.folder.join(file));
        }
        let script = application.front_controller.as_deref()?;
        let known = application.known.as_ref()?.boot.as_ref().ok()?;
        (!detect::awaits(script)).then(|| known.clone())
    }

    /// Returns whether the front controller waits after a file that Hearth knows: then its autoloaders are known, too.
    pub(crate) fn is_booted_by_recipe(&self, settings: &Settings) -> bool {
        settings.php.await_after.is_none() && self.await_after(settings).is_some()
    }

    /// Returns whether the front controller answers the path, not a script that it names.
    fn answers(&self, path: &PathAndQuery) -> bool {
        let (path, root) = (path.path(), &self.application.document_root);
        let ends = path.match_indices(".php").map(|(at, suffix)| at + suffix.len());
        let named = ends
            .filter_map(|end| path.split_at_checked(end))
            .filter(|(_, rest)| rest.is_empty() || rest.starts_with('/'))
            .map(|(script, _)| root.join(script.trim_start_matches('/')))
            .find(|script| script.is_file());
        let in_folder = || {
            let index = root.join(path.trim_start_matches('/')).join("index.php");
            Some(index).filter(|index| path.ends_with('/') && index.is_file())
        };
        let script = named.or_else(in_folder);
        script.is_none_or(|script| self.application.front_controller.as_ref() == Some(&script))
    }

    /// Returns the paths that are requested to measure costs: those of the warm-up, else the one of `php.reload_check` if it was named.
    pub(crate) fn measured_paths(&self, settings: &Settings) -> Vec<PathAndQuery> {
        // Each is requested several times.
        const MOST: usize = 5;
        let reload_check = || settings.php.reload_check.0.iter().flatten();
        match &settings.php.warm_up.0 {
            None => vec![self.page()],
            Some(Some(named)) => named.iter().take(MOST).map(|path| path.0.clone()).collect(),
            Some(None) => reload_check().map(|path| path.0.clone()).collect(),
        }
    }

    /// Returns whether a process that is thrown away answers the warm-up: when it is unknown whether the script restores its state after a
    /// request.
    pub(crate) fn rehearses(&self, settings: &Settings) -> bool {
        let script = self.php.as_ref().and_then(|php| php.script.as_ref());
        self.is_entry()
            || settings.php.warm_up.0.is_none()
                && !matches!(script, Some(WorkerScript::Ours { .. }))
    }

    /// Returns whether the front controller itself is booted ahead, up to its wait point.
    pub(crate) fn is_entry(&self) -> bool {
        let script = self.php.as_ref().and_then(|php| php.script.as_ref());
        matches!(script, Some(WorkerScript::Entry(_)))
    }

    /// The path of a script in the URL space: `/index.php`. `None` when it lies outside the document root.
    pub(crate) fn script_name(&self, script: &Path) -> Option<String> {
        let relative = script.strip_prefix(&self.application.document_root).ok()?;
        Some(format!("/{}", relative.to_str()?))
    }

    /// `SCRIPT_NAME` of a script that runs wherever it lies.
    pub(crate) fn url_of(&self, script: &Path) -> String {
        self.script_name(script).unwrap_or_else(|| {
            let name = script.file_name().unwrap_or_default();
            format!("/{}", name.to_string_lossy())
        })
    }

    /// Returns `SCRIPT_FILENAME` in models that run a worker script: the front controller, which the worker script replaces.
    pub(crate) fn nominal_script(&self) -> PathBuf {
        let own = &self.application.front_controller;
        own.clone().unwrap_or_else(|| self.application.document_root.join("index.php"))
    }

    /// Explains the plan in one line. `php_version` is the full version once PHP has reported it.
    pub(crate) fn explain(&self, php_version: Option<&str>) -> String {
        let app = &self.application;
        let mut line = format!("{} in {} ({})", app.name(), app.folder.display(), app.because);
        let mut add = |text: String| {
            line.push_str("; ");
            line.push_str(&text);
        };
        if let Some(php) = &self.php {
            let place = format!(" in place of {}", php.wished.name());
            let place = if php.model == php.wished { "" } else { &place };
            add(format!("{} model{place}", php.model.name()));
            if let Some(why) = php.not_ahead {
                add(format!("not booted ahead: {why}"));
            }
            if let Some(script) = &php.script {
                let kind = if self.is_entry() { "waits in" } else { "worker script" };
                add(format!("{kind} {script}"));
            }
        }
        add(format!("document root {}", app.document_root.display()));
        if let Some(script) = &app.front_controller {
            add(format!("front controller {}", script.display()));
        }
        if let Some(php) = &self.php {
            let minor = php.worker.version.map(|version| version.to_string());
            let version = php_version.map(str::to_owned).or(minor);
            add(version.map_or_else(
                || php.worker.program.display().to_string(),
                |version| format!("PHP {version}"),
            ));
            add(match php.workers_max {
                Some(most) => format!("{} to {most} workers", php.workers),
                None if php.workers.get() == 1 => "1 worker".to_owned(),
                None => format!("{} workers", php.workers),
            });
            if let Some(user) = &php.user {
                add(format!("as user {}", user.name()));
            }
        }
        line
    }
}

/// Replaces the detected document root and front controller with those of the settings.
fn overridden(mut application: Application, settings: &Settings) -> Result<Application, Failure> {
    // Without links: what they point to may be another release by the time a worker is replaced.
    let file = |path: &Path, key: &str| match path.canonicalize() {
        Ok(absolute) if absolute.is_file() => Ok(absolute),
        _ => Err(Failure::misused(
            format!("`{key}` names {}, which is no file", path.display()),
            format!("correct `{key}`"),
        )),
    };
    if let Some(root) = &settings.http.document_root.0 {
        let Ok(absolute) = root.canonicalize() else {
            return Err(Failure::misused(
                format!("`http.document_root` names {}, which is no folder", root.display()),
                "correct `http.document_root`",
            ));
        };
        application.document_root = absolute;
        let index = application.document_root.join("index.php");
        if index.is_file() && application.kind != Kind::WorkerScript {
            application.front_controller = Some(index);
        }
    }
    if let Some(script) = &settings.http.front_controller.0 {
        application.front_controller = Some(file(script, "http.front_controller")?);
    }
    if let Some(script) = &settings.php.worker_script.0 {
        application.worker_script = Some(file(script, "php.worker_script")?);
    }
    if let Some(awaited) = &settings.php.await_after
        && !application.folder.join(awaited).is_file()
    {
        return Err(Failure::misused(
            format!("`php.await_after` names {}, which is no file", awaited.display()),
            "correct `php.await_after`: a path starts at the application's folder",
        ));
    }
    if application.kind == Kind::StaticFiles && application.front_controller.is_some() {
        application.kind = Kind::FrontController;
    }
    if settings.http.document_root.0.is_some() || settings.http.front_controller.0.is_some() {
        application.recognise();
    }
    Ok(application)
}

/// Returns `snapshot` if there is something to boot ahead.
fn model(application: &Application, settings: &Settings) -> Model {
    let named = settings.php.worker_script.0.is_some();
    let boots_ahead = match application.kind {
        Kind::Laravel | Kind::Symfony | Kind::WorkerScript => true,
        Kind::FrontController => {
            named
                || application.worker_script.as_deref().is_some_and(detect::takes_requests)
                || waits(application, settings)
        }
        Kind::StaticFiles | Kind::Function | Kind::Console => false,
    };
    // A request that runs the files as they are now needs no reload to see an edit.
    let shows_edits = settings.server.dev.0
        && !named
        && application.kind != Kind::WorkerScript
        && application.front_controller.is_some();
    let auto = if boots_ahead && !shows_edits { Model::Snapshot } else { Model::Request };
    settings.php.model.0.unwrap_or(auto)
}

/// Returns whether the front controller waits for its requests: its text says so, a setting, or what is known of the application.
fn waits(application: &Application, settings: &Settings) -> bool {
    let known = || application.known.as_ref().is_some_and(|known| known.boot.is_ok());
    let script = application.front_controller.as_deref();
    script.is_some_and(|script| {
        settings.php.await_after.is_some() || known() || detect::awaits(script)
    })
}

fn worker_script(
    application: &Application,
    settings: &Settings,
    environment: &Environment,
    model: Model,
) -> Result<WorkerScript, Failure> {
    let named = settings.php.worker_script.0.is_some();
    let usable = |script: &Path| match application.kind {
        // In a framework's project a `worker.php` may be anything, a queue's worker for one.
        Kind::Laravel | Kind::Symfony => {
            detect::takes_requests(script) && !is_for_frankenphp(script)
        }
        _ => true,
    };
    let entry = application
        .front_controller
        .clone()
        .filter(|_| application.kind == Kind::FrontController && model != Model::Worker && !named);
    match (&application.worker_script, application.kind) {
        (Some(script), Kind::FrontController)
            if !detect::takes_requests(script) && waits(application, settings) =>
        {
            entry.map(WorkerScript::Entry).ok_or_else(|| no_worker_script(application, model))
        }
        (Some(script), _) if named || usable(script) => Ok(WorkerScript::File(script.clone())),
        (_, Kind::Laravel) => Ok(ours("laravel-worker.php", LARAVEL_WORKER)),
        (_, Kind::Symfony) => Ok(symfony_runtime(application, settings, environment)
            .map_or_else(|| ours("symfony-worker.php", SYMFONY_WORKER), WorkerScript::File)),
        _ => entry.map(WorkerScript::Entry).ok_or_else(|| no_worker_script(application, model)),
    }
}

fn no_worker_script(application: &Application, model: Model) -> Failure {
    Failure::misused(
        format!(
            "the model `{}` needs a worker script, and {} has none",
            model.name(),
            application.folder.display()
        ),
        "write one that calls hearth_handle_request() and name it with `--worker-script`, or use `--model request`",
    )
}

fn ours(name: &'static str, text: &'static str) -> WorkerScript {
    WorkerScript::Ours { name, text, beside: BESIDE_WORKERS }
}

/// The least and the most workers.
fn numbers(
    model: Model,
    settings: &Settings,
) -> Result<(NonZeroUsize, Option<NonZeroUsize>), Failure> {
    let php = &settings.php;
    let Some(most) = php.workers_max else { return Ok((workers(settings), None)) };
    if model.is_foreign() {
        return Err(Failure::misused(
            format!(
                "`php.workers_max` is set, and the model `{}` has a fixed number",
                model.name()
            ),
            "set `php.workers`, or use a model of Hearth's own workers such as `--model request`",
        ));
    }
    let least = match php.workers.0 {
        Some(least) if least > most => {
            return Err(Failure::misused(
                format!("`php.workers` is {least}, and `php.workers_max` less: {most}"),
                "`php.workers` is the least, `php.workers_max` the most",
            ));
        }
        Some(least) => least,
        None => processors().min(most),
    };
    Ok((least, Some(most)))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
