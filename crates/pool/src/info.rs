//! The shared state of a worker while an exchange owns its socket, and how it ended.
//!
//! Invariants
//! - Everything here may be read and written from any task at any time; nothing waits.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Uri};
use rustix::net::SendFlags;
use tokio::sync::Notify;
use tracing::{Span, debug};

use crate::boot_files::BootFiles;
use crate::boot_trace::BootTrace;
use crate::clock::Clock;
use crate::context::{RequestContext, RequestId};
use crate::databases::DatabaseStatus;
use crate::events::Sinks;
use crate::lifecycle::Lifecycle;
use crate::memory::{ProcessMemory, SnapshotMemory};
use crate::options::Options;
use crate::output::fold::Fold;
use crate::shared_counters::SharedCounters;
use crate::status::{Running, WorkerStatus};
use crate::verified::VerifiedRestores;

/// The request of a worker, as other tasks may see it. Cheap to create, because its parts are shared.
#[derive(Clone, Debug)]
pub(crate) struct CurrentRequest {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
}

impl CurrentRequest {
    pub(crate) fn new(parts: &Parts, context: &RequestContext) -> Self {
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        Self { id: context.id.clone(), method, uri }
    }

    /// Returns the path, truncated for display. The query is left out, because it may contain secrets.
    pub(crate) fn path(&self) -> String {
        const LONGEST: usize = 200;
        self.uri.path().chars().take(LONGEST).collect()
    }
}

/// The shared state of a worker while an exchange owns its socket.
#[derive(Debug)]
pub(crate) struct WorkerInfo {
    /// Identifies the worker; never reused.
    pub(crate) slot: u32,
    /// Process id; 0 until the zygote has reported it.
    pub(crate) pid: AtomicU32,
    /// The worker's activity, why it is to end, and whether it has a successor.
    pub(crate) life: Lifecycle,
    pub(crate) requests: AtomicU64,
    /// Resident memory in bytes at the last check.
    pub(crate) resident: AtomicU64,
    /// PSS and private memory at the last reading.
    memory: Mutex<Option<ProcessMemory>>,
    /// The worker is recycled after this many requests.
    pub(crate) max_requests: u64,
    /// Dispatch time of the current request in milliseconds since the pool started, plus one; 0 if there is none.
    pub(crate) busy_since: AtomicU64,
    /// Deadline of the current request's response, on the same clock; 0 if it has no deadline of its own.
    pub(crate) deadline: AtomicU64,
    /// When it became ready for its first request, on the same clock; 0 if not yet.
    pub(crate) booted_at: AtomicU64,
    /// When it was ordered to end, on the same clock; 0 if not yet.
    pub(crate) ending_since: AtomicU64,
    /// When its connection to the server ended, on the same clock; 0 if not yet. Its process may live on:
    /// `pcntl_exec()` closes the socket.
    pub(crate) gone_since: AtomicU64,
    /// When it was killed, or was to be killed without having a process id yet, on the same clock; 0 if not yet.
    pub(crate) killed_at: AtomicU64,
    /// `busy_since` of the last request reported as slow.
    pub(crate) reported_slow: AtomicU64,
    /// The current request, for log lines and status.
    request: Mutex<Option<CurrentRequest>>,
    /// Reason of its replacement.
    pub(crate) replaced_for: OnceLock<&'static str>,
    /// The last output lines, for the error if the worker does not boot.
    tail: Mutex<VecDeque<String>>,
    /// The last line that it wrote, and how often it was repeated.
    fold: Mutex<Fold>,
    /// Last message of the worker program itself (LOG with source 2): why it retires.
    own_message: Mutex<Option<String>>,
    /// The sinks of what it sends beside answers.
    pub(crate) sinks: Sinks,
    /// Receives the files that its boot has included.
    pub(crate) boot_files: Option<(Arc<BootFiles>, Option<PathBuf>)>,
    /// Receives what its boot reads.
    pub(crate) boot_trace: Option<Arc<BootTrace>>,
    /// Tracing span of its pool, which names the application.
    pub(crate) span: Span,
    counters: OnceLock<Arc<SharedCounters>>,
    /// A duplicate of the server's end of its socket.
    hang_up: Mutex<Option<OwnedFd>>,
    exit: OnceLock<u32>,
    exited: Notify,
    /// Everything that it sent has been read.
    read_out: AtomicBool,
    was_read_out: Notify,
}

impl WorkerInfo {
    pub(crate) fn new(slot: u32, max_requests: u64, sinks: Sinks) -> Self {
        Self {
            slot,
            pid: AtomicU32::new(0),
            life: Lifecycle::new(),
            requests: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            memory: Mutex::new(None),
            max_requests,
            busy_since: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            booted_at: AtomicU64::new(0),
            ending_since: AtomicU64::new(0),
            gone_since: AtomicU64::new(0),
            killed_at: AtomicU64::new(0),
            reported_slow: AtomicU64::new(0),
            request: Mutex::new(None),
            replaced_for: OnceLock::new(),
            tail: Mutex::new(VecDeque::new()),
            fold: Mutex::default(),
            own_message: Mutex::new(None),
            sinks,
            boot_files: None,
            boot_trace: None,
            span: Span::current(),
            counters: OnceLock::new(),
            hang_up: Mutex::new(None),
            exit: OnceLock::new(),
            exited: Notify::new(),
            read_out: AtomicBool::new(false),
            was_read_out: Notify::new(),
        }
    }

    /// Reports its boot to the receivers of these options.
    pub(crate) fn reporting_to(self, options: &Options) -> Self {
        let boot_files = options.boot_files.clone();
        let boot_files = boot_files.map(|files| (files, options.worker_script.clone()));
        let boot_trace = options.boot_trace.clone();
        Self { boot_files, boot_trace, ..self }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Returns the id of the current or last request; its output may be read after its response.
    pub(crate) fn current_request(&self) -> Option<RequestId> {
        self.current().map(|current| current.id)
    }

    /// Returns the current or last request.
    pub(crate) fn current(&self) -> Option<CurrentRequest> {
        self.request.lock().expect("no holder panics").clone()
    }

    pub(crate) fn set_request(&self, current: CurrentRequest) {
        *self.request.lock().expect("no holder panics") = Some(current);
    }

    /// Keeps a line for [`WorkerInfo::tail`].
    pub(crate) fn remember(&self, line: &str) {
        const LINES: usize = 20;
        let mut tail = self.tail.lock().expect("no holder panics");
        if tail.len() == LINES {
            tail.pop_front();
        }
        tail.push_back(line.to_owned());
    }

    /// Returns its last output lines, without the errors that PHP displays as HTML: its log has them as well.
    pub(crate) fn tail(&self) -> String {
        let tail = self.tail.lock().expect("no holder panics");
        let lines = tail.iter().map(String::as_str).filter(not_displayed());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Changes what is known of repeated lines.
    pub(crate) fn fold<T>(&self, change: impl FnOnce(&mut Fold) -> T) -> T {
        change(&mut self.fold.lock().expect("no holder panics"))
    }

    /// Keeps a line for [`WorkerInfo::own_message`].
    pub(crate) fn remember_own_message(&self, line: &str) {
        *self.own_message.lock().expect("no holder panics") = Some(line.to_owned());
    }

    /// Returns the last message of the worker program itself.
    pub(crate) fn own_message(&self) -> Option<String> {
        self.own_message.lock().expect("no holder panics").clone()
    }

    /// Marks that its socket has been read to the end.
    pub(crate) fn set_read_out(&self) {
        self.read_out.store(true, Ordering::Release);
        self.was_read_out.notify_waiters();
    }

    /// Waits until everything that it sent has been read. Cancel safe.
    pub(crate) async fn read_out(&self) {
        loop {
            let notified = self.was_read_out.notified();
            if self.read_out.load(Ordering::Acquire) {
                return;
            }
            notified.await;
        }
    }

    /// Sets the socket duplicate, once, before the worker runs.
    pub(crate) fn set_hang_up(&self, end: OwnedFd) {
        *self.hang_up.lock().expect("no holder panics") = Some(end);
    }

    /// Shuts down the socket of a worker that has ended, so that its reader finds the end after everything it had
    /// sent. A process forked by PHP code may keep the other end open.
    pub(crate) fn hang_up(&self) {
        let end = self.hang_up.lock().expect("no holder panics").take();
        if let Some(end) = end
            && let Err(error) = rustix::net::shutdown(end, rustix::net::Shutdown::Read)
        {
            debug!(worker.pid = self.pid(), %error, "worker socket was closed already");
        }
    }

    /// Writes bytes to the worker without waiting; returns how many were written.
    pub(crate) fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        let end = self.hang_up.lock().expect("no holder panics");
        let end = end.as_ref().ok_or(rustix::io::Errno::PIPE)?;
        rustix::net::send(end, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    /// Gives up a worker that has not reached its first request: its socket ends in both directions, so that a worker
    /// which starts late exits.
    pub(crate) fn cut(&self) {
        let end = self.hang_up.lock().expect("no holder panics").take();
        if let Some(end) = end
            && let Err(error) = rustix::net::shutdown(end, rustix::net::Shutdown::Both)
        {
            debug!(worker.pid = self.pid(), %error, "worker socket was closed already");
        }
    }

    /// Stores when its connection ended; only the first time counts.
    pub(crate) fn set_gone(&self, now: u64) {
        let _first =
            self.gone_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    }

    /// Returns whether it was killed, or will be once its process id is known.
    pub(crate) fn is_given_up(&self) -> bool {
        self.killed_at.load(Ordering::Relaxed) != 0
    }

    /// Sets the exit status. Called once, when the zygote has reported the worker's end or has died.
    pub(crate) fn set_exit(&self, status: u32) {
        if self.exit.set(status).is_ok() {
            self.exited.notify_waiters();
        }
    }

    pub(crate) fn exit(&self) -> Option<u32> {
        self.exit.get().copied()
    }

    /// Waits for the worker's end. Cancel safe.
    pub(crate) async fn ended(&self) -> u32 {
        loop {
            let notified = self.exited.notified();
            if let Some(status) = self.exit() {
                return status;
            }
            notified.await;
        }
    }

    /// Sets the shared counters, once, before the worker runs.
    pub(crate) fn set_counters(&self, counters: Arc<SharedCounters>) {
        self.counters.get_or_init(|| counters);
    }

    /// Returns its statistics about database connections.
    pub(crate) fn databases(&self) -> DatabaseStatus {
        self.counters.get().map(|counters| counters.databases()).unwrap_or_default()
    }

    /// Returns how many restores it has verified.
    pub(crate) fn verified(&self) -> VerifiedRestores {
        self.counters.get().map(|counters| counters.verified()).unwrap_or_default()
    }

    /// Returns the snapshot that it has taken, if any.
    pub(crate) fn snapshot(&self) -> Option<SnapshotMemory> {
        self.counters.get()?.snapshot()
    }

    pub(crate) fn set_memory(&self, memory: Option<ProcessMemory>) {
        *self.memory.lock().expect("no holder panics") = memory;
    }

    /// Returns whether it has been ready.
    pub(crate) fn has_booted(&self) -> bool {
        self.booted_at.load(Ordering::Relaxed) != 0
    }

    /// Returns whether it ended normally to be replaced: connections that it kept were old, or are to be retried.
    pub(crate) fn has_left(&self) -> bool {
        self.counters.get().is_some_and(|counters| counters.is_left())
    }

    /// Returns its status; `now` is on the clock of `busy_since`.
    pub(crate) fn status(&self, now: u64) -> WorkerStatus {
        let since = self.busy_since.load(Ordering::Relaxed);
        let running = self.current().filter(|_| since != 0).map(|current| Running {
            id: current.id.0.to_string(),
            method: current.method.to_string(),
            path: current.path(),
            seconds: Duration::from_millis(now.saturating_sub(since)).as_secs_f64(),
        });
        let memory = *self.memory.lock().expect("no holder panics");
        WorkerStatus {
            application: None,
            pss_bytes: memory.map(|memory| memory.pss_bytes),
            private_bytes: memory.map(|memory| memory.private_bytes),
            snapshot: self.snapshot(),
            running,
            pid: self.pid(),
            state: self.life.state(),
            requests: self.requests.load(Ordering::Relaxed),
            resident_bytes: self.resident.load(Ordering::Relaxed),
        }
    }
}

/// Describes how a worker ended. Waits briefly for the zygote's report.
pub(crate) async fn how_it_ended(info: &WorkerInfo, clock: &Clock) -> String {
    const PATIENCE: Duration = Duration::from_millis(200);
    match clock.timeout(PATIENCE, info.ended()).await {
        Ok(status) => describe_exit(status),
        Err(_elapsed) => "closed its connection".to_owned(),
    }
}

/// Describes a wait status (`waitpid(2)`).
pub(crate) fn describe_exit(status: u32) -> String {
    let signal = status & 0x7f;
    if signal == 0 {
        return format!("exit status {}", (status >> 8) & 0xff);
    }
    let name = match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    };
    format!("signal {signal}{name}")
}

/// Returns a filter that drops the lines from `<br />` to the next that ends with it: an error as `display_errors` shows it (main/main.c).
fn not_displayed() -> impl FnMut(&&str) -> bool {
    let mut displayed = false;
    move |line| {
        displayed |= *line == "<br />";
        let drops = displayed;
        displayed &= *line == "<br />" || !line.ends_with("<br />");
        !drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_php_displays_as_html_is_reported_once() {
        let left = |text: &str| text.lines().filter(not_displayed()).collect::<Vec<_>>().join("\n");
        let log = "PHP Fatal error:  Uncaught Error: no in /a.php:2\n  thrown in /a.php on line 2";
        let shown = "<br />\n<b>Fatal error</b>:  Uncaught Error: no in /a.php:2\n  thrown in <b>/a.php</b> on line <b>2</b><br />";
        assert_eq!(left(&format!("{log}\n{shown}\nit ended")), format!("{log}\nit ended"));
        assert_eq!(left("a<br />\nb"), "a<br />\nb");
    }
}
