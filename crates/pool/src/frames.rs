//! Hearth's own workers as a [`Backend`]: start, dispatch, replacement, end.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::ahead::{self, Waiting};
use crate::backend::{self, Backend, Core};
use crate::backlog::Client;
use crate::clock::Clock;
use crate::context::{CompleteBody, RequestContext};
use crate::databases::DatabaseStatus;
use crate::exchange::{Arrived, BoxBody, Exchange, Failure};
use crate::info::{CurrentRequest, how_it_ended};
use crate::lease::{Grant, Lease};
use crate::overload::Line;
use crate::queue::Queue;
use crate::scaler::Scaler;
use crate::seats::Seats;
use crate::shared::{Command, Owner, Shared};
use crate::source::Source;
use crate::supervisor::Supervisor;
use crate::verified::VerifiedRestores;
use crate::worker::Head;
use crate::zygote::Zygote;
use crate::{
    DispatchError, Options, PoolStatus, ResponseBody, Scaling, StartError, processor_time, trace,
    variables,
};

impl Backend for Shared {
    fn core(&self) -> &Core {
        &self.core
    }

    fn line(&self) -> Line {
        let refused = self.refused.load(Ordering::Relaxed);
        self.queue.lock().expect("no holder panics").line(refused)
    }

    fn wanted(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }

    fn complete(&self, status: &mut PoolStatus) {
        status.least = self.options.workers.get();
        status.most = self.most_workers();
        status.grown = self.grown.load(Ordering::Relaxed);
        status.shrunk = self.shrunk.load(Ordering::Relaxed);
        status.retired = self.retired.load(Ordering::Relaxed);
        let last_retirement = self.last_retirement.lock().expect("no holder panics");
        status.last_retirement.clone_from(&last_retirement);
        status.databases = self.databases.lock().expect("no holder panics").clone();
        status.restores = *self.verified.lock().expect("no holder panics");
        for info in self.infos().values() {
            status.databases.add(&info.databases());
            status.restores.add(info.verified());
        }
    }

    fn zygote(&self) -> Option<u32> {
        Some(self.zygote_pid.load(Ordering::Relaxed))
    }

    fn start_draining(&self) {
        self.queue.lock().expect("no holder panics").start_draining();
    }

    fn is_quiet(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.no_request_is_left())
    }

    fn close(&self, patience: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let (done, finished) = oneshot::channel();
            let close = Command::Close { patience, done };
            if self.commands.send(close).await.is_ok() && finished.await.is_err() {
                tracing::debug!("the supervisor had ended already");
            }
        })
    }
}

/// How a pool shares its workers with others.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    /// The workers of all of them.
    pub(crate) seats: Arc<Seats>,
    /// How its own number follows the load, from none; otherwise by its options.
    pub(crate) scaling: Option<Scaling>,
}

/// Starts a zygote and returns when the first worker is ready; the others follow. A pool that begins without workers is ready before.
/// If the future is dropped, what it has started ends.
pub(crate) async fn start(
    options: Options,
    sharing: Option<Sharing>,
) -> Result<Arc<Owner>, StartError> {
    let clock = Arc::new(Clock::new());
    let zygote = Zygote::start(&options, Arc::clone(&clock)).await?;
    let most = options.scaling.map_or(options.workers, |scaling| scaling.most).get();
    let (commands, from_pool) = mpsc::channel(most * 2 * Supervisor::COMMANDS);
    let from_none = sharing.as_ref().and_then(|sharing| sharing.scaling);
    let scaler = match &from_none {
        Some(scaling) => Scaler::new(0, Some(scaling), clock.instant()),
        None => Scaler::new(options.workers.get(), options.scaling.as_ref(), clock.instant()),
    };
    let wanted = Arc::new(Notify::new());
    let share = sharing.as_ref().map(|sharing| {
        let one_shot = options.model.is_one_shot();
        sharing.seats.join(one_shot, Arc::clone(&wanted), clock.instant())
    });
    // On several threads the end of a turn may be another thread's.
    let at_once =
        tokio::runtime::Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread;
    let turn = Arc::new(Notify::new());
    let php_version = zygote.php_version.clone();
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue::new(options.backlog_target, (Arc::clone(&turn), at_once))),
        core: Core::new(options, clock, php_version),
        commands,
        quiet: Notify::new(),
        wanted,
        target: AtomicUsize::new(if share.is_some() { 0 } else { scaler.wanted() }),
        seats: sharing.map(|sharing| sharing.seats),
        grown: AtomicU64::new(0),
        shrunk: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        retired: AtomicU64::new(0),
        last_retirement: Mutex::new(None),
        databases: Mutex::new(DatabaseStatus::default()),
        verified: Mutex::new(VerifiedRestores::default()),
        processor_time: AtomicU64::new(0),
        zygote_pid: AtomicU32::new(zygote.pid()),
    });
    shared.tasks.spawn(Arc::clone(&shared).write_at_end_of_turn(turn));
    let (tell_first, first) = oneshot::channel();
    let begins = from_none.is_none_or(|scaling| scaling.start > 0);
    let tell_first = begins.then_some(tell_first);
    let supervisor =
        Supervisor::new(Arc::clone(&shared), (scaler, share), from_pool, zygote, tell_first);
    // Its log lines carry the span in which it was started, which names the pool.
    shared.tasks.spawn(supervisor.run().in_current_span());
    let started = Arc::new(Owner { shared });
    if !begins {
        return Ok(started);
    }
    match first.await {
        Ok(Ok(())) => Ok(started),
        Ok(Err(error)) => {
            backend::drain(&*started.shared, Duration::from_secs(1)).await;
            Err(error)
        }
        Err(_dropped) => Err(StartError::Boot { output: "the supervisor has ended".to_owned() }),
    }
}

/// Implements [`crate::Pool::dispatch`].
pub(crate) async fn dispatch(
    shared: &Arc<Shared>,
    parts: &Parts,
    context: &RequestContext,
    body: Option<BoxBody>,
    length: Option<u64>,
) -> Result<Response<ResponseBody>, DispatchError> {
    let mut body = body.map(|body| Box::new(Source::new(body)));
    let mut complete = None;
    if parts.extensions.get::<CompleteBody>().is_some()
        && let Some(source) = &mut body
    {
        let taken = source.take_complete(ahead::LARGEST, length);
        complete = taken.map_err(DispatchError::RequestBody)?;
        body = body.filter(|_| complete.is_none());
    }
    let write = |buffer: &mut Vec<u8>| -> Result<(), DispatchError> {
        variables::write_request(buffer, parts, context, length)
            .map_err(|_too_large| DispatchError::HeadTooLarge)?;
        if let Some(body) = &complete {
            body.write_frame(buffer);
        }
        Ok(())
    };
    let mut refused_since = None;
    // The total time allowed; without a deadline the clock is not read.
    let allowed = context.deadline.map(|deadline| deadline - Instant::now());
    loop {
        let mut waits = trace::waits(context);
        let (mut lease, mut written) = if let Some(lease) = shared.lease_idle()? {
            (lease, None)
        } else {
            let whole = body.is_none().then_some(&write);
            let lease = wait(shared, parts, context, whole, allowed).await;
            lease.inspect_err(|why| trace::waited_in_vain(&mut waits, why))?
        };
        drop(waits);
        lease.info.set_request(CurrentRequest::new(parts, context));
        lease.info.deadline.store(shared.clock.moment(context.deadline), Ordering::Relaxed);
        if written.is_none() {
            write(&mut lease.outgoing)?;
            if body.is_none() {
                written = shared.take_over(&mut lease);
            }
        }
        let info = Arc::clone(&lease.info);
        let span = trace::runs(context, shared, Some(&info));
        let mut exchange = Exchange::new(lease, written, body, context, span);
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
            Err(Failure::Died { pid, how }) if how.is_empty() => {
                let how = Box::pin(how_it_ended(&info, &shared.clock)).await;
                return Err(DispatchError::WorkerDied { pid, how });
            }
            Err(failure) => return Err(shared.explain(failure, allowed)),
        }
    }
}

/// Implements [`crate::Pool::renew`].
pub(crate) async fn renew(shared: &Shared) -> Result<(), StartError> {
    const LOOK: Duration = Duration::from_millis(2);
    let old: Vec<_> = shared.infos().values().cloned().collect();
    for info in &old {
        if info.life.order_successor() {
            shared.command(Command::Replace { slot: info.slot, why: "renewed" });
        }
    }
    let deadline = shared.clock.after(shared.options.boot_timeout);
    loop {
        let mut left = old.iter().filter(|info| info.exit().is_none()).peekable();
        if left.peek().is_none() {
            return Ok(());
        }
        // The supervisor removes the mark when a successor has ended before it was ready.
        if shared.now() >= deadline || left.any(|info| !info.life.has_successor()) {
            let output = "a new worker did not boot: the log says why".to_owned();
            return Err(StartError::Boot { output });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Implements [`crate::Pool::processor_time`].
pub(crate) fn processor_time(shared: &Shared) -> Option<Duration> {
    let zygote = processor_time::of_process(shared.zygote_pid.load(Ordering::Relaxed))?;
    let infos = shared.infos();
    // Those that have ended, or are not forked yet, are in the other sums.
    let alive = infos.values().filter_map(|info| processor_time::of_process(info.pid()));
    let alive: Duration = alive.sum();
    let ended = Duration::from_micros(shared.processor_time.load(Ordering::Relaxed));
    drop(infos);
    Some(zygote + alive + ended)
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
    let (observer, deadline) = (context.observer.clone(), shared.clock.moment(context.deadline));
    let waiting = Waiting { frames, current, observer, deadline };
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
            let how = Box::pin(how_it_ended(&info, &shared.clock)).await;
            Err(DispatchError::WorkerDied { pid: info.pid(), how })
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
    head.with(body)
}
