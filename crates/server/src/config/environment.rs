//! The environment of the process, read once.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ConfigError, KEYS, Key, OTHER_NAMES, Origin, nearest};

/// The variable with the socket at which a successor gets its sockets: set by the previous server.
pub(crate) const TAKE_OVER: &str = "HEARTH_TAKE_OVER";

/// Variables that start like settings and are not, with what they are for: the reference page lists them.
pub(super) const NOT_SETTINGS: &[(&str, &str)] = &[
    ("HEARTH_APP_DIR", "set by Hearth for its own worker scripts: the application's folder"),
    ("HEARTH_BIN", "the program `hearth` that the project's tests run"),
    ("HEARTH_CLI", "set by Hearth for console functions: PHP's command line program"),
    (
        "HEARTH_DEADLINE_MARGIN",
        "set by Hearth for console functions: `lambda.deadline_margin` in seconds",
    ),
    ("HEARTH_CONFIG", "the settings file, as `--config`"),
    ("HEARTH_CONNECTORS", "set by Hearth for its own worker scripts: the servers of connectors"),
    (
        "HEARTH_DATABASE_NAME",
        "set by Hearth for PHP: the socket of the connector `NAME`, of PostgreSQL its folder",
    ),
    ("HEARTH_DATABASES", "set by Hearth for PHP: the settings of `databases`"),
    ("HEARTH_EGRESS", "set by Hearth for PHP: the socket of the egress broker"),
    (
        "HEARTH_EGRESS_OWNER",
        "the number of the egress broker's user, if PHP runs as another; set by Hearth for PHP",
    ),
    ("HEARTH_FUNCTION", "set by Hearth for functions: the file"),
    ("HEARTH_INI_DIR", "the folder of php.ini files that the worker programs read"),
    ("HEARTH_LIB_DIR", "the folder of the worker programs"),
    ("HEARTH_MODEL", "set by Hearth for its own worker scripts: the execution model"),
    ("HEARTH_PROCESS", "set by Hearth for a command of `[processes]`: its name"),
    (
        "HEARTH_PROCESS_NUMBER",
        "set by Hearth for a command of `[processes]`: the number of the instance, from 1 to `count`",
    ),
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
        "forces how the model `snapshot` finds written pages: `file` or `none`",
    ),
    (
        "HEARTH_SOCKETS",
        "set by Hearth for PHP: where hearth_socket_send() reaches the server, for this application",
    ),
    (
        "HEARTH_SOCKET_BINARY",
        "set by Hearth for PHP in events of WebSockets: 1 for a binary message, 0 for a text",
    ),
    ("HEARTH_SOCKET_CODE", "set by Hearth for PHP in events of WebSockets: the close code"),
    (
        "HEARTH_SOCKET_EVENT",
        "set by Hearth for PHP in events of WebSockets: `connect`, `message` or `close`",
    ),
    ("HEARTH_SOCKET_ID", "set by Hearth for PHP in events of WebSockets: the connection's id"),
    (
        "HEARTH_SOCKET_PROTOCOL",
        "set by Hearth for PHP in events of WebSockets: the subprotocol that the application chose",
    ),
    (
        "HEARTH_SOCKET_REASON",
        "set by Hearth for PHP in events of WebSockets: the reason of the close",
    ),
    ("HEARTH_TARBALL", "the tarball that `make demo` serves with"),
    (
        "HEARTH_TAKE_OVER",
        "set by Hearth for its successor at an upgrade: the socket that passes the listeners",
    ),
    ("HEARTH_URL", "the folder that install.sh downloads from"),
    ("HEARTH_VERSION", "the version that install.sh installs"),
    (
        "HEARTH_WARM_UP",
        "set by Hearth for PHP: 1 in a request that no client sent, see `php.warm_up`",
    ),
    ("HEARTH_WORKER", "set by Hearth for PHP: 1 in a worker script"),
    ("HEARTH_WORKER_DIR", "the folder of the worker programs that the project's tests run"),
];

/// The environment that the process was started with.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    variables: Vec<(OsString, OsString)>,
    /// The arguments after the program's name.
    pub arguments: Vec<OsString>,
    /// The current directory.
    pub current_dir: PathBuf,
    /// The program `hearth` itself, without links.
    pub program: PathBuf,
    /// The path by which it was started: a link stays one, and what it points to by then is what an upgrade starts.
    pub started_as: PathBuf,
    /// stderr is a terminal.
    pub stderr_is_terminal: bool,
    /// stdout is a terminal.
    pub stdout_is_terminal: bool,
    /// The process is root's.
    pub is_root: bool,
}

impl Environment {
    /// Reads it all.
    pub(crate) fn read() -> std::io::Result<Self> {
        let (program, current_dir) = (std::env::current_exe()?, std::env::current_dir()?);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let named = std::env::args_os().next().unwrap_or_default();
        let started_as = named_path(&named, &path, &current_dir, &program);
        Ok(Self {
            variables: std::env::vars_os().collect(),
            arguments: std::env::args_os().skip(1).collect(),
            current_dir,
            program,
            started_as,
            stderr_is_terminal: std::io::stderr().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    /// An environment of these variables only.
    #[cfg(test)]
    pub(crate) fn for_test(current_dir: &Path, variables: &[(&str, &str)]) -> Self {
        Self {
            variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            arguments: Vec::new(),
            current_dir: current_dir.to_owned(),
            program: current_dir.join("hearth"),
            started_as: current_dir.join("hearth"),
            stderr_is_terminal: false,
            stdout_is_terminal: false,
            is_root: false,
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
                let value = value.to_string_lossy();
                let setting = name.starts_with("HEARTH_")
                    && !name.starts_with("HEARTH_DATABASE_")
                    && !NOT_SETTINGS.iter().any(|(known, _)| *known == name)
                    && !is_service_link(name, &value);
                setting.then(|| (name.to_owned(), value.into_owned()))
            })
            .collect()
    }

    /// `HEARTH_CONFIG`: the file to read instead of the application's `hearth.toml`.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.path("HEARTH_CONFIG")
    }

    /// Returns the folders of `hearth-worker-8.x` programs, the preferred one first.
    pub(crate) fn worker_folders(&self) -> Vec<PathBuf> {
        if let Some(folder) = self.path("HEARTH_LIB_DIR") {
            return vec![folder.to_owned()];
        }
        let beside = self.program.parent().unwrap_or_else(|| Path::new("/"));
        vec![beside.to_owned(), beside.join("../lib/hearth")]
    }

    /// The folder of `hearth` itself. In the tarball PHP's programs are there too.
    pub(crate) fn program_folder(&self) -> Option<PathBuf> {
        self.program.parent().map(Path::to_owned)
    }

    /// The folders of PATH.
    pub(crate) fn search_path(&self) -> Vec<PathBuf> {
        self.path("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default()
    }

    /// Returns the folder for files that a program has made and that outlive it.
    pub(crate) fn data_folder(&self) -> Option<PathBuf> {
        let absolute = |name: &str| self.path(name).filter(|path| path.is_absolute());
        // systemd.exec(5): several are separated by colons.
        let of_systemd = self.variable("STATE_DIRECTORY").and_then(|all| all.split(':').next());
        if let Some(folder) = of_systemd.filter(|folder| folder.starts_with('/')) {
            return Some(folder.into());
        }
        if rustix::process::geteuid().is_root() {
            return Some("/var/lib/hearth".into());
        }
        let of_user = absolute("XDG_DATA_HOME").map(Path::to_owned);
        let of_user = of_user.or_else(|| Some(absolute("HOME")?.join(".local/share")));
        of_user.map(|folder| folder.join("hearth"))
    }

    /// systemd's notification socket.
    pub(crate) fn notify_socket(&self) -> Option<&Path> {
        self.path("NOTIFY_SOCKET").filter(|path| !path.as_os_str().is_empty())
    }

    /// The names of sockets that a service manager has passed to this process, from descriptor 3 on (`sd_listen_fds(3)`).
    pub(crate) fn passed_sockets(&self) -> Vec<String> {
        let number = |name| self.variable(name).and_then(|value| value.parse::<u32>().ok());
        // Sockets that were passed to another process are not ours, even if we inherited its variables.
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Vec::new();
        }
        let named = self.variable("LISTEN_FDNAMES").unwrap_or_default().split(':');
        let names = named.map(str::to_owned).chain(std::iter::repeat("unknown".to_owned()));
        // No process has more descriptors.
        let count = number("LISTEN_FDS").unwrap_or(0).min(1 << 20);
        names.take(count as usize).collect()
    }

    /// Returns the interval of systemd's watchdog, if it is set (`sd_watchdog_enabled(3)`).
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        let number = |name| self.variable(name).and_then(|value| value.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        number("WATCHDOG_USEC").filter(|limit| *limit > 0 && is_ours).map(Duration::from_micros)
    }

    /// The socket of the previous server, which this one will replace.
    pub(crate) fn take_over(&self) -> Option<&Path> {
        self.path(TAKE_OVER)
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

/// Returns the absolute path of the program that was started as `named`, links unresolved; `program` if that is another file: a program may
/// be started under any name.
fn named_path(named: &OsStr, path: &OsStr, current_dir: &Path, program: &Path) -> PathBuf {
    let named = Path::new(named);
    let candidates: Vec<PathBuf> = if named.components().count() > 1 || named.is_absolute() {
        vec![current_dir.join(named)]
    } else {
        std::env::split_paths(path).map(|folder| current_dir.join(folder).join(named)).collect()
    };
    let is_it =
        |candidate: &PathBuf| candidate.canonicalize().is_ok_and(|resolved| resolved == program);
    candidates.into_iter().find(is_it).unwrap_or_else(|| program.to_owned())
}

/// Returns whether Kubernetes has set a variable, for a Service whose name starts with `hearth`: each container of the namespace gets
/// `HEARTH_SERVICE_HOST`, `HEARTH_PORT=tcp://10.0.0.1:80` and more (`FromServices()`, pkg/kubelet/envvars/envvars.go).
fn is_service_link(name: &str, value: &str) -> bool {
    if KEYS.iter().any(|key| key.environment() == name) {
        return false;
    }
    let parts: Vec<&str> = name.split('_').skip(1).collect();
    let is_port = |number: &str| number.parse::<u16>().is_ok();
    let of_port = |after: &[&str]| match after {
        [] => value.contains("://"),
        [number, "TCP" | "UDP" | "SCTP"] => is_port(number) && value.contains("://"),
        [number, "TCP" | "UDP" | "SCTP", "PROTO" | "PORT" | "ADDR"] => is_port(number),
        _ => false,
    };
    // A Service may be called `hearth-port`: every place where its name may end is tried.
    (0..parts.len()).any(|end| match &parts[end..] {
        ["SERVICE", "HOST"] => true,
        // The rest is the name that the port has in the Service.
        ["SERVICE", "PORT", ..] => is_port(value),
        ["PORT", after @ ..] => of_port(after),
        _ => false,
    })
}

/// The `HEARTH_*` variables that are no settings.
pub(super) fn unknown_names(variables: &[(String, String)]) -> Vec<ConfigError> {
    let known: Vec<String> = KEYS.iter().map(Key::environment).collect();
    let unknown = variables.iter().filter(|(name, _)| !known.contains(name));
    let errors = unknown.map(|(name, _)| ConfigError::UnknownKey {
        name: name.clone(),
        origin: Origin::Environment("environment".into()),
        nearest: nearest_variable(name, &known),
    });
    errors.collect()
}

/// A forgotten section (`HEARTH_WORKERS`) is likelier than a slip of the finger.
fn nearest_variable(name: &str, known: &[String]) -> Option<String> {
    let bare = name.trim_start_matches("HEARTH_").to_ascii_lowercase();
    let other = OTHER_NAMES.iter().find(|(theirs, _)| theirs.replace('.', "_") == bare);
    let meant = |key: &&Key| {
        let ours = other.map(|(_, ours)| *ours);
        ours.map_or_else(|| key.section_and_key().1 == bare, |ours| key.name == ours)
    };
    KEYS.iter()
        .find(meant)
        .map(Key::environment)
        .or_else(|| nearest(name, known.iter().map(String::as_str)).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn variables_of_kubernetes_services_are_no_settings() {
        let links = [
            ("HEARTH_SERVICE_HOST", "10.96.12.7"),
            ("HEARTH_SERVICE_PORT", "80"),
            ("HEARTH_SERVICE_PORT_HTTP", "80"),
            ("HEARTH_PORT", "tcp://10.96.12.7:80"),
            ("HEARTH_PORT_80_TCP", "tcp://10.96.12.7:80"),
            ("HEARTH_PORT_80_TCP_PROTO", "tcp"),
            ("HEARTH_PORT_80_TCP_PORT", "80"),
            ("HEARTH_PORT_80_TCP_ADDR", "10.96.12.7"),
            ("HEARTH_CHANNELS_SERVICE_HOST", "fd00::7"),
            ("HEARTH_CHANNELS_SERVICE_PORT_CHANNELS", "6001"),
            ("HEARTH_CHANNELS_PORT", "tcp://[fd00::7]:6001"),
            ("HEARTH_CHANNELS_PORT_6001_UDP_ADDR", "fd00::7"),
            ("HEARTH_PORT_SERVICE_HOST", "10.96.12.8"),
        ];
        let environment = Environment::for_test("/".as_ref(), &links);
        assert_eq!(environment.settings(), []);
        // Slips of the finger are still found, and settings that exist are read.
        let ours = [
            ("HEARTH_PORT", "8080"),
            ("HEARTH_HTTP_PORT", "8080"),
            ("HEARTH_SERVICE", "10.96.12.7"),
            ("HEARTH_SERVICE_PORT", "http"),
            ("HEARTH_PORT_80", "tcp://10.96.12.7:80"),
            ("HEARTH_PORT_HTTP_TCP_ADDR", "10.96.12.7"),
            ("HEARTH_HTTP_HTTPS_PORT", "443"),
        ];
        let environment = Environment::for_test("/".as_ref(), &ours);
        assert_eq!(environment.settings().len(), ours.len());
    }

    #[test]
    fn a_program_path_keeps_its_symbolic_links() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        for name in ["1.0", "bin"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        let program = folder.join("1.0/hearth");
        std::fs::write(&program, "").unwrap();
        std::fs::write(folder.join("bin/other"), "").unwrap();
        symlink(&program, folder.join("bin/hearth")).unwrap();
        let search = std::env::join_paths([folder.join("1.1"), folder.join("bin")]).unwrap();
        let path = |named: &str| named_path(named.as_ref(), &search, &folder, &program);
        let link = folder.join("bin/hearth");
        for named in ["bin/hearth", "hearth", link.to_str().unwrap()] {
            assert_eq!(path(named), link, "{named}");
        }
        // The name of another program, or of no file.
        for named in ["bin/other", "other", "-hearth", "missing/hearth", ""] {
            assert_eq!(path(named), program, "{named}");
        }
    }
}
