//! Models that run PHP's own programs: php-fpm (`fpm`), `php -S` (`builtin`), `php-cgi` (`cgi`).
//!
//! The pool starts and owns these programs and communicates by FastCGI, HTTP or CGI. Requests, limits, drain and
//! status are the same as in every other model.
//!
//! Invariants
//! - A slot serves at most one request at a time, and is leased until its process can accept the next one, whatever
//!   the client does.
//! - The process of a request that exceeded its limit has ended before the request is answered.
//! - A request is given to another process only if no byte of it was written.
//! - No process outlives the server (docs/internals/foreign.md, "Ending").

mod answer;
mod builtin;
mod cgi;
mod fastcgi;
mod files;
mod fpm;
mod head;
pub(crate) mod process;
mod request;
mod run;
mod slots;
mod worker;

use std::collections::VecDeque;
use std::ops::Deref;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Response};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error};

pub(crate) use self::answer::Body;
use self::answer::{Started, Waiting};
use self::head::Dialect;
use self::process::Spawner;
use self::request::Request;
use self::slots::{Leased, Limits, Slots};
use self::worker::Worker;
use crate::backend::{self, Backend, Core};
use crate::clock::{Clock, Elapsed};
use crate::context::RequestContext;
use crate::exchange::{BoxBody, BoxError, Failure};
use crate::info::{WorkerInfo, describe_exit};
use crate::lifecycle::Dismissal;
use crate::overload::Line;
use crate::pauses::pause_after;
use crate::slow::SlowRequest;
use crate::status::WorkerState;
use crate::variables::TRACEPARENT;
use crate::{DispatchError, Model, Options, PoolStatus, ResponseBody, StartError, memory, trace};

/// A running pool of such a model.
#[derive(Debug)]
pub(crate) struct Foreign {
    common: Arc<Common>,
    slots: Arc<Slots<Slot>>,
    dialect: Dialect,
    fpm: Option<Arc<fpm::Fpm>>,
}

/// State shared by the programs and tasks of a pool.
#[derive(Debug)]
struct Common {
    core: Core,
    spawner: Spawner,
    /// The pool is draining: processes that fail to start are not retried.
    draining: CancellationToken,
    /// The patience is over: running processes are killed.
    cut: CancellationToken,
}

/// Gives access to the parts that all backends have.
impl Deref for Common {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// One process, or the place for one.
#[derive(Debug)]
struct Slot {
    number: u32,
    worker: Worker,
}

impl Foreign {
    /// Starts the program and returns when the first worker is ready; the others follow.
    pub(crate) async fn start(options: Options) -> Result<Self, StartError> {
        let program = options.program.display().to_string();
        let workers = u32::try_from(options.workers.get()).unwrap_or(u32::MAX);
        let php_version = process::version(&options).await?;
        let common = Arc::new(Common {
            spawner: Spawner::new(&options)?,
            core: Core::new(options, Arc::new(Clock::new()), php_version),
            draining: CancellationToken::new(),
            cut: CancellationToken::new(),
        });
        let mut fpm = None;
        let all: VecDeque<Worker> = match common.options.model {
            Model::Builtin => {
                let builtin = Arc::new(builtin::Builtin::new(Arc::clone(&common))?);
                let worker = |slot| builtin::Worker::new(Arc::clone(&builtin), slot);
                (0..workers).map(|slot| Worker::Builtin(worker(slot))).collect()
            }
            Model::Cgi => {
                let cgi = Arc::new(cgi::Cgi::new(Arc::clone(&common))?);
                let worker = |slot| cgi::Worker::new(Arc::clone(&cgi), slot);
                (0..workers).map(|slot| Worker::Cgi(worker(slot))).collect()
            }
            _ => {
                let started = fpm::Fpm::start(Arc::clone(&common)).await?;
                let worker = |slot| fpm::Worker::new(Arc::clone(&started), slot);
                let all = (0..workers).map(|slot| Worker::Fpm(worker(slot))).collect();
                fpm = Some(started);
                all
            }
        };
        let dialect = match common.options.model {
            Model::Builtin => Dialect::Builtin,
            _ => Dialect::Cgi,
        };
        let all =
            all.into_iter().zip(0..).map(|(worker, number)| Slot { number, worker }).collect();
        let slots =
            Arc::new(Slots::new(all, Limits::of(&common.options), Arc::clone(&common.clock)));
        let pool = Self { common, slots, dialect, fpm };
        if let Err(cause) = pool.start_workers().await {
            backend::drain(&pool, Duration::ZERO).await;
            return Err(StartError::Zygote { program, output: cause.to_string() });
        }
        Ok(pool)
    }

    /// Returns when one worker is ready.
    async fn start_workers(&self) -> Result<(), BoxError> {
        let common = &self.common;
        let mut leases: Vec<Leased<Slot>> = std::iter::from_fn(|| self.slots.try_lease()).collect();
        if let Some(mut first) = leases.pop() {
            common.prepare(&mut first).await?;
        }
        for lease in leases {
            let refill = Arc::clone(common).refill(lease).in_current_span();
            common.tasks.spawn_on(refill, &common.runtime);
        }
        let watch = Arc::clone(common).watch(Arc::downgrade(&self.slots));
        common.tasks.spawn_on(watch.in_current_span(), &common.runtime);
        Ok(())
    }

    /// Implements [`crate::Pool::dispatch`]; `length` is that of the body if the client declared it.
    pub(crate) async fn dispatch(
        &self,
        mut parts: Parts,
        context: RequestContext,
        body: Option<BoxBody>,
        length: Option<u64>,
    ) -> Result<Response<ResponseBody>, DispatchError> {
        // Some of these programs read the header fields themselves.
        if let Some(trace) = &context.trace
            && let Ok(value) = HeaderValue::from_bytes(trace.context().traceparent().as_bytes())
        {
            parts.headers.insert(TRACEPARENT, value);
        }
        let common = &self.common;
        let folder = &common.options.run_dir;
        let deadline = context.deadline;
        let allowed = deadline.map(|deadline| deadline - Instant::now());
        let request = Request::new(parts, context, body, length, folder)
            .await
            .map_err(DispatchError::RequestBody)?;
        let mut waits = trace::waits(&request.context);
        let slot = match deadline {
            None => self.slots.lease().await,
            Some(deadline) => {
                let slot = tokio::time::timeout_at(deadline, self.slots.lease()).await;
                let limit = allowed.unwrap_or_default();
                slot.unwrap_or(Err(DispatchError::TimedOut { limit }))
            }
        };
        let slot = slot.inspect_err(|why| trace::waited_in_vain(&mut waits, why))?;
        drop(waits);
        let (answer, waiting, left) = answer::answer(self.dialect);
        let run = Arc::clone(common).run(slot, request, answer, left);
        common.tasks.spawn_on(run, &common.runtime);
        let Waiting { started, body } = waiting;
        match started.await {
            Ok(Ok(Started { head, whole })) => Ok(head.with(match whole {
                Some(whole) => ResponseBody::whole(whole),
                None => ResponseBody::foreign(body),
            })),
            Ok(Err(failure)) => Err(common.explain(failure, allowed)),
            Err(_gone) => Err(common.explain(Failure::NotSent, allowed)),
        }
    }
}

impl Backend for Foreign {
    fn core(&self) -> &Core {
        &self.common.core
    }

    fn line(&self) -> Line {
        self.slots.line()
    }

    fn wanted(&self) -> usize {
        self.common.options.workers.get()
    }

    fn complete(&self, status: &mut PoolStatus) {
        (status.least, status.most) = (self.wanted(), self.wanted());
    }

    fn start_draining(&self) {
        self.slots.start_draining();
        self.common.draining.cancel();
    }

    fn is_quiet(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.slots.is_quiet())
    }

    /// All processes are killed, or end with php-fpm, which has a time limit of its own.
    fn close(&self, _patience: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end())
    }
}

/// Ends all processes, if they were not drained: no other owner exists.
impl Drop for Foreign {
    fn drop(&mut self) {
        self.common.draining.cancel();
        self.common.cut.cancel();
        if let Some(fpm) = &self.fpm {
            fpm.end_token().cancel();
        }
    }
}

impl Foreign {
    async fn end(&self) {
        const LAST_WORDS: Duration = Duration::from_secs(2);
        let common = &self.common;
        common.cut.cancel();
        for mut slot in self.slots.close() {
            if let Some(info) = slot.worker.info() {
                info.life.dismiss(Dismissal::Recycled);
                info.life.set_state(WorkerState::Stopping);
            }
            // The workers of php-fpm end with it.
            if self.fpm.is_none() {
                slot.worker.kill().await;
            }
        }
        if let Some(fpm) = &self.fpm {
            fpm.end().await;
        }
        common.tasks.close();
        if tokio::time::timeout(LAST_WORDS, common.tasks.wait()).await.is_err() {
            // A grandchild of PHP may keep its output open.
            debug!("output of an ended process is still open");
        }
        common.infos().clear();
    }
}

impl Common {
    /// Makes a slot's worker ready, within the boot time.
    async fn prepare(&self, slot: &mut Slot) -> Result<(), BoxError> {
        let limit = self.options.boot_timeout;
        let prepared = self.clock.timeout(limit, slot.worker.prepare()).await;
        if let (Err(Elapsed), Worker::Fpm(worker)) = (&prepared, &slot.worker) {
            worker.unanswered();
        }
        prepared.map_err(|Elapsed| format!("not ready within {limit:?}"))??;
        if let Some(info) = slot.worker.info() {
            info.booted_at.store(self.now(), Ordering::Relaxed);
            info.life.set_state(WorkerState::Idle);
            self.infos().insert(slot.number, Arc::clone(info));
        }
        Ok(())
    }

    /// Restarts the process of a slot, however many attempts that takes, and then frees the slot.
    async fn refill(self: Arc<Self>, mut slot: Leased<Slot>) {
        const FIRST: Duration = Duration::from_millis(20);
        const LONGEST: Duration = Duration::from_secs(5);
        let mut failures = 0;
        while !slot.worker.is_ready() {
            let tried = tokio::select! {
                tried = self.prepare(&mut slot) => tried,
                () = self.cut.cancelled() => return,
            };
            let Err(cause) = tried else { return };
            if self.draining.is_cancelled() {
                return;
            }
            if failures > 3 {
                error!(error = %cause, "PHP does not start, tried again");
            } else {
                debug!(error = %cause, "PHP does not start, tried again");
            }
            tokio::select! {
                () = tokio::time::sleep(pause_after(failures, FIRST, LONGEST)) => {}
                () = self.draining.cancelled() => return,
            }
            failures += 1;
        }
    }

    /// Checks memory and replaces processes that ended while idle, until the pool ends.
    async fn watch(self: Arc<Self>, slots: std::sync::Weak<Slots<Slot>>) {
        let mut idle = tokio::time::interval(Clock::PULSE);
        let mut memory = tokio::time::interval(Duration::from_secs(1));
        let mut schedule = memory::Schedule::default();
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        memory.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.draining.cancelled() => return,
                _ = memory.tick() => {
                    for info in self.infos().clone().into_values() {
                        // One that exceeds it is replaced when its request has ended.
                        self.exceeds_memory_limit(&info);
                    }
                    if !self.infos().is_empty() && schedule.is_due().await {
                        let common = Arc::clone(&self);
                        schedule.start(move || common.core.read_memory(None));
                    }
                }
                _ = idle.tick() => {
                    self.now();
                    self.look_for_slow_requests();
                    let Some(slots) = slots.upgrade() else { return };
                    while slots.prefer(|slot| !slot.worker.is_ready()) {
                        let Some(lease) = slots.try_lease() else { break };
                        let refill = Arc::clone(&self).refill(lease).in_current_span();
                        self.tasks.spawn_on(refill, &self.runtime);
                    }
                }
            }
        }
    }

    fn look_for_slow_requests(&self) {
        for (slow, _) in self.newly_slow() {
            // These programs have their own means, such as php-fpm's `request_slowlog_timeout`.
            let why = "PHP runs in a program of its own".to_owned();
            self.report_slow(SlowRequest { why: Some(why), ..slow });
        }
    }

    /// Logs and counts the end of a process with this wait status.
    fn ended(&self, info: &WorkerInfo, status: u32) {
        if info.exit().is_some() {
            return;
        }
        info.set_exit(status);
        self.worker_ended(info, info.life.dismissal(), &describe_exit(status));
    }

    /// Creates the record of a new process of a slot.
    fn new_info(&self, slot: u32, pid: u32) -> Arc<WorkerInfo> {
        let info = self.core.new_info(slot);
        info.pid.store(pid, Ordering::Relaxed);
        info
    }

    /// Returns `-d name=value` for each setting: these override php.ini, and `ini_set()` overrides them.
    fn ini_arguments(&self) -> impl Iterator<Item = String> {
        self.options
            .ini
            .iter()
            .flat_map(|(name, value)| ["-d".to_owned(), format!("{name}={value}")])
    }

    /// Returns a path in the run folder that no other server uses.
    fn place(&self, name: &str) -> PathBuf {
        self.options.run_dir.join(format!("{}-{name}", std::process::id()))
    }
}

/// Writes the request and reads the response concurrently, so that neither blocks the other. Ends with the response;
/// returns whether the whole request was written by then.
async fn both_ways<T>(
    upload: impl Future<Output = Result<(), BoxError>>,
    download: impl Future<Output = Result<T, Failure>>,
) -> Result<(T, bool), Failure> {
    let (mut upload, mut download) = (std::pin::pin!(upload), std::pin::pin!(download));
    let mut uploaded = false;
    loop {
        tokio::select! {
            biased;
            sent = &mut upload, if !uploaded => {
                sent.map_err(Failure::RequestBody)?;
                uploaded = true;
            }
            done = &mut download => return Ok((done?, uploaded)),
        }
    }
}

/// Decides whether a response of unknown length is sent as a stream. A short response arrives in one piece, directly
/// followed by its end, and is worth a short wait. It then has a length, and is sent completely or not at all.
#[derive(Debug, Default)]
struct Pace {
    pieces: u8,
    streams: bool,
}

impl Pace {
    const PATIENCE: Duration = Duration::from_millis(2);

    /// Records a piece; returns whether it is sent at once.
    fn is_stream(&mut self) -> bool {
        self.pieces = self.pieces.saturating_add(1);
        self.streams |= self.pieces > 1;
        self.streams
    }

    /// Waits until the end has not followed the first piece for too long; forever if nothing is held back.
    async fn runs_out(&mut self) {
        if self.pieces == 0 || self.streams {
            return std::future::pending().await;
        }
        tokio::time::sleep(Self::PATIENCE).await;
        self.streams = true;
    }
}

/// Returns the failure for an invalid response of a program.
fn malformed(why: &dyn std::fmt::Display) -> Failure {
    Failure::Died { pid: 0, how: format!("sent a malformed answer: {why}") }
}

/// Parsers of the bytes that PHP's programs send. They must handle any input.
#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    use bytes::BytesMut;

    use super::head::{Dialect, HeadReader};

    /// Decodes a stream of FastCGI records.
    pub fn fastcgi(bytes: &[u8]) {
        let mut arrived = BytesMut::from(bytes);
        while let Ok(Some(_record)) = super::fastcgi::decode(&mut arrived) {
            assert!(arrived.len() < bytes.len());
        }
    }

    /// Parses the head of a response, in two pieces.
    pub fn head(bytes: &[u8]) {
        let Some((&cut, text)) = bytes.split_first() else { return };
        let (first, second) = text.split_at(usize::from(cut).min(text.len()));
        for dialect in [Dialect::Cgi, Dialect::Builtin] {
            let whole = HeadReader::new(dialect).feed(text);
            let mut reader = HeadReader::new(dialect);
            let pieces = match reader.feed(first) {
                Ok(None) => reader.feed(second),
                other => other,
            };
            match (whole, pieces) {
                (Ok(Some((one, _))), Ok(Some((two, _)))) => {
                    assert_eq!((one.status, one.headers), (two.status, two.headers));
                }
                (one, two) => assert_eq!(one.is_ok(), two.is_ok()),
            }
        }
    }
}
