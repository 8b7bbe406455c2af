//! `hearth upgrade`: the installed program takes a running server's place.

use crate::app::target::Target;
use crate::commands::remote::find;
use crate::config::Environment;
use crate::failure::Failure;
use crate::ops::upgrades::Upgraded;

/// `hearth upgrade`: has the program that is installed now take a running server's place.
pub(crate) fn upgrade(target: &Target, environment: &Environment) -> Result<String, Failure> {
    let server = find(target, environment)?;
    let Upgraded { pid, version, milliseconds } = server.ask("POST", "/upgrade")?;
    let old = server.who.pid;
    Ok(format!(
        "process {pid} (Hearth {version}) has taken over after {milliseconds} ms; process {old} finishes what it has\n"
    ))
}
