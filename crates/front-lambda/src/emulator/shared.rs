//! The state of a running emulator: its environment, the calls that wait and the callers of invocations.
//!
//! Invariants
//! - Nothing is decided here: calls are passed to the environment, and its effects to the waiting tasks.
//! - A call that is gone gives back the event that it did not receive.
//! - Slow work (writing log lines, measuring memory) happens after the next event has been delivered, so it is in no
//!   duration.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::Answer;
use super::environment::{
    Effect, Ending, Environment, ExtensionEvent, InvocationId, Limits, Refusal, Status, Ticket,
};
use super::ids::Ids;
use super::report::{self, Facts};
use super::time::epoch_milliseconds;
use super::{FunctionError, Options};

/// How long invocations may continue after the drain began: as long as AWS gives an environment with external
/// extensions.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of waiting log lines; beyond it, the caller writes them itself.
const LINES: usize = 256;

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) address: SocketAddr,
    state: Mutex<State>,
    timer: Notify,
    ids: Ids,
    /// Asynchronous invocations, whose callers do not wait.
    pub(super) background: TaskTracker,
    /// Cancelled when the runtime is ready: by its first `next`.
    pub(super) ready: CancellationToken,
    /// Cancelled when connections must close.
    pub(super) closing: CancellationToken,
    /// Sender to the task that writes the log.
    pub(super) log: mpsc::Sender<Afterwards>,
}

#[derive(Debug)]
struct State {
    environment: Environment,
    last_ticket: Ticket,
    calls: HashMap<Ticket, oneshot::Sender<CallResult>>,
    invocations: HashMap<InvocationId, Invocation>,
    init: Init,
    timer_idles: bool,
}

impl Shared {
    /// Returns the state of an emulator whose runtime has not called yet, and the work for its log.
    pub(super) fn new(
        options: Options,
        address: SocketAddr,
    ) -> (Arc<Self>, mpsc::Receiver<Afterwards>) {
        let limits = Limits {
            concurrency: options.concurrency.get(),
            backlog: options.backlog,
            timeout: options.timeout,
            snap_start: options.snap_start,
            external_extensions: options.external_extensions.clone(),
        };
        let state = State {
            environment: Environment::new(limits),
            last_ticket: 0,
            calls: HashMap::new(),
            invocations: HashMap::new(),
            init: Init::Running,
            timer_idles: false,
        };
        let (log, lines) = mpsc::channel(LINES);
        let shared = Self {
            options,
            address,
            state: Mutex::new(state),
            timer: Notify::new(),
            ids: Ids::new(),
            background: TaskTracker::new(),
            ready: CancellationToken::new(),
            closing: CancellationToken::new(),
            log,
        };
        (Arc::new(shared), lines)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Calls the environment, and applies the effects.
    pub(super) fn act<T>(&self, call: impl FnOnce(&mut Environment, Instant) -> T) -> T {
        let mut state = self.state();
        let now = Instant::now();
        let outcome = call(&mut state.environment, now);
        self.follow(state, now);
        outcome
    }

    /// Returns whether no invocation runs.
    pub(super) fn is_idle(&self) -> bool {
        self.state().environment.is_idle()
    }

    /// Drops the calls that wait: their connections get no answer.
    pub(super) fn drop_calls(&self) {
        self.state().calls.clear();
    }

    fn follow(&self, mut state: MutexGuard<'_, State>, now: Instant) {
        let mut afterwards = Vec::new();
        loop {
            let effects = state.environment.effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.effect(&mut state, effect, now, &mut afterwards);
            }
        }
        if state.timer_idles && state.environment.deadline().is_some() {
            state.timer_idles = false;
            self.timer.notify_one();
        }
        drop(state);
        for action in afterwards {
            if let Err(full) = self.log.try_send(action) {
                self.afterwards(full.into_inner());
            }
        }
    }

    fn effect(
        &self,
        state: &mut State,
        effect: Effect,
        now: Instant,
        afterwards: &mut Vec<Afterwards>,
    ) {
        match effect {
            Effect::Deliver { ticket, id, again } => {
                let event = state.invocations[&id].event.clone();
                let deadline = deadline_of(state, &id, now);
                let told = CallResult::Event { id: Arc::clone(&id), event, deadline, again };
                if !state.answer(ticket, told) && !again {
                    state.environment.undeliver(now, &id);
                } else if !again {
                    let line = report::start(&id, &self.options.function.version);
                    afterwards.push(Afterwards::Line(line));
                }
            }
            Effect::Restored { ticket } => {
                state.answer(ticket, CallResult::Restored);
            }
            Effect::Tell { ticket, event } => {
                let (trace_id, deadline) = match &event {
                    ExtensionEvent::Invoke { id } => {
                        let trace_id = state.invocations[id].event.trace_id.clone();
                        (Some(trace_id), deadline_of(state, id, now))
                    }
                    ExtensionEvent::Shutdown => {
                        (None, epoch_milliseconds(SystemTime::now() + PATIENCE))
                    }
                };
                state.answer(ticket, CallResult::Extension { event, trace_id, deadline });
            }
            Effect::Fail { id, error } => {
                let invocation = state.invocations.get_mut(&id);
                let invocation = invocation.expect("what fails was taken");
                match invocation.answer.take() {
                    Some(answer) => drop(answer.send(Answer::Failed(error))),
                    // A response in progress is aborted.
                    None => drop(invocation.cut.why.set(error)),
                }
            }
            Effect::Ended { id, ending } => {
                let init = match state.init {
                    Init::Took(took) => {
                        state.init = Init::Reported;
                        Some(took)
                    }
                    Init::Running | Init::Reported => None,
                };
                let facts = Facts {
                    memory_size: self.options.memory_size,
                    memory_used: 0,
                    init,
                    restore: state.environment.take_restore(),
                };
                let invocation = state.invocations.remove(&id);
                let ended = invocation.map(|invocation| {
                    invocation.cut.now.cancel();
                    invocation.ended
                });
                afterwards.push(Afterwards::Report { id, ending, facts, ended });
            }
        }
    }

    /// Writes what an event adds to the log.
    pub(super) fn afterwards(&self, action: Afterwards) {
        match action {
            Afterwards::Over => {}
            Afterwards::Line(line) => self.say(&line),
            Afterwards::Report { id, ending, facts, ended } => {
                let facts = Facts { memory_used: (self.options.memory_used)(), ..facts };
                self.say(&report::end(&id));
                self.say(&report::report(&id, &ending, facts));
                if let Some(ended) = ended {
                    let log = self.options.tail.since_start(&id);
                    let timed_out = ending.status == Status::Timeout;
                    // The caller need not wait for the end.
                    drop(ended.send(Ended { log, timed_out }));
                }
            }
        }
    }

    /// Writes a line of the function's log.
    fn say(&self, line: &str) {
        (self.options.say)(line);
        self.options.tail.write(line.as_bytes());
        self.options.tail.write(b"\n");
    }

    /// Accepts an invocation; `None` if too many are waiting.
    pub(super) fn invoke(self: &Arc<Self>, id: InvocationId, event: Event) -> Option<Started> {
        let (answer, answered) = oneshot::channel();
        let (ended, has_ended) = oneshot::channel();
        let invocation =
            Invocation { event, answer: Some(answer), ended, cut: Arc::new(Cut::default()) };
        let mut state = self.state();
        let now = Instant::now();
        state.invocations.insert(Arc::clone(&id), invocation);
        if !state.environment.invoke(now, &id) {
            state.invocations.remove(&id);
            return None;
        }
        self.follow(state, now);
        let forget = Forget { id: Arc::clone(&id), shared: Arc::clone(self) };
        Some(Started { id, answer: answered, ended: has_ended, _forget: forget })
    }

    /// Waits for an event, a restore, or as an extension.
    pub(super) async fn wait(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Environment, Instant, Ticket) -> Result<(), Refusal>,
    ) -> Result<Option<CallResult>, Refusal> {
        let (tell, told) = oneshot::channel();
        let ticket = {
            let mut state = self.state();
            let now = Instant::now();
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            state.calls.insert(ticket, tell);
            let refused = call(&mut state.environment, now, ticket);
            if let Err(refusal) = refused {
                state.calls.remove(&ticket);
                return Err(refusal);
            }
            if matches!(state.init, Init::Running) && state.environment.is_ready() {
                state.init = Init::Took(now.duration_since(self.options.began));
                self.ready.cancel();
            }
            self.follow(state, now);
            ticket
        };
        // Dropped with the connection of the call.
        let mut waiting = Waiting { ticket, told, shared: Arc::clone(self) };
        Ok((&mut waiting.told).await.ok())
    }

    /// Takes the sender to the caller of an invocation whose response begins.
    pub(super) fn take_caller(&self, id: &str) -> Option<(oneshot::Sender<Answer>, Arc<Cut>)> {
        let mut state = self.state();
        let invocation = state.invocations.get_mut(id)?;
        let cut = Arc::clone(&invocation.cut);
        invocation.answer.take().map(|answer| (answer, cut))
    }

    /// Returns a new invocation id.
    pub(super) fn new_id(&self) -> InvocationId {
        self.ids.uuid().into()
    }

    /// Returns a trace id for a request without one.
    pub(super) fn new_trace_id(&self) -> String {
        let seconds = epoch_milliseconds(SystemTime::now()) / 1000;
        let (high, low) = self.ids.random();
        let root = format!("{seconds:08x}-{:08x}{low:016x}", high >> 32);
        format!("Root=1-{root};Parent={:016x};Sampled=0", high ^ low)
    }

    /// Ends invocations that ran too long, until connections must close.
    pub(super) async fn keep_time(&self) {
        while !self.closing.is_cancelled() {
            let deadline = {
                let mut state = self.state();
                let deadline = state.environment.deadline();
                state.timer_idles = deadline.is_none();
                deadline
            };
            // Deadlines only grow: what begins during the sleep ends after it.
            let due = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => self.timer.notified().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.closing.cancelled() => {}
            }
            self.act(Environment::tick);
        }
    }
}

impl State {
    /// Sends the result of a call; `false` if the call is gone.
    fn answer(&mut self, ticket: Ticket, told: CallResult) -> bool {
        self.calls.remove(&ticket).is_some_and(|call| call.send(told).is_ok())
    }
}

/// Returns the deadline of a running invocation in milliseconds since 1970.
fn deadline_of(state: &State, id: &str, now: Instant) -> u64 {
    let left = state.environment.deadline_of(id).map_or(Duration::ZERO, |end| end - now);
    epoch_milliseconds(SystemTime::now() + left)
}

#[derive(Debug)]
struct Invocation {
    event: Event,
    answer: Option<oneshot::Sender<Answer>>,
    ended: oneshot::Sender<Ended>,
    cut: Arc<Cut>,
}

/// The event of an invocation for the runtime.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) payload: Bytes,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) trace_id: HeaderValue,
    pub(super) client_context: Option<HeaderValue>,
    pub(super) tenant: Option<HeaderValue>,
}

/// How an invocation ended, with its part of the log.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) log: Vec<u8>,
    pub(super) timed_out: bool,
}

/// An accepted invocation. If it is dropped before it began, it never begins.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: InvocationId,
    pub(super) answer: oneshot::Receiver<Answer>,
    pub(super) ended: oneshot::Receiver<Ended>,
    _forget: Forget,
}

#[derive(Debug)]
struct Forget {
    id: InvocationId,
    shared: Arc<Shared>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if state.environment.forget(&self.id) {
            state.invocations.remove(&self.id);
        }
    }
}

/// The reason to abort a streamed response: cancelled with the reason set.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) now: CancellationToken,
    pub(super) why: OnceLock<FunctionError>,
}

/// The result of a waiting call.
#[derive(Debug)]
pub(super) enum CallResult {
    Event { id: InvocationId, event: Event, deadline: u64, again: bool },
    Restored,
    Extension { event: ExtensionEvent, trace_id: Option<HeaderValue>, deadline: u64 },
}

/// State of the initialization, for the first `REPORT`.
#[derive(Clone, Copy, Debug)]
enum Init {
    Running,
    Took(Duration),
    Reported,
}

/// Work of a separate task after an event was sent.
#[derive(Debug)]
pub(super) enum Afterwards {
    Over,
    Line(String),
    Report { id: InvocationId, ending: Ending, facts: Facts, ended: Option<oneshot::Sender<Ended>> },
}

/// A waiting call, until it gets a result or is gone.
struct Waiting {
    ticket: Ticket,
    told: oneshot::Receiver<CallResult>,
    shared: Arc<Shared>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The event was sent, but the call was gone before it received it.
        if let Ok(CallResult::Event { id, again: false, .. }) = self.told.try_recv() {
            self.shared.act(|environment, now| environment.undeliver(now, &id));
            return;
        }
        let mut state = self.shared.state();
        if state.calls.remove(&self.ticket).is_some() {
            state.environment.abandon(self.ticket);
        }
    }
}
