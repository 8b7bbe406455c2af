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
    if let Some(php) = plan.and_then(|plan| plan.php.as_ref()).filter(|php| php.model.is_foreign())
    {
        return foreign(report, php);
    }
    let planned = plan.and_then(|plan| plan.php.as_ref()).map(|php| php.worker.clone());
    let user = plan.and_then(|plan| plan.php.as_ref()).and_then(|php| php.user.as_ref());
    // Without a plan the reason may be PHP itself, which is then reported already.
    let worker = planned.or_else(|| php::select(settings, environment).ok())?;
    let info = match php::info(&worker, settings, user) {
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
    if let Some(php) = plan.and_then(|plan| plan.php.as_ref()) {
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

/// Checks whether PHP can run as its user, and use its files then. If that cannot be tried here, the rest is checked as the current user.
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

/// Checks the program of a model that runs PHP's own.
fn foreign(report: &mut Report, php: &PhpPlan) -> Option<Info> {
    let program = php.worker.program.display();
    let info = match php::foreign_info(&php.worker, php.user.as_ref()) {
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
