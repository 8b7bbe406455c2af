//! The state that all parts of a pool share: its options, its counters, its workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::clock::Clock;
use crate::databases::DatabaseStatus;
use crate::info::WorkerInfo;
use crate::memory::MemoryStatus;
use crate::queue::Queue;
use crate::recent::Recent;
use crate::slow::SlowRequest;
use crate::status::WorkerEnd;
use crate::worker::{Event, Worker};
use crate::{Options, memory};

/// The state behind every clone of a [`crate::Pool`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) clock: Arc<Clock>,
    pub(crate) queue: Mutex<Queue>,
    /// Sender to the supervisor. Its bound follows from how often a worker can send a command:
    /// `Supervisor::COMMANDS`.
    pub(crate) commands: mpsc::Sender<Command>,
    /// Exchanges whose request is gone but whose worker still runs, and readers of workers' output.
    pub(crate) tasks: TaskTracker,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Wakes tasks that wait for the pool to be quiet.
    pub(crate) quiet: Notify,
    /// Notifies the supervisor that a one-shot worker needs a successor, or that a request waits and more workers may
    /// be needed.
    pub(crate) wanted: Notify,
    /// Wanted number of workers, set by the supervisor.
    pub(crate) target: AtomicUsize,
    pub(crate) grown: AtomicU64,
    pub(crate) shrunk: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) crashes: AtomicU64,
    pub(crate) recycled: AtomicU64,
    pub(crate) retired: AtomicU64,
    pub(crate) last_retirement: Mutex<Option<String>>,
    pub(crate) slow_requests: AtomicU64,
    pub(crate) slow: Recent<SlowRequest>,
    /// Workers that have ended.
    pub(crate) ended: Recent<WorkerEnd>,
    /// Statistics of workers that have ended.
    pub(crate) databases: Mutex<DatabaseStatus>,
    pub(crate) timeouts: AtomicU64,
    /// Processor time of workers that have ended, in microseconds.
    pub(crate) processor_time: AtomicU64,
    /// The process id of the zygote that forks workers now, or did last.
    pub(crate) zygote_pid: AtomicU32,
    /// Memory of the processes at the last reading.
    pub(crate) memory: Mutex<MemoryStatus>,
    /// Every worker that has not ended, by slot; the supervisor adds and removes.
    pub(crate) infos: Mutex<BTreeMap<u32, Arc<WorkerInfo>>>,
    pub(crate) php_version: Mutex<String>,
}

/// Commands for the supervisor.
#[derive(Debug)]
pub(crate) enum Command {
    /// Boot a successor for this worker, then end it.
    Replace { slot: u32, why: &'static str },
    /// Kill this worker, which violated the protocol.
    Kill { slot: u32 },
    /// A worker waits for its first request.
    Booted { slot: u32 },
    /// A worker failed to boot; it may still run.
    BootFailed { info: Arc<WorkerInfo>, why: String },
    /// A worker has ended because it could not be restored, and its last message is known.
    Retired { info: Arc<WorkerInfo> },
    /// End everything; what is left after `patience` is killed.
    Close { patience: Duration, done: oneshot::Sender<()> },
}

impl Shared {
    /// Returns [`Clock::now`].
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    pub(crate) fn one_shot(&self) -> bool {
        self.options.model.is_one_shot()
    }

    /// Returns the wanted number of workers.
    pub(crate) fn wanted_workers(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }

    /// Returns how many workers are idle or busy.
    pub(crate) fn ready_workers(&self) -> usize {
        let infos = self.infos.lock().expect("no holder panics");
        infos.values().filter(|info| info.life.state().is_ready()).count()
    }

    /// Adds the processor time of a worker that has ended.
    pub(crate) fn add_processor_time(&self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.processor_time.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// Reads the memory of the zygote and of all workers. Blocks for up to some milliseconds.
    pub(crate) fn read_memory(&self) {
        let workers: Vec<_> =
            self.infos.lock().expect("no holder panics").values().cloned().collect();
        let zygote = self.zygote_pid.load(Ordering::Relaxed);
        let status = memory::read_all(Some(zygote), &workers);
        *self.memory.lock().expect("no holder panics") = status;
    }

    /// Returns the maximum number of workers.
    pub(crate) fn most_workers(&self) -> usize {
        let most = self.options.scaling.map_or(1, |scaling| scaling.most.get());
        most.max(self.options.workers.get())
    }

    /// Logs a worker's last output while it exits; the supervisor kills it if that takes too long.
    pub(crate) fn log_last_output(self: &Arc<Self>, mut worker: Box<Worker>) {
        self.tasks.spawn_on(
            async move { while let Ok(Event::Ready | Event::End { .. }) = worker.next().await {} },
            &self.runtime,
        );
    }

    pub(crate) fn command(&self, command: Command) {
        if self.commands.try_send(command).is_err() {
            debug!("the supervisor has ended or is behind; its next tick sees to it");
        }
    }
}
