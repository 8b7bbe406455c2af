//! Parts of every pool, whatever runs PHP: its options, its workers, and their limits, recycling, slow requests and
//! status. [`Backend`] is the part in which Hearth's own workers and PHP's programs differ.
//!
//! Invariants
//! - The end of a worker, a request over its time limit and a slow request are logged and counted here only.
//! - Nothing here starts, ends or waits for a process.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::events::Sinks;
use crate::exchange::Failure;
use crate::info::WorkerInfo;
use crate::lifecycle::Dismissal;
use crate::memory::MemoryStatus;
use crate::overload::Line;
use crate::recent::Recent;
use crate::slow::SlowRequest;
use crate::status::{Ending, WorkerEnd};
use crate::{DispatchError, Options, PoolStatus, memory, process_stat};

/// A way to run PHP. Dispatching is not part of it: its future would have to be boxed for each request.
pub(crate) trait Backend: Send + Sync {
    /// Returns what it has in common with others.
    fn core(&self) -> &Core;

    /// Returns the state of the backlog.
    fn line(&self) -> Line;

    /// Returns the wanted number of workers.
    fn wanted(&self) -> usize;

    /// Sets what only this backend knows.
    fn complete(&self, status: &mut PoolStatus);

    /// Returns the process that workers are forked from.
    fn zygote(&self) -> Option<u32> {
        None
    }

    /// Rejects new requests from now on.
    fn start_draining(&self);

    /// Waits until no request runs or waits, and every worker can accept one. Cancel safe.
    fn is_quiet(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Ends all processes. What has not ended after `patience` is killed.
    fn close(&self, patience: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns the state of the pool.
    fn status(&self) -> PoolStatus {
        let (core, line) = (self.core(), self.line());
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let mut status = PoolStatus {
            php_version: core.php_version.clone(),
            backlog: line.backlog,
            ahead: line.ahead,
            overloaded: line.overloaded,
            refused: line.refused,
            waited: line.waits.number,
            waited_seconds: line.waits.sum.as_secs_f64(),
            longest_wait_seconds: line.waits.longest.as_secs_f64(),
            wanted: self.wanted(),
            requests: count(&core.requests),
            crashes: count(&core.crashes),
            recycled: count(&core.recycled),
            timeouts: count(&core.timeouts),
            memory: core.memory.lock().expect("no holder panics").clone(),
            workers: core.infos().values().map(|info| info.status(core.now())).collect(),
            slow_requests: count(&core.slow_requests),
            slow: core.slow.all(),
            ended: core.ended.all(),
            ..PoolStatus::default()
        };
        self.complete(&mut status);
        status
    }

    /// Reads the memory of all processes. Blocks for up to some milliseconds.
    fn read_memory(&self) {
        self.core().read_memory(self.zygote());
    }
}

/// Rejects new requests, answers the accepted ones, and ends all processes.
pub(crate) async fn drain(backend: &dyn Backend, patience: Duration) {
    let deadline = Instant::now() + patience;
    backend.start_draining();
    if tokio::time::timeout_at(deadline, backend.is_quiet()).await.is_err() {
        warn!(?patience, "requests still ran when patience was over");
    }
    let rest = deadline.saturating_duration_since(Instant::now());
    backend.close(rest.max(Duration::from_millis(200))).await;
}

/// The parts that all backends have.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) clock: Arc<Clock>,
    /// Exchanges whose request is gone but whose worker still runs, readers of workers' output, and watchers.
    pub(crate) tasks: TaskTracker,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) php_version: String,
    pub(crate) requests: AtomicU64,
    pub(crate) crashes: AtomicU64,
    pub(crate) recycled: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    slow_requests: AtomicU64,
    slow: Recent<SlowRequest>,
    /// Workers that have ended.
    pub(crate) ended: Recent<WorkerEnd>,
    /// Memory of the processes at the last reading.
    memory: Mutex<MemoryStatus>,
    /// Workers that have not ended, by slot. Of PHP's programs the last process of each slot.
    infos: Mutex<BTreeMap<u32, Arc<WorkerInfo>>>,
}

impl Core {
    pub(crate) fn new(options: Options, clock: Arc<Clock>, php_version: String) -> Self {
        Self {
            options,
            clock,
            tasks: TaskTracker::new(),
            runtime: tokio::runtime::Handle::current(),
            php_version,
            requests: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            slow_requests: AtomicU64::new(0),
            slow: Recent::default(),
            ended: Recent::default(),
            memory: Mutex::default(),
            infos: Mutex::default(),
        }
    }

    /// Returns [`Clock::now`].
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    pub(crate) fn infos(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<WorkerInfo>>> {
        self.infos.lock().expect("no holder panics")
    }

    /// Reads the memory of the zygote and of all workers. Blocks for up to some milliseconds.
    pub(crate) fn read_memory(&self, zygote: Option<u32>) {
        let workers: Vec<_> = self.infos().values().cloned().collect();
        let status = memory::read_all(zygote, &workers);
        *self.memory.lock().expect("no holder panics") = status;
    }

    /// Returns how many workers are idle or busy.
    pub(crate) fn ready_workers(&self) -> usize {
        self.infos().values().filter(|info| info.life.state().is_ready()).count()
    }

    /// Creates the record of a new worker. Its number of requests is up to a tenth above the limit, so that not all
    /// workers are recycled at once.
    pub(crate) fn new_info(&self, slot: u32) -> Arc<WorkerInfo> {
        let max_requests = self
            .options
            .max_requests
            .map_or(u64::MAX, |max| max.get().saturating_add(fastrand::u64(0..=max.get() / 10)));
        let Options { events, purges, .. } = &self.options;
        let sinks = Sinks { events: events.clone(), purges: purges.clone() };
        let info = WorkerInfo::new(slot, max_requests, sinks);
        Arc::new(info.reporting_to(&self.options))
    }

    /// Records that a worker's request is over its time limit. Returns `false` if that was recorded already.
    pub(crate) fn time_out(&self, info: &WorkerInfo) -> bool {
        if !info.life.dismiss(Dismissal::TimedOut) {
            return false;
        }
        let now = self.now();
        let ran = Duration::from_millis(now - info.busy_since.load(Ordering::Relaxed).min(now));
        let request = info.current_request();
        let id = request.as_ref().map(|id| &*id.0);
        warn!(
            worker.pid = info.pid(),
            request.id = id,
            ?ran,
            "request over its time limit, worker killed"
        );
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Returns the requests that have become slow, and their workers. Each is returned once.
    pub(crate) fn newly_slow(&self) -> Vec<(SlowRequest, Arc<WorkerInfo>)> {
        let Some(limit) = self.options.slow else { return Vec::new() };
        let (model, now) = (self.options.model, self.now());
        let slow = |info: &Arc<WorkerInfo>| {
            Some((SlowRequest::of(info, model, now, limit)?, Arc::clone(info)))
        };
        self.infos().values().filter_map(slow).collect()
    }

    /// Logs and counts a slow request.
    pub(crate) fn report_slow(&self, slow: SlowRequest) {
        slow.log();
        // Added before the count, so that a reader of the count finds the request.
        self.slow.push(slow);
        self.slow_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads a worker's resident memory. Returns whether it exceeds the limit.
    pub(crate) fn exceeds_memory_limit(&self, info: &WorkerInfo) -> bool {
        let Some(resident) = process_stat::resident_bytes(info.pid()) else { return false };
        info.resident.store(resident, Ordering::Relaxed);
        self.options.memory_limit.is_some_and(|limit| resident > limit.0)
    }

    /// Records that a worker is being replaced, and why.
    pub(crate) fn replaced(info: &WorkerInfo, why: &'static str) {
        info!(worker.pid = info.pid(), why, "worker is being replaced");
        info.replaced_for.get_or_init(|| why);
    }

    /// Logs and counts the end of a worker: killed by the time limit, ended on purpose, or died (`how`). `dismissal`
    /// is what was known before its end was handled.
    pub(crate) fn worker_ended(
        &self,
        info: &WorkerInfo,
        dismissal: Dismissal,
        how: &str,
    ) -> Ending {
        let (pid, requests) = (info.pid(), info.requests.load(Ordering::Relaxed));
        let (ending, reason) = if dismissal == Dismissal::TimedOut {
            debug!(worker.pid = pid, requests, how, "worker killed by the time limit has ended");
            (Ending::TimedOut, "its request was over the time limit")
        } else if dismissal != Dismissal::None {
            self.recycled.fetch_add(1, Ordering::Relaxed);
            info!(worker.pid = pid, requests, how, "worker recycled");
            (Ending::Recycled, info.replaced_for.get().copied().unwrap_or("told to end"))
        } else {
            self.crashes.fetch_add(1, Ordering::Relaxed);
            // What Hearth's own workers print is in the log already.
            let is_foreign = self.options.model.is_foreign();
            let last = Some(info.tail()).filter(|last| is_foreign && !last.is_empty());
            error!(worker.pid = pid, requests, how, last, "worker died");
            (Ending::Crashed, how)
        };
        self.ended.push(WorkerEnd::now(pid, requests, ending, reason));
        ending
    }

    /// Returns the error of a request that got no response; `allowed`: the time that its deadline left it.
    pub(crate) fn explain(&self, failure: Failure, allowed: Option<Duration>) -> DispatchError {
        match failure {
            Failure::RequestBody(cause) => DispatchError::RequestBody(cause),
            Failure::TooLarge => DispatchError::HeadTooLarge,
            Failure::TimedOut => {
                let limit = self.options.request_timeout;
                let limit = limit.into_iter().chain(allowed).min().unwrap_or_default();
                DispatchError::TimedOut { limit }
            }
            Failure::Died { pid, how } => DispatchError::WorkerDied { pid, how },
            Failure::NotSent => DispatchError::WorkerDied { pid: 0, how: "it was gone".to_owned() },
        }
    }
}
