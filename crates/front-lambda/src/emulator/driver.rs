//! Runs the emulator: sockets, tasks and the clock around the environment.
//!
//! Invariants
//! - Nothing is decided here: calls are passed to the environment, and its effects to the waiting tasks.
//! - Every task belongs to [`Emulator::serve`] and ends with it.
//! - Slow work (writing log lines, measuring memory) happens after the next event has been delivered, so it is in no
//!   duration.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::environment::{
    Effect, Ending, Environment, ExtensionEvent, InvocationId, Limits, Refusal, Status, Ticket,
};
use super::report::{self, Facts};
use super::time::epoch_milliseconds;
use super::{FunctionError, Options, extensions_api, invocations, runtime_api, web};

/// Maximum number of connections; further ones wait in the system's queue.
const CONNECTIONS: usize = 1024;
/// How long invocations may continue after the drain began: as long as AWS gives an environment with external
/// extensions.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long connections may take to close after that.
const GRACE: Duration = Duration::from_millis(500);
/// Maximum number of waiting log lines; beyond it, the caller writes them itself.
const LINES: usize = 256;
/// Maximum number of chunks of a streamed response that wait for a slow caller; then the runtime waits.
pub(super) const CHUNKS: usize = 16;

/// A bound emulator.
#[derive(Debug)]
pub struct Emulator {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    lines: mpsc::Receiver<Afterwards>,
}

/// Informs a running emulator of what the Runtime API does not show.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Reports that the runtime has exited: its invocations fail with this error, and waiting ones wait for another
    /// runtime.
    pub fn exited(&self, error: &FunctionError) {
        self.0.act(|environment, now| environment.exited(now, error));
    }

    /// Waits until the runtime has asked for its first event.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self) {
        self.0.ready.cancelled().await;
    }
}

impl Emulator {
    /// Binds the address.
    pub async fn bind(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
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
        let shared = Arc::new(Shared {
            options,
            address,
            state: Mutex::new(state),
            timer: Notify::new(),
            ids: Ids::new(),
            background: TaskTracker::new(),
            ready: CancellationToken::new(),
            closing: CancellationToken::new(),
            log,
        });
        Ok(Self { listener, address, shared, lines })
    }

    /// Returns the listening address with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle for what the Runtime API does not show.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves until `drain` is cancelled; then invocations in progress may end, and extensions are notified.
    pub async fn serve(self, drain: CancellationToken) {
        let Self { listener, shared, mut lines, .. } = self;
        let mut tasks = JoinSet::new();
        let mut writer = JoinSet::new();
        {
            let shared = Arc::clone(&shared);
            writer.spawn(async move {
                while let Some(action) = lines.recv().await {
                    if let Afterwards::Over = action {
                        break;
                    }
                    shared.afterwards(action);
                }
            });
        }
        {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move { shared.keep_time().await });
        }
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = async {
                    let place = Arc::clone(&places).acquire_owned().await;
                    let place = place.expect("the semaphore is never closed");
                    listener.accept().await.map(|(stream, remote)| (place, stream, remote))
                } => accepted,
                () = drain.cancelled() => break,
            };
            match accepted {
                Ok((place, stream, remote)) => {
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move {
                        shared.connection(stream, remote).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the emulator cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            while tasks.try_join_next().is_some() {}
        }
        shared.act(|environment, _now| environment.shut_down());
        let deadline = Instant::now() + PATIENCE;
        while !shared.state().environment.is_idle() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        shared.act(|environment, now| {
            let error = FunctionError::new("Sandbox.Shutdown", "the emulator is shutting down");
            environment.exited(now, &error);
        });
        // Waiting callers are dropped; responses in progress are completed.
        shared.state().calls.clear();
        shared.closing.cancel();
        let closed = async { while tasks.join_next().await.is_some() {} };
        drop(tokio::time::timeout(GRACE, closed).await);
        tasks.shutdown().await;
        // The last lines are written too; a slow writer is not awaited.
        if shared.log.try_send(Afterwards::Over).is_ok() {
            while writer.join_next().await.is_some() {}
        }
    }
}

/// The body of every response.
pub(super) type Body = UnsyncBoxBody<Bytes, BrokenOff>;

/// The error of an incomplete streamed response: the connection is reset.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(super) struct BrokenOff;

/// Returns a body of known content.
pub(super) fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a complete response.
pub(super) fn answer(
    status: http::StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
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

/// The result of an invocation for its caller.
#[derive(Debug)]
pub(super) enum Answer {
    /// The whole response.
    Whole { body: Bytes },
    /// A streamed response; an error means that it was aborted.
    Stream { media_type: Option<HeaderValue>, chunks: Chunks },
    /// An error.
    Failed(FunctionError),
}

/// The chunks of a streamed response.
#[derive(Debug)]
pub(super) struct Chunks(pub(super) mpsc::Receiver<Chunk>);

/// A part of a streamed response.
#[derive(Debug)]
pub(super) enum Chunk {
    Data(Bytes),
    Failed(FunctionError),
    /// The end; without it the response was aborted.
    End,
}

impl Chunks {
    /// Returns the next part; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, FunctionError>> {
        match self.0.recv().await {
            Some(Chunk::Data(data)) => Some(Ok(data)),
            Some(Chunk::Failed(error)) => Some(Err(error)),
            Some(Chunk::End) => None,
            None => Some(Err(FunctionError::truncated())),
        }
    }
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

#[derive(Debug)]
struct Invocation {
    event: Event,
    answer: Option<oneshot::Sender<Answer>>,
    ended: oneshot::Sender<Ended>,
    cut: Arc<Cut>,
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

#[derive(Debug)]
struct State {
    environment: Environment,
    last_ticket: Ticket,
    calls: HashMap<Ticket, oneshot::Sender<CallResult>>,
    invocations: HashMap<InvocationId, Invocation>,
    init: Init,
    timer_idles: bool,
}

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
    ready: CancellationToken,
    /// Cancelled when connections must close.
    closing: CancellationToken,
    /// Sender to the task that writes the log.
    log: mpsc::Sender<Afterwards>,
}

/// Work of a separate task after an event was sent.
#[derive(Debug)]
enum Afterwards {
    Over,
    Line(String),
    Report { id: InvocationId, ending: Ending, facts: Facts, ended: Option<oneshot::Sender<Ended>> },
}

impl Shared {
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
                if !state.tell(ticket, told) && !again {
                    state.environment.undeliver(now, &id);
                } else if !again {
                    let line = report::start(&id, &self.options.function.version);
                    afterwards.push(Afterwards::Line(line));
                }
            }
            Effect::Restored { ticket } => {
                state.tell(ticket, CallResult::Restored);
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
                state.tell(ticket, CallResult::Extension { event, trace_id, deadline });
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

    fn afterwards(&self, action: Afterwards) {
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
    async fn keep_time(&self) {
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

    async fn connection(self: Arc<Self>, stream: TcpStream, remote: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the connection is slower than it could be");
        }
        let service = service_fn(|request| Self::respond(Arc::clone(&self), request, remote));
        let mut builder = http1::Builder::new();
        // A client that closes its sending side is gone: its waiting `next` must get nothing.
        builder.half_close(false).header_read_timeout(None);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let outcome = tokio::select! {
            outcome = &mut served => outcome,
            () = self.closing.cancelled() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "connection broke off");
        }
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        remote: SocketAddr,
    ) -> Result<Response<Body>, BrokenOff> {
        let path = request.uri().path();
        if let Some(call) = path.strip_prefix(runtime_api::BASE) {
            let call = call.to_owned();
            runtime_api::respond(&self, &call, request).await
        } else if let Some(call) = path.strip_prefix(extensions_api::BASE) {
            let call = call.to_owned();
            extensions_api::respond(&self, &call, request).await
        } else if extensions_api::is_telemetry(path) {
            Ok(extensions_api::telemetry(path))
        } else if invocations::is_one(path) {
            invocations::respond(&self, request).await
        } else {
            web::respond(&self, request, remote).await
        }
    }
}

impl State {
    /// Sends the result of a call; `false` if the call is gone.
    fn tell(&mut self, ticket: Ticket, told: CallResult) -> bool {
        self.calls.remove(&ticket).is_some_and(|call| call.send(told).is_ok())
    }
}

/// Returns the deadline of a running invocation in milliseconds since 1970.
fn deadline_of(state: &State, id: &str, now: Instant) -> u64 {
    let left = state.environment.deadline_of(id).map_or(Duration::ZERO, |end| end - now);
    epoch_milliseconds(SystemTime::now() + left)
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

/// Generates ids that differ from those of every other process and start.
#[derive(Debug)]
struct Ids {
    seed: std::hash::RandomState,
    next: AtomicU64,
}

impl Ids {
    fn new() -> Self {
        Self { seed: std::hash::RandomState::new(), next: AtomicU64::new(0) }
    }

    fn random(&self) -> (u64, u64) {
        // The standard library seeds its hash maps from the system's randomness, which is enough for unique names.
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let half = |which: u8| {
            let mut hasher = self.seed.build_hasher();
            hasher.write_u64(count);
            hasher.write_u8(which);
            hasher.finish()
        };
        (half(0), half(1))
    }

    /// Returns a UUID of version 4 (RFC 9562).
    fn uuid(&self) -> String {
        let (high, low) = self.random();
        let high = (high & !0xf000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }
}
