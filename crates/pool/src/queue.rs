//! The queue of the pool: the idle workers, the backlog, and which request has which worker.
//!
//! Invariants
//! - While a request waits, no worker is idle, unless the maximum of requests is running: a released worker goes to
//!   the oldest waiter.
//! - A request that was written ahead to a busy worker waits like the others (`ahead`); that worker is passed on to it.
//! - A one-shot worker to which something was written is never idle again; at most as many of them are leased as
//!   there should be workers.
//! - The backlog is bounded by `Options::backlog`, and more tightly while more requests arrive than are answered
//!   (`overload`). When it is full, a request is rejected at once: the new one, or the newest of the client with the
//!   most (`backlog`).

mod excess;
mod overdue;
mod quiet;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::debug;

use crate::ahead::{Lines, Next, Waiter, Waiting};
use crate::backend::Backend as _;
use crate::backlog::{Backlog, Client};
use crate::clock::Reading;
use crate::info::WorkerInfo;
use crate::lease::{Grant, InLine, Lease, Release, Written};
use crate::lifecycle::Dismissal;
use crate::overload::{Line, Overload, Waits};
use crate::scaler::Load;
use crate::shared::{Command, Shared};
use crate::status::WorkerState;
use crate::worker::Worker;
use crate::{DispatchError, exchange, output};

/// The idle workers and the waiting requests.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Idle workers; the back is taken first, because the worker that ran last has the warmest caches. A worker that
    /// still cleans up after END is inserted before the last, so that the next request does not wait for it.
    idle: VecDeque<Box<Worker>>,
    waiting: Backlog<Waiter>,
    /// Requests written ahead to busy workers. Empty in one-shot models.
    lines: Lines,
    overload: Overload,
    waits: Waits,
    /// Workers that have a request or are being returned from one.
    leased: usize,
    /// Maximum of `leased` since the supervisor's last check.
    peak: usize,
    /// Busy workers that another group of scripts needs: as many end after their answer.
    excess: usize,
    /// Number of tasks that wait for quiet.
    watched: usize,
    draining: bool,
    /// Nothing is answered any more: leases end their workers.
    closed: bool,
}

impl Queue {
    /// Creates an empty queue; `target` is [`Options::backlog_target`], `turn` and `at_once` as in [`Lines::new`].
    pub(crate) fn new(target: Option<Duration>, (turn, at_once): (Arc<Notify>, bool)) -> Self {
        Self {
            idle: VecDeque::new(),
            waiting: Backlog::default(),
            lines: Lines::new(turn, at_once),
            overload: Overload::new(target),
            waits: Waits::default(),
            leased: 0,
            peak: 0,
            excess: 0,
            watched: 0,
            draining: false,
            closed: false,
        }
    }

    /// Records that a waiting request got a worker, and rejects others if that shows an overload.
    fn handed_out(&mut self, now: Instant, waited: Duration) {
        self.waits.add(waited);
        let (left, running) = (self.waiting.len(), self.leased);
        if self.overload.handed_out(now, waited, left, running) {
            let room = self.overload.room(running).unwrap_or(usize::MAX);
            let lines = &mut self.lines;
            drop(self.waiting.trim(room, |waiter| lines.take_back(waiter)));
        }
    }

    /// Returns the state of the backlog, when this many requests were rejected.
    pub(crate) fn line(&self, refused: u64) -> Line {
        Line {
            backlog: self.waiting.len(),
            ahead: self.lines.ahead(),
            overloaded: self.overload.is_shedding(),
            refused,
            waits: self.waits,
        }
    }

    fn loaned(&mut self) {
        self.leased += 1;
        self.peak = self.peak.max(self.leased);
    }
}

impl Shared {
    /// Returns an idle worker if there is one.
    pub(crate) fn lease_idle(self: &Arc<Self>) -> Result<Option<Lease>, DispatchError> {
        let mut queue = self.queue.lock().expect("no holder panics");
        let worker = self.take_idle(&mut queue)?;
        drop(queue);
        Ok(worker.map(|worker| self.loan(worker)))
    }

    /// Takes an idle worker for a request that is not written yet.
    fn take_idle(&self, queue: &mut Queue) -> Result<Option<Box<Worker>>, DispatchError> {
        if queue.draining {
            return Err(DispatchError::Draining);
        }
        if queue.leased >= self.at_once() {
            return Ok(None);
        }
        let mut worker = queue.idle.pop_back();
        if let Some(worker) = &mut worker {
            self.begin(queue, worker);
        }
        Ok(worker)
    }

    /// Returns whether requests that have to wait may be written ahead.
    pub(crate) fn writes_ahead(&self) -> bool {
        let queue = self.queue.lock().expect("no holder panics");
        !self.one_shot() && queue.lines.service.depth() > 1
    }

    /// Returns an idle worker, at once or after waiting in the backlog, or the worker that has the request by then.
    /// Cancel safe: dropping the future only gives up the place.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        client: Client,
        request: Waiting,
    ) -> Result<Grant, DispatchError> {
        let (taken, since, place) = {
            let mut queue = self.queue.lock().expect("no holder panics");
            if let Some(worker) = self.take_idle(&mut queue)? {
                drop(queue);
                return Ok(Grant::Idle(self.loan(worker)));
            }
            let room = queue.overload.room(queue.leased).unwrap_or(usize::MAX);
            let room = room.min(self.options.backlog);
            let Queue { waiting, lines, .. } = &mut *queue;
            if waiting.len() >= room
                && waiting.make_room(client, |waiter| lines.take_back(waiter)).is_none()
            {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(DispatchError::Overloaded { waited: Duration::ZERO });
            }
            if waiting.is_empty() && self.follows_load() {
                self.wanted.notify_one();
            }
            let (give, taken) = oneshot::channel();
            let now = self.clock.read();
            let since = self.clock.instant_of(&now);
            let place = waiting.push(since, client, Waiter::new(give, request));
            lines.arrange(waiting, || now.real);
            (taken, since, InLine::new(self, place))
        };
        let taken = taken.await;
        place.leave();
        // Its place is dropped when the time is over, or another client has precedence.
        taken.map_err(|_dropped| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let waited = self.clock.instant().saturating_duration_since(since);
            DispatchError::Overloaded { waited }
        })
    }

    /// Gives up a place in the backlog.
    pub(crate) fn abandon(self: &Arc<Self>, place: u64) {
        let mut queue = self.queue.lock().expect("no holder panics");
        if let Some(place) = queue.waiting.take(place) {
            queue.lines.abandon(place.waiter);
            self.hand_out(queue);
        }
    }

    /// Gives the requests behind a worker's running one to other workers.
    pub(crate) fn withdraw_behind(self: &Arc<Self>, slot: u32) {
        let mut queue = self.queue.lock().expect("no holder panics");
        let Queue { waiting, lines, .. } = &mut *queue;
        if lines.withdraw_all(slot, waiting) {
            self.hand_out(queue);
        }
    }

    /// Counts a lease, whose request is not written yet.
    fn begin(&self, queue: &mut Queue, worker: &mut Worker) {
        queue.loaned();
        if self.one_shot() {
            worker.outgoing.clear();
        } else {
            queue.lines.begin(worker, Instant::now());
        }
    }

    /// Takes over the writing of a whole request, see [`Lines::take_over`].
    pub(crate) fn take_over(&self, lease: &mut Lease) -> Option<u64> {
        if self.one_shot() {
            return None;
        }
        let mut queue = self.queue.lock().expect("no holder panics");
        let alone = queue.leased == 1;
        queue.lines.take_over(lease, alone)
    }

    /// Writes to workers at the end of each turn, and what their sockets did not take, until the pool is closed and quiet.
    pub(crate) async fn write_at_end_of_turn(self: Arc<Self>, turn: Arc<Notify>) {
        const FULL: Duration = Duration::from_millis(1);
        loop {
            turn.notified().await;
            // Polled again when all tasks that are ready have been.
            tokio::task::yield_now().await;
            let (done, ends) = {
                let mut queue = self.queue.lock().expect("no holder panics");
                let Queue { waiting, lines, .. } = &mut *queue;
                (lines.flush(waiting), queue.closed && queue.leased == 0)
            };
            if ends {
                return;
            }
            if !done {
                tokio::time::sleep(FULL).await;
                turn.notify_one();
            }
        }
    }

    fn loan(self: &Arc<Self>, worker: Box<Worker>) -> Lease {
        let now = self.now();
        self.loan_at(now, worker)
    }

    /// Lends a worker at `now`, on the scale of [`Clock::now`].
    fn loan_at(self: &Arc<Self>, now: u64, worker: Box<Worker>) -> Lease {
        worker.info.life.set_state(WorkerState::Busy);
        // The last request's deadline may have passed, and this one's is not set yet.
        worker.info.deadline.store(0, Ordering::Relaxed);
        worker.info.busy_since.store(now, Ordering::Relaxed);
        Lease::new(Arc::clone(self), worker)
    }

    /// Returns how many workers may be leased at once. Resident workers are their own limit; more one-shot workers
    /// wait than may run.
    fn at_once(&self) -> usize {
        if self.one_shot() { self.wanted() } else { usize::MAX }
    }

    /// Sets the wanted number of workers.
    pub(crate) fn want(self: &Arc<Self>, workers: usize) {
        self.target.store(workers, Ordering::Relaxed);
        self.hand_out(self.queue.lock().expect("no holder panics"));
    }

    /// Returns the load, for scaling decisions.
    pub(crate) fn load(&self) -> Load {
        let mut queue = self.queue.lock().expect("no holder panics");
        let (running, peak) = (queue.leased, queue.peak);
        queue.peak = running;
        Load { running, peak, waiting: queue.waiting.len(), since: queue.waiting.since() }
    }

    /// Ends a lease. `spoken` says that its worker has answered a request, so that a one-shot worker exits now;
    /// otherwise it has read nothing.
    pub(crate) fn give_back(self: &Arc<Self>, worker: Box<Worker>, spoken: bool) {
        let info = &worker.info;
        output::end_repetitions(info);
        if !self.one_shot() || !spoken {
            info.life.set_spent(false);
            return self.release(worker, if spoken { Release::Answered } else { Release::Unused });
        }
        info.busy_since.store(0, Ordering::Relaxed);
        info.life.set_state(WorkerState::Stopping);
        info.ending_since.store(self.now(), Ordering::Relaxed);
        self.log_last_output(worker);
        self.leave();
    }

    /// Passes a worker on to the request that it has already, or gives it to the oldest waiter, or makes it idle, or
    /// ends it if it must retire.
    pub(crate) fn release(self: &Arc<Self>, mut worker: Box<Worker>, release: Release) {
        worker.shrink_buffers();
        let info = Arc::clone(&worker.info);
        info.busy_since.store(0, Ordering::Relaxed);
        let served = info.requests.load(Ordering::Relaxed);
        if served >= info.max_requests && info.life.order_successor() {
            self.command(Command::Replace { slot: info.slot, why: "max_requests" });
        }
        let mut queue = self.queue.lock().expect("no holder panics");
        let ends = queue.closed
            || info.life.is_succeeded()
            // Its kill is under way.
            || info.life.timed_out()
            || info.is_given_up()
            || info.exit().is_some()
            || queue.is_too_many(&info, release);
        if release != Release::Booted && !self.one_shot() {
            let Queue { waiting, lines, .. } = &mut *queue;
            if ends {
                lines.withdraw_all(info.slot, waiting);
            }
            let answered = release == Release::Answered;
            if !answered {
                lines.not_written(&mut worker);
            }
            let now = self.clock.read();
            if let Some(next) = lines.end(info.slot, now.real, answered, worker.took.take()) {
                return self.pass_on(queue, worker, next, &now);
            }
        }
        if ends {
            drop(queue);
            self.end(worker);
            queue = self.queue.lock().expect("no holder panics");
        } else {
            worker.info.life.set_state(WorkerState::Idle);
            let place = queue.idle.len().saturating_sub(usize::from(!worker.ready));
            queue.idle.insert(place, worker);
        }
        queue.leased -= usize::from(release != Release::Booted);
        self.hand_out(queue);
    }

    /// Passes a worker on to the request that it answers next.
    fn pass_on(
        self: &Arc<Self>,
        mut queue: MutexGuard<'_, Queue>,
        mut worker: Box<Worker>,
        next: Next,
        now: &Reading,
    ) {
        // What its last exchange has written.
        worker.outgoing.clear();
        worker.earlier = 0;
        let lease = self.loan_at(self.clock.moment_of(now), worker);
        let (number, place) = match next {
            Next::Abandoned { number, request } => {
                lease.info.set_request(request.current);
                lease.info.deadline.store(request.deadline, Ordering::Relaxed);
                self.hand_out(queue);
                return exchange::abandon(lease, number, request.observer);
            }
            Next::Wanted { number, place } => (number, queue.waiting.take(place)),
        };
        let Some(place) = place else {
            debug_assert!(false, "a request that was written ahead waits or was abandoned");
            self.hand_out(queue);
            return exchange::abandon(lease, number, None);
        };
        let instant = self.clock.instant_of(now);
        let Waiter { give, request, .. } = place.waiter;
        let unwanted =
            give.send(Grant::Written(Written::new(lease, number, request.observer))).err();
        queue.handed_out(instant, instant.saturating_duration_since(place.since));
        self.hand_out_at(queue, || now.real);
        // Its client has just gone.
        drop(unwanted);
    }

    /// Counts one lease fewer.
    fn leave(self: &Arc<Self>) {
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.leased -= 1;
        self.hand_out(queue);
    }

    /// Counts one lease fewer, whose worker is gone: what it has not begun goes to other workers.
    pub(crate) fn lose(self: &Arc<Self>, info: &Arc<WorkerInfo>) {
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.leased -= 1;
        let Queue { waiting, lines, .. } = &mut *queue;
        for place in lines.forget(info.slot, waiting) {
            if let Some(place) = waiting.take(place) {
                let _gone = place.waiter.give.send(Grant::Lost(Arc::clone(info))).is_err();
            }
        }
        self.hand_out(queue);
    }

    /// Gives idle workers to waiting requests, up to the limit of leases, writes others ahead, and wakes tasks that
    /// wait for quiet.
    fn hand_out(self: &Arc<Self>, queue: MutexGuard<'_, Queue>) {
        self.hand_out_at(queue, Instant::now);
    }

    /// Like [`Self::hand_out`], at a real instant.
    fn hand_out_at(
        self: &Arc<Self>,
        mut queue: MutexGuard<'_, Queue>,
        now_is: impl Fn() -> Instant,
    ) {
        while queue.leased < self.at_once() && !queue.idle.is_empty() {
            let Queue { waiting, lines, .. } = &mut *queue;
            let Some(place) = waiting.pop(|waiter| lines.take_back(waiter)) else { break };
            let now = self.clock.instant();
            let waited = now.saturating_duration_since(place.since);
            if place.waiter.give.is_closed() || waited >= self.patience(&queue) {
                continue;
            }
            let Some(mut worker) = queue.idle.pop_back() else { break };
            self.begin(&mut queue, &mut worker);
            match place.waiter.give.send(Grant::Idle(self.loan(worker))) {
                Ok(()) => queue.handed_out(now, waited),
                Err(Grant::Idle(lease)) => {
                    // The request stopped waiting at this moment; the worker has read nothing of it.
                    let mut worker = lease.into_worker();
                    worker.info.busy_since.store(0, Ordering::Relaxed);
                    worker.info.life.set_state(WorkerState::Idle);
                    queue.lines.not_written(&mut worker);
                    queue.lines.end(worker.info.slot, now, false, None);
                    queue.leased -= 1;
                    queue.idle.push_back(worker);
                }
                Err(_) => unreachable!("what was sent comes back"),
            }
        }
        let Queue { waiting, lines, .. } = &mut *queue;
        lines.arrange(waiting, now_is);
        self.look_for_quiet(&mut queue);
    }

    /// Returns how long a request may wait now.
    fn patience(&self, queue: &Queue) -> Duration {
        let bound = queue.overload.bound(queue.leased);
        bound.map_or(self.options.backlog_timeout, |bound| bound.min(self.options.backlog_timeout))
    }

    fn look_for_quiet(&self, queue: &mut Queue) {
        if queue.closed && queue.leased == 0 {
            queue.lines.close();
        }
        if queue.waiting.is_empty() {
            queue.overload.emptied();
            if queue.watched > 0 && queue.leased == 0 {
                self.quiet.notify_waiters();
            }
        }
    }

    /// Ends a worker gracefully: it sees the end of its input, runs its shutdown functions, and exits.
    pub(crate) fn end(self: &Arc<Self>, worker: Box<Worker>) {
        worker.info.life.dismiss(Dismissal::Recycled);
        worker.info.life.set_state(WorkerState::Stopping);
        worker.info.ending_since.store(self.now(), Ordering::Relaxed);
        self.queue.lock().expect("no holder panics").lines.end_worker(worker.info.slot);
        if let Err(error) = rustix::net::shutdown(&worker.stream, rustix::net::Shutdown::Write) {
            debug!(worker.pid = worker.info.pid(), %error, "worker socket was closed already");
        }
        self.log_last_output(worker);
    }

    /// Rejects requests that have waited too long. Called by the supervisor's tick.
    pub(crate) fn expire_waiters(&self) {
        let mut queue = self.queue.lock().expect("no holder panics");
        let (now, patience) = (self.clock.instant(), self.patience(&queue));
        let Queue { waiting, lines, .. } = &mut *queue;
        while waiting.pop_expired(now, patience, |waiter| lines.take_back(waiter)).is_some() {}
        lines.rest();
        self.look_for_quiet(&mut queue);
    }

    /// Ends idle workers, the longest idle first; returns how many were ended.
    pub(crate) fn end_idle(self: &Arc<Self>, number: usize) -> usize {
        let mut queue = self.queue.lock().expect("no holder panics");
        let number = number.min(queue.idle.len());
        let surplus: Vec<_> = queue.idle.drain(..number).collect();
        drop(queue);
        for worker in surplus {
            worker.info.life.dismiss(Dismissal::Surplus);
            self.end(worker);
        }
        number
    }

    /// Removes an idle worker that has ended, or ends an idle one that must retire.
    pub(crate) fn remove_idle(self: &Arc<Self>, slot: u32) {
        let mut queue = self.queue.lock().expect("no holder panics");
        let at = queue.idle.iter().position(|worker| worker.info.slot == slot);
        let removed = at.and_then(|at| queue.idle.remove(at));
        drop(queue);
        if let Some(worker) = removed {
            self.end(worker);
        }
    }
}
