//! Settings: flag > environment > `hearth.toml` > default, read once and turned into types.
//!
//! Invariants
//! - Nothing outside this module reads the environment.
//! - An unknown name is an error with the nearest known one; nothing is ignored silently.
//! - A wrong value is reported with the setting, the place it came from and the accepted values.

mod acme;
mod applications;
mod apps;
mod connectors;
mod dev;
mod dotenv;
mod environment;
mod file;
mod hints;
mod keys;
mod listeners;
mod log_filter;
mod processes;
#[cfg(test)]
mod reference;
mod reload;
mod rules;
mod traces;
mod value;
mod websockets;
mod workers;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

pub(crate) use applications::{MAIN, NamedApplication};
pub(crate) use apps::{AdapterUrl, Apps, LookupTarget, NamedApp, WebhookTarget};
pub(crate) use connectors::NamedConnector;
pub(crate) use dotenv::{DotEnv, of_php};
pub(crate) use environment::{Environment, TAKE_OVER};
pub(crate) use file::File;
use file::Table;
pub(crate) use hints::hint_of_application;
pub(crate) use keys::{Databases, KEYS, Key, SECTIONS, Sandbox, Settings, paragraphs};
pub(crate) use processes::{CommandLine, Cron, NamedProcess};
#[cfg(test)]
use reference::{command_line_page, settings_page};
pub(crate) use rules::ClientCertificates;
pub(crate) use traces::{CollectorUrl, OfOpenTelemetry};
pub(crate) use value::{
    Address, Auto, BootFailure, Handler, Listen, LogFormat, OriginUrl, PhpVersion, Raw, Token,
    Value, WatchedFiles,
};
pub(crate) use workers::{most_workers, workers};

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--listen`.
    Flag(&'static str),
    /// `HEARTH_HTTP_LISTEN`.
    Environment(String),
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// The table of settings.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Environment(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The reasons why the settings cannot be used. The program prints it and exits with 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// No setting has this name.
    #[error("unknown setting `{name}` ({origin})")]
    UnknownKey {
        /// The name as it was written.
        name: String,
        /// The origin of the name.
        origin: Origin,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
    /// A setting cannot have this value.
    #[error("wrong value for `{key}` ({origin}): {found}")]
    WrongValue {
        /// The setting.
        key: &'static str,
        /// The origin of the value.
        origin: Origin,
        /// The value that was found.
        found: String,
        /// The values that would be right.
        expected: String,
        /// The nearest text that would be right, where there are only a few.
        nearest: Option<&'static str>,
    },
    /// Two settings contradict each other, or one lacks another.
    #[error("{problem}")]
    Together {
        /// The conflict between settings.
        problem: String,
        /// The action that the user can take.
        hint: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The message of the parser.
        message: String,
    },
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::misused_by(&error, error.hint())
    }
}

impl ConfigError {
    /// Returns what the user can do.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::UnknownKey { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownKey { nearest: None, name, origin } => match origin {
                Origin::Environment(_) => {
                    format!("unset {name}, or see `hearth serve --help` for the names")
                }
                _ => "`hearth serve --help` names every setting".into(),
            },
            Self::WrongValue { expected, nearest: None, .. } => format!("write {expected}"),
            Self::WrongValue { expected, nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`? Write {expected}")
            }
            Self::Together { hint, .. } => hint.clone(),
            Self::Unreadable { path, .. } => {
                format!(
                    "check that {} exists and may be read, or leave out `--config`",
                    path.display()
                )
            }
            Self::NotToml { .. } => {
                "correct that line; strings need quotes in TOML: `level = \"debug\"`".into()
            }
        }
    }
}

/// The configuration sources, before values have types.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Values that the platform sets for every program on it, with the variable's name: stronger than defaults, weaker than all else.
    pub platform: Vec<(&'static str, &'static str, Raw)>,
    /// Values of OpenTelemetry's own variables, with the variable's name: stronger than files, weaker than our variables.
    pub shared: Vec<(&'static str, &'static str, Raw)>,
    /// Values of flags by the key's name.
    pub flags: Vec<(&'static str, Raw)>,
    /// `HEARTH_*` variables.
    pub environment: Vec<(String, String)>,
    /// `hearth.toml`, when there is one.
    pub file: Option<File>,
    /// The base directory for relative paths of flags and variables.
    pub current_dir: PathBuf,
    /// The base directory for relative paths of defaults and of `hearth.toml`: the application's folder.
    pub folder: PathBuf,
    /// The table of one of several applications: it is stronger than every source for all of them.
    pub application: Option<Table>,
    /// The application's own folder, if it has one.
    pub own_folder: Option<PathBuf>,
}

impl Sources {
    /// Returns the names that no setting has.
    fn unknown_names(&self) -> Vec<ConfigError> {
        let of_file = self.file.iter().flat_map(File::unknown_names);
        of_file.chain(environment::unknown_names(&self.environment)).collect()
    }

    /// Fails on the first unknown name.
    fn check_names(&self) -> Result<(), ConfigError> {
        self.unknown_names().into_iter().next().map_or(Ok(()), Err)
    }

    /// Removes the given keys from every configuration source.
    fn forget(&mut self, which: impl Fn(&str) -> bool) {
        self.platform.retain(|(name, ..)| !which(name));
        self.flags.retain(|(name, _)| !which(name));
        let named = KEYS.iter().filter(|key| which(key.name));
        let variables: Vec<String> = named.map(Key::environment).collect();
        self.environment.retain(|(name, _)| !variables.contains(name));
        if let Some(file) = &mut self.file {
            file.forget(which);
        }
    }

    /// Returns the values of each source that names a setting, the weakest first.
    fn written(&self, key: &Key) -> Vec<Raw> {
        let of = |(_, raw): &(&str, Raw)| raw.clone();
        let platform = self.platform.iter().filter(|(name, ..)| *name == key.name);
        let file = self.file.as_ref().and_then(|file| file.get(key.name));
        let variable = key.environment();
        let environment = self.environment.iter().filter(|(name, _)| *name == variable);
        let flags = self.flags.iter().filter(|(name, _)| *name == key.name);
        let platform = platform.map(|(.., raw)| raw.clone());
        let environment = environment.map(|(_, text)| Raw::Text(text.clone()));
        let file = file.map(|(raw, _)| raw.clone());
        let shared = self.shared.iter().filter(|(name, ..)| *name == key.name);
        let shared = shared.map(|(.., raw)| raw.clone());
        platform.chain(file).chain(shared).chain(environment).chain(flags.map(of)).collect()
    }

    /// Returns the base directory for relative paths: the application's own folder for per-application keys, else `usual`.
    fn base<'s>(&'s self, key: &Key, usual: &'s Path) -> &'s Path {
        let own = self.own_folder.as_deref();
        own.filter(|_| applications::IN_FOLDER.contains(&key.name)).unwrap_or(usual)
    }

    /// The value of one setting, typed, of its strongest source.
    pub(crate) fn value<T: Value>(&self, key: &'static Key) -> Result<T, ConfigError> {
        let mut value =
            read(key, &Raw::Text(key.default.to_owned()), &Origin::Default, &self.folder)?;
        if let Some((_, variable, raw)) = self.platform.iter().find(|(name, ..)| *name == key.name)
        {
            value = read(key, raw, &Origin::Environment((*variable).into()), &self.folder)?;
        }
        if let Some(file) = &self.file
            && let Some((raw, line)) = file.get(key.name)
        {
            let origin = Origin::File { path: file.path.clone(), line };
            value =
                T::overridden_by(value, read(key, raw, &origin, self.base(key, file.folder()))?);
        }
        if let Some((_, variable, raw)) = self.shared.iter().find(|(name, ..)| *name == key.name) {
            let origin = Origin::Environment((*variable).into());
            value = T::overridden_by(
                value,
                read(key, raw, &origin, self.base(key, &self.current_dir))?,
            );
        }
        let variable = key.environment();
        if let Some((_, text)) = self.environment.iter().find(|(name, _)| *name == variable) {
            let raw = Raw::Text(text.clone());
            value = T::overridden_by(
                value,
                read(key, &raw, &Origin::Environment(variable), self.base(key, &self.current_dir))?,
            );
        }
        if let Some((_, raw)) = self.flags.iter().find(|(name, _)| *name == key.name) {
            let origin =
                Origin::Flag(key.flag.expect("only settings with a flag have a value from one"));
            value = T::overridden_by(
                value,
                read(key, raw, &origin, self.base(key, &self.current_dir))?,
            );
        }
        if let (Some(table), Some(file)) = (&self.application, &self.file)
            && let Some(entry) = table.entry(key.name)
        {
            let origin = Origin::File { path: file.path.clone(), line: entry.line };
            value = T::overridden_by(value, read(key, &entry.raw, &origin, file.folder())?);
        }
        Ok(value)
    }
}

fn read<T: Value>(
    key: &'static Key,
    raw: &Raw,
    origin: &Origin,
    base: &Path,
) -> Result<T, ConfigError> {
    read_raw(key.name, raw, origin, base)
}

fn read_raw<T: Value>(
    key: &'static str,
    raw: &Raw,
    origin: &Origin,
    base: &Path,
) -> Result<T, ConfigError> {
    T::parse(raw, base).map_err(|wrong| ConfigError::WrongValue {
        key,
        origin: origin.clone(),
        nearest: nearest(wrong.0.trim_matches('`'), T::choices().iter().copied()),
        found: wrong.0,
        expected: T::expected(),
    })
}

/// Reads all settings for the application in `folder`.
pub(crate) fn load(
    folder: &Path,
    file: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Result<Settings, ConfigError> {
    load_on(Vec::new(), folder, file, flags, environment)
}

/// Loads the settings on a platform that sets some of them: see [`Sources::platform`].
pub(crate) fn load_on(
    platform: Vec<(&'static str, &'static str, Raw)>,
    folder: &Path,
    file: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Result<Settings, ConfigError> {
    let mut sources = sources(platform, folder, file, flags, environment)?;
    sources.check_names()?;
    dev::preset(&mut sources)?;
    let mut settings = Settings::read(&sources)?;
    settings.check_together()?;
    settings.applications = applications::read(&sources)?;
    settings.processes = processes::read(&sources)?;
    Ok(settings)
}

/// Returns every unknown name and every wrong value; [`load`] stops at the first. `None` stands for a conflict between several settings.
pub(crate) fn problems(
    folder: &Path,
    file: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Vec<ConfigError> {
    let Ok(sources) = sources(Vec::new(), folder, file, flags, environment) else {
        return Vec::new();
    };
    let mut all = sources.unknown_names();
    all.extend(Settings::wrong(&sources));
    all.extend(applications::wrong(&sources));
    all.extend(processes::wrong(&sources));
    // An error in a value for all applications is reported once.
    let mut told: Vec<String> = Vec::new();
    all.retain(|error| {
        let text = error.to_string();
        let is_new = !told.contains(&text);
        told.push(text);
        is_new
    });
    all
}

fn sources(
    platform: Vec<(&'static str, &'static str, Raw)>,
    folder: &Path,
    file: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Result<Sources, ConfigError> {
    let file = match file.or_else(|| environment.config_file()) {
        Some(path) => Some(File::read(&environment.current_dir.join(path))?),
        None => File::read_if_there(&folder.join("hearth.toml"))?,
    };
    Ok(Sources {
        platform,
        shared: OfOpenTelemetry::read(environment).settings,
        flags,
        environment: environment.settings(),
        file,
        current_dir: environment.current_dir.clone(),
        folder: folder.to_owned(),
        application: None,
        own_folder: None,
    })
}

impl Settings {
    /// Checks values that depend on each other.
    fn check_together(&self) -> Result<(), ConfigError> {
        let together = |problem: &str, hint: &str| {
            Err(ConfigError::Together { problem: problem.into(), hint: hint.into() })
        };
        if self.http.listen.is_empty() {
            return together(
                "`http.listen` is empty",
                "name at least one address, such as `127.0.0.1:8080`",
            );
        }
        if self.http.http3.0 && !self.http.listen.iter().any(|one| self.speaks_tls(one)) {
            return together(
                "`http.http3` is on, but no listener speaks HTTPS",
                "HTTP/3 is always encrypted: add `--tls-cert FILE` and `--tls-key FILE`, or `--acme NAME`",
            );
        }
        self.check_clients()?;
        if self.http.http3.0 && self.http.proxy_protocol {
            return together(
                "`http.http3` and `http.proxy_protocol` are on",
                "a load balancer with the PROXY protocol passes on TCP alone: leave `http.http3` out",
            );
        }
        if self.http.route_by_forwarded_host && !self.http.trusted_headers.tell_host() {
            return together(
                "`http.route_by_forwarded_host` is on, but no proxy is trusted about the host",
                "add `x-forwarded-host` to `http.trusted_headers`, or name `forwarded` there",
            );
        }
        if let Some(LookupTarget(WebhookTarget::Url(_))) = self.realtime.lookup
            && self.realtime.lookup_token.0.is_none()
        {
            return together(
                "`realtime.lookup` is a URL, and there is no `realtime.lookup_token`",
                "set one and check it on the other side: the answers contain secrets of applications",
            );
        }
        match (&self.http.tls_cert, &self.http.tls_key) {
            (Some(_), None) => {
                return together(
                    "`http.tls_cert` is set without `http.tls_key`",
                    "add `--tls-key FILE`",
                );
            }
            (None, Some(_)) => {
                return together(
                    "`http.tls_key` is set without `http.tls_cert`",
                    "add `--tls-cert FILE`",
                );
            }
            (Some(certificates), Some(keys)) if certificates.len() != keys.len() => {
                return together(
                    "`http.tls_cert` and `http.tls_key` name different numbers of files",
                    "name a key for each certificate, in the same order",
                );
            }
            _ => {}
        }
        if self.http.listen.iter().any(|listen| listen.tls == Some(true)) && !self.has_tls() {
            return together(
                "`http.listen` has `https://`, and there is no certificate",
                "add `--tls-cert FILE --tls-key FILE`, `--acme DOMAIN` or `--tls-local`",
            );
        }
        if !self.http.tls_local_names.is_empty() && !self.http.tls_local.0 {
            return together(
                "`http.tls_local_names` is set without `http.tls_local`",
                "add `--tls-local`",
            );
        }
        if self.php.group.0.is_some() && self.php.user.is_none() {
            return together("`php.group` is set without `php.user`", "name the user, too");
        }
        self.check_acme()
    }
}

/// Names of settings in other programs, and ours.
const OTHER_NAMES: &[(&str, &str)] = &[("acme.email", "acme.contact")];

/// The candidate that is most like `name`, if any is much like it.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests;
