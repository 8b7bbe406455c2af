//! Keeps the workers running: forks, boots, replaces and kills them, and restarts the zygote.
//!
//! Invariants
//! - As many workers as the `scaler` wants run or are being booted, unless they keep dying: then the next attempt
//!   waits, up to [`Supervisor::LONGEST_PAUSE`]. With one-shot workers as many wait or are being booted, and at most
//!   twice as many live.
//! - Only idle workers end because there are too many.
//! - A healthy worker is replaced only when its successor is ready.
//! - A request over its time limit loses its worker within a tenth of the limit, and at most within
//!   [`Supervisor::LONGEST_TICK`].

mod boot;
mod crashes;
mod ends;
mod limits;
mod numbers;
mod zygotes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{Instrument as _, debug, error, warn};

use self::boot::boot;
use self::crashes::Crashes;
use self::zygotes::{Replaced, next_of_replaced};
use crate::backend::{Backend as _, Core};
use crate::clock::Clock;
use crate::info::WorkerInfo;
use crate::scaler::Scaler;
use crate::seats::Share;
use crate::shared::{Command, Shared};
use crate::slow::Traced;
use crate::worker::{Event, Gone, Worker};
use crate::zygote::Zygote;
use crate::{Options, StartError, memory, oom, output};

/// The reason recorded for a worker that the system did not fork: its boot has not failed.
const NOT_FORKED: &str = "it could not be forked";

/// The task that owns the zygote.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    scaler: Scaler,
    /// The group's part of the workers that groups of scripts share.
    share: Option<Share>,
    /// Number of workers that there are to be.
    target: usize,
    /// When to check whether more workers are needed, while requests wait.
    look_at: Option<Instant>,
    /// Requests were being rejected at the last check.
    overloaded: bool,
    commands: mpsc::Receiver<Command>,
    zygote: Option<Zygote>,
    /// A zygote that is being replaced; not all of its workers have ended.
    replaced: Option<Replaced>,
    crashes: Crashes,
    /// Consecutive ticks at which the zygote had not responded for too long.
    silent_ticks: u32,
    /// Zygotes that were killed and whose end is awaited.
    ending: JoinSet<()>,
    /// No worker is forked any more.
    closing: bool,
    /// Every worker that has not ended, by slot.
    workers: HashMap<u32, Arc<WorkerInfo>>,
    /// Maps a successor to the worker that it replaces.
    successors: HashMap<u32, u32>,
    /// Workers to be replaced, and why, as soon as forks may be retried. Each is in the list once, because it is
    /// marked.
    postponed: Vec<(u32, &'static str)>,
    next_slot: u32,
    /// Consecutive workers that ended before or soon after their boot.
    failures: u32,
    /// Consecutive workers that retired without having answered a request.
    fruitless: u32,
    /// At least one worker has been ready.
    was_ready: bool,
    /// The next zygote. Starting one takes as long as the application boots, and time limits are enforced in the
    /// meantime.
    starting: JoinSet<Result<Zygote, StartError>>,
    /// When the zygote had started.
    started_at: Instant,
    /// No fork takes place before this time.
    pause_until: Instant,
    /// Notified once: the first worker is ready, or why it will not be.
    first: Option<oneshot::Sender<Result<(), StartError>>>,
    /// Requests whose stack was requested from the zygote.
    traced: Traced,
    memory: memory::Schedule,
    /// Whether a line has said that the memory limit is below what a booted worker needs.
    has_noted_limit: bool,
    kills: oom::Kills,
}

impl Supervisor {
    /// Maximum number of commands in progress per worker: each sends Booted once, and Replace or Kill rarely.
    pub(crate) const COMMANDS: usize = 8;
    const LONGEST_TICK: Duration = Clock::PULSE;
    /// Wait status of a worker that ended because it could not be restored (`SNAPSHOT_EXIT_RETIRED`,
    /// native/snapshot/snapshot.h).
    const RETIRED: u32 = 75 << 8;
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    const LONGEST_PAUSE: Duration = Duration::from_secs(5);
    /// A worker that ends sooner after its boot counts as one that failed to boot.
    const INFANCY: u64 = 1_000;
    /// How long reading the last output of an ended worker may take.
    const HEARING: Duration = Duration::from_millis(200);
    /// How long a worker may take for its shutdown functions, and how long the report of a killed worker's end may
    /// take.
    const LAST_WORDS: Duration = Duration::from_secs(5);

    /// Creates the supervisor of a `zygote` that has sent HELLO. `first` is notified of the first worker.
    pub(crate) fn new(
        shared: Arc<Shared>,
        (scaler, share): (Scaler, Option<Share>),
        commands: mpsc::Receiver<Command>,
        zygote: Zygote,
        first: Option<oneshot::Sender<Result<(), StartError>>>,
    ) -> Self {
        Self {
            started_at: Instant::now(),
            pause_until: Instant::now(),
            shared,
            target: if share.is_some() { 0 } else { scaler.wanted() },
            scaler,
            share,
            look_at: None,
            overloaded: false,
            commands,
            zygote: Some(zygote),
            replaced: None,
            crashes: Crashes::default(),
            silent_ticks: 0,
            ending: JoinSet::new(),
            closing: false,
            workers: HashMap::new(),
            successors: HashMap::new(),
            postponed: Vec::new(),
            next_slot: 1,
            failures: 0,
            fruitless: 0,
            was_ready: false,
            starting: JoinSet::new(),
            first,
            traced: Traced::default(),
            memory: memory::Schedule::default(),
            has_noted_limit: false,
            kills: oom::Kills::since_now(),
        }
    }

    fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Runs until the pool is closed.
    pub(crate) async fn run(mut self) {
        let limit = self.options().request_timeout.unwrap_or(Self::LONGEST_TICK * 10);
        let waiting = self.options().backlog_timeout;
        let slow = self.options().slow.unwrap_or(limit);
        let period =
            (limit.min(waiting).min(slow) / 10).clamp(Duration::from_millis(5), Self::LONGEST_TICK);
        let mut tick = tokio::time::interval(period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut memory = tokio::time::interval(Duration::from_secs(1));
        memory.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.scale();
        self.fill();
        let shared = Arc::clone(&self.shared);
        loop {
            tokio::select! {
                Some(command) = self.commands.recv() => match command {
                    Command::Close { patience, done } => {
                        self.close(patience).await;
                        if done.send(()).is_err() {
                            debug!("the caller did not wait for the pool's end");
                        }
                        return;
                    }
                    other => self.command(other),
                },
                event = next_event(&mut self.zygote) => match event {
                    Ok(event) => self.event(event).await,
                    Err(gone) => self.lost_zygote(&gone).await,
                },
                event = next_of_replaced(&mut self.replaced) => {
                    self.event_of_replaced(event);
                    self.fill();
                }
                Some(started) = self.starting.join_next() => {
                    let failed = StartError::Boot { output: "its start was cancelled".to_owned() };
                    self.started(started.unwrap_or(Err(failed)));
                }
                () = shared.wanted.notified() => {
                    self.scale();
                    self.fill();
                }
                () = tokio::time::sleep_until(self.look_at.unwrap_or_else(Instant::now)),
                    if self.look_at.is_some() =>
                {
                    self.scale();
                    self.fill();
                }
                _ = tick.tick() => {
                    self.shared.expire_waiters();
                    self.scale();
                    self.tell_overload();
                    self.enforce_time_limit();
                    self.look_for_slow_requests();
                    self.kill_unresponsive();
                    self.look_at_zygotes();
                    self.fill();
                }
                _ = memory.tick() => {
                    self.look_at_memory();
                    if (self.was_ready || self.rests()) && self.memory.is_due().await {
                        let shared = Arc::clone(&self.shared);
                        self.memory.start(move || shared.read_memory());
                    }
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Replace { slot, why } => self.replace(slot, why),
            Command::Kill { slot } => {
                if let Some(info) = self.workers.get(&slot).cloned() {
                    self.kill(&info);
                }
            }
            Command::Booted { slot } => self.booted(slot),
            Command::BootFailed { info, why } => self.boot_failed(&info, &why),
            Command::Retired { info } => self.retired(&info),
            Command::Close { .. } => {}
        }
    }

    /// Returns whether there is nothing to wait for: a booted zygote, and no request that needs a worker.
    fn rests(&self) -> bool {
        self.zygote.is_some() && self.workers.is_empty() && self.missing() == 0
    }

    /// Forks the missing workers and the due successors, unless forking is paused.
    fn fill(&mut self) {
        if Instant::now() < self.pause_until || self.closing {
            return;
        }
        if self.zygote.is_none() {
            if self.starting.is_empty() {
                let shared = Arc::clone(&self.shared);
                let start =
                    async move { Zygote::start(&shared.options, Arc::clone(&shared.clock)).await };
                self.starting.spawn(start.in_current_span());
            }
            return;
        }
        while self.missing() > 0 {
            if self.has_asked_enough() || !self.has_room() || !self.fork() {
                return;
            }
        }
        for (slot, why) in std::mem::take(&mut self.postponed) {
            self.replace(slot, why);
        }
    }

    /// Returns whether the maximum number of forks is in progress; more follow when the zygote has responded.
    fn has_asked_enough(&self) -> bool {
        self.zygote.as_ref().is_some_and(|zygote| zygote.owed() >= Zygote::UNANSWERED)
    }

    fn started(&mut self, zygote: Result<Zygote, StartError>) {
        match zygote {
            Ok(zygote) => {
                self.shared.zygote_pid.store(zygote.pid(), Ordering::Relaxed);
                self.zygote = Some(zygote);
                self.succeed_replaced();
                self.fill();
            }
            Err(cause) => {
                error!(error = %cause, cause = ?cause, "PHP does not start");
                self.pause();
            }
        }
    }

    /// Forks one worker; returns `false` if the zygote is lost.
    fn fork(&mut self) -> bool {
        let slot = self.next_slot;
        self.next_slot = self.next_slot.wrapping_add(1).max(1);
        let Some(zygote) = &mut self.zygote else { return false };
        match zygote.spawn(slot) {
            Ok(ends) => {
                let info = self.shared.new_info(slot);
                self.publish(slot, &info);
                self.workers.insert(slot, Arc::clone(&info));
                let lines = output::read_pipes(Arc::clone(&info), ends.stdout, ends.stderr);
                self.shared.tasks.spawn(lines.in_current_span());
                let counters = Arc::new(ends.counters);
                info.set_counters(Arc::clone(&counters));
                info.set_hang_up(ends.hang_up);
                let worker = Box::new(Worker::new(info, ends.frames, counters));
                self.shared.tasks.spawn(boot(Arc::clone(&self.shared), worker).in_current_span());
                true
            }
            Err(cause) => {
                self.fork_failed(cause);
                false
            }
        }
    }

    /// Handles a fork that the system refused. If no worker is ready within the time limit for a boot, the start fails.
    fn fork_failed(&mut self, cause: std::io::Error) {
        error!(error = %cause, "worker could not be forked");
        self.pause();
        let limit = self.options().boot_timeout;
        if self.started_at.elapsed() >= limit
            && let Some(first) = self.first.take()
            && first.send(Err(StartError::Fork { limit, cause })).is_err()
        {
            debug!("the caller did not wait for the first worker");
        }
    }

    async fn event(&mut self, event: Event) {
        match event {
            Event::Spawned { slot, pid } => {
                if let Some(info) = self.workers.get(&slot).cloned() {
                    info.pid.store(pid, Ordering::Relaxed);
                    debug!(worker.pid = pid, slot, "worker forked");
                    if info.is_given_up() {
                        // The server gave the worker up while the zygote did not respond.
                        self.kill(&info);
                    }
                }
                self.fill();
            }
            Event::Failed { slot, errno } => {
                if let Some(info) = self.forget(slot) {
                    info.replaced_for.get_or_init(|| NOT_FORKED);
                }
                self.successor_lost(slot);
                self.fork_failed(std::io::Error::from_raw_os_error(errno.cast_signed()));
            }
            Event::Stack { pid, stack, why } => {
                if let Some(slow) = self.traced.answered(pid, &stack, &why) {
                    self.shared.report_slow(slow);
                }
            }
            Event::Exited { pid, status, processor_time } => {
                self.shared.add_processor_time(processor_time);
                let slot =
                    self.workers.values().find(|info| info.pid() == pid).map(|info| info.slot);
                if let Some(slot) = slot {
                    self.exited(slot, status);
                    self.fill();
                }
            }
            other => {
                error!(frame = ?other, "zygote sent a frame out of turn");
                self.lost_zygote(&Gone::Closed).await;
            }
        }
    }

    fn booted(&mut self, slot: u32) {
        let Some(info) = self.workers.get(&slot) else { return };
        let now = self.shared.now();
        info.booted_at.store(now, Ordering::Relaxed);
        self.was_ready = true;
        self.failures = self.failures.saturating_sub(1);
        if let Some(first) = self.first.take()
            && first.send(Ok(())).is_err()
        {
            debug!("the caller did not wait for the first worker");
        }
        if let Some(replaced) = self.successors.remove(&slot)
            && let Some(old) = self.workers.get(&replaced)
        {
            old.life.succeed();
            self.shared.remove_idle(replaced);
        }
    }

    fn replace(&mut self, slot: u32, why: &'static str) {
        let Some(info) = self.workers.get(&slot) else { return };
        if Instant::now() < self.pause_until || self.zygote.is_none() || self.has_asked_enough() {
            self.postponed.push((slot, why));
            return;
        }
        Core::replaced(info, why);
        let successor = self.next_slot;
        self.successors.insert(successor, slot);
        if !self.fork() {
            self.successor_lost(successor);
        }
    }

    async fn close(&mut self, patience: Duration) {
        self.closing = true;
        self.shared.close_queue();
        self.starting.abort_all();
        self.end_replaced();
        let deadline = Instant::now() + patience;
        let mut tick = tokio::time::interval(Self::LONGEST_TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if let Some(zygote) = &mut self.zygote {
            zygote.ping();
        }
        while !self.workers.is_empty() && self.zygote.is_some() {
            tokio::select! {
                event = next_event(&mut self.zygote) => match event {
                    Ok(event) => self.event(event).await,
                    Err(_gone) => break,
                },
                _ = tick.tick() => {
                    self.kill_unresponsive();
                    if self.is_zygote_silent() {
                        break;
                    }
                }
                () = tokio::time::sleep_until(deadline) => {
                    warn!(workers = self.workers.len(), "workers did not end in time, killed");
                    break;
                }
            }
        }
        self.end_zygotes().await;
        for (_, info) in self.workers.drain() {
            info.hang_up();
        }
        self.shared.infos().clear();
    }

    /// Adds a worker to the list that `status()` reads.
    fn publish(&self, slot: u32, info: &Arc<WorkerInfo>) {
        self.shared.infos().insert(slot, Arc::clone(info));
    }

    /// Removes a worker.
    fn forget(&mut self, slot: u32) -> Option<Arc<WorkerInfo>> {
        self.shared.infos().remove(&slot);
        let worker = self.workers.remove(&slot);
        if let Some(share) = &self.share {
            share.has(self.processes());
        }
        worker
    }
}

/// The reason why no stack is available.
const NO_ZYGOTE: &str = "the zygote is gone";

/// Returns the zygote's next event; pending forever without a zygote. Cancel safe.
async fn next_event(zygote: &mut Option<Zygote>) -> Result<Event, Gone> {
    match zygote {
        Some(zygote) => zygote.next().await,
        None => std::future::pending().await,
    }
}
