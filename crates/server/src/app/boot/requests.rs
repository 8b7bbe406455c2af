//! The names of services, and the failures of a boot.

use std::path::Path;

use pool::StartError;

use super::reason::Reason;
use crate::app::plan::Plan;
use crate::failure::Failure;
use crate::ops::log;

/// Returns the service name of an application for traces, if the settings name none.
pub(crate) fn service_of(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "php".to_owned())
}

/// Returns the failure of an application's boot, after the line that explains what was booted.
pub(crate) fn explained_boot_failure(error: &StartError, plan: &Plan) -> Failure {
    log::line(&plan.explain(None));
    boot_failure(error)
}

/// Returns the failure of an application's boot: what to do depends on the error.
pub(crate) fn boot_failure(error: &StartError) -> Failure {
    if let StartError::Boot { output } = error {
        return Failure::caused(error, Reason::of(output).hint);
    }
    let hint = match error {
        StartError::Sandbox(pool::SandboxError::NoLandlock) => {
            "take the paths out of `[sandbox]` and set `sandbox.enabled`, or run a kernel that has it"
        }
        StartError::Sandbox(pool::SandboxError::Filtered(_)) => {
            "allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self in `SystemCallFilter=` or in the container's seccomp profile"
        }
        StartError::Sandbox(_) => "correct `[sandbox]`; `hearth check` shows what is wrong with it",
        StartError::Hidden { .. } => {
            "mount /proc without `hidepid`, or set `ProtectProc=default` in the unit: with `php.user` the server looks at processes of another user"
        }
        StartError::Program { .. } => {
            "`hearth check` looks at the PHP programs; `make build` builds them"
        }
        StartError::Fork { .. } => {
            "allow the calls that Hearth needs in the container's seccomp profile (packaging/seccomp.json has them all), and look at limits on processes and memory"
        }
        StartError::Unfit { .. } => {
            "use `--model prespawn`, which boots it in each process, or find what leaves a thread running at boot"
        }
        StartError::Zygote { output, .. } if output.contains("Unable to create lock file") => {
            "OPcache needs a folder that it may write: mount a tmpfs at /tmp, or set `--ini opcache.lockfile_path=FOLDER`"
        }
        StartError::Zygote { .. } => "`hearth check` shows PHP's settings and extensions",
        _ => "`hearth check` looks at limits and folders",
    };
    Failure::caused(error, hint)
}
