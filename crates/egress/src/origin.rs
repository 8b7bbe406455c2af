//! The connections of one key, and the calls that wait for them. [`plan`] decides what to do; this file does it. [`attempt`] opens
//! connections, and [`lease`] is one in use.
//!
//! Invariants
//! - No lock is held across an await, nor while a value is dropped whose drop takes the lock.
//! - A connection is opened by its own task: a caller that gives up waiting does not take it from others.
//! - A caller fails with "timed out" only if an attempt was begun while it waited. A caller that waited for an earlier attempt is declined.
//! - At most [`Options::waiting`](crate::Options::waiting) calls wait; more are declined.

mod attempt;
mod lease;
mod plan;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Common;
use crate::http1::Http1;
use crate::http2::{Http2, Streams};
use crate::stats::Counters;
use crate::{CallError, HttpVersions, Key, Limits, Scheme};
pub(crate) use lease::{Lease, StreamGuard};
pub(crate) use plan::{Condition, Noted};
use plan::{Plan, Protocol};

/// The connections of one key.
#[derive(Debug)]
pub(crate) struct Origin {
    key: Key,
    common: Arc<Common>,
    pub(crate) counters: Arc<Counters>,
    streams: Arc<Streams>,
    resolving: AtomicBool,
    /// Notified when no caller waits any more.
    served: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    plan: Plan<Box<Http1>, Http2>,
    waiters: VecDeque<Waiter>,
    /// The number of the next waiter.
    next: u64,
    /// The origin requires HTTP/1.1 (RFC 9113, 7: `HTTP_1_1_REQUIRED`).
    http1_only: bool,
    used: Instant,
    /// Connections older than this carry no further call.
    renewed: Option<Instant>,
    closed: bool,
}

impl State {
    /// How many connections are to be opened now.
    fn wanted(&mut self, now: Instant) -> usize {
        let waiting = self.waiters.len();
        let most = self.waiters.iter().map(|waiter| waiter.most).max().unwrap_or(usize::MAX);
        self.plan.wanted(now, waiting, most)
    }

    /// Returns whether an attempt is running whose connection the waiter with this number can get.
    fn makes_for(&self, number: u64) -> bool {
        let most = self.plan.connecting_for();
        self.waiters
            .iter()
            .filter(|waiter| !waiter.gone())
            .take(most)
            .any(|waiter| waiter.number == number)
    }
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    tell: oneshot::Sender<Result<Lease, CallError>>,
    since: Instant,
    repeatable: bool,
    most: usize,
}

impl Waiter {
    /// Returns whether the caller has given up.
    fn gone(&self) -> bool {
        self.tell.is_closed()
    }
}

/// A call's requirements for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) now: Instant,
    pub(crate) limits: Limits,
    /// The call may be made again.
    pub(crate) repeatable: bool,
    /// No HTTP/2 connection is opened for the call if this many exist.
    pub(crate) most: usize,
}

/// A caller's place in the queue.
struct Waiting {
    number: u64,
    told: oneshot::Receiver<Result<Lease, CallError>>,
    since: Instant,
}

/// The outcome of a request for a connection.
enum Entered {
    Leased(Lease),
    Waits(Waiting, Wait),
}

/// The event that a caller waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wait {
    /// A connection that is being made.
    Made,
    /// A connection that should have been made by now; there is no other.
    Late,
    /// A connection that other calls use.
    Turn,
}

impl Origin {
    pub(crate) fn new(key: Key, common: Arc<Common>, counters: Arc<Counters>) -> Self {
        let options = &common.options;
        let limits = plan::Limits {
            http1: options.http1_connections.max(1),
            http2: options.http2_connections.max(1),
            idle: options.idle,
            age: options.age,
            cold: options.cold,
        };
        let protocol = match (key.http, key.scheme) {
            (HttpVersions::Http2, _) => Some(Protocol::Http2),
            (HttpVersions::Http1, _) | (HttpVersions::Negotiate, Scheme::Http) => {
                Some(Protocol::Http1)
            }
            (HttpVersions::Negotiate, Scheme::Https) => None,
        };
        let state = State {
            plan: Plan::new(limits, protocol),
            waiters: VecDeque::new(),
            next: 0,
            http1_only: false,
            used: Instant::now(),
            renewed: None,
            closed: false,
        };
        Self {
            key,
            common,
            counters,
            streams: Arc::default(),
            resolving: AtomicBool::new(false),
            served: Notify::new(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Cancelled when the engine accepts no more calls.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.common.closing
    }

    /// Returns whether the origin is known to speak HTTP/2.
    pub(crate) fn shares(&self) -> bool {
        self.state().plan.shares()
    }

    /// The numbers of open connections and of waiting calls.
    pub(crate) fn now(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.waiters.iter().filter(|waiter| !waiter.gone()).count();
        (state.plan.open(), waiting)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection for a call: an idle one, or the next one that is freed or opened.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the caller's place in the queue.
    pub(crate) async fn acquire(self: &Arc<Self>, need: Need) -> Result<Lease, CallError> {
        match self.enter(need)? {
            Entered::Leased(lease) => Ok(lease),
            // Boxed, because most calls do not wait, and their futures are moved.
            Entered::Waits(waiting, what) => {
                Box::pin(self.granted(waiting, need.limits, what)).await
            }
        }
    }

    /// Leases an idle connection, or takes a place in the queue.
    fn enter(self: &Arc<Self>, need: Need) -> Result<Entered, CallError> {
        let Need { now, repeatable, most, .. } = need;
        let mut state = self.state();
        if state.closed {
            return Err(CallError::closing());
        }
        state.used = now;
        while state.waiters.front().is_some_and(Waiter::gone) {
            state.waiters.pop_front();
        }
        // Calls that are not repeatable may wait for a new connection while other calls use kept ones.
        let first = state.waiters.is_empty()
            || (repeatable && state.waiters.iter().all(|waiter| !waiter.repeatable));
        if first && let Some(taken) = state.plan.take(now, repeatable, most) {
            let connects = state.wanted(now);
            let noted = state.plan.noted();
            drop(state);
            self.connect(connects, now);
            self.note(noted);
            return Ok(Entered::Leased(self.lease(taken)));
        }
        if state.plan.passes_over() {
            self.counters.passed_over();
        }
        if state.waiters.len() >= self.common.options.waiting {
            return Err(CallError::queue_full());
        }
        let (tell, told) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.waiters.push_back(Waiter { number, tell, since: now, repeatable, most });
        let places = state.waiters.len();
        let connects = state.wanted(now);
        let noted = state.plan.noted();
        let what = match (state.plan.makes_for(places, now), state.plan.open()) {
            (true, _) => Wait::Made,
            (false, 0) => Wait::Late,
            (false, _) => Wait::Turn,
        };
        drop(state);
        self.connect(connects, now);
        self.note(noted);
        Ok(Entered::Waits(Waiting { number, told, since: now }, what))
    }

    /// Waits for the connection of a caller.
    async fn granted(
        &self,
        waiting: Waiting,
        limits: Limits,
        mut what: Wait,
    ) -> Result<Lease, CallError> {
        let Waiting { number, mut told, since } = waiting;
        loop {
            let limit = match what {
                Wait::Made => limits.connect,
                Wait::Late => limits.connect.min(limits.queue),
                Wait::Turn => limits.queue,
            };
            // A caller that waits for a connection checks from time to time whether one is still being opened for it.
            let step = if what == Wait::Made { plan::LATE } else { limit };
            let left = limit.saturating_sub(since.elapsed());
            match tokio::time::timeout(left.min(step), &mut told).await {
                Ok(Ok(granted)) => return granted,
                Ok(Err(_gone)) => return Err(CallError::closing()),
                Err(_late) => {}
            }
            let now = Instant::now();
            let (others, tried) = {
                let state = self.state();
                let plan = &state.plan;
                let tried = plan.tried(since, now);
                let over = now - since >= limit;
                // At the limit attempts that end quickly are other callers' too: connections are opened and used, but not yet by this one.
                let others = (plan.open() > 0 && !state.makes_for(number))
                    || (over && !tried && (plan.open() > 0 || plan.moves(since, now)));
                (others, tried)
            };
            if what == Wait::Made && others {
                what = Wait::Turn;
            } else if now - since >= limit {
                return Err(if what != Wait::Turn && tried && limit == limits.connect {
                    CallError::late(limit, self.resolving.load(Relaxed))
                } else {
                    CallError::queued(limit)
                });
            }
        }
    }

    /// Changes the connections, then gives free ones to waiting calls and opens missing ones.
    fn after<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        self.after_at(Instant::now(), change)
    }

    fn after_at<T>(self: &Arc<Self>, now: Instant, change: impl FnOnce(&mut State) -> T) -> T {
        let mut undelivered = Vec::new();
        let (changed, connects, noted) = {
            let mut state = self.state();
            let changed = change(&mut state);
            // Waiters that no connection is right for, though there are some.
            let mut passed = 0;
            while let Some(waiter) = state.waiters.get(passed) {
                if waiter.gone() {
                    state.waiters.remove(passed);
                    continue;
                }
                let (repeatable, most) = (waiter.repeatable, waiter.most);
                if passed > 0 && !repeatable {
                    passed += 1;
                    continue;
                }
                let Some(taken) = state.plan.take(now, repeatable, most) else {
                    if repeatable || !state.plan.passes_over() {
                        break;
                    }
                    passed += 1;
                    continue;
                };
                let lease = self.lease(taken);
                let waiter = state.waiters.remove(passed).expect("it was looked at");
                if let Err(lease) = waiter.tell.send(Ok(lease)) {
                    // Dropping it here would take the lock again.
                    undelivered.push(lease);
                    break;
                }
            }
            let waiting = state.waiters.len();
            let connects = if state.closed { 0 } else { state.wanted(now) };
            if waiting == 0 && state.plan.connecting() > 0 {
                self.served.notify_waiters();
            }
            (changed, connects, state.plan.noted())
        };
        self.connect(connects, now);
        self.note(noted);
        drop(undelivered);
        changed
    }

    /// Takes back an HTTP/1.1 connection that can carry another call.
    pub(crate) fn put_back(self: &Arc<Self>, mut connection: Box<Http1>) {
        let now = Instant::now();
        // The next call of the scope finds the connection here.
        let _ticket = connection.come_home(now);
        let closed = self.after_at(now, |state| {
            if state.renewed.is_some_and(|renewed| connection.born() < renewed) {
                state.plan.lost();
                return Some(connection);
            }
            let closed = state.closed;
            let over = state.plan.put_back(connection, now);
            if closed {
                state.plan.clear();
            }
            over
        });
        if closed.is_none() {
            self.make_room();
        }
    }

    /// Evicts an idle connection if other origins wait for a place.
    fn make_room(&self) {
        if self.common.crowded() {
            self.evict();
        }
    }

    /// Records that the origin closed a kept HTTP/1.1 connection under a call, without an answer. The connection had carried `calls` calls and been idle for
    /// `idle`.
    pub(crate) fn closed_under_call(self: &Arc<Self>, calls: u64, idle: Duration) {
        let now = Instant::now();
        self.after_at(now, |state| state.plan.closed_under_call(now, calls, idle));
    }

    /// Records that the origin sent bytes after an answer that belong to no request.
    pub(crate) fn unasked(self: &Arc<Self>) {
        let now = Instant::now();
        self.after_at(now, |state| state.plan.unasked(now));
    }

    /// Counts the observations about idle connections.
    fn note(&self, noted: Option<Noted>) {
        let Some(noted) = noted else { return };
        self.counters.noted(noted);
        if noted.unkept {
            tracing::warn!(
                server.address = %self.key.host, server.port = self.key.port,
                "an origin sent data without a request: its HTTP/1.1 connections are not kept for an hour"
            );
        }
    }

    /// Records that an HTTP/1.1 connection that carried a call is gone.
    pub(crate) fn lost(self: &Arc<Self>) {
        self.after(|state| state.plan.lost());
    }

    /// Uses HTTP/1.1 alone from now on.
    pub(crate) fn insist_on_http1(self: &Arc<Self>) {
        self.after(|state| {
            state.http1_only = true;
            state.plan.clear();
            state.plan.speaks(Protocol::Http1);
        });
    }

    /// Ends connections with the calls that they carry, because the authority that verified them may no longer be trusted.
    pub(crate) fn renew(self: &Arc<Self>) {
        let now = Instant::now();
        self.after_at(now, |state| {
            state.renewed = Some(now);
            state.plan.clear();
        });
    }

    /// Opens a connection in advance, unless there is one.
    pub(crate) fn prewarm(self: &Arc<Self>) {
        let now = Instant::now();
        let wanted = {
            let mut state = self.state();
            let wanted = state.plan.empty() && !state.closed;
            if wanted {
                state.plan.one_more(now);
            }
            wanted
        };
        self.connect(usize::from(wanted), now);
    }

    /// Closes expired connections, and retries delayed attempts. Returns true if nothing is left and no call came within `forgotten`.
    pub(crate) fn sweep(self: &Arc<Self>, now: Instant, forgotten: Duration) -> bool {
        self.after(|state| {
            state.plan.sweep(now);
            state.plan.empty() && state.waiters.is_empty() && state.used + forgotten <= now
        })
    }

    /// Closes one idle connection. Returns false if there is none.
    pub(crate) fn evict(&self) -> bool {
        self.state().plan.evict()
    }

    /// Stops accepting calls; connections end with the calls that they carry.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.plan.clear();
        state.waiters.clear();
    }

    /// Starts a task that the engine owns.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.common.tasks.spawn(task);
    }
}
