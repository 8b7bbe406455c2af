//! `[processes.NAME]`: commands that run beside the application, such as queue workers and the scheduler.
//!
//! Invariants
//! - A command is split here, and never given to a shell.
//! - A line of cron that is never due is an error.

mod command;
mod cron;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use rustix::process::Signal;

pub(crate) use self::command::CommandLine;
pub(crate) use self::cron::Cron;
use super::applications::MAIN;
use super::file::Table;
use super::value::{Auto, Raw, Value, Wrong};
use super::{ConfigError, Origin, Sources, nearest, read_raw};

/// The settings of one process.
#[derive(Clone, Debug)]
pub(crate) struct NamedProcess {
    /// Letters, digits, `-` and `_`.
    pub name: Arc<str>,
    /// The name of the application that it belongs to.
    pub application: Arc<str>,
    /// The program and its arguments.
    pub command: CommandLine,
    /// How many run at once.
    pub count: NonZeroUsize,
    /// When it runs; `None`: always.
    pub cron: Option<Cron>,
    /// The zone of `cron`.
    pub zone: TimeZone,
    /// The signal that asks it to end.
    pub stop_signal: StopSignal,
    /// The time that it may take to end.
    pub stop_timeout: Duration,
}

/// A key of a process's table.
pub(super) struct ProcessKey {
    /// The name.
    pub name: &'static str,
    /// The description.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page has it"))]
    pub doc: &'static str,
    /// The accepted values.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page has it"))]
    pub expected: fn() -> String,
    /// The default; empty: none.
    pub default: &'static str,
}

macro_rules! process_keys {
    ($($name:ident: $type:ty = $default:literal, $doc:literal;)+) => {
        /// Every key that a process's table may have, in the order of the manual.
        pub(super) const PROCESS_KEYS: &[ProcessKey] = &[$(ProcessKey {
            name: stringify!($name),
            doc: $doc,
            expected: <$type as Value>::expected,
            default: $default,
        }),+];
    };
}

process_keys! {
    command: CommandLine = "", "The program and its arguments. A name without `/` is looked up in PATH, another relative path in the application's folder; `php` is the PHP of the workers' version.";
    count: NonZeroUsize = "1", "How many of it run at once.";
    cron: Option<Cron> = "off", "When it is started, as a line of crontab(5); without it, it runs all the time.";
    timezone: Auto<Zone> = "auto", "The time zone of `cron`. `auto`: the system's (`TZ`, else /etc/localtime).";
    stop_signal: StopSignal = "TERM", "The signal that asks it to finish its work and end.";
    stop_timeout: Duration = "60s", "How long it may take to end; then it is killed, with all processes of its group.";
    application: String = "main", "The application whose folder, user, sandbox and environment it has.";
}

/// A time zone.
#[derive(Clone, Debug)]
struct Zone(TimeZone);

impl Value for Zone {
    const PLACEHOLDER: &str = "ZONE";
    const EXPECTED: &str = "the name of a time zone such as `Europe/Vienna`, or `UTC`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        // Known also where there is no database of time zones.
        if text == "UTC" {
            return Ok(Self(TimeZone::UTC));
        }
        TimeZone::get(text).map(Self).map_err(|_unknown| Wrong::quoted(text))
    }
}

/// A signal that asks a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopSignal(pub Signal);

impl Value for StopSignal {
    const PLACEHOLDER: &str = "SIGNAL";
    const EXPECTED: &str = "`TERM`, `INT`, `QUIT`, `HUP`, `USR1`, `USR2` or `WINCH`";

    fn choices() -> &'static [&'static str] {
        &["TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "WINCH"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let signal = match text.strip_prefix("SIG").unwrap_or(text) {
            "TERM" => Signal::TERM,
            "INT" => Signal::INT,
            "QUIT" => Signal::QUIT,
            "HUP" => Signal::HUP,
            "USR1" => Signal::USR1,
            "USR2" => Signal::USR2,
            "WINCH" => Signal::WINCH,
            _ => return Err(Wrong::quoted(text)),
        };
        Ok(Self(signal))
    }
}

/// The names in tables that are none of a process.
pub(super) fn unknown_names(file: &Path, tables: &[Table]) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for table in tables {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if table.name.is_empty() || table.name.len() > 64 || !table.name.bytes().all(fits) {
            errors.push(together(
                format!(
                    "`{}` is no name for a process ({}:{})",
                    table.name,
                    file.display(),
                    table.line
                ),
                "write letters, digits, `-` and `_`, 64 of them at most",
            ));
        }
        let known = |name: &str| PROCESS_KEYS.iter().any(|key| key.name == name);
        let unknown = table.entries.iter().filter(|entry| !known(&entry.name));
        errors.extend(unknown.map(|entry| {
            ConfigError::UnknownKey {
                name: format!("processes.{}.{}", table.name, entry.name),
                origin: Origin::File { path: file.to_owned(), line: entry.line },
                nearest: nearest(&entry.name, PROCESS_KEYS.iter().map(|key| key.name))
                    .map(|near| format!("processes.{}.{near}", table.name)),
            }
        }));
    }
    errors
}

fn together(problem: String, hint: impl Into<String>) -> ConfigError {
    ConfigError::Together { problem, hint: hint.into() }
}

/// Reads the tables of the file, if there is one.
pub(super) fn read(sources: &Sources) -> Result<Vec<NamedProcess>, ConfigError> {
    let Some(file) = &sources.file else { return Ok(Vec::new()) };
    let applications: Vec<&str> =
        file.applications().iter().map(|table| &*table.name).chain([MAIN]).collect();
    file.processes().iter().map(|table| process(&file.path, table, &applications)).collect()
}

/// Returns the errors of all tables of the file, the first of each.
pub(super) fn wrong(sources: &Sources) -> Vec<ConfigError> {
    let Some(file) = &sources.file else { return Vec::new() };
    let applications: Vec<&str> =
        file.applications().iter().map(|table| &*table.name).chain([MAIN]).collect();
    let all = file.processes().iter();
    all.filter_map(|table| process(&file.path, table, &applications).err()).collect()
}

fn process(file: &Path, table: &Table, applications: &[&str]) -> Result<NamedProcess, ConfigError> {
    let place = |key: &str| {
        let line = table.entry(key).map_or(table.line, |entry| entry.line);
        format!("`processes.{}` ({}:{line})", table.name, file.display())
    };
    if table.entry("command").is_none() {
        return Err(together(
            format!("{} has no `command`", place("command")),
            "name the program and its arguments: `command = \"php artisan queue:work\"`",
        ));
    }
    let application: String = own(file, table, "application")?;
    if !applications.contains(&&*application) {
        let near = nearest(&application, applications.iter().copied());
        let hint = near.map_or_else(
            || format!("applications: {}", applications.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        let problem =
            format!("{} is of `{application}`, which is no application", place("application"));
        return Err(together(problem, hint));
    }
    let count: NonZeroUsize = own(file, table, "count")?;
    let cron: Option<Cron> = own(file, table, "cron")?;
    if cron.is_some() && count.get() > 1 {
        return Err(together(
            format!("{} has `cron`, and a `count` of {count}", place("count")),
            "runs by `cron` never overlap: leave out `count`, or write a second process",
        ));
    }
    let Auto(zone) = own::<Auto<Zone>>(file, table, "timezone")?;
    Ok(NamedProcess {
        name: table.name.as_str().into(),
        application: application.into(),
        command: own(file, table, "command")?,
        count,
        cron,
        zone: zone.map_or_else(TimeZone::system, |Zone(zone)| zone),
        stop_signal: own(file, table, "stop_signal")?,
        stop_timeout: own(file, table, "stop_timeout")?,
    })
}

/// The value of a key, or its default.
fn own<T: Value>(file: &Path, table: &Table, name: &str) -> Result<T, ConfigError> {
    let key = PROCESS_KEYS.iter().find(|key| key.name == name);
    let key = key.expect("only keys of the table are read");
    let folder = file.parent().unwrap_or_else(|| Path::new("/"));
    let (raw, origin) = match table.entry(name) {
        Some(entry) => {
            let origin = Origin::File { path: file.to_owned(), line: entry.line };
            (entry.raw.clone(), origin)
        }
        None => (Raw::Text(key.default.to_owned()), Origin::Default),
    };
    read_raw(key.name, &raw, &origin, folder)
}

#[cfg(test)]
mod tests;
