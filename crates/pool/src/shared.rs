//! The state that all parts of a pool of Hearth's own workers share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tracing::debug;

use crate::backend::{Backend as _, Core};
use crate::databases::DatabaseStatus;
use crate::info::WorkerInfo;
use crate::queue::Queue;
use crate::seats::Seats;
use crate::verified::VerifiedRestores;
use crate::worker::{Event, Worker};

/// The state behind every clone of a [`crate::Pool`] of such workers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) queue: Mutex<Queue>,
    /// Sender to the supervisor. Its bound follows from how often a worker can send a command:
    /// `Supervisor::COMMANDS`.
    pub(crate) commands: mpsc::Sender<Command>,
    /// Wakes tasks that wait for the pool to be quiet.
    pub(crate) quiet: Notify,
    /// Notifies the supervisor that a one-shot worker needs a successor, or that a request waits and more workers may
    /// be needed.
    pub(crate) wanted: Arc<Notify>,
    /// The workers that it shares with other groups of scripts, if it does.
    pub(crate) seats: Option<Arc<Seats>>,
    /// Wanted number of workers, set by the supervisor.
    pub(crate) target: AtomicUsize,
    pub(crate) grown: AtomicU64,
    pub(crate) shrunk: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) retired: AtomicU64,
    pub(crate) last_retirement: Mutex<Option<String>>,
    /// Statistics of workers that have ended.
    pub(crate) databases: Mutex<DatabaseStatus>,
    pub(crate) verified: Mutex<VerifiedRestores>,
    /// Processor time of workers that have ended, in microseconds.
    pub(crate) processor_time: AtomicU64,
    /// The process id of the zygote that forks workers now, or did last.
    pub(crate) zygote_pid: AtomicU32,
}

/// The owner of a pool of such workers. All of its processes end soon after the last handle of it is dropped, so that
/// no pool outlives those that use it: not one whose start is cancelled, and not one whose user is.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_millis(200);
        self.shared.start_draining();
        // After a drain the supervisor has ended, and ignores this.
        self.shared.command(Command::Close { patience: PATIENCE, done: oneshot::channel().0 });
    }
}

/// Gives access to the parts that all backends have.
impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
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
    /// End all processes; those that still run after `patience` are killed.
    Close { patience: Duration, done: oneshot::Sender<()> },
}

impl Shared {
    pub(crate) fn one_shot(&self) -> bool {
        self.options.model.is_one_shot()
    }

    /// Returns whether the number of workers changes with the load.
    pub(crate) fn follows_load(&self) -> bool {
        self.options.scaling.is_some() || self.seats.is_some()
    }

    /// Adds the processor time of a worker that has ended.
    pub(crate) fn add_processor_time(&self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.processor_time.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// Returns the maximum number of workers.
    pub(crate) fn most_workers(&self) -> usize {
        if let Some(seats) = &self.seats {
            return seats.most();
        }
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
