//! Logging: tracing events to stderr, as text for people or one JSON object per line for programs.
//!
//! PHP's own log lines arrive as events too, from the pool (target `php`).

use std::io::{self, Write};
use std::sync::OnceLock;

use front_lambda::emulator::LogTail;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::config::{Environment, LogFormat, Settings};
use crate::failure::Failure;

/// The end of the log, if it is kept: callers of the Lambda emulator may ask for it.
static TAIL: OnceLock<LogTail> = OnceLock::new();

/// stderr, and the tail where one is kept.
#[derive(Debug)]
struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tail) = TAIL.get() {
            tail.write(bytes);
        }
        // A log that cannot be written is no reason to stop.
        drop(io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Keeps the end of the log there, too; once.
pub(crate) fn keep_tail(tail: LogTail) {
    drop(TAIL.set(tail));
}

/// Starts logging; to be called once.
pub(crate) fn start(settings: &Settings, environment: &Environment) -> Result<(), Failure> {
    let filter = EnvFilter::new(&settings.log.level.0);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Output)
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

/// Returns the format of log lines.
pub(crate) fn format(settings: &Settings, environment: &Environment) -> LogFormat {
    let fitting = if environment.stderr_is_terminal { LogFormat::Text } else { LogFormat::Json };
    settings.log.format.0.unwrap_or(fitting)
}

/// Prints a line of the program itself, e.g. the ready line: plain on stderr in every format, because scripts search for it.
#[expect(
    clippy::print_stderr,
    reason = "these lines are for people and scripts, not for log collectors"
)]
pub(crate) fn line(line: &str) {
    eprintln!("hearth: {line}");
}

/// A line without the program's name: those of the Lambda platform, as AWS writes them, and what people read on a terminal.
#[expect(
    clippy::print_stderr,
    reason = "these lines are for people and scripts, not for log collectors"
)]
pub(crate) fn plain(line: &str) {
    eprintln!("{line}");
}
