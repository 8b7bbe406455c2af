//! The verdict about one read of the boot: whether it may be the same for all requests.
//!
//! Knows neither PHP nor the application, only what the tracer has reported and the line of code.

use serde::Serialize;

use super::Read;
use crate::ops::format::counted;

/// The verdict about a read. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Each request needs a value of its own, and finds that of the boot.
    Mistake,
    /// A mistake if a request uses the value.
    Look,
    /// Fixed for all requests until a reload, as it should be.
    Fine,
}

/// The kind of data that is read. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Request,
    Clock,
    Randomness,
    Database,
    Network,
    Environment,
    File,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "request" => Self::Request,
            "clock" => Self::Clock,
            "randomness" => Self::Randomness,
            "database" => Self::Database,
            "network" => Self::Network,
            "environment" => Self::Environment,
            _ => Self::File,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Request => "request data",
            Self::Clock => "the clock",
            Self::Randomness => "random numbers",
            Self::Database | Self::Network => "connections",
            Self::Environment => "the environment",
            Self::File => "files",
        }
    }

    /// Returns what to do.
    pub(super) fn hint(self, verdict: Verdict) -> &'static str {
        let looks = verdict == Verdict::Look;
        match self {
            Self::Request => {
                "the boot has no request, and each request finds what the boot found: read it in the code that handles a request"
            }
            Self::Clock if looks => "if a request uses this time, let it read the clock itself",
            Self::Clock => {
                "this is the time of the boot in every request: read the clock in the request"
            }
            Self::Randomness if looks => {
                "if it must differ between requests or workers (a nonce, an id, a key), draw it in the request"
            }
            Self::Randomness => "all requests get the same number: draw it in the request",
            Self::Database => {
                "workers cannot use a connection of the boot: connect in hearth_on_worker_start() or in the request (docs/guide/databases.md)"
            }
            Self::Network => {
                "the answer stays until a reload, and workers cannot use a connection of the boot: make the call in the request if it may change"
            }
            Self::Environment | Self::File => {
                "it stays as it was at the boot until a reload: read it in the request if it may change"
            }
        }
    }
}

impl Verdict {
    /// Returns the headline of a group of reads.
    pub(super) fn message(self, kind: Kind, count: u64) -> String {
        let what = match kind {
            Kind::Database => format!("{} to databases", counted(count, "connection")),
            Kind::Network => format!("{} of the network", counted(count, "use")),
            _ => format!("{} of {}", counted(count, "read"), kind.name()),
        };
        let verdict = match (self, kind) {
            (Self::Mistake, Kind::Database) => "workers cannot use it",
            (Self::Mistake, _) => "a mistake: every request gets this value",
            (Self::Look, _) => "a mistake if a request uses the result",
            (Self::Fine, _) => "fine",
        };
        format!("{what} at the boot: {verdict}")
    }
}

/// A verdict and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) kind: Kind,
    /// Empty if the headline says it all.
    pub(super) reason: &'static str,
}

/// A read that is known to be right.
struct Known {
    kind: Kind,
    /// The kind that it is in fact.
    is: Kind,
    /// Start of the call or variable.
    what: &'static str,
    /// Part of the path of the file, the same in Composer's and Debian's packages.
    file: &'static str,
    /// Part of the line of code.
    code: &'static str,
    reason: &'static str,
}

/// Variables that frameworks read at their boot with good reason.
const KNOWN: &[Known] = &[
    Known {
        kind: Kind::Clock,
        is: Kind::Clock,
        what: "microtime(",
        file: "",
        code: "LARAVEL_START",
        reason: "LARAVEL_START measures how long a boot takes",
    },
    Known {
        kind: Kind::Clock,
        is: Kind::Clock,
        what: "microtime(",
        file: "ernel/Kernel.php",
        code: "startTime",
        reason: "Symfony's debug mode measures how long a boot takes",
    },
    Known {
        kind: Kind::Clock,
        is: Kind::Clock,
        what: "time(",
        file: "ernel/Kernel.php",
        code: "build_time",
        reason: "Symfony writes it into the compiled container",
    },
    Known {
        kind: Kind::Clock,
        is: Kind::Clock,
        what: "",
        file: "oundation/Request.php",
        code: "'REQUEST_TIME",
        reason: "a request object that stands for none at the boot: each request brings its own",
    },
    Known {
        kind: Kind::Request,
        is: Kind::Request,
        what: "$_SERVER",
        file: "SetRequestForConsole.php",
        code: "",
        reason: "Laravel's request object of the boot: each request brings its own",
    },
    Known {
        kind: Kind::Request,
        is: Kind::Environment,
        what: "$_SERVER",
        file: "otenv/",
        code: "",
        reason: "Dotenv looks for variables of the environment",
    },
    Known {
        kind: Kind::Request,
        is: Kind::Environment,
        what: "$_SERVER",
        file: "untime/GenericRuntime.php",
        code: "",
        reason: "Symfony's Runtime passes the environment on",
    },
    Known {
        kind: Kind::Request,
        is: Kind::Environment,
        what: "$_SERVER['QUERY_STRING']",
        file: "untime/SymfonyRuntime.php",
        code: "",
        reason: "Symfony's Runtime looks whether this is a command line",
    },
    Known {
        kind: Kind::Randomness,
        is: Kind::Randomness,
        what: "",
        file: "ilesystem/Filesystem.php",
        code: "",
        reason: "names of temporary files",
    },
];

/// Judges a read. `code`: the line that reads. `shares_boot`: workers are forked from the process that boots, otherwise each boots.
pub(super) fn judge(read: &Read, code: &str, shares_boot: bool) -> Judgement {
    let kind = kind_of(read);
    let known = KNOWN.iter().find(|known| {
        known.kind == kind
            && read.what.starts_with(known.what)
            && read.file.contains(known.file)
            && code.contains(known.code)
    });
    if let Some(known) = known {
        return Judgement { verdict: Verdict::Fine, kind: known.is, reason: known.reason };
    }
    let (verdict, reason) = match kind {
        Kind::Request if read.what == "$_SERVER" => (
            Verdict::Look,
            "the whole array: its variables of the environment are fine, and it has none of a visitor",
        ),
        Kind::Randomness if shares_boot && is_a_seed(read) => {
            (Verdict::Mistake, "the seed is lost: each request gets a new one")
        }
        Kind::Clock | Kind::Randomness if of_a_library(read) => (Verdict::Look, ""),
        Kind::Clock if read.what.starts_with("hrtime(") => {
            (Verdict::Look, "fine for the duration of something in the boot")
        }
        Kind::Database if of_a_file(read) => {
            (Verdict::Fine, "a file: each worker has it as the boot left it")
        }
        Kind::Database | Kind::Network if !shares_boot => {
            (Verdict::Fine, "each worker boots, and has a connection of its own")
        }
        Kind::Request | Kind::Clock | Kind::Randomness | Kind::Database => (Verdict::Mistake, ""),
        Kind::Network => (Verdict::Look, ""),
        Kind::Environment => (Verdict::Fine, "configuration, until a reload"),
        Kind::File if read.what.ends_with(", written)") => (Verdict::Fine, "written once"),
        Kind::File => (Verdict::Fine, "read once: a change shows after a reload"),
    };
    Judgement { verdict, kind, reason }
}

/// Returns whether the call seeds the generator of random numbers.
fn is_a_seed(read: &Read) -> bool {
    read.what.starts_with("mt_srand(") || read.what.starts_with("srand(")
}

/// Returns whether the code belongs to a package of Composer or Debian.
fn of_a_library(read: &Read) -> bool {
    read.file.contains("/vendor/") || read.file.starts_with("/usr/share/php")
}

/// Returns whether a database is a file, which needs no connection.
fn of_a_file(read: &Read) -> bool {
    read.what.contains("('sqlite:")
        || read.what.starts_with("new SQLite3")
        || read.what.starts_with("SQLite3")
}

/// Returns what is read: `$_SERVER` also has the environment and the time of the boot.
fn kind_of(read: &Read) -> Kind {
    let kind = Kind::of(&read.kind);
    let key = |prefix: &str| {
        let rest = read.what.strip_prefix(prefix)?;
        rest.split_once('\'').map(|(key, _)| key)
    };
    match (key("$_SERVER['"), key("getenv('")) {
        (Some(key), _) if key.starts_with("REQUEST_TIME") => Kind::Clock,
        (Some(key), _) if is_of_request(key) => Kind::Request,
        (Some(_), _) => Kind::Environment,
        (_, Some(key)) if is_of_request(key) => Kind::Request,
        _ => kind,
    }
}

/// Returns whether a variable of CGI depends on the request.
fn is_of_request(key: &str) -> bool {
    const NAMES: &[&str] = &[
        "QUERY_STRING",
        "PATH_INFO",
        "ORIG_PATH_INFO",
        "PHP_SELF",
        "SCRIPT_NAME",
        "HTTPS",
        "AUTH_TYPE",
        "GATEWAY_INTERFACE",
    ];
    // The environment has these of its own: a proxy and what Composer was started with.
    const OTHERS: &[&str] = &["HTTP_PROXY"];
    const PREFIXES: &[&str] =
        &["HTTP_", "REQUEST_", "REMOTE_", "SERVER_", "CONTENT_", "PHP_AUTH_", "REDIRECT_"];
    !OTHERS.contains(&key)
        && (NAMES.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix)))
}
