//! The PHP versions at hand: worker programs, what they report about themselves, and the command line program.
//!
//! Invariants
//! - A version is read from a file name; a worker program is run for it only by `check`, and for the model `snapshot`.
//! - Root runs no program in place of another user: settings of the application may name it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

use pool::Model;
use rustix::process::geteuid;

use crate::app::user;
use crate::config::{Environment, PhpVersion, Settings};
use crate::failure::Failure;
use crate::system::users::PhpUser;

/// A worker program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    /// `8.2` of `hearth-worker-8.2`; `None` when a program of another name was configured.
    pub version: Option<PhpVersion>,
    /// Absolute.
    pub program: PathBuf,
}

/// The output of `hearth-worker-8.x --info-json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Info {
    /// `8.2.35`.
    pub php_version: String,
    /// The SAPI's name.
    pub sapi: String,
    /// Thread-safe build.
    pub zts: bool,
    /// Versions by name.
    pub extensions: BTreeMap<String, Option<String>>,
    /// The php.ini read, if any.
    #[serde(default)]
    pub ini_file: Option<String>,
    /// Further ini files.
    #[serde(default)]
    pub scanned: serde_json::Value,
    /// The names of all its settings.
    #[serde(default, skip_serializing)]
    pub ini: Vec<String>,
    /// OPcache's settings.
    #[serde(default)]
    pub opcache: serde_json::Value,
    /// `APCu` is there and enabled: workers share its cache.
    #[serde(default, skip_serializing)]
    pub apcu: bool,
    /// Messages that PHP printed when it started: extensions that do not load, values that it rejects.
    #[serde(skip)]
    pub complaints: Vec<String>,
}

/// Returns all worker programs on this machine, the highest version first.
pub(crate) fn workers(environment: &Environment) -> Vec<Worker> {
    let mut found: Vec<Worker> = Vec::new();
    for folder in environment.worker_folders() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let version = name
                .to_str()
                .and_then(|name| PhpVersion::parse(name.strip_prefix("hearth-worker-")?));
            if let Some(version) = version
                && !found.iter().any(|worker| worker.version == Some(version))
            {
                found.push(Worker { version: Some(version), program: entry.path() });
            }
        }
    }
    found.sort_by_key(|worker| std::cmp::Reverse(worker.version));
    found
}

/// The worker program that the settings ask for.
pub(crate) fn select(settings: &Settings, environment: &Environment) -> Result<Worker, Failure> {
    if let Some(program) = &settings.php.worker_program.0 {
        return Ok(Worker { version: settings.php.version.0, program: program.clone() });
    }
    let found = workers(environment);
    let wanted = settings.php.version.0;
    let chosen = found.iter().find(|worker| wanted.is_none() || worker.version == wanted);
    if let Some(worker) = chosen {
        return Ok(worker.clone());
    }
    let folders: Vec<String> =
        environment.worker_folders().iter().map(|folder| folder.display().to_string()).collect();
    Err(match wanted {
        None => Failure::failed(
            format!("no PHP found: no hearth-worker-8.x in {}", folders.join(" or ")),
            "`make build` builds one for each php-config; HEARTH_LIB_DIR names another folder",
        ),
        Some(version) if found.is_empty() => Failure::failed(
            format!(
                "no PHP {version} found: no hearth-worker-{version} in {}",
                folders.join(" or ")
            ),
            "`make build` builds one for each php-config; HEARTH_LIB_DIR names another folder",
        ),
        Some(version) => {
            let names: Vec<String> = found
                .iter()
                .filter_map(|worker| worker.version)
                .map(|version| version.to_string())
                .collect();
            Failure::misused(
                format!("no PHP {version} found"),
                format!(
                    "versions found: {}; `--php {}`",
                    names.join(", "),
                    names.first().cloned().unwrap_or_default()
                ),
            )
        }
    })
}

/// The program that runs PHP in a model.
pub(crate) fn program(
    model: Model,
    settings: &Settings,
    environment: &Environment,
) -> Result<Worker, Failure> {
    let version = settings.php.version.0;
    let (name, package) = match model {
        Model::Fpm => ("php-fpm", "fpm"),
        Model::Cgi => ("php-cgi", "cgi"),
        Model::Builtin => ("php", "cli"),
        _ => return select(settings, environment),
    };
    if model == Model::Builtin
        && let Some(program) = &settings.php.cli.0
    {
        return Ok(Worker { version, program: program.clone() });
    }
    // Folders that an ordinary user's PATH leaves out.
    let mut folders = environment.search_path();
    folders.extend(["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from));
    folders.extend(environment.program_folder());
    let find =
        |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let of_version = |version: PhpVersion| {
        let program = find(&format!("{name}{version}"))?;
        Some(Worker { version: Some(version), program })
    };
    // The version that the other models would run, else the highest there is.
    let mut versions: Vec<PhpVersion> = match version {
        Some(version) => vec![version],
        None => {
            (0..100).rev().filter_map(|minor| PhpVersion::parse(&format!("8.{minor}"))).collect()
        }
    };
    if version.is_none()
        && let Some(newest) = workers(environment).first().and_then(|worker| worker.version)
    {
        versions.insert(0, newest);
    }
    let plain = || {
        let program = find(name).filter(|_| version.is_none())?;
        Some(Worker { version: None, program })
    };
    versions.into_iter().find_map(of_version).or_else(plain).ok_or_else(|| {
        let what = version.map_or_else(|| name.to_owned(), |version| format!("{name}{version}"));
        let debian = version
            .map_or_else(|| format!("php-{package}"), |version| format!("php{version}-{package}"));
        Failure::failed(
            format!("no {what} found, which the model `{}` runs", model.name()),
            format!("`apt-get install {debian}`, or choose another `--model`"),
        )
    })
}

/// Returns the user that a command asks PHP's programs as: that of the plan, else, for root, the user that the server would run PHP as. `None` is the
/// current user. Fails when root cannot know that user.
pub(crate) fn asks_as(
    planned: Option<&PhpUser>,
    settings: &Settings,
    environment: &Environment,
) -> Result<Option<PhpUser>, Failure> {
    if planned.is_some() || !geteuid().is_root() {
        return Ok(planned.cloned());
    }
    if let Some(user) = PhpUser::of(settings, environment)? {
        return Ok(Some(user));
    }
    // PHP of a server that was root's has its environment, too.
    let as_server = |identity| PhpUser { identity, env: Vec::new(), hidden: Vec::new() };
    Ok(user::of_server(settings)?.map(as_server))
}

/// Asks a worker program about its PHP, with the application's ini settings.
pub(crate) fn info(
    worker: &Worker,
    settings: &Settings,
    user: Option<&PhpUser>,
) -> Result<Info, Failure> {
    let program = worker.program.display().to_string();
    let rebuild = "`make build` builds it again; run it by hand with `--info-json` to see more";
    let mut command = Command::new(&worker.program);
    pool::give_settings(&mut command, &settings.php.ini.0);
    PhpUser::put_on(user, &mut command);
    // Its error messages are read here, and do not belong in the application's log.
    command.args(["--ini", "error_log="]);
    // Xdebug would connect to an editor, and wait for it.
    command.env("XDEBUG_MODE", "off");
    let output = command
        .arg("--info-json")
        .output()
        .map_err(|error| Failure::caused_by(format!("cannot run {program}"), &error, rebuild))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::failed(
            format!("{program} --info-json failed ({}): {stderr}", output.status),
            rebuild,
        ));
    }
    let info: Info = serde_json::from_slice(&output.stdout).map_err(|error| {
        Failure::caused_by(format!("{program} --info-json printed something else"), &error, rebuild)
    })?;
    Ok(Info { complaints: complaints(&String::from_utf8_lossy(&output.stderr)), ..info })
}

/// `PHP Warning:  PHP Startup: Unable to load dynamic library … in Unknown on line 0`
fn complaints(stderr: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in stderr.lines() {
        let said = line.strip_prefix("PHP ").and_then(|line| line.split_once(": "));
        let Some((_, said)) = said else { continue };
        let said = said.trim_start();
        let said = said.strip_prefix("PHP Startup: ").unwrap_or(said);
        let said = said.strip_suffix(" in Unknown on line 0").unwrap_or(said);
        if !found.iter().any(|known| known == said) {
            found.push(said.to_owned());
        }
    }
    found
}

/// The output of `hearth-worker-8.x --probe-snapshot`: the way to find written pages on this machine.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Probe {
    /// `file` or `none`.
    pub tracker: String,
    /// The reason why there is none; empty otherwise.
    #[serde(default)]
    pub why: String,
}

impl Probe {
    /// The model `snapshot` cannot run on this machine.
    pub(crate) fn is_none(&self) -> bool {
        self.tracker == "none"
    }
}

/// Runs a worker program to find out how the model `snapshot` could find written pages here. A program without that option cannot do it.
pub(crate) fn probe(worker: &Worker, user: Option<&PhpUser>, settings: &Settings) -> Probe {
    let none = |why: String| Probe { tracker: "none".to_owned(), why };
    let program = worker.program.display();
    let mut command = Command::new(&worker.program);
    command.arg("--probe-snapshot");
    PhpUser::put_on(user, &mut command);
    command.envs(settings.php.env.0.iter().map(|(name, value)| (name, value)));
    match command.output() {
        Err(error) => none(format!("cannot run {program}: {error}")),
        Ok(output) if !output.status.success() => {
            none(format!("{program} --probe-snapshot failed ({})", output.status))
        }
        Ok(output) => serde_json::from_slice(&output.stdout).unwrap_or_else(|_other| {
            none(format!("{program} --probe-snapshot printed something else"))
        }),
    }
}

/// Runs one of PHP's own programs for the same information, as far as all of them print it. OPcache's state is not part of it.
pub(crate) fn foreign_info(worker: &Worker, user: Option<&PhpUser>) -> Result<Info, Failure> {
    let program = worker.program.display().to_string();
    let ask = |option: &str| {
        let hint = format!("run it by hand: `{program} {option}`");
        let mut command = Command::new(&worker.program);
        command.arg(option);
        PhpUser::put_on(user, &mut command);
        let output = command.output().map_err(|error| {
            Failure::caused_by(format!("cannot run {program}"), &error, hint.clone())
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::failed(
            format!("{program} {option} failed ({}): {stderr}", output.status),
            hint,
        ))
    };
    // `PHP 8.2.35 (fpm-fcgi) (built: …`
    let version = ask("-v")?;
    let (version, rest) =
        version.strip_prefix("PHP ").and_then(|rest| rest.split_once(" (")).ok_or_else(|| {
            Failure::failed(
                format!("{program} -v names no PHP version"),
                "set `php.version` to another one",
            )
        })?;
    let extensions = ask("-m")?
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('['))
        .map(|name| (name.to_owned(), None))
        .collect();
    Ok(Info {
        php_version: version.to_owned(),
        sapi: rest.split(')').next().unwrap_or_default().to_owned(),
        zts: rest
            .lines()
            .next()
            .is_some_and(|line| line.contains("(ZTS)") || line.contains(" ZTS ")),
        extensions,
        ini_file: None,
        ini: Vec::new(),
        scanned: serde_json::Value::Null,
        opcache: serde_json::Value::Null,
        apcu: false,
        complaints: Vec::new(),
    })
}

/// Returns PHP's command line program.
pub(crate) fn cli_program(
    settings: &Settings,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    if let Some(program) = &settings.php.cli.0 {
        return Ok(program.clone());
    }
    let version = settings
        .php
        .version
        .0
        .or_else(|| workers(environment).first().and_then(|worker| worker.version));
    let mut folders = environment.search_path();
    folders.extend(environment.program_folder());
    let in_path =
        |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    if let Some(version) = version
        && let Some(program) = in_path(&format!("php{version}"))
    {
        return Ok(program);
    }
    // `php` is whatever the system calls so: right unless a version was asked for by name.
    match (in_path("php"), settings.php.version.0) {
        (Some(program), None) => Ok(program),
        (_, version) => {
            let name = version.map_or_else(|| "php".to_owned(), |version| format!("php{version}"));
            Err(Failure::failed(
                format!("no {name} in PATH"),
                "install PHP's command line program, or set `php.cli` (HEARTH_PHP_CLI) to it",
            ))
        }
    }
}

/// Returns whether PHP has an extension; names differ in case, and Composer writes `-` for a space.
pub(crate) fn has_extension(info: &Info, name: &str) -> bool {
    let plain = |name: &str| name.to_ascii_lowercase().replace([' ', '-'], "_");
    // Composer's and Hearth's name differ for this one alone.
    let wanted = if name == "opcache" { "zend_opcache".to_owned() } else { plain(name) };
    info.extensions.keys().any(|known| plain(known) == wanted)
}

#[cfg(test)]
#[path = "php_tests.rs"]
mod tests;
