//! The programs of `[processes]`: where they are found, and the surroundings that they share with the application's PHP.

use std::path::{Path, PathBuf};

use pool::ProgramOptions;
use rustix::fs::{Access, access};

use super::options::{environment, sandbox, with_token};
use crate::app::php::cli_program;
use crate::config::{CommandLine, Environment, Settings};
use crate::failure::Failure;
use crate::system::users::PhpUser;

/// Folder, settings and user that an application gives to its programs.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    /// The application's folder.
    pub folder: &'a Path,
    /// The application's settings.
    pub settings: &'a Settings,
    /// The user that its PHP runs as, if that is not the server's own user.
    pub user: Option<&'a PhpUser>,
    /// The broker's socket for that user.
    pub egress_socket: Option<&'a Path>,
    /// The environment about connectors, if they are for that user.
    pub connectors: &'a [(String, String)],
}

/// Returns how a command is started.
pub(crate) fn program_options(
    command: &CommandLine,
    surroundings: &Surroundings<'_>,
    environment_of_server: &Environment,
) -> Result<ProgramOptions, Failure> {
    let Surroundings { folder, settings, user, egress_socket, connectors } = *surroundings;
    let program = program(&command.program, folder, settings, environment_of_server)?;
    let mut env = environment(settings, &[], user, egress_socket);
    env.extend(connectors.iter().cloned());
    let sandbox = sandbox(&settings.sandbox).map(|sandbox| with_token(sandbox, &env));
    Ok(ProgramOptions {
        program,
        arguments: command.arguments.clone(),
        directory: folder.to_owned(),
        env,
        hidden: user.map(|user| user.hidden.clone()).unwrap_or_default(),
        identity: user.map(|user| user.identity.clone()),
        sandbox,
    })
}

/// Finds a program: `php` is that of the workers' version, a name without `/` is in PATH, another path in the
/// application's folder.
pub(crate) fn program(
    name: &str,
    folder: &Path,
    settings: &Settings,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    if name == "php" {
        return cli_program(settings, environment);
    }
    let can_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if name.contains('/') {
        let path = folder.join(name);
        return if can_run(&path) {
            Ok(path)
        } else {
            Err(Failure::failed(
                format!("{} is no program", path.display()),
                "correct `command`: a path starts at the application's folder, and must be executable",
            ))
        };
    }
    let of_php = settings.php.env.0.iter().find(|(name, _)| name == "PATH");
    let folders = of_php.map_or_else(
        || environment.search_path(),
        |(_, path)| std::env::split_paths(path).collect(),
    );
    let found = folders.iter().map(|folder| folder.join(name));
    found.into_iter().find(|path| path.is_absolute() && can_run(path)).ok_or_else(|| {
        Failure::failed(
            format!("no program `{name}` in PATH"),
            "correct `command`, or install the program",
        )
    })
}
