//! Logging: tracing events to stderr, as text for people or one JSON object per line for programs.
//!
//! PHP's own log lines arrive as events too, from the pool (target `php`).
//!
//! Invariant: with the format `json`, which a pipe or file gets by default, every line of a server is one JSON object: also its first lines,
//! the ready line, and the failure that ends it (target `hearth`). No line makes the program wait for a reader of stderr.

mod output;

use std::io;
use std::sync::OnceLock;

use front_lambda::emulator::LogTail;
use serde_json::{Map, Value};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use crate::config::{Environment, LogFormat, Settings};
use crate::failure::Failure;
use crate::ops::format::counted;
pub(crate) use output::{finish, lost};

/// Set if the lines of the program itself are JSON objects, too.
static JSON: OnceLock<()> = OnceLock::new();

/// The end of the log, if it is kept: callers of the Lambda emulator may ask for it.
static TAIL: OnceLock<LogTail> = OnceLock::new();

/// stderr, and the tail where one is kept.
#[derive(Debug)]
struct Output;

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tail) = TAIL.get() {
            tail.write(bytes);
        }
        output::write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    let format = format(settings, environment);
    if format == LogFormat::Json {
        JSON.get_or_init(|| ());
    }
    let started = match format {
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

/// A line of the program itself, whatever the level of the log: `hearth: LINE`, or the message of a JSON object.
pub(crate) fn line(line: &str) {
    output::write(of_program("INFO", line).as_bytes());
}

/// The line that replaces lines that were lost.
fn lost_lines(lost: u64) -> String {
    let lines = counted(lost, "line");
    let what = format!("{lines} of the log were lost: what reads stderr was too slow");
    of_program("WARN", &what)
}

fn of_program(level: &str, line: &str) -> String {
    if JSON.get().is_some() { event(level, line, Map::new()) } else { format!("hearth: {line}\n") }
}

/// The ready line: `hearth: ready on ADDRESS` for each address, or one JSON object with all of them.
pub(crate) fn ready(addresses: &[String], runs: Option<(&str, usize)>) {
    if JSON.get().is_none() {
        return addresses.iter().for_each(|address| line(&format!("ready on {address}")));
    }
    let mut fields = Map::new();
    fields.insert("addresses".to_owned(), addresses.into());
    if let Some((model, workers)) = runs {
        fields.insert("model".to_owned(), model.into());
        fields.insert("workers".to_owned(), workers.into());
    }
    output::write(event("INFO", "ready", fields).as_bytes());
}

/// Prints the failure that ends the program.
pub(crate) fn failure(failure: &Failure) {
    if JSON.get().is_none() {
        return output::write(failure.render().as_bytes());
    }
    let mut fields = Map::new();
    fields.insert("causes".to_owned(), failure.causes().into());
    fields.insert("hint".to_owned(), failure.hint().into());
    output::write(event("ERROR", failure.text(), fields).as_bytes());
}

/// Returns a JSON object in the form of the log's, with the end of its line.
fn event(level: &str, message: &str, fields: Map<String, Value>) -> String {
    let mut timestamp = String::new();
    let _written = SystemTime.format_time(&mut Writer::new(&mut timestamp)).is_ok();
    let mut object = Map::new();
    object.insert("timestamp".to_owned(), timestamp.into());
    object.insert("level".to_owned(), level.into());
    object.insert("message".to_owned(), message.into());
    object.extend(fields);
    object.insert("target".to_owned(), "hearth".into());
    let mut line = Value::Object(object).to_string();
    line.push('\n');
    line
}

/// A line without the program's name: those of the Lambda platform, as AWS writes them, and what people read on a terminal.
pub(crate) fn plain(line: &str) {
    output::write(format!("{line}\n").as_bytes());
}
