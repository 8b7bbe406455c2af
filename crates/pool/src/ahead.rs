//! Requests written ahead: a busy worker finds its next request in its socket and does not sleep in between.
//!
//! Requests are distributed and written at the end of a turn, when the runtime has polled all tasks that are ready. By
//! then idle workers have their requests. One that wakes up may take the processor from the server; it then finds more
//! than one request.
//!
//! A request that was written ahead keeps its place in the backlog until the worker's previous answer has ended. Then
//! the exchange of the previous request passes the worker on to it.
//!
//! Invariants
//! - A request waits in the socket of at most one worker. It goes to another worker only after it was withdrawn, which
//!   the shared counters prove.
//! - A worker has at most [`DEEPEST`] requests, the running one included, and by the average time of a request at most
//!   [`LONGEST_LINE`] of work.
//! - No request waits behind one that takes unusually long while another worker becomes free: it is withdrawn.

mod service_time;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::service_time::ServiceTime;
use crate::backlog::Backlog;
use crate::exchange::Observer;
use crate::info::{CurrentRequest, WorkerInfo};
use crate::lease::Grant;
use crate::scheduling;
use crate::worker::{Port, Worker};

/// Number of requests ahead, by worker, from which the server waits for its turn.
const MANY: usize = 2;
/// Maximum number of requests with a worker.
const DEEPEST: usize = 16;
/// Maximum size of a request that is written ahead.
pub(crate) const LARGEST: usize = 32 * 1024;
/// Maximum size of all requests behind the running one: a worker's socket takes them at once (`SO_SNDBUF`, 208 KiB).
const LARGEST_LINE: usize = 5 * LARGEST;
/// A request of this size is written from where it is: to copy it costs more than to write it alone.
const LARGE: usize = 8 * 1024;

/// A request that waits for a worker.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) give: oneshot::Sender<Grant>,
    pub(crate) request: Waiting,
    /// The place to which this request was written ahead; `None` if it was not.
    ahead: Option<Ahead>,
}

/// The parts of a waiting request that the queue needs.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The request's frames, if it may be written ahead.
    pub(crate) frames: Option<Bytes>,
    pub(crate) current: CurrentRequest,
    pub(crate) observer: Observer,
    /// When it must be answered, on the pool's clock; 0 for no deadline.
    pub(crate) deadline: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ahead {
    slot: u32,
    number: u64,
}

impl Waiter {
    pub(crate) fn new(give: oneshot::Sender<Grant>, request: Waiting) -> Self {
        Self { give, request, ahead: None }
    }
}

/// The requests with one worker.
#[derive(Debug)]
struct Line {
    port: Arc<Port>,
    /// Requests behind the running one, in the order in which they were written.
    behind: VecDeque<Behind>,
    /// When the running request began; `None` while the worker is idle.
    since: Option<Instant>,
    /// Frames of requests with the worker that are to be written at the end of the turn.
    unsent: Vec<u8>,
    /// The worker got a request since the last flush, and gets others until the line is full.
    filling: bool,
}

/// A request in a worker's socket.
#[derive(Debug)]
struct Behind {
    number: u64,
    place: u64,
    size: usize,
    /// Set if the worker has begun it and its client is gone.
    abandoned: Option<Waiting>,
}

/// The next request of a worker that has already been written.
#[derive(Debug)]
pub(crate) enum Next {
    /// The client still waits.
    Wanted { number: u64, place: u64 },
    /// The client is gone, and the worker has begun the request.
    Abandoned { number: u64, request: Waiting },
}

/// The resident workers and the requests that were written to them.
#[derive(Debug)]
pub(crate) struct Lines {
    of: BTreeMap<u32, Line>,
    /// Number of requests that are written ahead.
    ahead: usize,
    pub(crate) service: ServiceTime,
    /// Whether there are unsent bytes, and the task that writes them was woken.
    woken: bool,
    /// Wakes the task that writes at the end of the turn, and again while a socket is full.
    turn: Arc<Notify>,
    /// Each request is written at once, if its socket has room.
    at_once: bool,
}

impl Lines {
    /// Creates an empty set. `turn` wakes the task that calls [`Lines::flush`] when the runtime has polled what is
    /// ready; with `at_once` that task only writes what a full socket did not take.
    pub(crate) fn new(turn: Arc<Notify>, at_once: bool) -> Self {
        let service = ServiceTime::default();
        Self { of: BTreeMap::new(), ahead: 0, service, woken: false, turn, at_once }
    }

    /// Records that a worker begins a request that is not written yet.
    pub(crate) fn begin(&mut self, worker: &mut Worker, now: Instant) {
        let port = &worker.port;
        port.set_open(false);
        port.set_long(self.service.is_long());
        let line = self.of.entry(port.info.slot).or_insert_with(|| Line {
            port: Arc::clone(port),
            behind: VecDeque::new(),
            since: None,
            unsent: Vec::new(),
            filling: false,
        });
        line.start(now);
        worker.outgoing.clear();
        if !line.unsent.is_empty() {
            line.flush();
            worker.outgoing.append(&mut line.unsent);
        }
        worker.earlier = worker.outgoing.len();
    }

    /// Takes over the request in `worker.outgoing`. It is written at the end of the turn, and others may follow it; if
    /// it is `alone` in the pool, at once. Returns its number; `None` if the exchange has to write it.
    pub(crate) fn take_over(&mut self, worker: &mut Worker, alone: bool) -> Option<u64> {
        if worker.earlier > 0 || worker.outgoing.len() > LARGEST {
            return None;
        }
        let line = self.of.get_mut(&worker.info.slot)?;
        let number = line.port.offer()?;
        line.filling = true;
        line.port.set_open(true);
        if line.unsent.is_empty() {
            std::mem::swap(&mut line.unsent, &mut worker.outgoing);
        } else {
            line.unsent.append(&mut worker.outgoing);
        }
        if !alone || !line.flush() {
            self.wake(worker.info.slot);
        }
        Some(number)
    }

    /// Takes back bytes of earlier requests that a lease was given, because it has written nothing.
    pub(crate) fn not_written(&mut self, worker: &mut Worker) {
        if worker.earlier > 0
            && let Some(line) = self.of.get_mut(&worker.info.slot)
        {
            worker.outgoing.truncate(worker.earlier);
            line.unsent.append(&mut worker.outgoing);
            worker.earlier = 0;
        }
    }

    /// Orders the write of a worker's bytes at the end of the turn, or writes them now.
    fn wake(&mut self, slot: u32) {
        if !self.at_once || !self.of.get_mut(&slot).is_none_or(Line::flush) {
            self.wake_turn();
        }
    }

    fn wake_turn(&mut self) {
        if !std::mem::replace(&mut self.woken, true) {
            self.turn.notify_one();
        }
    }

    /// Has waiting requests written ahead at the end of the turn, when it is known which workers are idle by then, or
    /// now.
    pub(crate) fn arrange(&mut self, waiting: &mut Backlog<Waiter>, now: impl Fn() -> Instant) {
        if !self.has_to_arrange(waiting) {
            return;
        }
        if self.at_once {
            self.write_ahead(waiting, now);
        } else {
            self.wake_turn();
        }
    }

    /// Wakes the task that writes, which ends when the pool is closed and nothing is left to write.
    pub(crate) fn close(&self) {
        self.turn.notify_one();
    }

    /// Writes waiting requests ahead and what else is to be written. Returns `false` if a socket is full.
    pub(crate) fn flush(&mut self, waiting: &mut Backlog<Waiter>) -> bool {
        if !self.at_once {
            if self.has_to_arrange(waiting) {
                self.write_ahead(waiting, Instant::now);
            }
            scheduling::turn(self.ahead >= MANY * self.of.len().max(1));
        }
        self.woken = false;
        let mut done = true;
        for line in self.of.values_mut() {
            done &= line.flush();
        }
        done
    }

    /// Records that a worker's request has ended, `answered` or without having been written. Returns the next one in
    /// its socket. `took` is by the worker: the time of this process contains its own wait for a processor.
    pub(crate) fn end(
        &mut self,
        slot: u32,
        now: Instant,
        answered: bool,
        took: Option<Duration>,
    ) -> Option<Next> {
        let line = self.of.get_mut(&slot)?;
        if let Some(since) = line.since.take()
            && answered
        {
            self.service.add(took.unwrap_or_else(|| now.saturating_duration_since(since)));
        }
        let Behind { number, place, abandoned, .. } = line.behind.pop_front()?;
        self.ahead -= 1;
        line.start(now);
        Some(match abandoned {
            None => Next::Wanted { number, place },
            Some(request) => Next::Abandoned { number, request },
        })
    }

    /// Returns whether a waiting request may be written ahead or withdrawn.
    fn has_to_arrange(&self, waiting: &Backlog<Waiter>) -> bool {
        !waiting.is_empty() && (self.service.depth() > 1 || self.ahead > 0)
    }

    /// Writes waiting requests ahead, the oldest first, each to the worker with the fewest.
    fn write_ahead(&mut self, waiting: &mut Backlog<Waiter>, now: impl Fn() -> Instant) {
        let now = now();
        self.withdraw_stalled(waiting, now);
        let depth = self.service.depth();
        let stall = self.service.stall();
        if depth == 1 {
            return;
        }
        loop {
            let lines = self.of.values_mut().filter(|line| line.has_room(depth, stall, now));
            let Some(line) = lines.min_by_key(|line| line.behind.len()) else { break };
            let Some((place, waiter)) = waiting.first(|waiter| waiter.ahead.is_none()) else {
                break;
            };
            // Only a free worker can have the first one: the others wait behind it.
            let Some(frames) = &waiter.request.frames else { break };
            if line.size() + frames.len() > LARGEST_LINE {
                break;
            }
            // The worker has yet to skip others that were withdrawn.
            let Some(number) = line.port.offer() else { break };
            line.add(frames);
            let size = frames.len();
            let slot = line.port.info.slot;
            waiter.ahead = Some(Ahead { slot, number });
            line.behind.push_back(Behind { number, place, size, abandoned: None });
            self.ahead += 1;
            self.wake(slot);
        }
    }

    /// Takes back what was written behind requests that take unusually long.
    fn withdraw_stalled(&mut self, waiting: &mut Backlog<Waiter>, now: Instant) {
        if self.ahead == 0 {
            return;
        }
        let stall = self.service.stall();
        let stalled = self.of.values().filter(|line| line.is_stalled(stall, now));
        let stalled: Vec<u32> = stalled.map(|line| line.port.info.slot).collect();
        if !stalled.is_empty() {
            scheduling::be_ordinary();
        }
        for slot in stalled {
            self.withdraw_all(slot, waiting);
        }
    }

    /// Takes back what a worker has not begun; returns whether that was anything. The requests keep their places in
    /// the backlog.
    pub(crate) fn withdraw_all(&mut self, slot: u32, waiting: &mut Backlog<Waiter>) -> bool {
        let Some(line) = self.of.get_mut(&slot) else { return false };
        let before = line.behind.len();
        let port = &line.port;
        line.behind.retain(|behind| {
            let withdrawn = behind.abandoned.is_none() && port.withdraw(behind.number);
            if withdrawn && let Some(waiter) = waiting.get_mut(behind.place) {
                waiter.ahead = None;
            }
            !withdrawn
        });
        let withdrawn = before - line.behind.len();
        self.ahead -= withdrawn;
        withdrawn > 0
    }

    /// Takes a request back from the worker that it was written to. Returns `false` if that has begun it.
    pub(crate) fn take_back(&mut self, waiter: &mut Waiter) -> bool {
        let Some(Ahead { slot, number }) = waiter.ahead else { return true };
        let Some(line) = self.of.get_mut(&slot) else { return false };
        if !line.port.withdraw(number) {
            return false;
        }
        line.behind.retain(|behind| behind.number != number);
        self.ahead -= 1;
        waiter.ahead = None;
        true
    }

    /// Handles a waiting request whose client is gone.
    pub(crate) fn abandon(&mut self, mut waiter: Waiter) {
        if self.take_back(&mut waiter) {
            return;
        }
        let Some(Ahead { slot, number }) = waiter.ahead else { return };
        let Some(line) = self.of.get_mut(&slot) else { return };
        line.port.abort(number);
        if let Some(behind) = line.behind.iter_mut().find(|behind| behind.number == number) {
            behind.abandoned = Some(waiter.request);
        }
    }

    /// Called once in a while, also if nothing is to do.
    pub(crate) fn rest(&self) {
        if self.ahead == 0 {
            scheduling::be_ordinary();
        }
    }

    /// Returns how many requests are written ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.ahead
    }

    /// Forgets a worker that ends and has nothing left to answer.
    pub(crate) fn end_worker(&mut self, slot: u32) {
        if let Some(line) = self.of.remove(&slot) {
            self.ahead -= line.behind.len();
        }
    }

    /// Forgets a worker that is gone. Returns the places of requests that it may have begun.
    pub(crate) fn forget(&mut self, slot: u32, waiting: &mut Backlog<Waiter>) -> Vec<u64> {
        self.withdraw_all(slot, waiting);
        let Some(line) = self.of.remove(&slot) else { return Vec::new() };
        self.ahead -= line.behind.len();
        line.behind.into_iter().map(|behind| behind.place).collect()
    }
}

impl Line {
    /// Records that the worker's next request begins.
    fn start(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Adds a request behind the others.
    fn add(&mut self, frames: &[u8]) {
        let written = if frames.len() >= LARGE && self.flush() { self.send(frames) } else { 0 };
        self.unsent.extend_from_slice(&frames[written..]);
        self.filling = true;
    }

    /// Writes its bytes to the worker. Returns `false` if the socket is full.
    fn flush(&mut self) -> bool {
        let written = self.send(&self.unsent);
        self.unsent.drain(..written);
        self.filling = !self.unsent.is_empty();
        !self.filling
    }

    /// Writes to the worker as much as its socket takes; returns how much that is.
    fn send(&self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.port.info.send(&bytes[written..]) {
                Ok(taken) => written += taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The worker is gone; its exchange finds its end.
                Err(_gone) => return bytes.len(),
            }
        }
        written
    }

    /// Returns the size of what was written behind the running request.
    fn size(&self) -> usize {
        self.behind.iter().map(|behind| behind.size).sum()
    }

    /// Returns whether another request may be written to the worker.
    fn has_room(&self, depth: usize, stall: Duration, now: Instant) -> bool {
        let WorkerInfo { life, requests, max_requests, .. } = &*self.port.info;
        let with_it = self.behind.len() + 1;
        with_it < depth
            // Several are written at once when half of the line has been answered.
            && (self.filling || (with_it <= depth / 2 && self.size() <= LARGEST_LINE / 2))
            && self.port.is_open()
            && !self.is_stalled(stall, now)
            && self.since.is_some()
            && !life.is_succeeded()
            && !life.is_dismissed()
            && requests.load(Ordering::Relaxed).saturating_add(with_it as u64) < *max_requests
    }

    fn is_stalled(&self, stall: Duration, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) > stall)
    }
}
