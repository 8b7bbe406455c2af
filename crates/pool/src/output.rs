//! What PHP writes outside of answers: log frames, stdout and stderr become structured log lines with the request's id.
//!
//! Invariants
//! - A line is at most [`MAX_LINE`] bytes; a longer one is cut into several, so a worker cannot fill the server's memory.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tracing::{debug, error, info, warn};

use crate::info::WorkerInfo;

/// Bytes of one log line.
const MAX_LINE: u64 = 8 * 1024;

/// Logs a LOG frame. It is read by whoever has the worker: the line says whose worker it is, not whose task.
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
            info.remember_own_word(message);
            "worker"
        }
    };
    let request = info.current_request();
    let id = request.as_ref().map(|id| &*id.0);
    let context = (!line.context.is_empty()).then(|| String::from_utf8_lossy(line.context));
    let context = context.as_deref();
    let pid = info.pid();
    match line.level {
        0..=3 => {
            error!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{message}");
        }
        4 => {
            warn!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{message}");
        }
        5 | 6 => {
            info!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{message}");
        }
        _ => {
            debug!(target: "php", { worker.pid = pid, request.id = id, source, context }, "{message}");
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
    let mut lines = BufReader::with_capacity(1024, stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end();
                if text.is_empty() {
                    continue;
                }
                info.remember(text);
                let request = info.current_request();
                let id = request.as_ref().map(|id| &*id.0);
                info!(target: "php", { worker.pid = info.pid(), request.id = id, source }, "{text}");
            }
        }
    }
}
