//! PHP's output outside of responses: log frames, stdout and stderr become structured log lines with the request id.
//!
//! Invariants
//! - A line has at most [`MAX_LINE`] bytes; a longer one is split, so a worker cannot fill the server's memory.
//! - Output without a level is `info`, or more severe if its text names a level ([`own_level`]); never less severe,
//!   because people are meant to see it.
//! - A page of HTML is one line ([`page`]), and a line that is repeated is counted ([`fold`]).

pub(crate) mod fold;
mod own_level;
mod page;

use std::borrow::Cow;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use self::fold::{Fold, Logged, Written};
use self::page::Pages;
use crate::context::RequestId;
use crate::info::WorkerInfo;

/// Maximum length of a log line in bytes.
const MAX_LINE: u64 = 8 * 1024;

/// Levels of syslog(3).
const ERROR: u8 = 3;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;
const DEBUG: u8 = 7;

/// The source of a line of the worker program itself.
const OF_WORKER: u8 = 2;

/// Logs a LOG frame in the tracing span of its worker, whichever task reads it.
pub(crate) fn log_frame(info: &WorkerInfo, line: &wire::Output<'_>) {
    info.span.in_scope(|| log(info, line));
}

fn log(info: &WorkerInfo, line: &wire::Output<'_>) {
    if let (OF_WORKER, DEBUG, Some(trace)) = (line.source, line.level, &info.boot_trace)
        && !line.context.is_empty()
    {
        return trace.report(line.context);
    }
    let message = String::from_utf8_lossy(line.message);
    let message = message.trim_end();
    info.remember(message);
    let source = match line.source {
        0 => "error_log",
        1 => "hearth_log",
        _ => {
            info.remember_own_message(message);
            "worker"
        }
    };
    let context = (!line.context.is_empty()).then(|| String::from_utf8_lossy(line.context));
    let level = match (line.source, line.level) {
        // `error_log()` writes everything this way.
        (0, NOTICE) => own_level::own_level(message).unwrap_or(NOTICE),
        (_, level) => level,
    };
    write(info, source, level, message, context.map(Cow::into_owned));
}

/// Logs a line of a process, unless it repeats the one before.
fn write(info: &WorkerInfo, source: &'static str, level: u8, line: &str, context: Option<String>) {
    let request = info.current_request().map(|id| id.0);
    let written = Written { level, source, request, line: line.to_owned(), context };
    let Logged { repeated, line } = info.fold(|fold| fold.take(written, Instant::now()));
    repeated.into_iter().chain(line).for_each(|one| log_written(info, &one));
}

/// Logs how often the last line of a process was repeated. Called at the end of a request, and of a process.
pub(crate) fn end_repetitions(info: &WorkerInfo) {
    // Most requests log nothing: then the clock is not read.
    let end = |fold: &mut Fold| if fold.is_empty() { None } else { fold.end(Instant::now()) };
    if let Some(repeated) = info.fold(end) {
        info.span.in_scope(|| log_written(info, &repeated));
    }
}

fn log_written(info: &WorkerInfo, one: &Written) {
    let request = one.request.clone().map(RequestId);
    let who = Writer { pid: info.pid(), request: request.as_ref(), source: one.source };
    who.log_at(one.level, &one.line, one.context.as_deref());
}

/// The origin of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'r> {
    pub(crate) pid: u32,
    /// The worker's request at that time.
    pub(crate) request: Option<&'r RequestId>,
    /// How the line arrived.
    pub(crate) source: &'static str,
}

impl Writer<'_> {
    /// Logs a line without a level.
    pub(crate) fn log(self, line: &str) {
        self.log_at(own_level::own_level(line).unwrap_or(NOTICE), line, None);
    }

    /// Logs a line; `level` is that of syslog(3).
    fn log_at(self, level: u8, line: &str, context: Option<&str>) {
        let Self { pid, request, source } = self;
        let id = request.map(|id| &*id.0);
        match level {
            0..=ERROR => {
                error!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{line}");
            }
            WARNING => {
                warn!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{line}");
            }
            NOTICE | 6 => {
                info!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{line}");
            }
            _ => {
                debug!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{line}");
            }
        }
    }
}

/// Reads both pipes of a process until it and its children have closed them.
pub(crate) async fn read_pipes(
    info: Arc<WorkerInfo>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
) {
    tokio::join!(read_lines(&info, stdout, "stdout"), read_lines(&info, stderr, "stderr"));
    end_repetitions(&info);
}

/// Logs every line of one stream.
pub(crate) async fn read_lines(
    info: &WorkerInfo,
    stream: impl AsyncRead + Unpin,
    source: &'static str,
) {
    let mut pages = Pages::default();
    let log = |text: &str| {
        info.remember(text);
        let level = own_level::own_level(text).unwrap_or(NOTICE);
        write(info, source, level, text, None);
    };
    each_line(stream, |text| {
        if let Some(text) = pages.take(text) {
            log(&text);
        }
    })
    .await;
    if let Some(text) = pages.end() {
        log(&text);
    }
}

/// The level that a line of output states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// An error, or worse.
    Error,
    /// A warning.
    Warning,
}

/// Returns the level that a line states in Monolog's formats or in PHP's own; `None` below a warning.
pub fn own_level(line: &str) -> Option<Level> {
    match own_level::own_level(line)? {
        0..=ERROR => Some(Level::Error),
        _ => Some(Level::Warning),
    }
}

/// Calls `each` with every line of a stream that is not empty, until the stream is closed. A line of more than 8 KiB is
/// split.
pub async fn each_line(stream: impl AsyncRead + Unpin, mut each: impl FnMut(&str)) {
    let mut lines = BufReader::with_capacity(1024, stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end();
                if !text.is_empty() {
                    each(text);
                }
            }
        }
    }
}
