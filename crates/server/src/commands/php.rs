//! `hearth php`: becomes the PHP command line program of the version that `hearth serve` would use.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::app::php::cli_program;
use crate::config::{Environment, Settings};
use crate::failure::Failure;
use crate::subsystems::egress;

/// Replaces this process with the PHP command line program. Returns only if that fails.
pub(crate) fn become_cli(
    settings: &Settings,
    environment: &Environment,
    arguments: &[OsString],
) -> Failure {
    let program = match cli_program(settings, environment) {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let mut command = Command::new(&program);
    command.args(arguments);
    if environment.variable(egress::VARIABLE).is_none()
        && let Some(socket) = egress::expected_socket(settings)
    {
        command.env(egress::VARIABLE, socket);
    }
    command.envs(settings.php.env.0.iter().map(|(name, value)| (name, value)));
    let error = command.exec();
    Failure::caused_by(
        format!("cannot run {}", program.display()),
        &error,
        "set `php.cli` (HEARTH_PHP_CLI) to PHP's command line program",
    )
}
