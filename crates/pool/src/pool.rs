//! The public API of the pool: start, dispatch, status, drain.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::ahead::{self, Waiting};
use crate::backlog::Client;
use crate::clock::Clock;
use crate::context::{CompleteBody, RequestContext};
use crate::databases::DatabaseStatus;
use crate::exchange::{Arrived, BoxBody, BoxError, Exchange, Failure};
use crate::foreign::Foreign;
use crate::info::{CurrentRequest, how_it_ended};
use crate::lease::{Grant, Lease};
use crate::queue::Queue;
use crate::recent::Recent;
use crate::scaler::Scaler;
use crate::shared::{Command, Shared};
use crate::source::Source;
use crate::supervisor::Supervisor;
use crate::worker::Head;
use crate::zygote::Zygote;
use crate::{
    DispatchError, Options, PoolStatus, ResponseBody, StartError, processor_time, trace, variables,
};

/// A running pool. Cheap to clone: all clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    backend: Backend,
}

/// The implementation that runs PHP.
#[derive(Clone, Debug)]
enum Backend {
    /// Hearth's own workers, which use frames.
    Frames(Arc<Shared>),
    /// PHP's own programs.
    Foreign(Arc<Foreign>),
}

/// The reason phrase of a response, if PHP set a non-standard one. It is in the response's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub Bytes);

impl Pool {
    /// Starts PHP and returns when the first worker is ready; the others follow.
    ///
    /// # Cancel safety
    /// A pool whose start is dropped ends what it has started, soon after.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        if options.model.is_foreign() {
            let foreign = Arc::new(Foreign::start(options).await?);
            return Ok(Self { backend: Backend::Foreign(foreign) });
        }
        let clock = Arc::new(Clock::new());
        let zygote = Zygote::start(&options, Arc::clone(&clock)).await?;
        let most = options.scaling.map_or(options.workers, |scaling| scaling.most).get();
        let (commands, from_pool) = mpsc::channel(most * 2 * Supervisor::COMMANDS);
        let scaler = Scaler::new(options.workers.get(), options.scaling.as_ref(), clock.instant());
        let runtime = tokio::runtime::Handle::current();
        // On several threads the end of a turn may be another thread's.
        let turn = (runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
            .then(|| Arc::new(Notify::new()));
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(options.backlog_target, turn.clone())),
            options,
            clock,
            target: AtomicUsize::new(scaler.wanted()),
            grown: AtomicU64::new(0),
            shrunk: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            commands,
            tasks: TaskTracker::new(),
            runtime,
            quiet: Notify::new(),
            wanted: Notify::new(),
            requests: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            last_retirement: Mutex::new(None),
            slow_requests: AtomicU64::new(0),
            slow: Recent::default(),
            ended: Recent::default(),
            databases: Mutex::new(DatabaseStatus::default()),
            timeouts: AtomicU64::new(0),
            processor_time: AtomicU64::new(0),
            zygote_pid: AtomicU32::new(zygote.pid()),
            memory: Mutex::default(),
            infos: Mutex::new(BTreeMap::new()),
            php_version: Mutex::new(zygote.php_version.clone()),
        });
        if let Some(turn) = turn {
            shared.tasks.spawn(Arc::clone(&shared).write_at_end_of_turn(turn));
        }
        let (tell_first, first) = oneshot::channel();
        let supervisor =
            Supervisor::new(Arc::clone(&shared), scaler, from_pool, zygote, tell_first);
        // Its log lines carry the span in which it was started, which names the pool.
        shared.tasks.spawn(supervisor.run().in_current_span());
        let mut started = Started(Some(Arc::clone(&shared)));
        let pool = Self { backend: Backend::Frames(shared) };
        let first = first.await;
        started.0 = None;
        match first {
            Ok(Ok(())) => Ok(pool),
            Ok(Err(error)) => {
                pool.drain(Duration::from_secs(1)).await;
                Err(error)
            }
            Err(_dropped) => {
                Err(StartError::Boot { output: "the supervisor has ended".to_owned() })
            }
        }
    }

    /// Sends one request to an idle worker and returns its response as soon as the head is available. `request`
    /// carries a [`RequestContext`] in its extensions. Dropping the future, or later the body, tells the worker that
    /// the client is gone.
    ///
    /// The request is retried with another worker only if no worker can have read it and at most 64 KiB of its body
    /// were consumed. Retries end when the backlog time-out is over, because possibly no worker can accept it.
    pub async fn dispatch<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, DispatchError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let context = parts
            .extensions
            .remove::<RequestContext>()
            .expect("fronts put a RequestContext into every request they dispatch");
        let length = if body.is_end_stream() {
            None
        } else {
            Some(body.size_hint().exact().unwrap_or(wire::NO_LENGTH))
        };
        let body = length.map(|_| Box::pin(Erased { body }) as BoxBody);
        let shared = match &self.backend {
            Backend::Frames(shared) => shared,
            Backend::Foreign(foreign) => {
                let length = length.filter(|length| *length != wire::NO_LENGTH);
                return foreign.dispatch(parts, context, body, length).await;
            }
        };
        let (mut body, mut body_frame) = (body.map(|body| Box::new(Source::new(body))), None);
        if parts.extensions.remove::<CompleteBody>().is_some()
            && let Some(source) = &mut body
        {
            body_frame =
                source.take_frame(ahead::LARGEST, length).map_err(DispatchError::RequestBody)?;
            body = body.filter(|_| body_frame.is_none());
        }
        let write = |buffer: &mut Vec<u8>| -> Result<(), DispatchError> {
            variables::write_request(buffer, &parts, &context, length)
                .map_err(|_too_large| DispatchError::HeadTooLarge)?;
            buffer.extend_from_slice(body_frame.as_deref().unwrap_or_default());
            Ok(())
        };
        let mut refused_since = None;
        // The total time allowed; without a deadline the clock is not read.
        let allowed = context.deadline.map(|deadline| deadline - Instant::now());
        loop {
            let mut waits = trace::waits(&context);
            let (mut lease, mut written) = if let Some(lease) = shared.lease_idle()? {
                (lease, None)
            } else {
                let whole = body.is_none().then_some(&write);
                let lease = wait(shared, &parts, &context, whole, allowed).await;
                lease.inspect_err(|why| trace::waited_in_vain(&mut waits, why))?
            };
            drop(waits);
            lease.info.set_request(CurrentRequest::new(&parts, &context));
            lease.info.deadline.store(shared.clock.moment(context.deadline), Ordering::Relaxed);
            if written.is_none() {
                write(&mut lease.outgoing)?;
                if body.is_none() {
                    written = shared.take_over(&mut lease);
                }
            }
            let info = Arc::clone(&lease.info);
            let php_version = || shared.php_version.lock().expect("no holder panics").clone();
            let span = trace::runs(&context, shared.options.model, Some(&info), php_version);
            let mut exchange = Exchange::new(lease, written, body, context.hints.clone(), span);
            let head = std::future::poll_fn(|cx| exchange.poll_head(cx)).await;
            if !matches!(head, Err(Failure::NotSent)) {
                shared.requests.fetch_add(1, Ordering::Relaxed);
            }
            match head {
                Ok(head) => return Ok(respond(head, exchange)),
                Err(Failure::NotSent) => {
                    body = exchange.take_body();
                    let now = shared.now();
                    let waited = shared.clock.since(*refused_since.get_or_insert(now));
                    if waited >= shared.options.backlog_timeout {
                        return Err(DispatchError::Overloaded { waited });
                    }
                }
                Err(Failure::TooLarge) => return Err(DispatchError::HeadTooLarge),
                Err(Failure::RequestBody(cause)) => return Err(DispatchError::RequestBody(cause)),
                Err(Failure::TimedOut) => {
                    let limit = shared.options.request_timeout;
                    let limit = limit.into_iter().chain(allowed).min().unwrap_or_default();
                    return Err(DispatchError::TimedOut { limit });
                }
                Err(Failure::Died { pid, how }) => {
                    let how =
                        if how.is_empty() { how_it_ended(&info, &shared.clock).await } else { how };
                    return Err(DispatchError::WorkerDied { pid, how });
                }
            }
        }
    }

    /// Returns the state of the pool.
    pub fn status(&self) -> PoolStatus {
        let shared = match &self.backend {
            Backend::Frames(shared) => shared,
            Backend::Foreign(foreign) => return foreign.status(),
        };
        let infos = shared.infos.lock().expect("no holder panics");
        let workers = infos.values().map(|info| info.status(shared.now())).collect();
        let mut databases = shared.databases.lock().expect("no holder panics").clone();
        for info in infos.values() {
            databases.add(&info.databases());
        }
        drop(infos);
        let line = shared.line();
        PoolStatus {
            overloaded: line.overloaded,
            refused: shared.refused.load(Ordering::Relaxed),
            waited: line.waits.number,
            waited_seconds: line.waits.sum.as_secs_f64(),
            longest_wait_seconds: line.waits.longest.as_secs_f64(),
            wanted: shared.wanted_workers(),
            least: shared.options.workers.get(),
            most: shared.most_workers(),
            grown: shared.grown.load(Ordering::Relaxed),
            shrunk: shared.shrunk.load(Ordering::Relaxed),
            php_version: shared.php_version.lock().expect("no holder panics").clone(),
            backlog: line.backlog,
            ahead: line.ahead,
            requests: shared.requests.load(Ordering::Relaxed),
            crashes: shared.crashes.load(Ordering::Relaxed),
            recycled: shared.recycled.load(Ordering::Relaxed),
            retired: shared.retired.load(Ordering::Relaxed),
            last_retirement: shared.last_retirement.lock().expect("no holder panics").clone(),
            databases,
            timeouts: shared.timeouts.load(Ordering::Relaxed),
            memory: shared.memory.lock().expect("no holder panics").clone(),
            workers,
            slow_requests: shared.slow_requests.load(Ordering::Relaxed),
            slow: shared.slow.all(),
            ended: shared.ended.all(),
        }
    }

    /// Reads the memory of the pool's processes now; [`Pool::status`] has the figures then.
    pub async fn read_memory(&self) {
        let backend = self.backend.clone();
        let read = tokio::task::spawn_blocking(move || match backend {
            Backend::Frames(shared) => shared.read_memory(),
            Backend::Foreign(foreign) => foreign.read_memory(),
        });
        if let Err(error) = read.await {
            tracing::debug!(%error, "memory was not read");
        }
    }

    /// Returns the processor time that the zygote and all workers have used since the start, ended workers included. `None` if /proc does
    /// not show it, or PHP runs in programs of its own.
    pub fn processor_time(&self) -> Option<Duration> {
        let Backend::Frames(shared) = &self.backend else { return None };
        let zygote = processor_time::of_process(shared.zygote_pid.load(Ordering::Relaxed))?;
        let infos = shared.infos.lock().expect("no holder panics");
        // Those that have ended, or are not forked yet, are in the other sums.
        let alive = infos.values().filter_map(|info| processor_time::of_process(info.pid()));
        let alive: Duration = alive.sum();
        let ended = Duration::from_micros(shared.processor_time.load(Ordering::Relaxed));
        drop(infos);
        Some(zygote + alive + ended)
    }

    /// Waits until the wanted number of workers are idle or busy. Cancel safe.
    pub async fn filled(&self) {
        const LOOK: Duration = Duration::from_millis(5);
        loop {
            let (ready, wanted) = match &self.backend {
                Backend::Frames(shared) => (shared.ready_workers(), shared.wanted_workers()),
                Backend::Foreign(foreign) => {
                    let status = foreign.status();
                    (status.ready(), status.wanted)
                }
            };
            // The wanted number may fall in the meantime.
            if ready >= wanted {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until no request runs or waits, and no worker does anything after its response. Cancel safe.
    pub async fn quiet(&self) {
        match &self.backend {
            Backend::Frames(shared) => shared.is_quiet().await,
            Backend::Foreign(foreign) => foreign.is_quiet().await,
        }
    }

    /// Waits until workers that were lost, or have left, have booted successors. Returns at once in models with a
    /// process for each request, where successors are always being started. Cancel safe.
    pub async fn restored(&self) {
        match &self.backend {
            Backend::Frames(shared) if !shared.one_shot() => self.filled().await,
            // PHP's own programs are quiet only when they are ready again.
            Backend::Frames(_) | Backend::Foreign(_) => {}
        }
    }

    /// Replaces every worker by a new process, and returns when the last old one is gone. In models that boot in the
    /// zygote the new one is forked from that; in the others it boots. Returns `false` if PHP runs in its own
    /// programs: start another pool there.
    ///
    /// # Errors
    /// A new worker did not boot, and an old one still runs.
    pub async fn renew(&self) -> Result<bool, StartError> {
        const LOOK: Duration = Duration::from_millis(2);
        let Backend::Frames(shared) = &self.backend else { return Ok(false) };
        let old: Vec<_> =
            shared.infos.lock().expect("no holder panics").values().cloned().collect();
        for info in &old {
            if info.life.order_successor() {
                shared.command(Command::Replace { slot: info.slot, why: "renewed" });
            }
        }
        let deadline = shared.clock.after(shared.options.boot_timeout);
        loop {
            let mut left = old.iter().filter(|info| info.exit().is_none()).peekable();
            if left.peek().is_none() {
                return Ok(true);
            }
            // The supervisor removes the mark when a successor has ended before it was ready.
            if shared.now() >= deadline || left.any(|info| !info.life.has_successor()) {
                let output = "a new worker did not boot: the log says why".to_owned();
                return Err(StartError::Boot { output });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Rejects new requests, answers the accepted ones (backlog included), and ends the workers. After `patience`
    /// what still runs is killed. Returns when no PHP process is left.
    pub async fn drain(&self, patience: Duration) {
        let shared = match &self.backend {
            Backend::Frames(shared) => shared,
            Backend::Foreign(foreign) => return foreign.drain(patience).await,
        };
        let deadline = Instant::now() + patience;
        shared.start_draining();
        if tokio::time::timeout_at(deadline, shared.is_quiet()).await.is_err() {
            tracing::warn!(?patience, "requests still ran when patience was over");
        }
        let (done, finished) = oneshot::channel();
        let rest = deadline.saturating_duration_since(Instant::now());
        let rest = rest.max(Duration::from_millis(200));
        let close = Command::Close { patience: rest, done };
        if shared.commands.send(close).await.is_ok() && finished.await.is_err() {
            tracing::debug!("the supervisor had ended already");
        }
    }
}

/// Waits for a worker. Returns the number of the request among those of the worker if that has it already, which is
/// possible if `whole` writes all of its frames.
async fn wait(
    shared: &Arc<Shared>,
    parts: &Parts,
    context: &RequestContext,
    whole: Option<impl Fn(&mut Vec<u8>) -> Result<(), DispatchError>>,
    allowed: Option<Duration>,
) -> Result<(Lease, Option<u64>), DispatchError> {
    const USUAL: usize = 1024;
    let mut frames = None;
    if let Some(write) = whole
        && shared.writes_ahead()
    {
        let mut bytes = Vec::with_capacity(USUAL);
        write(&mut bytes)?;
        frames = Some(Bytes::from(bytes)).filter(|bytes| bytes.len() <= ahead::LARGEST);
    }
    let current = CurrentRequest::new(parts, context);
    let waiting = Waiting { frames, current, deadline: shared.clock.moment(context.deadline) };
    let lease = shared.lease(Client::of(context.remote.ip()), waiting);
    let grant = match context.deadline {
        None => lease.await,
        Some(deadline) => {
            let limit = allowed.unwrap_or_default();
            let lease = tokio::time::timeout_at(deadline, lease).await;
            lease.unwrap_or(Err(DispatchError::TimedOut { limit }))
        }
    };
    match grant? {
        Grant::Idle(lease) => Ok((lease, None)),
        Grant::Written(written) => {
            let (lease, number) = written.into_parts();
            Ok((lease, Some(number)))
        }
        Grant::Lost(info) => {
            let how = how_it_ended(&info, &shared.clock).await;
            Err(DispatchError::WorkerDied { pid: info.pid(), how })
        }
    }
}

/// A pool that is starting. If it is dropped, it ends what runs by then, because no other owner exists yet.
struct Started(Option<Arc<Shared>>);

impl Drop for Started {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_millis(200);
        if let Some(shared) = self.0.take() {
            shared.start_draining();
            shared.command(Command::Close { patience: PATIENCE, done: oneshot::channel().0 });
        }
    }
}

/// Builds the response: with a whole body if that arrived with its head, otherwise with a stream.
fn respond(head: Head, mut exchange: Exchange) -> Response<ResponseBody> {
    let body = match exchange.buffered_body() {
        Arrived::End => ResponseBody::whole(Bytes::new()),
        Arrived::Nothing => ResponseBody::streaming([None, None], exchange),
        Arrived::Piece(Err(failure)) => {
            ResponseBody::streaming([Some(Err(failure)), None], exchange)
        }
        Arrived::Piece(Ok(first)) => match exchange.buffered_body() {
            Arrived::End => ResponseBody::whole(first),
            Arrived::Nothing => ResponseBody::streaming([Some(Ok(first)), None], exchange),
            Arrived::Piece(second) => {
                ResponseBody::streaming([Some(Ok(first)), Some(second)], exchange)
            }
        },
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    if let Some(reason) = head.reason {
        response.extensions_mut().insert(Reason(reason));
    }
    response
}

pin_project_lite::pin_project! {
    /// A body whose error is boxed.
    struct Erased<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for Erased<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
