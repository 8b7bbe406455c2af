//! Workers that have ended, retired or not booted: who counts it, and how long the next fork waits.
//!
//! Invariants
//! - The end of a worker is counted once, under one reason.
//! - Workers that keep dying are forked less and less often.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::process::Signal;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, error, info, warn};

use super::{NOT_FORKED, Supervisor};
use crate::info::{WorkerInfo, describe_exit};
use crate::lifecycle::Dismissal;
use crate::pauses::pause_after;
use crate::shared::Command;
use crate::status::{Ending, WorkerEnd};
use crate::{Model, StartError};

impl Supervisor {
    /// Handles the end of a worker.
    pub(super) fn exited(&mut self, slot: u32, status: u32) {
        let Some(info) = self.forget(slot) else { return };
        let (dismissal, spent) = (info.life.dismissal(), info.life.is_spent());
        info.set_exit(status);
        info.hang_up();
        self.shared.databases.lock().expect("no holder panics").add_past(info.databases());
        self.shared.verified.lock().expect("no holder panics").add(info.verified());
        self.shared.remove_idle(slot);
        let (pid, requests) = (info.pid(), info.requests.load(Ordering::Relaxed));
        self.successor_lost(slot);
        let mut how = describe_exit(status);
        if dismissal == Dismissal::TimedOut {
            self.shared.worker_ended(&info, dismissal, &how);
        } else if spent && (status == 0 || dismissal != Dismissal::None) {
            debug!(worker.pid = pid, how, "one-shot worker has ended");
        } else if status == Self::RETIRED && info.has_left() && self.is_grown(&info) {
            self.shared.recycled.fetch_add(1, Ordering::Relaxed);
            debug!(worker.pid = pid, requests, how, "worker has left to be replaced");
        } else if status == Self::RETIRED && self.options().model == Model::Snapshot {
            self.shared.retired.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::clone(&self.shared);
            let heard = async move {
                // The number of its answered requests and the reason of its retirement may still be in the socket.
                if shared.clock.timeout(Self::HEARING, info.read_out()).await.is_err() {
                    debug!(
                        worker.pid = pid,
                        "another process holds the socket of a retired worker"
                    );
                }
                shared.command(Command::Retired { info });
            };
            self.shared.tasks.spawn(heard.in_current_span());
        } else if dismissal == Dismissal::Surplus {
            self.shared.shrunk.fetch_add(1, Ordering::Relaxed);
            debug!(worker.pid = pid, requests, how, "worker ended: it was not needed");
        } else {
            let killed = status & 0x7f == Signal::KILL.as_raw().unsigned_abs();
            if killed && dismissal == Dismissal::None && self.kills.is_new() {
                how += ": out of memory, the kernel's OOM killer ended a process";
            }
            if self.shared.worker_ended(&info, dismissal, &how) == Ending::Crashed {
                let booted_at = info.booted_at.load(Ordering::Relaxed);
                let lived = self.shared.now().saturating_sub(booted_at);
                // A one-shot worker dies of its request: its successor is not affected.
                if booted_at == 0 || (lived < Self::INFANCY && !spent) {
                    self.pause();
                }
                self.count_crash(slot, status);
            }
        }
    }

    /// Returns whether a worker was ready long enough for its end to be normal. Without this, workers that leave at
    /// once would be forked without a pause.
    pub(super) fn is_grown(&self, info: &WorkerInfo) -> bool {
        let booted_at = info.booted_at.load(Ordering::Relaxed);
        booted_at != 0 && self.shared.now().saturating_sub(booted_at) >= Self::INFANCY
    }

    /// Handles a worker that could not be restored and has ended. This is no crash, unless none reaches a response.
    pub(super) fn retired(&mut self, info: &WorkerInfo) {
        let requests = info.requests.load(Ordering::Relaxed);
        let reason = info.own_message().unwrap_or_else(|| "it did not say".to_owned());
        info!(worker.pid = info.pid(), requests, reason, "worker retired");
        let end = WorkerEnd::now(info.pid(), requests, Ending::Retired, &reason);
        self.shared.ended.push(end);
        *self.shared.last_retirement.lock().expect("no holder panics") = Some(reason);
        if requests > 0 {
            self.fruitless = 0;
            return;
        }
        self.fruitless = self.fruitless.saturating_add(1);
        let usual = u32::try_from(self.target).unwrap_or(u32::MAX);
        if let Some(beyond) = self.fruitless.checked_sub(usual) {
            let pause = pause_after(beyond, Self::FIRST_PAUSE, Self::LONGEST_PAUSE);
            // Before any worker was ready, the start fails and reports it.
            if self.was_ready {
                warn!(
                    workers = self.fruitless,
                    ?pause,
                    "workers retire before they answer anything"
                );
            }
            self.pause_until = Instant::now() + pause;
        }
    }

    /// Pauses before the next fork, longer after each consecutive failure.
    pub(super) fn pause(&mut self) {
        let pause = pause_after(self.failures, Self::FIRST_PAUSE, Self::LONGEST_PAUSE);
        self.pause_until = Instant::now() + pause;
        self.failures += 1;
    }

    pub(super) fn boot_failed(&mut self, info: &WorkerInfo, why: &str) {
        if info.replaced_for.get() == Some(&NOT_FORKED) {
            return;
        }
        let output = match (info.tail(), why) {
            (tail, "") => tail,
            (tail, why) if tail.is_empty() => why.to_owned(),
            (tail, why) => format!("{tail}\n{why}"),
        };
        let retired = self.options().model == Model::Snapshot && info.exit() == Some(Self::RETIRED);
        if let Some(first) = self.first.take() {
            let error = if retired {
                StartError::NoSnapshot { why: info.own_message().unwrap_or(output) }
            } else {
                StartError::Boot { output }
            };
            if first.send(Err(error)).is_err() {
                debug!("the caller did not wait for the first worker");
            }
        } else if !retired {
            error!(worker.pid = info.pid(), why, "worker did not boot");
        }
        info.cut();
        self.kill(info);
    }

    /// Handles the loss of a successor: the worker that it was to replace may get another.
    pub(super) fn successor_lost(&mut self, successor: u32) {
        if let Some(replaced) = self.successors.remove(&successor)
            && let Some(old) = self.workers.get(&replaced)
        {
            old.life.lose_successor();
        }
    }
}
