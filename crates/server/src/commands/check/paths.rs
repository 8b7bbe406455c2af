//! Paths and names in settings: the run folder, the access log, folders for files that PHP sends, and log filters.

use std::path::Path;

use rustix::fs::Access;
use rustix::process::geteuid;

use super::access::AccessCheck;
use super::{Report, Topic};
use crate::app::boot::RUN_DIR_HINT;
use crate::config::{Settings, nearest};
use crate::system::run_dir::only_writer;

/// Checks the paths of the server.
pub(super) fn look(report: &mut Report, settings: &Settings, access: &AccessCheck) {
    targets(report, settings);
    if let Some(folder) = settings.server.run_dir.0.as_deref()
        && let Err(error) = access.can_make(folder).and_then(|()| is_safe(folder, access))
    {
        report.problem(
            Topic::System,
            format!("cannot use the run folder {}: {error}", folder.display()),
            RUN_DIR_HINT,
        );
    }
    if let (Some(_), Some(file)) = (&settings.http.access_log, &settings.http.access_log_path.0)
        && let Err(error) = can_append(access, file)
    {
        report.problem(
            Topic::System,
            format!("cannot open the access log {}: {error}", file.display()),
            "correct `http.access_log_path`; its folder must exist",
        );
    }
}

/// Checks whether other users could replace files in an existing run folder.
fn is_safe(folder: &Path, access: &AccessCheck) -> std::io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    only_writer(folder, access.user().unwrap_or_else(|| geteuid().as_raw()))
}

/// Parts of the program that log the most, as `log.level` names them. Libraries do so, too.
const LOGS: &[&str] = &[
    "hearth",
    "php",
    "php_fpm",
    "pool",
    "front_http",
    "front_lambda",
    "channels",
    "egress",
    "connector",
    "authority",
    "traces",
];

/// A filter takes any name.
fn targets(report: &mut Report, settings: &Settings) {
    for target in settings.log.level.targets().filter(|target| !LOGS.contains(target)) {
        if let Some(near) = nearest(target, LOGS.iter().copied()) {
            let what = format!("nothing logs as `{target}` (`log.level`)");
            report.warning(Topic::Settings, what, format!("did you mean `{near}`?"));
        }
    }
}

fn can_append(access: &AccessCheck, file: &Path) -> std::io::Result<()> {
    match access.may(file, Access::WRITE_OK) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let folder = file.parent().unwrap_or_else(|| Path::new("/"));
            access.may(folder, Access::WRITE_OK | Access::EXEC_OK)
        }
        asked => asked,
    }
}

/// Checks the paths of one application in this folder.
pub(super) fn of_application(report: &mut Report, settings: &Settings, folder: &Path) {
    for (prefix, directory) in &settings.http.sendfile.0 {
        let directory = folder.join(directory);
        if !directory.is_dir() {
            report.warning(
                Topic::Application,
                format!(
                    "`{prefix}` of `[http.sendfile]` names {}, which is no folder",
                    directory.display()
                ),
                "make it, or correct it: until then PHP's answers that name files in it get 404",
            );
        }
    }
}
