//! stderr, written without ever waiting for its reader.
//!
//! Invariants
//! - A line is written at once while stderr takes it. Otherwise it waits in memory for a thread, and all later lines wait behind it.
//! - At most [`MOST`] bytes wait. Further lines are lost and counted, and a line in their place says how many.
//! - Only that thread ever waits for a reader, and [`finish`] for the thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of lines that may wait.
const MOST: usize = 1 << 20;
/// A write of so many bytes is not split, and does not wait once poll(2) has reported a pipe as writable (`PIPE_BUF`, pipe(7)).
const AT_ONCE: usize = 4096;
/// Time without progress after which the end of the program waits for the reader no longer.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines lost since the last report.
    lost: u64,
    has_thread: bool,
}

static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { lines: VecDeque::new(), bytes: 0, lost: 0, has_thread: false });
/// Notified when a waiting line was written.
static CHANGED: Condvar = Condvar::new();
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how many lines were lost since the start.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Writes a line, or lets it wait, or loses it. A log that cannot be written is no reason to stop.
pub(super) fn write(line: &[u8]) {
    let mut waiting = locked();
    let behind_none = !waiting.has_thread && waiting.lines.is_empty();
    if behind_none && line.len() <= AT_ONCE && is_writable(Some(&Timespec::default())) {
        let _written = rustix::io::write(io::stderr(), line).is_ok();
    } else if waiting.bytes + line.len() > MOST {
        waiting.lost += 1;
        LOST.fetch_add(1, Ordering::Relaxed);
    } else {
        waiting.add(line.to_vec());
        if !waiting.has_thread {
            let started = thread::Builder::new().name("log".into()).spawn(write_waiting);
            waiting.has_thread = started.is_ok();
        }
    }
}

/// Waits until all lines are written, as long as the reader takes any.
pub(crate) fn finish() {
    let mut waiting = locked();
    while waiting.has_thread {
        let (next, wait) =
            CHANGED.wait_timeout(waiting, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            return;
        }
        waiting = next;
    }
}

impl Waiting {
    fn add(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }
}

fn locked() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether stderr takes bytes. Where the call is refused, only a write shows it.
fn is_writable(limit: Option<&Timespec>) -> bool {
    let stderr = io::stderr();
    let mut ends = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut ends, limit) != Ok(0)
}

/// Writes the lines that wait, one after the other, until none does.
fn write_waiting() {
    let mut waiting = locked();
    while let Some(line) = waiting.lines.pop_front() {
        waiting.bytes -= line.len();
        if let lost @ 1.. = std::mem::take(&mut waiting.lost) {
            waiting.add(super::lost_lines(lost).into_bytes());
        }
        drop(waiting);
        write_all(&line);
        waiting = locked();
        CHANGED.notify_all();
    }
    waiting.has_thread = false;
    CHANGED.notify_all();
}

/// Writes a whole line. An access log on stderr writes between lines only.
fn write_all(mut line: &[u8]) {
    let stderr = io::stderr().lock();
    while !line.is_empty() {
        is_writable(None);
        match rustix::io::write(&stderr, line.get(..AT_ONCE).unwrap_or(line)) {
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_lost) => return,
        }
    }
}
