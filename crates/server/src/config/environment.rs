//! The environment of the process, read once.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::{ConfigError, KEYS, Key, Origin, nearest};

/// Variables that start like settings and are not, with what they are for: the reference page lists them.
pub(super) const NOT_SETTINGS: &[(&str, &str)] = &[
    ("HEARTH_APP_DIR", "set by Hearth for its own worker scripts: the application's folder"),
    ("HEARTH_BIN", "the program `hearth` that the project's tests run"),
    ("HEARTH_CLI", "set by Hearth for console functions: PHP's command line program"),
    ("HEARTH_CONFIG", "the settings file, as `--config`"),
    (
        "HEARTH_CONNECTORS",
        "set by Hearth for its own worker scripts: what connectors to databases stand for",
    ),
    (
        "HEARTH_DATABASE_NAME",
        "set by Hearth for PHP: the socket of the connector `NAME`, of PostgreSQL its folder",
    ),
    ("HEARTH_DATABASES", "set by Hearth for PHP: the settings of `databases`"),
    ("HEARTH_EGRESS", "set by Hearth for PHP: the socket of the egress broker"),
    ("HEARTH_FUNCTION", "set by Hearth for functions: the file"),
    ("HEARTH_INI_DIR", "the folder of php.ini files that the worker programs read"),
    ("HEARTH_LIB_DIR", "the folder of the worker programs"),
    ("HEARTH_MODEL", "set by Hearth for its own worker scripts: the execution model"),
    (
        "HEARTH_REALTIME",
        "set by Hearth for PHP: that hearth_publish() works, and the limits it keeps",
    ),
    ("HEARTH_REQUEST_ID", "set by Hearth for PHP: the id of the request"),
    ("HEARTH_SNAPSHOT_EXACT", "1: the model `snapshot` compares bytes instead of hashes"),
    (
        "HEARTH_SNAPSHOT_ORACLE",
        "1: the model `snapshot` compares every page after each request and ends at a difference; for tests",
    ),
    (
        "HEARTH_SNAPSHOT_STATISTICS",
        "1: workers of the model `snapshot` write statistics to stderr when they end",
    ),
    (
        "HEARTH_SNAPSHOT_TRACKER",
        "forces how the model `snapshot` finds written pages: `userfaultfd`, `soft-dirty` or `none`",
    ),
    (
        "HEARTH_WARM_UP",
        "set by Hearth for PHP: 1 in a request that no client sent, see `php.warm_up`",
    ),
    ("HEARTH_WORKER", "set by Hearth for PHP: 1 in a worker script"),
    ("HEARTH_WORKER_DIR", "the folder of the worker programs that the project's tests run"),
];

/// What the process was started with.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    variables: Vec<(OsString, OsString)>,
    /// The current directory.
    pub current_dir: PathBuf,
    /// The program `hearth` itself.
    pub program: PathBuf,
    /// stderr is a terminal.
    pub stderr_is_terminal: bool,
    /// stdout is a terminal.
    pub stdout_is_terminal: bool,
}

impl Environment {
    /// Reads it all.
    pub(crate) fn read() -> std::io::Result<Self> {
        Ok(Self {
            variables: std::env::vars_os().collect(),
            current_dir: std::env::current_dir()?,
            program: std::env::current_exe()?,
            stderr_is_terminal: std::io::stderr().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
        })
    }

    /// An environment of these variables only.
    #[cfg(test)]
    pub(crate) fn for_test(current_dir: &Path, variables: &[(&str, &str)]) -> Self {
        Self {
            variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            current_dir: current_dir.to_owned(),
            program: current_dir.join("hearth"),
            stderr_is_terminal: false,
            stdout_is_terminal: false,
        }
    }

    fn path(&self, name: &str) -> Option<&Path> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| Path::new(value))
    }

    /// A variable of the application, for `check`.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.path(name)?.to_str()
    }

    /// `HEARTH_*` variables that are settings, or should be.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        self.variables
            .iter()
            .filter_map(|(name, value)| {
                let name = name.to_str()?;
                let setting = name.starts_with("HEARTH_")
                    && !name.starts_with("HEARTH_DATABASE_")
                    && !NOT_SETTINGS.iter().any(|(known, _)| *known == name);
                setting.then(|| (name.to_owned(), value.to_string_lossy().into_owned()))
            })
            .collect()
    }

    /// `HEARTH_CONFIG`: the file to read instead of the application's `hearth.toml`.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.path("HEARTH_CONFIG")
    }

    /// Where `hearth-worker-8.x` may lie, most wanted first.
    pub(crate) fn worker_folders(&self) -> Vec<PathBuf> {
        if let Some(folder) = self.path("HEARTH_LIB_DIR") {
            return vec![folder.to_owned()];
        }
        let beside = self.program.parent().unwrap_or_else(|| Path::new("/"));
        vec![beside.to_owned(), beside.join("../lib/hearth")]
    }

    /// The folders of PATH.
    pub(crate) fn search_path(&self) -> Vec<PathBuf> {
        self.path("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default()
    }

    /// systemd's notification socket.
    pub(crate) fn notify_socket(&self) -> Option<&Path> {
        self.path("NOTIFY_SOCKET").filter(|path| !path.as_os_str().is_empty())
    }

    /// Output to stdout may be coloured (<https://no-color.org>).
    pub(crate) fn colour_stdout(&self) -> bool {
        self.stdout_is_terminal && !self.no_color()
    }

    /// Output to stderr may be coloured.
    pub(crate) fn colour_stderr(&self) -> bool {
        self.stderr_is_terminal && !self.no_color()
    }

    fn no_color(&self) -> bool {
        self.path("NO_COLOR").is_some_and(|value| !value.as_os_str().is_empty())
    }

    /// The folder for temporary files.
    #[expect(
        clippy::unused_self,
        reason = "callers get everything about the environment from here"
    )]
    pub(crate) fn temporary_folder(&self) -> PathBuf {
        std::env::temp_dir()
    }
}

/// Errs on the first `HEARTH_*` variable that is no setting.
pub(super) fn check_names(variables: &[(String, String)]) -> Result<(), ConfigError> {
    let known: Vec<String> = KEYS.iter().map(Key::environment).collect();
    match variables.iter().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(ConfigError::UnknownKey {
            name: name.clone(),
            origin: Origin::Environment("environment".into()),
            nearest: nearest_variable(name, &known),
        }),
    }
}

/// A forgotten section (`HEARTH_WORKERS`) is likelier than a slip of the finger.
fn nearest_variable(name: &str, known: &[String]) -> Option<String> {
    let bare = name.trim_start_matches("HEARTH_").to_ascii_lowercase();
    KEYS.iter()
        .find(|key| key.section_and_key().1 == bare)
        .map(Key::environment)
        .or_else(|| nearest(name, known.iter().map(String::as_str)).map(str::to_owned))
}
