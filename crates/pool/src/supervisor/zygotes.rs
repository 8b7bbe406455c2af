//! Handles zygotes that end, do not respond or have had too many crashes, and their workers.
//!
//! Invariants
//! - A zygote that owes a response and sends nothing for [`Supervisor::ANSWER`] (or `boot_timeout`, if that is
//!   shorter) is replaced.
//! - Workers of a zygote that is being replaced continue until another zygote has started; each then ends after its
//!   current request.
//! - At most one replaced zygote is kept for its workers. It is killed when they have ended, and they die with it.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::{NO_ZYGOTE, Supervisor};
use crate::lifecycle::Dismissal;
use crate::process_stat::resident_bytes;
use crate::worker::{Event, Gone};
use crate::zygote::Zygote;

/// The reasons recorded for workers of a replaced zygote.
const UNANSWERED: &str = "its zygote did not answer";
const CRASHES: &str = "its address-space layout had too many crashes";

/// A zygote that is being replaced.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) zygote: Zygote,
    why: &'static str,
    /// Workers that were forked from it.
    slots: HashSet<u32>,
    /// Another zygote has started, and its workers replace these.
    succeeded: bool,
}

impl Supervisor {
    /// How long a zygote may owe a response. It normally responds within milliseconds; the limit allows for machines
    /// that swap.
    const ANSWER: Duration = Duration::from_secs(10);

    /// Returns the zygote that has forked a worker, or is to fork it.
    pub(super) fn zygote_of(&mut self, slot: u32) -> Option<&mut Zygote> {
        match &mut self.replaced {
            Some(old) if old.slots.contains(&slot) => Some(&mut old.zygote),
            _ => self.zygote.as_mut(),
        }
    }

    /// Returns whether the zygote has not responded for too long. Called at each tick; its events are read between
    /// two ticks.
    pub(super) fn is_zygote_silent(&mut self) -> bool {
        let limit = Self::ANSWER.min(self.options().boot_timeout);
        let silent = self.zygote.as_ref().is_some_and(|zygote| zygote.silence() >= limit);
        self.silent_ticks = if silent { self.silent_ticks.saturating_add(1) } else { 0 };
        self.silent_ticks >= 2
    }

    /// Starts another zygote in place of an unresponsive one, and ends a replaced one when its workers have ended.
    pub(super) fn look_at_zygotes(&mut self) {
        while self.ending.try_join_next().is_some() {}
        if self.is_zygote_silent()
            && let Some(zygote) = self.zygote.take()
        {
            let seconds = zygote.silence().as_secs_f64();
            error!(pid = zygote.pid(), seconds, "zygote does not answer, another is started");
            self.put_aside(zygote, UNANSWERED);
        }
        let workers = &self.workers;
        let clock = &self.shared.clock;
        let has_ended = |slot: &u32| {
            workers.get(slot).is_none_or(|info| {
                let ending_since = info.ending_since.load(Ordering::Relaxed);
                // A zombie has no memory.
                let has_memory = resident_bytes(info.pid()).is_some_and(|bytes| bytes > 0);
                let is_over = ending_since != 0 && clock.since(ending_since) >= Self::LAST_WORDS;
                info.is_given_up()
                    || (info.busy_since.load(Ordering::Relaxed) == 0 && (!has_memory || is_over))
            })
        };
        let is_over = |old: &Replaced| old.succeeded && old.slots.iter().all(has_ended);
        if self.replaced.as_ref().is_some_and(is_over) {
            self.end_replaced();
        }
    }

    /// Handles the crash of a worker: too many of them end the address-space layout that all workers share.
    pub(super) fn count_crash(&mut self, slot: u32, status: u32) {
        let is_old = self.replaced.as_ref().is_some_and(|old| old.slots.contains(&slot));
        let now = Instant::now();
        if is_old || !self.crashes.count(status, now) || self.replaced.is_some() || self.closing {
            return;
        }
        let Some(zygote) = self.zygote.take() else { return };
        warn!(
            pid = zygote.pid(),
            "many workers crashed by memory errors: the application boots again with another address-space layout"
        );
        self.crashes.replaced(now);
        self.put_aside(zygote, CRASHES);
    }

    fn put_aside(&mut self, zygote: Zygote, why: &'static str) {
        self.end_replaced();
        for slow in self.traced.give_up(NO_ZYGOTE).collect::<Vec<_>>() {
            self.shared.report_slow(slow);
        }
        let slots = self.workers.keys().copied().collect();
        self.replaced = Some(Replaced { zygote, why, slots, succeeded: false });
        // They may never be forked.
        let unborn: Vec<_> =
            self.workers.values().filter(|info| !info.has_booted()).cloned().collect();
        for info in unborn {
            info.cut();
            self.ended_with_zygote(info.slot, why);
        }
    }

    /// Called when another zygote has started: it forks the successors of all workers of the replaced one.
    pub(super) fn succeed_replaced(&mut self) {
        let Some(old) = &mut self.replaced else { return };
        old.succeeded = true;
        let (why, slots): (_, Vec<u32>) = (old.why, old.slots.iter().copied().collect());
        for slot in slots {
            let Some(info) = self.workers.get(&slot).cloned() else { continue };
            if info.is_given_up() || info.gone_since.load(Ordering::Relaxed) != 0 {
                continue;
            }
            if self.shared.one_shot() {
                if !info.life.is_spent() {
                    info.life.succeed();
                    self.shared.remove_idle(slot);
                }
            } else if info.life.order_successor() {
                self.replace(slot, why);
            }
        }
    }

    /// Handles an event of the replaced zygote.
    pub(super) fn event_of_replaced(&mut self, event: Result<Event, Gone>) {
        let Some(old) = &mut self.replaced else { return };
        match event {
            Ok(Event::Exited { pid, status, processor_time }) => {
                self.shared.add_processor_time(processor_time);
                let of_it =
                    |slot: &&u32| self.workers.get(slot).is_some_and(|info| info.pid() == pid);
                let slot = old.slots.iter().find(of_it).copied();
                if let Some(slot) = slot {
                    self.exited(slot, status);
                }
            }
            // Its slot was given to another worker.
            Ok(Event::Spawned { pid, .. }) => {
                if let Err(error) = old.zygote.kill(pid, Signal::KILL) {
                    debug!(worker.pid = pid, %error, "zygote takes no orders");
                }
            }
            Ok(_) => {}
            Err(_gone) => self.end_replaced(),
        }
    }

    /// Kills the replaced zygote, and with it the rest of its workers (`PR_SET_PDEATHSIG`).
    pub(super) fn end_replaced(&mut self) {
        let Some(Replaced { zygote, why, slots, .. }) = self.replaced.take() else { return };
        info!(pid = zygote.pid(), why, "replaced zygote is killed");
        self.ending.spawn(zygote.end(Duration::ZERO));
        for slot in slots {
            self.ended_with_zygote(slot, why);
        }
    }

    fn ended_with_zygote(&mut self, slot: u32, why: &'static str) {
        if let Some(info) = self.workers.get(&slot) {
            // A worker that served and was gone before has crashed.
            if !info.has_booted() || info.gone_since.load(Ordering::Relaxed) == 0 {
                info.replaced_for.get_or_init(|| why);
                info.life.dismiss(Dismissal::Recycled);
            }
            self.exited(slot, Signal::KILL.as_raw().unsigned_abs());
        }
    }

    /// Handles the end of the zygote: its workers end with it (`PR_SET_PDEATHSIG`), and a new one is started.
    pub(super) async fn lost_zygote(&mut self, gone: &Gone) {
        error!(reason = ?gone, "zygote died, and every worker with it; restarting");
        if let Some(zygote) = self.zygote.take() {
            zygote.end(Duration::from_millis(200)).await;
        }
        for slow in self.traced.give_up(NO_ZYGOTE).collect::<Vec<_>>() {
            self.shared.report_slow(slow);
        }
        let old = self.replaced.as_ref();
        let is_old = |slot: &u32| old.is_some_and(|old| old.slots.contains(slot));
        let slots: Vec<u32> = self.workers.keys().filter(|slot| !is_old(slot)).copied().collect();
        for slot in slots {
            self.exited(slot, Signal::KILL.as_raw().unsigned_abs());
        }
        self.successors.clear();
        self.pause();
    }

    /// Ends all zygotes. Returns when they have ended.
    pub(super) async fn end_zygotes(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        let silent = self.is_zygote_silent();
        if let Some(zygote) = self.zygote.take() {
            if silent {
                warn!(pid = zygote.pid(), "zygote does not answer, killed");
            }
            zygote.end(if silent { Duration::ZERO } else { PATIENCE }).await;
        }
        self.end_replaced();
        while self.ending.join_next().await.is_some() {}
    }
}

/// Returns the next event of the replaced zygote; pending forever without one. Cancel safe.
pub(super) async fn next_of_replaced(replaced: &mut Option<Replaced>) -> Result<Event, Gone> {
    match replaced {
        Some(old) => old.zygote.next().await,
        None => std::future::pending().await,
    }
}
