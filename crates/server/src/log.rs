//! Logging: tracing events to stderr, as text for people or one JSON object per line for programs.
//!
//! PHP's own log lines arrive as events too, from the pool (target `php`).

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::config::{Environment, LogFormat, Settings};
use crate::failure::Failure;

/// Starts logging; to be called once.
pub(crate) fn start(settings: &Settings, environment: &Environment) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.log.level).map_err(|error| {
        Failure::misused(
            format!("wrong value for `log.level`: `{}`: {error}", settings.log.level),
            "write a level such as `info`, or a filter such as `info,pool=debug,php=warn`",
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_timer(SystemTime)
        .with_ansi(environment.colour_stderr());
    let started = match format(settings, environment) {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => {
            builder.json().flatten_event(true).with_span_list(false).with_ansi(false).try_init()
        }
    };
    started.map_err(|error| {
        Failure::failed(format!("cannot start logging: {error}"), "please report this")
    })
}

/// How log lines look.
pub(crate) fn format(settings: &Settings, environment: &Environment) -> LogFormat {
    let fitting = if environment.stderr_is_terminal { LogFormat::Text } else { LogFormat::Json };
    settings.log.format.0.unwrap_or(fitting)
}

/// A line of the program itself, e.g. the ready line: plain on stderr in every format, since scripts look for it.
#[expect(
    clippy::print_stderr,
    reason = "these lines are for people and scripts, not for log collectors"
)]
pub(crate) fn say(line: &str) {
    eprintln!("hearth: {line}");
}
