//! `[applications.NAME]`: further applications of one server, and further pools of the one at PATH.
//!
//! Invariants
//! - An application has every setting that a release brings along, and its table holds those that differ: the rest is as for the application at PATH.
//! - What names files, paths and variables of the application at PATH is nothing to another one: it is not inherited by an application with a `path`.
//! - No two applications claim the same requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front_http::{Claim, HostClaim, PathClaim};

use super::file::{Entry, Table};
use super::value::{Raw, Value, Wrong};
use super::{ConfigError, KEYS, Key, Origin, Settings, Sources, nearest, read_raw};
use crate::system::paths::project_folder;

/// The name of the application at PATH among others.
pub(crate) const MAIN: &str = "main";

/// Settings that a reload applies and that only the server has.
const OF_SERVER: &[&str] = &[
    "http.tls_cert",
    "http.tls_key",
    "http.client_ca",
    "http.client_crl",
    "http.client_certificates",
    "http.rate_limits",
    "http.basic_auth",
    "http.redirects",
    "http.headers",
    "databases.connectors",
];

/// Settings that belong to the application at PATH alone: its files, its paths, its variables.
pub(super) const OF_PATH: &[&str] = &[
    "http.document_root",
    "http.front_controller",
    "http.sendfile",
    "php.worker_script",
    "php.await_after",
    "php.entries",
    "php.warm_up",
    "php.reload_check",
    "php.env",
    "websockets.routes",
];

/// Settings with paths in each application's own folder, where relative paths start: another application does not inherit those of the
/// application at PATH.
pub(super) const IN_FOLDER: &[&str] = &["sandbox.readable", "sandbox.writable"];

/// Settings about PHP's user: the server has them for as long as it runs, and each application may set its own.
const OF_BOTH: &[&str] = &[PHP_USER, PHP_GROUP];

const PHP_USER: &str = "php.user";
const PHP_GROUP: &str = "php.group";

/// The group of a user: an application with another user does not inherit it.
pub(super) const OF_USER: &[&str] = &[PHP_GROUP];

/// Programs of a PHP version: an application with another version does not inherit them.
pub(super) const OF_VERSION: &[&str] = &["php.worker_program", "php.cli"];

/// An application beside the one at PATH.
#[derive(Clone, Debug)]
pub(crate) struct NamedApplication {
    /// Letters, digits, `-` and `_`.
    pub name: Arc<str>,
    /// The application's folder or script; none: the application at PATH, in a separate pool.
    pub path: Option<PathBuf>,
    /// The requests that are for it.
    pub claims: Vec<Claim>,
    /// The settings that apply to the application.
    pub settings: Settings,
    /// The application's table names PHP's user.
    pub names_user: bool,
}

/// A key of an application's table that is not a setting.
pub(super) struct ApplicationKey {
    /// The name.
    pub name: &'static str,
    /// The description.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page has it"))]
    pub doc: &'static str,
    /// The accepted values.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page has it"))]
    pub expected: fn() -> String,
}

impl fmt::Debug for ApplicationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const PATH: &str = "path";
const HOSTS: &str = "hosts";
const PATHS: &str = "paths";

/// The keys of `[applications.NAME]` itself, in the order of the manual.
pub(super) const APPLICATION_KEYS: &[ApplicationKey] = &[
    ApplicationKey {
        name: PATH,
        doc: "Its folder, or one script, as `hearth serve PATH`. Without it: the application at PATH, in a separate pool.",
        expected: <PathBuf as Value>::expected,
    },
    ApplicationKey {
        name: HOSTS,
        doc: "The hosts of its requests. `*.example.com` is every name below `example.com`, without that name itself.",
        expected: <Vec<HostClaim> as Value>::expected,
    },
    ApplicationKey {
        name: PATHS,
        doc: "The paths of its requests: `/legacy` is that path and everything below it. They reach it unchanged. Without it: all paths of its hosts.",
        expected: <Vec<PathClaim> as Value>::expected,
    },
];

impl Key {
    /// Returns whether each application may set it.
    pub(crate) fn is_of_application(&self) -> bool {
        (self.is_reloaded() && !OF_SERVER.contains(&self.name)) || OF_BOTH.contains(&self.name)
    }

    /// Returns whether an application with its own path does not inherit it.
    pub(crate) fn is_of_path(&self) -> bool {
        OF_PATH.contains(&self.name)
    }
}

impl Value for HostClaim {
    const PLACEHOLDER: &str = "HOST";
    const EXPECTED: &str = "a host such as `shop.example.com` or `*.example.com`, without a port";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        text.parse().map_err(|_no_host| Wrong::quoted(text))
    }
}

impl Value for PathClaim {
    const PLACEHOLDER: &str = "PATH";
    const EXPECTED: &str =
        "a path such as `/legacy`, decoded and without `*`: everything below it is included";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        text.parse().map_err(|_no_path| Wrong::quoted(text))
    }
}

/// The names in tables that no application has.
pub(super) fn unknown_names(file: &Path, tables: &[Table]) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for table in tables {
        errors.extend(wrong_name(file, table));
        errors.extend(table.entries.iter().filter_map(|entry| unknown(file, table, entry)));
    }
    errors
}

fn wrong_name(file: &Path, table: &Table) -> Option<ConfigError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if table.name.is_empty() || table.name.len() > 64 || !table.name.bytes().all(fits) {
        return Some(together(
            format!(
                "`{}` is no name for an application ({}:{})",
                table.name,
                file.display(),
                table.line
            ),
            "write letters, digits, `-` and `_`, 64 of them at most",
        ));
    }
    (table.name == MAIN).then(|| {
        together(
            format!(
                "`applications.{MAIN}` ({}:{}): that is what the application at PATH is called",
                file.display(),
                table.line
            ),
            "write its settings outside `[applications]`, or choose another name",
        )
    })
}

fn unknown(file: &Path, table: &Table, entry: &Entry) -> Option<ConfigError> {
    let whole = |key: &str| format!("applications.{}.{key}", table.name);
    let known = KEYS.iter().find(|key| key.name == entry.name);
    if known.is_some_and(Key::is_of_application)
        || APPLICATION_KEYS.iter().any(|key| key.name == entry.name)
    {
        return None;
    }
    if known.is_some() {
        return Some(together(
            format!(
                "`{}` ({}:{}): `{}` is the server's, and no application has its own",
                whole(&entry.name),
                file.display(),
                entry.line,
                entry.name
            ),
            format!("move it to `[{}]`", entry.name.split('.').next().unwrap_or_default()),
        ));
    }
    Some(ConfigError::UnknownKey {
        name: whole(&entry.name),
        origin: Origin::File { path: file.to_owned(), line: entry.line },
        nearest: nearest_key(&entry.name).map(whole),
    })
}

/// A key of the same name in its section, a key like it, or any like it.
fn nearest_key(name: &str) -> Option<&'static str> {
    let keys = || KEYS.iter().filter(|key| key.is_of_application());
    let bare = name.rsplit('.').next().unwrap_or(name);
    if let Some(other) = keys().find(|key| key.section_and_key().1 == bare) {
        return Some(other.name);
    }
    let own = APPLICATION_KEYS.iter().map(|key| key.name);
    nearest(name, own.chain(keys().map(|key| key.name)))
}

fn together(problem: String, hint: impl Into<String>) -> ConfigError {
    ConfigError::Together { problem, hint: hint.into() }
}

/// Reads the tables of the file, if there is one.
pub(super) fn read(sources: &Sources) -> Result<Vec<NamedApplication>, ConfigError> {
    let Some(file) = &sources.file else { return Ok(Vec::new()) };
    let mut all: Vec<NamedApplication> = Vec::new();
    for table in file.applications() {
        let application = application(sources, &file.path, table)?;
        for claim in &application.claims {
            if let Some(other) = all.iter().find(|other| other.claims.contains(claim)) {
                return Err(together(
                    format!(
                        "`applications.{}` and `applications.{}` both claim {claim}",
                        other.name, application.name
                    ),
                    "each host and path is for one of them: change `hosts` or `paths`",
                ));
            }
        }
        all.push(application);
    }
    Ok(all)
}

/// A key of the table itself.
fn own<T: Value>(file: &Path, table: &Table, key: &'static str) -> Result<Option<T>, ConfigError> {
    let Some(entry) = table.entry(key) else { return Ok(None) };
    let origin = Origin::File { path: file.to_owned(), line: entry.line };
    let base = file.parent().unwrap_or_else(|| Path::new("/"));
    read_raw(key, &entry.raw, &origin, base).map(Some)
}

fn application(
    sources: &Sources,
    file: &Path,
    table: &Table,
) -> Result<NamedApplication, ConfigError> {
    let path: Option<PathBuf> = own(file, table, PATH)?;
    let hosts: Vec<HostClaim> = own(file, table, HOSTS)?.unwrap_or_default();
    let paths: Vec<PathClaim> = own(file, table, PATHS)?.unwrap_or_default();
    let hosts = if hosts.is_empty() { vec![HostClaim::Any] } else { hosts };
    let paths = if paths.is_empty() { vec![PathClaim::default()] } else { paths };
    let mut claims: Vec<Claim> = Vec::new();
    for host in &hosts {
        for path in &paths {
            let claim = Claim { host: host.clone(), path: path.clone() };
            if claim == Claim::everything() {
                return Err(together(
                    format!(
                        "`applications.{}` ({}:{}) names neither hosts nor paths",
                        table.name,
                        file.display(),
                        table.line
                    ),
                    "add `hosts` or `paths`: unclaimed requests go to the application at PATH",
                ));
            }
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
    }
    let settings = Settings::read(&sources_of(sources, table, path.as_deref()))?;
    let name = table.name.as_str().into();
    let names_user = OF_BOTH.iter().any(|key| table.entry(key).is_some());
    Ok(NamedApplication { name, path, claims, settings, names_user })
}

/// Returns the sources of one application's settings: its own table, and the sources for all.
fn sources_of(sources: &Sources, table: &Table, path: Option<&Path>) -> Sources {
    let mut of_it = sources.clone();
    of_it.forget(|key| {
        let foreign = path.is_some() && OF_PATH.contains(&key);
        let unmeant =
            |names: &str, keys: &[&str]| table.entry(names).is_some() && keys.contains(&key);
        foreign || unmeant("php.version", OF_VERSION) || unmeant(PHP_USER, OF_USER)
    });
    of_it.application = Some(table.clone());
    // One that is not there is refused when it is looked at.
    of_it.own_folder =
        path.map(|path| project_folder(path).unwrap_or_else(|_gone| path.to_owned()));
    of_it
}

/// Returns the errors of all tables of the file.
pub(super) fn wrong(sources: &Sources) -> Vec<ConfigError> {
    let Some(file) = &sources.file else { return Vec::new() };
    let mut errors = Vec::new();
    for table in file.applications() {
        let path = own::<PathBuf>(&file.path, table, PATH);
        let hosts = own::<Vec<HostClaim>>(&file.path, table, HOSTS).err();
        let paths = own::<Vec<PathClaim>>(&file.path, table, PATHS).err();
        let known = path.as_ref().ok().cloned().flatten();
        errors.extend([path.err(), hosts, paths].into_iter().flatten());
        errors.extend(Settings::wrong(&sources_of(sources, table, known.as_deref())));
    }
    errors
}

#[cfg(test)]
#[path = "applications_tests.rs"]
mod tests;
