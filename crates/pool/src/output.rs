//! PHP's output outside of responses: log frames, stdout and stderr become structured log lines with the request id.
//!
//! Invariants
//! - A line has at most [`MAX_LINE`] bytes; a longer one is split, so a worker cannot fill the server's memory.
//! - Output without a level is `info`, or more severe if its text names a level ([`own_level`]); never less severe,
//!   because people are meant to see it.

mod own_level;

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tracing::{debug, error, info, warn};

use crate::context::RequestId;
use crate::info::WorkerInfo;

/// Maximum length of a log line in bytes.
const MAX_LINE: u64 = 8 * 1024;

/// Levels of syslog(3).
const ERROR: u8 = 3;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// Logs a LOG frame in the tracing span of its worker, whichever task reads it.
pub(crate) fn log_frame(info: &WorkerInfo, line: &wire::Output<'_>) {
    info.span.in_scope(|| log(info, line));
}

fn log(info: &WorkerInfo, line: &wire::Output<'_>) {
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
    let request = info.current_request();
    let context = (!line.context.is_empty()).then(|| String::from_utf8_lossy(line.context));
    let who = Writer { pid: info.pid(), request: request.as_ref(), source };
    match (line.source, line.level) {
        // `error_log()` writes everything this way.
        (0, NOTICE) => who.log(message),
        (_, level) => who.log_at(level, message, context.as_deref()),
    }
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
}

/// Logs every line of one stream.
pub(crate) async fn read_lines(
    info: &WorkerInfo,
    stream: impl AsyncRead + Unpin,
    source: &'static str,
) {
    each_line(stream, |text| {
        info.remember(text);
        let request = info.current_request();
        Writer { pid: info.pid(), request: request.as_ref(), source }.log(text);
    })
    .await;
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
