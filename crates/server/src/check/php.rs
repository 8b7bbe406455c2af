//! PHP: the versions found, the one that would run, its OPcache.

use pool::Model;
use serde_json::Value;

use super::{Report, Topic};
use crate::config::{Environment, Settings};
use crate::php::{self, Info};
use crate::plan::{PhpPlan, Plan};

/// Looks at PHP; what it says about itself is for the other checks.
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
    if let Some(php) = plan.and_then(|plan| plan.php.as_ref()).filter(|php| php.model.is_foreign())
    {
        return foreign(report, php);
    }
    let planned = plan.and_then(|plan| plan.php.as_ref()).map(|php| php.worker.clone());
    // Without a plan the reason may be PHP itself, which is then reported already.
    let worker = planned.or_else(|| php::select(settings, environment).ok())?;
    let info = match php::info(&worker, settings) {
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
    report.php(info.clone());
    Some(info)
}

/// Looks at the program of a model that runs PHP's own.
fn foreign(report: &mut Report, php: &PhpPlan) -> Option<Info> {
    let program = php.worker.program.display();
    let info = match php::foreign_info(&php.worker) {
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
