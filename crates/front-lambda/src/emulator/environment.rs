//! The execution environment as the platform sees it: which call of the runtime is legal, which invocation runs, what
//! comes next.
//!
//! ```text
//! runtime:     Starting -> (RestoreReady -> Restoring) -> Ready
//!              Starting, Restoring -> InitError -> Ready (started again)
//! invocation:  Queued -> Running -> Responding -> Answered -> ended
//!              Running, Responding, Answered -> timed out
//! ```
//!
//! With one invocation at a time, it ends when the runtime and every extension have asked for the next. With several
//! at once (managed instances) a `next` belongs to no particular invocation, so it ends with its response.
//!
//! Invariants
//! - Pure: no clock, no socket. Calls are passed `now`, and results are a list of effects.
//! - An accepted invocation ends exactly once; its caller gets either a response or an error.
//! - At most `concurrency` invocations run at once, and each is delivered to a waiting call.
//!
//! The names of states and errors are those of the AWS Runtime Interface Emulator, which the real service shares.

mod extensions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use extensions::Extension;

use super::FunctionError;
/// Maximum number of waiting `next` calls with one invocation at a time: a runtime that lost its connection calls
/// again.
const MAX_WAITING: usize = 16;
/// Number of ids of timed-out invocations that are remembered, to distinguish a late response from an unknown id.
const REMEMBERED: usize = 64;

/// Id of an invocation: a UUID.
pub(super) type InvocationId = Arc<str>;
/// Id of a waiting call: of `next`, of `restore/next`, of an extension's `event/next`.
pub(super) type Ticket = u64;

/// Limits of the environment.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) concurrency: usize,
    pub(super) backlog: usize,
    pub(super) timeout: Duration,
    pub(super) snap_start: bool,
    pub(super) external_extensions: Vec<String>,
}

/// Reasons why a call of the runtime or of an extension is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 400: no such invocation is running.
    UnknownInvocation,
    /// 403: not allowed in this state.
    Transition { from: &'static str, to: &'static str },
    /// 410: the invocation has timed out.
    TimedOut,
    /// 500: more calls of `next` than invocations can run.
    TooManyWaiting,
    /// 403 for an extension, with its error type and message.
    Extension { kind: &'static str, message: String },
}

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) duration: Duration,
    pub(super) status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Success,
    Error(String),
    Timeout,
}

/// An event for a waiting extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExtensionEvent {
    Invoke { id: InvocationId },
    Shutdown,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Deliver this invocation to the waiting call. `again` means that it was delivered before, to a call that may
    /// not have received it.
    Deliver { ticket: Ticket, id: InvocationId, again: bool },
    /// Let the waiting `restore/next` return.
    Restored { ticket: Ticket },
    /// Let the waiting `event/next` return.
    Tell { ticket: Ticket, event: ExtensionEvent },
    /// Send this error to the invocation's caller.
    Fail { id: InvocationId, error: FunctionError },
    /// The invocation has ended.
    Ended { id: InvocationId, ending: Ending },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    RestoreReady(Ticket),
    Restoring(Instant),
    Ready,
    InitError,
    ShuttingDown,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Starting => "Started",
            Self::RestoreReady(_) => "RestoreReady",
            Self::Restoring(_) => "Restoring",
            Self::Ready => "Ready",
            Self::InitError => "InitError",
            Self::ShuttingDown => "Exited",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Responding,
    Answered(Status),
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Responding => "InvocationResponse",
            Self::Answered(_) => "RuntimeResponseSentState",
        }
    }
}

#[derive(Clone, Debug)]
struct Running {
    stage: Stage,
    since: Instant,
    deadline: Instant,
}

/// The environment.
#[derive(Debug)]
pub(super) struct Environment {
    limits: Limits,
    phase: Phase,
    init_error: Option<FunctionError>,
    restore: Option<Duration>,
    waiting: VecDeque<Ticket>,
    queue: VecDeque<InvocationId>,
    running: BTreeMap<InvocationId, Running>,
    timed_out: VecDeque<InvocationId>,
    extensions: BTreeMap<String, Extension>,
    effects: Vec<Effect>,
}

impl Environment {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            phase: Phase::Starting,
            init_error: None,
            restore: None,
            waiting: VecDeque::new(),
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            timed_out: VecDeque::new(),
            extensions: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Returns the effects since the last call, in order.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns the runtime's state, with one invocation at a time.
    fn state(&self) -> &'static str {
        match self.running.values().next() {
            Some(running) if self.phase == Phase::Ready => running.stage.name(),
            _ => self.phase.name(),
        }
    }

    /// Returns whether several invocations run at once, by the rules of managed instances.
    fn is_managed(&self) -> bool {
        self.limits.concurrency > 1
    }

    /// Returns whether the runtime has asked for its first event.
    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Returns how long the restore hooks took, once after a restore.
    pub(super) fn take_restore(&mut self) -> Option<Duration> {
        self.restore.take()
    }

    /// Accepts an invocation; `false` if too many are waiting.
    pub(super) fn invoke(&mut self, now: Instant, id: &InvocationId) -> bool {
        if self.queue.len() >= self.limits.backlog {
            return false;
        }
        if let Some(error) = self.init_error.clone() {
            self.fail_unstarted(id, error);
            return true;
        }
        self.queue.push_back(Arc::clone(id));
        if let Phase::RestoreReady(ticket) = self.phase {
            self.phase = Phase::Restoring(now);
            self.effects.push(Effect::Restored { ticket });
        }
        self.dispatch(now);
        true
    }

    /// Handles a caller that is gone: its invocation is removed if it has not begun. Returns `true` if it will never
    /// run.
    pub(super) fn forget(&mut self, id: &str) -> bool {
        let before = self.queue.len();
        self.queue.retain(|queued| &**queued != id);
        self.queue.len() < before
    }

    /// Handles `GET /runtime/invocation/next`.
    pub(super) fn next(&mut self, now: Instant, ticket: Ticket) -> Result<(), Refusal> {
        match self.phase {
            Phase::Restoring(since) => self.restore = Some(now.duration_since(since)),
            Phase::RestoreReady(_) | Phase::ShuttingDown => {
                return Err(Refusal::Transition { from: self.phase.name(), to: "Ready" });
            }
            Phase::Starting | Phase::InitError | Phase::Ready => {}
        }
        let most = if self.is_managed() { self.limits.concurrency } else { MAX_WAITING };
        if self.waiting.len() >= most {
            return Err(Refusal::TooManyWaiting);
        }
        if !self.is_managed()
            && let Some((id, running)) = self.running.iter().next()
        {
            match running.stage {
                // The runtime may have lost the connection over which the event was sent.
                Stage::Running => {
                    let id = Arc::clone(id);
                    self.effects.push(Effect::Deliver { ticket, id, again: true });
                    return Ok(());
                }
                Stage::Responding => {
                    return Err(Refusal::Transition { from: running.stage.name(), to: "Ready" });
                }
                Stage::Answered(_) => {}
            }
        }
        self.phase = Phase::Ready;
        self.init_error = None;
        self.waiting.push_back(ticket);
        self.settle(now);
        Ok(())
    }

    /// Removes a waiting call that is gone.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        self.waiting.retain(|waiting| *waiting != ticket);
        for extension in self.extensions.values_mut() {
            if extension.waiting == Some(ticket) {
                extension.waiting = None;
            }
        }
        if self.phase == Phase::RestoreReady(ticket) {
            self.phase = Phase::Starting;
        }
    }

    /// Returns an invocation to the front of the queue, because its call was gone.
    pub(super) fn undeliver(&mut self, now: Instant, id: &InvocationId) {
        if self.running.get(id).is_some_and(|running| running.stage == Stage::Running) {
            self.running.remove(id);
            self.queue.push_front(Arc::clone(id));
            self.dispatch(now);
        }
    }

    /// Handles `POST …/response`, before its body is read, or `POST …/error`.
    pub(super) fn begin_answer(&mut self, id: &str, to: &'static str) -> Result<(), Refusal> {
        let managed = self.is_managed();
        let Some(running) = self.running.get_mut(id) else {
            let late = managed && self.timed_out.iter().any(|gone| &**gone == id);
            return Err(if late { Refusal::TimedOut } else { Refusal::UnknownInvocation });
        };
        match running.stage {
            Stage::Running => {
                running.stage = Stage::Responding;
                Ok(())
            }
            _ if managed => Err(Refusal::UnknownInvocation),
            ref stage => Err(Refusal::Transition { from: stage.name(), to }),
        }
    }

    /// Handles the end of the body that `begin_answer` announced. Returns `false` if the invocation has timed out.
    pub(super) fn finish_answer(&mut self, now: Instant, id: &str, status: Status) -> bool {
        let Some(running) = self.running.get_mut(id) else { return false };
        running.stage = Stage::Answered(status);
        if self.is_managed() {
            let id = InvocationId::from(id);
            self.end(now, &id);
        }
        self.settle(now);
        true
    }

    /// Handles `POST /runtime/init/error`.
    pub(super) fn init_error(&mut self, error: FunctionError) -> Result<(), Refusal> {
        match self.phase {
            Phase::Starting | Phase::Restoring(_) => {}
            _ => return Err(Refusal::Transition { from: self.state(), to: "InitError" }),
        }
        self.phase = Phase::InitError;
        for id in std::mem::take(&mut self.queue) {
            self.fail_unstarted(&id, error.clone());
        }
        self.init_error = Some(error);
        Ok(())
    }

    /// Handles `GET /runtime/restore/next`; `None` if the call is not available.
    pub(super) fn restore_next(
        &mut self,
        now: Instant,
        ticket: Ticket,
    ) -> Option<Result<(), Refusal>> {
        if !self.limits.snap_start {
            return None;
        }
        if self.phase != Phase::Starting {
            let from = self.phase.name();
            return Some(Err(Refusal::Transition { from, to: "Ready" }));
        }
        self.phase = Phase::RestoreReady(ticket);
        if !self.queue.is_empty() {
            self.phase = Phase::Restoring(now);
            self.effects.push(Effect::Restored { ticket });
        }
        Some(Ok(()))
    }

    /// Handles `POST /runtime/restore/error`; `None` if the call is not available.
    pub(super) fn restore_error(&mut self, error: FunctionError) -> Option<Result<(), Refusal>> {
        self.limits.snap_start.then(|| self.init_error(error))
    }

    /// Handles the exit of the runtime: its invocations fail, and waiting ones wait for another runtime.
    pub(super) fn exited(&mut self, now: Instant, error: &FunctionError) {
        self.waiting.clear();
        if self.phase != Phase::ShuttingDown {
            self.phase = Phase::Starting;
        }
        let ids: Vec<InvocationId> = self.running.keys().map(Arc::clone).collect();
        for id in ids {
            let answered = matches!(self.running[&id].stage, Stage::Answered(_));
            if !answered {
                self.effects.push(Effect::Fail { id: Arc::clone(&id), error: error.clone() });
                self.running.get_mut(&id).expect("its id was just read").stage =
                    Stage::Answered(Status::Error(error.kind.clone()));
            }
            self.end(now, &id);
        }
    }

    /// Shuts the environment down: extensions are notified, and nothing is dispatched any more.
    pub(super) fn shut_down(&mut self) {
        self.phase = Phase::ShuttingDown;
        let error = FunctionError::new("Sandbox.Shutdown", "the emulator is shutting down");
        for id in std::mem::take(&mut self.queue) {
            self.fail_unstarted(&id, error.clone());
        }
        self.tell_shutdown();
    }

    /// Returns whether no invocation runs and all extensions have been notified of the shutdown.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns when [`Self::tick`] must be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.running.values().map(|running| running.deadline).min()
    }

    /// Returns the deadline of an invocation.
    pub(super) fn deadline_of(&self, id: &str) -> Option<Instant> {
        self.running.get(id).map(|running| running.deadline)
    }

    /// Ends invocations that ran too long.
    pub(super) fn tick(&mut self, now: Instant) {
        let late: Vec<InvocationId> = self
            .running
            .iter()
            .filter(|(_, running)| running.deadline <= now)
            .map(|(id, _)| Arc::clone(id))
            .collect();
        for id in late {
            let running = self.running.remove(&id).expect("its id was just read");
            if !matches!(running.stage, Stage::Answered(_)) {
                let error = FunctionError::timed_out(&id, self.limits.timeout);
                self.effects.push(Effect::Fail { id: Arc::clone(&id), error });
            }
            if self.timed_out.len() == REMEMBERED {
                self.timed_out.pop_front();
            }
            self.timed_out.push_back(Arc::clone(&id));
            let ending = Ending { duration: self.limits.timeout, status: Status::Timeout };
            self.effects.push(Effect::Ended { id, ending });
        }
        self.settle(now);
    }

    /// Ends completed invocations, then dispatches.
    fn settle(&mut self, now: Instant) {
        if !self.is_managed()
            && !self.waiting.is_empty()
            && self.extensions.values().all(Extension::is_ready)
            && let Some((id, running)) = self.running.iter().next()
            && matches!(running.stage, Stage::Answered(_))
        {
            let id = Arc::clone(id);
            self.end(now, &id);
        }
        self.dispatch(now);
    }

    fn dispatch(&mut self, now: Instant) {
        while self.phase == Phase::Ready
            && self.running.len() < self.limits.concurrency
            && self.extensions.values().all(Extension::is_ready)
            && !self.waiting.is_empty()
            && let Some(id) = self.queue.pop_front()
        {
            let ticket = self.waiting.pop_front().expect("a call waits");
            let deadline = now + self.limits.timeout;
            let running = Running { stage: Stage::Running, since: now, deadline };
            self.running.insert(Arc::clone(&id), running);
            for extension in self.extensions.values_mut().filter(|extension| extension.invoke) {
                let ticket = extension.waiting.take().expect("every extension is ready");
                let event = ExtensionEvent::Invoke { id: Arc::clone(&id) };
                self.effects.push(Effect::Tell { ticket, event });
            }
            self.effects.push(Effect::Deliver { ticket, id, again: false });
        }
    }

    fn end(&mut self, now: Instant, id: &InvocationId) {
        let running = self.running.remove(id).expect("only what runs ends");
        let Stage::Answered(status) = running.stage else {
            unreachable!("only what is answered ends")
        };
        let ending = Ending { duration: now.duration_since(running.since), status };
        self.effects.push(Effect::Ended { id: Arc::clone(id), ending });
    }

    fn fail_unstarted(&mut self, id: &InvocationId, error: FunctionError) {
        let ending = Ending { duration: Duration::ZERO, status: Status::Error(error.kind.clone()) };
        self.effects.push(Effect::Fail { id: Arc::clone(id), error });
        self.effects.push(Effect::Ended { id: Arc::clone(id), ending });
    }
}

#[cfg(test)]
mod tests;
