//! The application: its files, what it may write, what it requires of PHP, and how its framework is set.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::Access;

use super::access::AccessCheck;
use super::{Report, Topic};
use crate::app::composer;
use crate::app::detect::{Application, Kind};
use crate::app::php::{Info, has_extension};
use crate::config::{DotEnv, Environment, Settings};

/// Composer's loader of classes.
const AUTOLOAD: &str = "vendor/autoload.php";

/// Checks the application, by the server's access and by PHP's.
pub(crate) fn look(
    report: &mut Report,
    application: &Application,
    info: Option<&Info>,
    (settings, environment): (&Settings, &Environment),
    (server, php): (&AccessCheck, &AccessCheck),
) {
    files(report, application, server, php);
    requirements(report, application, info, php);
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

fn files(report: &mut Report, application: &Application, server: &AccessCheck, php: &AccessCheck) {
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

fn requirements(
    report: &mut Report,
    application: &Application,
    info: Option<&Info>,
    php: &AccessCheck,
) {
    let requirements = match composer::requirements(&application.folder) {
        Ok(Some(requirements)) => requirements,
        Ok(None) => return,
        Err(failure) => return report.failure(Topic::Application, &failure),
    };
    let autoload = application.folder.join(AUTOLOAD);
    if php.may(&autoload, Access::READ_OK).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        report.problem(
            Topic::Application,
            format!("{AUTOLOAD} is missing"),
            "run `composer install` in the application's folder",
        );
    } else {
        readable(report, &application.folder, &[AUTOLOAD.to_owned()], php);
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

fn laravel(report: &mut Report, folder: &Path, variables: &DotEnv<'_>, php: &AccessCheck) {
    writable(
        report,
        folder,
        &["storage", "storage/framework", "storage/logs", "bootstrap/cache"],
        php,
    );
    let may_read = readable(report, folder, &read_by_laravel(folder, variables), php);
    let setting = |name: &str| variables.get(name);
    let reads_key = std::fs::read_to_string(folder.join("config/app.php"))
        .map_or(true, |config| config.contains("APP_KEY"));
    if setting("APP_KEY").is_none_or(str::is_empty) && reads_key && may_read {
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

fn symfony(report: &mut Report, folder: &Path, variables: &DotEnv<'_>, php: &AccessCheck) {
    writable(report, folder, &["var", "var/cache", "var/log"], php);
    readable(report, folder, &read_by_symfony(folder, variables), php);
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

/// Lists the files that Laravel's boot reads beside its script. Cached files replace their sources.
fn read_by_laravel(folder: &Path, variables: &DotEnv<'_>) -> Vec<String> {
    const CACHED: &str = "bootstrap/cache/config.php";
    let mut names = vec!["bootstrap/app.php".to_owned()];
    if folder.join(CACHED).exists() {
        names.push(CACHED.to_owned());
    } else {
        let of_env = variables.of_process("APP_ENV").map(|env| format!(".env.{env}"));
        let of_env = of_env.filter(|name| folder.join(name).exists());
        names.extend(["config".to_owned(), of_env.unwrap_or_else(|| ".env".to_owned())]);
    }
    names
}

/// Lists the files that Symfony's boot reads beside its script. `composer dump-env` makes one file out of the others.
fn read_by_symfony(folder: &Path, variables: &DotEnv<'_>) -> Vec<String> {
    const DUMPED: &str = ".env.local.php";
    let mut names = vec!["config/bundles.php".to_owned()];
    if folder.join(DUMPED).exists() {
        names.push(DUMPED.to_owned());
    } else {
        let env = variables.get("APP_ENV").unwrap_or("dev");
        names.extend([".env", ".env.local"].map(str::to_owned));
        names.extend([format!(".env.{env}"), format!(".env.{env}.local")]);
    }
    names
}

/// Checks that PHP may read those of these files that exist.
fn readable(report: &mut Report, folder: &Path, names: &[String], php: &AccessCheck) -> bool {
    let refused = names.iter().filter_map(|name| {
        let path = folder.join(name);
        let list = if path.is_dir() { Access::EXEC_OK } else { Access::empty() };
        let error = php.may(&path, Access::READ_OK | list).err()?;
        (error.kind() != ErrorKind::NotFound).then_some((name.as_str(), path, error))
    });
    let refused: Vec<_> = refused.collect();
    let Some((_, path, error)) = refused.first() else { return true };
    let names: Vec<&str> = refused.iter().map(|(name, ..)| *name).collect();
    let whose = php.user().map(|user| format!(" as user {user}")).unwrap_or_default();
    report.problem(
        Topic::Application,
        format!("PHP{whose} cannot read {}: {error}", names.join(", ")),
        format!("grant access (`namei -l {}` shows where access ends)", path.display()),
    );
    false
}

/// Checks the folders that the framework writes to. A missing one must be possible to make.
fn writable(report: &mut Report, folder: &Path, names: &[&str], php: &AccessCheck) {
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
