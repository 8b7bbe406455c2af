//! PHP: the versions found, the one that would run, its OPcache.

use pool::{ByteSize, Model};
use rustix::process::geteuid;
use serde_json::Value;

use super::{Report, Topic, extensions};
use crate::app::php::{self, Info};
use crate::app::plan::{PhpPlan, Plan};
use crate::app::user::{NOT_AS_ROOT, PHP_IS_ROOT};
use crate::config::{Environment, Raw, Settings, Value as _, nearest};
use crate::system::privileges::lacking;
use crate::system::users::PhpUser;

/// Checks PHP, and returns its information for the other checks.
pub(crate) fn look(
    report: &mut Report,
    plan: Option<&Plan>,
    settings: &Settings,
    environment: &Environment,
) -> Option<Info> {
    let found = php::workers(environment);
    if !found.is_empty() {
        let programs: Vec<String> =
            found.iter().map(|worker| worker.program.display().to_string()).collect();
        report.fine(Topic::Php, format!("worker programs found: {}", programs.join(", ")));
    }
    bodies(report, settings);
    let php = plan.and_then(|plan| plan.php.as_ref());
    let user = php.and_then(|php| php.user.as_ref());
    // Why the user is not known was reported with the settings.
    let user = php::asks_as(user, settings, environment).ok()?;
    if let Some(php) = php.filter(|php| php.model.is_foreign()) {
        return foreign(report, php, user.as_ref());
    }
    let planned = php.map(|php| php.worker.clone());
    // Without a plan the reason may be PHP itself, which is then reported already.
    let worker = planned.or_else(|| php::select(settings, environment).ok())?;
    let info = match php::info(&worker, settings, user.as_ref()) {
        Ok(info) => info,
        Err(failure) => {
            report.failure(Topic::Php, &failure);
            return None;
        }
    };
    let ini = info.ini_file.as_deref().filter(|file| !file.is_empty()).unwrap_or("no php.ini");
    report.fine(
        Topic::Php,
        format!("PHP {} with {} extensions ({ini})", info.php_version, info.extensions.len()),
    );
    if info.zts {
        report.warning(
            Topic::Php,
            "this PHP is thread-safe (ZTS), which Hearth does not need",
            "a build without ZTS is a little faster",
        );
    }
    opcache(report, &info);
    unknown_ini(report, settings, &info);
    complaints(report, &info);
    if let Some(php) = php {
        extensions::look(report, php.model, &info);
    }
    report.php(info.clone());
    Some(info)
}

/// Reports names of ini settings that PHP does not know and ignores.
fn unknown_ini(report: &mut Report, settings: &Settings, info: &Info) {
    // A worker program that does not list its settings is of another version.
    let known = |name: &str| info.ini.is_empty() || info.ini.iter().any(|known| known == name);
    // These are read before there are any.
    let loads = |name: &str| ["extension", "zend_extension"].contains(&name);
    for (name, _) in settings.php.ini.0.iter().filter(|(name, _)| !known(name) && !loads(name)) {
        let hint = match nearest(name, info.ini.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "install the extension that it is of, or take it out".to_owned(),
        };
        report.warning(
            Topic::Php,
            format!("PHP knows no `{name}` (`[php.ini]`): it does nothing"),
            hint,
        );
    }
}

/// Reports messages of PHP about extensions and settings that it ignores.
fn complaints(report: &mut Report, info: &Info) {
    for complaint in &info.complaints {
        let loads = ["Unable to load", "Failed loading"];
        let hint = if loads.iter().any(|start| complaint.starts_with(start)) {
            "install the extension for this PHP version, or take it out of php.ini or `[php.ini]`"
        } else {
            "correct it in php.ini or `[php.ini]`"
        };
        report.warning(Topic::Php, format!("PHP starts with a complaint: {complaint}"), hint);
    }
}

/// Checks whether PHP accepts bodies that the server rejects.
fn bodies(report: &mut Report, settings: &Settings) {
    let Some(limit) = settings.http.body_limit else { return };
    let mut ini = settings.php.ini.0.iter();
    let Some((name, value)) = ini.find(|(name, _)| name == "post_max_size") else { return };
    let size = ByteSize::parse(&Raw::Text(value.clone()), "/".as_ref());
    if size.is_ok_and(|size| size > limit) {
        report.warning(
            Topic::Php,
            format!("`{name}` ({value}) is above `http.body_limit` ({} bytes): such a body gets 413 before PHP sees it", limit.0),
            "raise `http.body_limit`, or lower the other",
        );
    }
}

/// Checks whether PHP can run as its user, and use its files then. If that cannot be tried here, the rest is checked as the current user, and
/// root runs nothing ([`php::asks_as`], [`in_place_of_another`]).
/// `others_have_users`: PHP of some application runs as another user than the server.
pub(super) fn user(
    report: &mut Report,
    plan: &mut Plan,
    settings: &Settings,
    others_have_users: bool,
    environment: &Environment,
) {
    let Some(php) = &plan.php else { return };
    let Some(user) = php.user.clone() else {
        if environment.is_root && settings.server.user.is_none_or(|user| user.0 == 0) {
            report.warning(Topic::Php, PHP_IS_ROOT, NOT_AS_ROOT);
        }
        if others_have_users {
            report.warning(
                Topic::Php,
                "PHP runs as the server's own user, who can read the other applications' files",
                "name a user for it, too (`php.user`)",
            );
        }
        return;
    };
    let name = user.name();
    if !lacking().is_empty() {
        report.warning(
            Topic::Php,
            format!("PHP is to run as user {name}, which cannot be tried by user {}", geteuid().as_raw()),
            "run `hearth check` as root, or by the user and with the capabilities that the server has",
        );
    } else if let Err(failure) = plan.check_user() {
        report.failure(Topic::Php, &failure);
    } else {
        return report.fine(
            Topic::Php,
            format!("PHP runs as user {name}, which can access the application"),
        );
    }
    if let Some(php) = &mut plan.php {
        php.user = None;
    }
}

/// Returns the setting with the user that the server would run PHP as, if a boot here ran it as root in place of that user.
pub(super) fn in_place_of_another(
    plan: &Plan,
    settings: &Settings,
    environment: &Environment,
) -> Option<&'static str> {
    let has_own_user = plan.php.as_ref().is_some_and(|php| php.user.is_some());
    if !environment.is_root || has_own_user {
        None
    } else if !matches!(PhpUser::of(settings, environment), Ok(None)) {
        Some("php.user")
    } else if settings.server.user.is_some_and(|user| user.0 != 0) {
        Some("server.user")
    } else {
        None
    }
}

/// Checks the program of a model that runs PHP's own.
fn foreign(report: &mut Report, php: &PhpPlan, user: Option<&PhpUser>) -> Option<Info> {
    let program = php.worker.program.display();
    let info = match php::foreign_info(&php.worker, user) {
        Ok(info) => info,
        Err(failure) => {
            report.failure(Topic::Php, &failure);
            return None;
        }
    };
    let (version, sapi, count) = (&info.php_version, &info.sapi, info.extensions.len());
    report.fine(Topic::Php, format!("PHP {version} ({sapi}) with {count} extensions ({program})"));
    if php.model != Model::Cgi {
        opcache(report, &info);
    }
    report.php(info.clone());
    Some(info)
}

fn opcache(report: &mut Report, info: &Info) {
    if !php::has_extension(info, "Zend OPcache") {
        report.warning(
            Topic::Php,
            "OPcache is not loaded: each request compiles every file again",
            "install the opcache extension of this PHP version",
        );
        return;
    }
    let on = match &info.opcache {
        Value::Null => return report.fine(Topic::Php, "OPcache is loaded"),
        Value::Bool(on) => *on,
        Value::Object(settings) => {
            settings.get("enabled").is_none_or(|on| !matches!(on, Value::Bool(false) | Value::Null))
        }
        _ => true,
    };
    if on {
        report.fine(Topic::Php, "OPcache is on");
    } else {
        report.warning(
            Topic::Php,
            "OPcache is off: each request compiles every file again",
            "set `opcache.enable=1` in php.ini or `[php.ini]` of hearth.toml",
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::app::target::Target;
    use crate::commands::check::{Boots, check};

    /// Writes the user that runs it to a file, and answers as a worker program.
    const PROGRAM: &str = "#!/bin/sh\nid -u >> \"${0%/*}/users\"\nif [ \"$1\" = --probe-snapshot ]; then echo '{\"tracker\": \"file\"}'; exit; fi\n\
                           echo '{\"php_version\": \"8.2.35\", \"sapi\": \"fpm-fcgi\", \"zts\": false, \"extensions\": {}}'\n";

    #[test]
    fn a_check_by_root_runs_no_program_of_the_application_as_root() {
        if !geteuid().is_root() {
            eprintln!("skipped: another user has no other one to run it as");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode))
                .unwrap();
        };
        mode("", 0o777);
        let program = folder.path().join("program");
        testkit::write_program(&program, PROGRAM);
        let toml = format!("[php]\nworker_program = \"{}\"\n", program.display());
        fs::write(folder.path().join("hearth.toml"), toml).unwrap();
        fs::create_dir(folder.path().join("public")).unwrap();
        fs::write(folder.path().join("public/index.php"), "").unwrap();
        fs::write(folder.path().join("worker.php"), "<?php hearth_handle_request(fn () => 1);")
            .unwrap();
        let ran_by = |boots, flags: &[(&'static str, &str)]| {
            let mut environment = Environment::for_test(folder.path(), &[]);
            environment.is_root = true;
            let flags = [("http.listen", "127.0.0.1:0")].iter().chain(flags);
            let flags = flags.map(|(name, value)| (*name, Raw::Text((*value).into()))).collect();
            let target = Target { path: folder.path().to_owned(), config: None, flags };
            let report = check(&target, (false, boots), &environment).unwrap();
            let users = fs::read_to_string(folder.path().join("users")).unwrap_or_default();
            drop(fs::remove_file(folder.path().join("users")));
            let mut users: Vec<String> = users.lines().map(str::to_owned).collect();
            assert!(users.is_empty() || users.len() > 1, "PHP and the model: {users:?}");
            users.dedup();
            (users.join(" "), report.text(false))
        };
        for user in ["server.user", "php.user"] {
            let (users, text) = ran_by(Boots::No, &[(user, "nobody")]);
            assert_eq!(users, "65534", "{user}: {text}");
        }
        // A user that is not known: it has no group.
        for user in ["server.user", "php.user"] {
            let (users, text) = ran_by(Boots::Once, &[(user, "54321")]);
            assert_eq!(users, "", "{user}: {text}");
            assert!(text.contains("is not in /etc/passwd"), "{user}: {text}");
        }
        // A user that cannot read the application.
        mode("public/index.php", 0o600);
        let (users, text) = ran_by(Boots::Once, &[("php.user", "nobody")]);
        assert_eq!(users, "65534", "{text}");
        assert!(text.contains("not booted: PHP's user (`php.user`)"), "{text}");
    }
}
