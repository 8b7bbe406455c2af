//! What everybody may know about a worker while somebody else holds its socket, and how it ended.
//!
//! Invariants
//! - Everything here may be read and written from any task at any time; nothing waits.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Uri};
use tokio::sync::Notify;
use tracing::{Span, debug};

use crate::clock::Clock;
use crate::context::{RequestContext, RequestId};
use crate::databases::DatabaseStatus;
use crate::events::Sink;
use crate::memory::{ProcessMemory, SnapshotMemory};
use crate::status::{Running, WorkerState, WorkerStatus};
use crate::worker::Board;

/// What everybody may know of a request while a worker has it. Cheap to make: all of it is shared.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
}

impl Asked {
    pub(crate) fn new(parts: &Parts, context: &RequestContext) -> Self {
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        Self { id: context.id.clone(), method, uri }
    }

    /// The path, cut to what people read. The query stays out: there may be secrets in it.
    pub(crate) fn path(&self) -> String {
        const LONGEST: usize = 200;
        self.uri.path().chars().take(LONGEST).collect()
    }
}

/// What everybody may know about a worker while somebody else holds its socket.
#[derive(Debug)]
pub(crate) struct WorkerInfo {
    /// Names the worker; never used twice.
    pub(crate) slot: u32,
    /// Process id; 0 until the zygote has told it.
    pub(crate) pid: AtomicU32,
    state: AtomicU8,
    pub(crate) requests: AtomicU64,
    /// Bytes, from the last look.
    pub(crate) resident: AtomicU64,
    /// PSS and private memory, from the last reading.
    memory: Mutex<Option<ProcessMemory>>,
    /// Recycled after this many requests.
    pub(crate) max_requests: u64,
    /// Milliseconds since the pool started, plus one, at which the running request was dispatched; 0: none.
    pub(crate) busy_since: AtomicU64,
    /// When the running request's answer has to be complete, on the same clock; 0: no deadline of its own.
    pub(crate) deadline: AtomicU64,
    /// When it became ready for its first request, on the same clock; 0: not yet.
    pub(crate) booted_at: AtomicU64,
    /// When it was told to end, on the same clock; 0: not yet.
    pub(crate) ending_since: AtomicU64,
    /// When its conversation with the server ended, on the same clock; 0: not yet. Its process may live on: `pcntl_exec()` closes the socket.
    pub(crate) gone_since: AtomicU64,
    /// When it was killed, or was to be and had no process id yet; on the same clock; 0: not yet.
    pub(crate) killed_at: AtomicU64,
    /// `busy_since` of the last request that was told to be slow.
    pub(crate) told_slow: AtomicU64,
    /// Killed because its request took too long.
    pub(crate) timed_out: AtomicBool,
    /// Its replacement is being booted.
    pub(crate) replacing: AtomicBool,
    /// To be ended at its next release.
    pub(crate) retire: AtomicBool,
    /// We had it ended, so its end is no crash.
    pub(crate) told_to_end: AtomicBool,
    /// There were more workers than needed, and this one was idle.
    pub(crate) surplus: AtomicBool,
    /// A one-shot worker that has been given its request.
    pub(crate) spent: AtomicBool,
    /// The request it has, for its log lines and for who looks.
    request: Mutex<Option<Asked>>,
    /// Why it is being replaced.
    pub(crate) replaced_for: OnceLock<&'static str>,
    /// The last lines it wrote, for the error when it does not boot.
    tail: Mutex<VecDeque<String>>,
    /// What the worker program itself said last (LOG with source 2): why it retires.
    own_word: Mutex<Option<String>>,
    /// Where events go that it publishes.
    pub(crate) sink: Sink,
    /// Of its pool: which application's it is.
    pub(crate) span: Span,
    board: OnceLock<Arc<Board>>,
    /// The server's end of its socket, once more.
    hang_up: Mutex<Option<OwnedFd>>,
    exit: OnceLock<u32>,
    exited: Notify,
    /// All that it sent has been read.
    read_out: AtomicBool,
    was_read_out: Notify,
}

impl WorkerInfo {
    pub(crate) fn new(slot: u32, max_requests: u64, sink: Sink) -> Self {
        Self {
            slot,
            pid: AtomicU32::new(0),
            state: AtomicU8::new(WorkerState::Booting as u8),
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
            told_slow: AtomicU64::new(0),
            timed_out: AtomicBool::new(false),
            replacing: AtomicBool::new(false),
            retire: AtomicBool::new(false),
            told_to_end: AtomicBool::new(false),
            surplus: AtomicBool::new(false),
            spent: AtomicBool::new(false),
            request: Mutex::new(None),
            replaced_for: OnceLock::new(),
            tail: Mutex::new(VecDeque::new()),
            own_word: Mutex::new(None),
            sink,
            span: Span::current(),
            board: OnceLock::new(),
            hang_up: Mutex::new(None),
            exit: OnceLock::new(),
            exited: Notify::new(),
            read_out: AtomicBool::new(false),
            was_read_out: Notify::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> WorkerState {
        WorkerState::from_number(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn set_state(&self, state: WorkerState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// The request that the worker has, or had last: what it printed may be read after its answer.
    pub(crate) fn current_request(&self) -> Option<RequestId> {
        self.asked().map(|asked| asked.id)
    }

    /// The same with what it asks for.
    pub(crate) fn asked(&self) -> Option<Asked> {
        self.request.lock().expect("no holder panics").clone()
    }

    pub(crate) fn set_request(&self, asked: Asked) {
        *self.request.lock().expect("no holder panics") = Some(asked);
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

    /// The last lines it wrote, one per line.
    pub(crate) fn tail(&self) -> String {
        let tail = self.tail.lock().expect("no holder panics");
        tail.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Keeps a line for [`WorkerInfo::own_word`].
    pub(crate) fn remember_own_word(&self, line: &str) {
        *self.own_word.lock().expect("no holder panics") = Some(line.to_owned());
    }

    /// What the worker program itself said last.
    pub(crate) fn own_word(&self) -> Option<String> {
        self.own_word.lock().expect("no holder panics").clone()
    }

    /// Its socket has been read to the end.
    pub(crate) fn set_read_out(&self) {
        self.read_out.store(true, Ordering::Release);
        self.was_read_out.notify_waiters();
    }

    /// Waits until all that it sent has been read. Cancel safe.
    pub(crate) async fn read_out(&self) {
        loop {
            let notified = self.was_read_out.notified();
            if self.read_out.load(Ordering::Acquire) {
                return;
            }
            notified.await;
        }
    }

    /// Told once, before the worker runs.
    pub(crate) fn set_hang_up(&self, end: OwnedFd) {
        *self.hang_up.lock().expect("no holder panics") = Some(end);
    }

    /// It has ended: whoever reads its socket finds the end behind what it had sent. A process that PHP code has forked may hold the
    /// other end for as long as it likes.
    pub(crate) fn hang_up(&self) {
        let end = self.hang_up.lock().expect("no holder panics").take();
        if let Some(end) = end
            && let Err(error) = rustix::net::shutdown(end, rustix::net::Shutdown::Read)
        {
            debug!(worker.pid = self.pid(), %error, "worker socket was closed already");
        }
    }

    /// The server gives up a worker that has not come to its first request: its socket ends both ways, so that a worker which starts late exits.
    pub(crate) fn cut(&self) {
        let end = self.hang_up.lock().expect("no holder panics").take();
        if let Some(end) = end
            && let Err(error) = rustix::net::shutdown(end, rustix::net::Shutdown::Both)
        {
            debug!(worker.pid = self.pid(), %error, "worker socket was closed already");
        }
    }

    /// Keeps when its conversation ended: the first time counts.
    pub(crate) fn set_gone(&self, now: u64) {
        let _first =
            self.gone_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    }

    /// It was killed, or is to be as soon as its process id is known.
    pub(crate) fn is_given_up(&self) -> bool {
        self.killed_at.load(Ordering::Relaxed) != 0
    }

    /// Called once, when the zygote (or its death) has told the worker's end.
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

    /// Told once, before the worker runs.
    pub(crate) fn set_board(&self, board: Arc<Board>) {
        self.board.get_or_init(|| board);
    }

    /// What it has done with connections of databases.
    pub(crate) fn databases(&self) -> DatabaseStatus {
        self.board.get().map(|board| board.databases()).unwrap_or_default()
    }

    /// The snapshot that it has taken, if any.
    pub(crate) fn snapshot(&self) -> Option<SnapshotMemory> {
        self.board.get()?.snapshot()
    }

    pub(crate) fn set_memory(&self, memory: Option<ProcessMemory>) {
        *self.memory.lock().expect("no holder panics") = memory;
    }

    /// It has been ready.
    pub(crate) fn has_booted(&self) -> bool {
        self.booted_at.load(Ordering::Relaxed) != 0
    }

    /// It has ended in good order to be replaced: connections that it kept were old, or are to be tried again.
    pub(crate) fn has_left(&self) -> bool {
        self.board.get().is_some_and(|board| board.is_left())
    }

    /// `now`: on the clock of `busy_since`.
    pub(crate) fn status(&self, now: u64) -> WorkerStatus {
        let since = self.busy_since.load(Ordering::Relaxed);
        let running = self.asked().filter(|_| since != 0).map(|asked| Running {
            id: asked.id.0.to_string(),
            method: asked.method.to_string(),
            path: asked.path(),
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
            state: self.state(),
            requests: self.requests.load(Ordering::Relaxed),
            resident_bytes: self.resident.load(Ordering::Relaxed),
        }
    }
}

/// How a worker ended, in words. Waits for the zygote's word, but not for long.
pub(crate) async fn how_it_ended(info: &WorkerInfo, clock: &Clock) -> String {
    const PATIENCE: Duration = Duration::from_millis(200);
    match clock.timeout(PATIENCE, info.ended()).await {
        Ok(status) => describe_exit(status),
        Err(_elapsed) => "closed its connection".to_owned(),
    }
}

/// A wait status (`waitpid(2)`) in words.
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
