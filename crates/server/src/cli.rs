//! The command line: commands, flags and the help that teaches them.
//!
//! Invariants
//! - Every flag that sets something comes from the table of settings; none has a meaning of its own.
//! - Only what this build can do is offered.

mod help;
mod misuse;
mod offered;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::builder::StyledStr;

pub(crate) use self::help::command;
use self::misuse::misused;
use self::offered::{of_application, of_channels, of_control, of_egress, of_lambda, of_verify};
use crate::app::target::{LambdaTarget, Target};
use crate::commands::check::Boots;
use crate::commands::invoke::Invoke;
use crate::commands::purge::What;
use crate::commands::top::Top;
use crate::commands::verify::{Source, Verify};
use crate::config::{KEYS, Key, Raw};
use crate::failure::Failure;

/// A parsed command line.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// `hearth serve [PATH]`.
    Serve(Target),
    /// `hearth reload [PATH]`.
    Reload(Target),
    /// `hearth purge [PATH]`.
    Purge {
        /// The application whose server is asked.
        target: Target,
        /// `--tag`, `--url` and `--all`.
        what: What,
    },
    /// `hearth upgrade [PATH]`.
    Upgrade(Target),
    /// `hearth status [PATH]`.
    Status {
        /// The application whose server is asked.
        target: Target,
        /// `--json`.
        json: bool,
    },
    /// `hearth stop [PATH]`.
    Stop {
        /// The application whose server is asked.
        target: Target,
        /// `--now`.
        now: bool,
    },
    /// `hearth check [PATH]`.
    Check {
        /// The application to check.
        target: Target,
        /// `--lambda`.
        lambda: bool,
        /// `--boot` and `--no-boot`.
        boots: Boots,
        /// `--json`.
        json: bool,
    },
    /// `hearth lambda [PATH|HANDLER]`.
    Lambda {
        /// The application to serve; without a path the environment names it.
        target: LambdaTarget,
        /// `--emulate`: the address where the Runtime API is played.
        emulate: Option<SocketAddr>,
    },
    /// `hearth egress`.
    Egress {
        /// `--config`.
        config: Option<PathBuf>,
        /// Values by setting.
        flags: Vec<(&'static str, Raw)>,
    },
    /// `hearth channels`.
    Channels {
        /// `--config`.
        config: Option<PathBuf>,
        /// Values by setting.
        flags: Vec<(&'static str, Raw)>,
    },
    /// `hearth verify [PATH]`.
    Verify(Verify),
    /// `hearth top`.
    Top(Top),
    /// `hearth tls trust`.
    TlsTrust {
        /// `--config`.
        config: Option<PathBuf>,
    },
    /// `hearth lambda invoke`.
    Invoke(Invoke),
    /// `hearth php ARGS...`.
    Php(Vec<OsString>),
    /// `--help` and `--version`: this text, on stdout.
    Print(StyledStr),
}

/// Reads the command line; its first item is the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Failure> {
    let mut matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Invocation::Print(error.render())),
        Err(error) => return Err(misused(&error)),
    };
    let (name, mut matches) = matches.remove_subcommand().expect("clap insists on a command");
    Ok(match name.as_str() {
        "serve" => Invocation::Serve(target(&mut matches, of_application)),
        "reload" => Invocation::Reload(target(&mut matches, of_control)),
        "purge" => {
            let mut list =
                |name: &str| matches.remove_many(name).map(Iterator::collect).unwrap_or_default();
            let (tags, urls) = (list("tag"), list("url"));
            let what = What { tags, urls, all: matches.get_flag("all") };
            Invocation::Purge { target: target(&mut matches, of_control), what }
        }
        "upgrade" => Invocation::Upgrade(target(&mut matches, of_control)),
        "status" => {
            let json = matches.get_flag("json");
            Invocation::Status { target: target(&mut matches, of_control), json }
        }
        "stop" => {
            let now = matches.get_flag("now");
            Invocation::Stop { target: target(&mut matches, of_control), now }
        }
        "check" => {
            let json = matches.get_flag("json");
            let lambda = matches.get_flag("lambda");
            let boots = match (matches.get_flag("boot"), matches.get_flag("no-boot")) {
                (true, _) => Boots::Measured,
                (false, true) => Boots::No,
                (false, false) => Boots::Once,
            };
            let target = target(&mut matches, of_application);
            Invocation::Check { target, lambda, boots, json }
        }
        "verify" => Invocation::Verify(Verify {
            source: match (matches.remove_one("log"), matches.remove_one("har")) {
                (Some(path), _) => Source::Log(path),
                (None, Some(path)) => Source::Har(path),
                (None, None) => Source::Crawl,
            },
            models: matches.remove_many("models").map(Iterator::collect).unwrap_or_default(),
            requests: matches.remove_one::<u64>("requests").map(count),
            most: matches.remove_one("max-requests").map(count).expect("it has a default"),
            seed: matches.remove_one("seed"),
            reset: matches.remove_one("reset"),
            ignored: matches.remove_many("ignore").map(Iterator::collect).unwrap_or_default(),
            with_unsafe: matches.get_flag("unsafe"),
            json: matches.remove_one::<String>("format").is_some_and(|format| format == "json"),
            target: target(&mut matches, of_verify),
        }),
        "lambda" => match matches.remove_subcommand() {
            Some((_invoke, mut matches)) => Invocation::Invoke(Invoke {
                event: matches.remove_one("event"),
                to: matches.remove_one("to").expect("it has a default"),
                sample: matches.remove_one("sample"),
                lists_samples: matches.get_flag("samples"),
            }),
            None => Invocation::Lambda {
                emulate: matches.remove_one("emulate"),
                target: LambdaTarget {
                    path: matches.remove_one("path"),
                    config: matches.remove_one("config"),
                    flags: flags(&mut matches, of_lambda),
                },
            },
        },
        "egress" => Invocation::Egress {
            flags: flags(&mut matches, of_egress),
            config: matches.remove_one("config"),
        },
        "channels" => Invocation::Channels {
            flags: flags(&mut matches, of_channels),
            config: matches.remove_one("config"),
        },
        "top" => Invocation::Top(Top {
            server: matches.remove_one("server"),
            config: matches.remove_one("config"),
            once: matches.get_flag("once"),
            sort: matches.remove_one("sort").expect("it has a default"),
        }),
        "tls" => {
            let (_trust, mut matches) =
                matches.remove_subcommand().expect("clap insists on a command");
            Invocation::TlsTrust { config: matches.remove_one("config") }
        }
        "php" => Invocation::Php(
            matches.remove_many("arguments").map(Iterator::collect).unwrap_or_default(),
        ),
        other => unreachable!("clap knows no command {other}"),
    })
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn target(matches: &mut ArgMatches, offered: fn(&Key) -> bool) -> Target {
    Target {
        path: matches.remove_one("path").unwrap_or_else(|| PathBuf::from(".")),
        config: matches.remove_one("config"),
        flags: flags(matches, offered),
    }
}

/// Takes the values of a command's flags.
fn flags(matches: &mut ArgMatches, offered: fn(&Key) -> bool) -> Vec<(&'static str, Raw)> {
    let mut flags = Vec::new();
    for key in KEYS.iter().filter(|key| key.flag.is_some() && offered(key)) {
        if key.repeats {
            if let Some(values) = matches.remove_many::<String>(key.name) {
                flags.push((key.name, Raw::List(values.collect())));
            }
        } else if let Some(value) = matches.remove_one::<String>(key.name) {
            flags.push((key.name, Raw::Text(value)));
        }
    }
    flags
}
