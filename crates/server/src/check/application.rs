//! The application: its files, what it may write, what it requires of PHP, and how its framework is set.

use std::path::Path;

use rustix::fs::Access;

use super::eyes::Eyes;
use super::{Report, Topic};
use crate::composer;
use crate::config::{DotEnv, Environment, Settings};
use crate::detect::{Application, Kind};
use crate::php::{Info, has_extension};

/// Looks at the application, by the server's eyes and by PHP's.
pub(crate) fn look(
    report: &mut Report,
    application: &Application,
    info: Option<&Info>,
    (settings, environment): (&Settings, &Environment),
    (server, php): (&Eyes, &Eyes),
) {
    files(report, application, server, php);
    requirements(report, application, info);
    match application.kind {
        Kind::Laravel => {
            let variables = DotEnv::read(&application.folder, settings, environment);
            laravel(report, &application.folder, &variables, php);
        }
        Kind::Symfony => {
            let variables = DotEnv::read(&application.folder, settings, environment);
            symfony(report, &application.folder, &variables, php);
        }
        Kind::FrontController
        | Kind::WorkerScript
        | Kind::StaticFiles
        | Kind::Function
        | Kind::Console => {}
    }
}

fn files(report: &mut Report, application: &Application, server: &Eyes, php: &Eyes) {
    let root = &application.document_root;
    if server.may(root, Access::READ_OK | Access::EXEC_OK).is_ok() {
        report.fine(Topic::Application, format!("document root {} can be read", root.display()));
    } else {
        report.problem(
            Topic::Application,
            format!("document root {} cannot be read", root.display()),
            "let Hearth's user read it, or choose another with `--document-root`",
        );
    }
    if root == &application.folder && root.join("composer.json").is_file() {
        report.warning(
            Topic::Application,
            "the document root is the whole project: its other files can be asked for, too",
            "keep public files in a folder `public`, or choose one with `--document-root`",
        );
    }
    for script in [&application.front_controller, &application.worker_script].into_iter().flatten()
    {
        if php.may(script, Access::READ_OK).is_err() {
            report.problem(
                Topic::Application,
                format!("{} cannot be read", script.display()),
                "let Hearth's user read it",
            );
        }
    }
}

fn requirements(report: &mut Report, application: &Application, info: Option<&Info>) {
    let requirements = match composer::requirements(&application.folder) {
        Ok(Some(requirements)) => requirements,
        Ok(None) => return,
        Err(failure) => return report.failure(Topic::Application, &failure),
    };
    if !application.folder.join("vendor/autoload.php").is_file() {
        report.problem(
            Topic::Application,
            "vendor/autoload.php is missing",
            "run `composer install` in the application's folder",
        );
    }
    let Some(info) = info else { return };
    let missing: Vec<&str> = requirements
        .extensions
        .iter()
        .map(String::as_str)
        .filter(|name| !has_extension(info, name))
        .collect();
    if !missing.is_empty() {
        report.problem(
            Topic::Php,
            format!(
                "composer.json requires extensions that this PHP does not have: {}",
                missing.join(", ")
            ),
            "install them for this PHP version, or choose another version with `--php`",
        );
    } else if !requirements.extensions.is_empty() {
        report.fine(
            Topic::Php,
            format!(
                "extensions that composer.json requires: {}",
                requirements.extensions.join(", ")
            ),
        );
    }
    if let Some(constraint) = &requirements.php
        && composer::satisfies(&info.php_version, constraint) == Some(false)
    {
        report.problem(
            Topic::Php,
            format!("composer.json requires PHP {constraint}, this is {}", info.php_version),
            "choose another version with `--php`",
        );
    }
}

fn laravel(report: &mut Report, folder: &Path, variables: &DotEnv<'_>, php: &Eyes) {
    writable(
        report,
        folder,
        &["storage", "storage/framework", "storage/logs", "bootstrap/cache"],
        php,
    );
    let setting = |name: &str| variables.get(name);
    let reads_key = std::fs::read_to_string(folder.join("config/app.php"))
        .map_or(true, |config| config.contains("APP_KEY"));
    if setting("APP_KEY").is_none_or(str::is_empty) && reads_key {
        // The command writes into that file.
        let hint = if folder.join(".env").exists() {
            "run `hearth php artisan key:generate`"
        } else {
            "copy .env.example to .env and run `hearth php artisan key:generate`, or set it in `[php.env]`"
        };
        report.problem(
            Topic::Application,
            "APP_KEY is missing: Laravel cannot encrypt cookies and sessions",
            hint,
        );
    }
    if setting("APP_DEBUG").is_some_and(is_true) {
        report.warning(
            Topic::Application,
            "APP_DEBUG is on: errors show code and settings to visitors",
            "set APP_DEBUG=false where others can reach the application",
        );
    }
}

fn symfony(report: &mut Report, folder: &Path, variables: &DotEnv<'_>, php: &Eyes) {
    writable(report, folder, &["var", "var/cache", "var/log"], php);
    let setting = |name: &str| variables.get(name);
    let env = setting("APP_ENV").unwrap_or_default();
    let debug = setting("APP_DEBUG").map_or(env == "dev", is_true);
    if debug {
        report.warning(
            Topic::Application,
            "Symfony's debug mode is on: slow, and errors show code and settings to visitors",
            "set APP_ENV=prod and APP_DEBUG=0 where others can reach the application",
        );
    }
}

/// Folders that the framework writes to. One that is not there yet must be possible to make.
fn writable(report: &mut Report, folder: &Path, names: &[&str], php: &Eyes) {
    let refused: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| {
            let path = folder.join(name);
            path.exists() && php.may(&path, Access::WRITE_OK | Access::EXEC_OK).is_err()
        })
        .collect();
    if refused.is_empty() {
        let there: Vec<&str> =
            names.iter().copied().filter(|name| folder.join(name).exists()).collect();
        if !there.is_empty() {
            report.fine(Topic::Application, format!("can be written: {}", there.join(", ")));
        }
    } else {
        report.problem(
            Topic::Application,
            format!("cannot be written: {}", refused.join(", ")),
            "let Hearth's user write there",
        );
    }
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "(true)" | "on" | "yes")
}
