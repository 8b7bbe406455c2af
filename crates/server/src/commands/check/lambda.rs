//! AWS Lambda: what would make a cold start slower than it need be, and which rules are not applied. Looked at where the application runs as a function, or when asked.

use std::path::Path;

use pool::Model;

use super::{Report, Topic};
use crate::app::detect::{Application, Kind};
use crate::app::php::{Info, has_extension};
use crate::app::plan::Plan;
use crate::commands::lambda::{handler, lanes, unapplied};
use crate::config::{Environment, Handler, Settings};

/// The number of extensions that a website may need; each lengthens every start of PHP.
const EXTENSIONS: usize = 30;

/// Returns whether this is a function's environment.
pub(crate) fn is_here(environment: &Environment) -> bool {
    environment.variable("LAMBDA_TASK_ROOT").is_some()
}

/// Checks what Lambda's init phase, and in some models every event, would spend time on.
pub(crate) fn look(
    report: &mut Report,
    (settings, environment): (&Settings, &Environment),
    application: &Application,
    plan: Option<&Plan>,
    info: Option<&Info>,
) {
    if let Some(php) = plan.and_then(|plan| plan.php.as_ref()) {
        model(report, php.model, settings);
    }
    let lanes = lanes(settings);
    if let Some(given) = settings.php.workers.0.filter(|given| *given != lanes) {
        report.warning(
            Topic::Lambda,
            format!("`php.workers` ({given}) does nothing on Lambda: there is a worker for each invocation that runs at once"),
            "set `lambda.concurrency` on Managed Instances; otherwise there is one at once",
        );
    }
    if settings.lambda.handler.0.unwrap_or_else(|| handler(environment)) == Handler::Http {
        rules(report, settings);
    }
    if let Some(info) = info {
        extensions(report, info);
    }
    class_map(report, &application.folder);
    match application.kind {
        Kind::Laravel => cached(
            report,
            &application.folder,
            &["bootstrap/cache/config.php", "bootstrap/cache/routes-v7.php"],
            "run `php artisan optimize` when the package is built",
        ),
        Kind::Symfony => cached(
            report,
            &application.folder,
            &["var/cache/prod"],
            "run `php bin/console cache:warmup --env=prod` when the package is built: /var/task cannot be written",
        ),
        Kind::FrontController
        | Kind::WorkerScript
        | Kind::StaticFiles
        | Kind::Function
        | Kind::Console => {}
    }
}

fn model(report: &mut Report, model: Model, settings: &Settings) {
    let name = model.name();
    match model {
        Model::Spawn | Model::Cgi => report.warning(
            Topic::Lambda,
            format!("`{name}` starts a PHP process for each event: ten milliseconds and more"),
            "use `--model fork`, which forks a booted one, or `--model request`",
        ),
        Model::Prespawn => report.warning(
            Topic::Lambda,
            "`prespawn` boots the next process after each answer, and Lambda freezes the environment between events: the next event waits for that boot",
            "use `--model fork`, which forks a booted one",
        ),
        Model::Snapshot => report.fine(
            Topic::Lambda,
            "`snapshot` checks at each cold start whether written pages can be found; if not, `fork` replaces it",
        ),
        _ => report.fine(Topic::Lambda, format!("`{name}` waits ready for the next event")),
    }
    if model.boots_in_zygote() && settings.php.warm_up.0.is_none() {
        report.fine(
            Topic::Lambda,
            "the init phase asks the application for `/` to warm up; `php.warm_up = off` leaves that out, at the cost of the first event",
        );
    }
}

/// Names the rules for requests that are not applied. Those that protect keep the function from starting.
fn rules(report: &mut Report, settings: &Settings) {
    for failure in unapplied::protecting(settings) {
        report.failure(Topic::Lambda, &failure);
    }
    for setting in unapplied::others(settings) {
        report.warning(
            Topic::Lambda,
            format!("`{setting}` is not applied on Lambda"),
            unapplied::HINT,
        );
    }
}

fn extensions(report: &mut Report, info: &Info) {
    let count = info.extensions.len();
    if count > EXTENSIONS {
        report.warning(
            Topic::Lambda,
            format!("PHP loads {count} extensions, and each adds time to every start"),
            "load what the application requires and no more: HEARTH_INI_DIR names the folder of ini files",
        );
    }
    for name in ["xdebug", "pcov"] {
        if has_extension(info, name) {
            report.warning(
                Topic::Lambda,
                format!("{name} is loaded, which slows down every line of PHP"),
                "leave it out of the package",
            );
        }
    }
    if !has_extension(info, "Zend OPcache") {
        report.warning(
            Topic::Lambda,
            "without OPcache each process of a cold start compiles what it needs itself",
            "add the opcache extension to the package",
        );
    }
}

/// Checks for Composer's class map: without one Composer searches the file system for each class.
fn class_map(report: &mut Report, folder: &Path) {
    /// Composer's own classes are in the list in any case.
    const OWN: usize = 5;
    let map = folder.join("vendor/composer/autoload_classmap.php");
    let Ok(map) = std::fs::read_to_string(map) else { return };
    if map.matches("=>").count() <= OWN {
        report.warning(
            Topic::Lambda,
            "Composer's class map is empty: each class is looked for in the file system",
            "run `composer install --no-dev --classmap-authoritative` when the package is built",
        );
    } else {
        report.fine(Topic::Lambda, "Composer's class map is there");
    }
}

fn cached(report: &mut Report, folder: &Path, names: &[&str], hint: &str) {
    let missing: Vec<&str> =
        names.iter().copied().filter(|name| !folder.join(name).exists()).collect();
    if missing.is_empty() {
        return report.fine(Topic::Lambda, format!("made ahead: {}", names.join(", ")));
    }
    report.warning(
        Topic::Lambda,
        format!("not made ahead: {}; each cold start makes up for it", missing.join(", ")),
        hint,
    );
}
