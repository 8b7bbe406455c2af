//! What will run: the application that was found, the settings and the PHP at hand, made into options for the engines.
//!
//! Invariants
//! - Everything a person could have got wrong is refused here, before a socket is bound or a process started.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::config::{Environment, Model, Settings};
use crate::detect::{Application, Kind};
use crate::failure::Failure;
use crate::php::{self, Worker};

/// Hearth's worker script for Laravel.
const LARAVEL_WORKER: &str = include_str!("workers/laravel.php");
/// Hearth's worker script for Symfony.
const SYMFONY_WORKER: &str = include_str!("workers/symfony.php");

/// What `hearth serve` does with an application.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What was found, with the settings' overrides in place.
    pub application: Application,
    /// How PHP runs; `None` when only files are served.
    pub php: Option<PhpPlan>,
}

/// How PHP runs.
#[derive(Clone, Debug)]
pub(crate) struct PhpPlan {
    /// The program that runs PHP: Hearth's own, or PHP's in the models of their names.
    pub worker: Worker,
    /// How a request meets PHP.
    pub model: Model,
    /// The worker script of [`Model::Worker`].
    pub script: Option<WorkerScript>,
    /// How many processes.
    pub workers: NonZeroUsize,
}

/// Where a worker script comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkerScript {
    /// A file of the application.
    File(PathBuf),
    /// Hearth's own, written into the run folder under this name.
    Ours {
        /// File name.
        name: &'static str,
        /// PHP source.
        text: &'static str,
    },
}

impl fmt::Display for WorkerScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Ours { name, .. } => write!(f, "Hearth's own {name}"),
        }
    }
}

impl Plan {
    /// Makes the plan. The application's folder and scripts are looked at; nothing is started.
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
        let script = match model {
            Model::Request | Model::Fpm | Model::Builtin | Model::Cgi => None,
            Model::Worker => Some(worker_script(&application, settings)?),
        };
        let workers = settings.php.workers.0.unwrap_or_else(processors);
        let worker = php::program(model, settings, environment)?;
        Ok(Self { application, php: Some(PhpPlan { worker, model, script, workers }) })
    }

    /// The path of a script in the URL space: `/index.php`. `None` when it lies outside the document root.
    pub(crate) fn script_name(&self, script: &Path) -> Option<String> {
        let relative = script.strip_prefix(&self.application.document_root).ok()?;
        Some(format!("/{}", relative.to_str()?))
    }

    /// What `SCRIPT_FILENAME` is in the model `worker`: the front controller, in whose place the worker script answers.
    pub(crate) fn nominal_script(&self) -> PathBuf {
        let own = &self.application.front_controller;
        own.clone().unwrap_or_else(|| self.application.document_root.join("index.php"))
    }

    /// The one line that explains it all. `php_version` is the full one once PHP has said it.
    pub(crate) fn explain(&self, php_version: Option<&str>) -> String {
        let app = &self.application;
        let mut line = format!("{} in {} ({})", app.kind.name(), app.folder.display(), app.because);
        let mut add = |text: String| {
            line.push_str("; ");
            line.push_str(&text);
        };
        if let Some(php) = &self.php {
            add(format!("{} model", php.model.name()));
            if let Some(script) = &php.script {
                add(format!("worker script {script}"));
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
            let plural = if php.workers.get() == 1 { "" } else { "s" };
            add(format!("{} worker{plural}", php.workers));
        }
        line
    }
}

/// Puts the settings' document root and front controller in the place of what was found.
fn overridden(mut application: Application, settings: &Settings) -> Result<Application, Failure> {
    let is_file = |path: &Path, key: &str| {
        if path.is_file() {
            return Ok(());
        }
        Err(Failure::misused(
            format!("`{key}` names {}, which is no file", path.display()),
            format!("correct `{key}`"),
        ))
    };
    if let Some(root) = &settings.http.document_root.0 {
        let Ok(absolute) = root.canonicalize() else {
            return Err(Failure::misused(
                format!("`http.document_root` names {}, which is no folder", root.display()),
                "correct `http.document_root` (`--document-root`)",
            ));
        };
        application.document_root = absolute;
        let index = application.document_root.join("index.php");
        if index.is_file() && application.kind != Kind::WorkerScript {
            application.front_controller = Some(index);
        }
    }
    if let Some(script) = &settings.http.front_controller.0 {
        is_file(script, "http.front_controller")?;
        application.front_controller = Some(script.clone());
    }
    if let Some(script) = &settings.php.worker_script.0 {
        is_file(script, "php.worker_script")?;
        application.worker_script = Some(script.clone());
    }
    if application.kind == Kind::StaticFiles && application.front_controller.is_some() {
        application.kind = Kind::FrontController;
    }
    Ok(application)
}

fn model(application: &Application, settings: &Settings) -> Model {
    let only_a_worker = application.kind == Kind::WorkerScript;
    let named = settings.php.worker_script.0.is_some();
    settings.php.model.0.unwrap_or(if only_a_worker || named {
        Model::Worker
    } else {
        Model::Request
    })
}

fn worker_script(application: &Application, settings: &Settings) -> Result<WorkerScript, Failure> {
    match (&application.worker_script, application.kind) {
        (Some(script), kind) if kind != Kind::Laravel || settings.php.worker_script.0.is_some() => {
            Ok(WorkerScript::File(script.clone()))
        }
        (Some(script), _) if !is_octane(script) => Ok(WorkerScript::File(script.clone())),
        (_, Kind::Laravel) => {
            Ok(WorkerScript::Ours { name: "laravel-worker.php", text: LARAVEL_WORKER })
        }
        (_, Kind::Symfony) => {
            Ok(WorkerScript::Ours { name: "symfony-worker.php", text: SYMFONY_WORKER })
        }
        _ => Err(Failure::misused(
            format!(
                "the model `worker` needs a worker script, and {} has none",
                application.folder.display()
            ),
            "write one that calls hearth_handle_request() and name it with `--worker-script`, or use `--model request`",
        )),
    }
}

/// Octane's worker script wants to be started by `artisan octane:start`, which sets up the environment it reads.
fn is_octane(script: &Path) -> bool {
    script.ends_with("frankenphp-worker.php")
}

/// The processors that this process may use.
pub(crate) fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
