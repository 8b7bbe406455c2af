//! The limits of workers: time, memory, and how long they may take to end.
//!
//! Invariants
//! - Everything here uses the pool's clock and /proc, and never waits for a worker or for the zygote.
//! - Every worker that is given up is killed, even if the zygote does not accept the command. Its slot is freed even if
//!   its end is not reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tracing::{debug, warn};

use super::{NO_ZYGOTE, Supervisor};
use crate::clock::milliseconds;
use crate::info::WorkerInfo;
use crate::process_stat;
use crate::slow::SlowRequest;

impl Supervisor {
    /// How long EXITED may take after a worker has closed its socket. An exiting process closes it within
    /// microseconds.
    const HANGING_UP: Duration = Duration::from_millis(200);
    /// How long the end of a killed worker may take before the server checks the process itself.
    const DYING: Duration = Duration::from_secs(1);

    /// Kills workers whose connection has ended, and workers that do not end when ordered to. Then kills the workers
    /// that still run after a kill through the zygote.
    pub(super) fn kill_unresponsive(&mut self) {
        let clock = Arc::clone(&self.shared.clock);
        let is_over = |since: u64, limit| since != 0 && clock.since(since) >= limit;
        for info in self.workers.values().cloned().collect::<Vec<_>>() {
            let killed_at = info.killed_at.load(Ordering::Relaxed);
            if killed_at != 0 {
                if is_over(killed_at, Self::DYING) {
                    self.see_it_ended(&info, is_over(killed_at, Self::LAST_WORDS));
                }
            } else if is_over(info.gone_since.load(Ordering::Relaxed), Self::HANGING_UP) {
                // `pcntl_exec()` is one cause.
                warn!(worker.pid = info.pid(), "worker closed its socket and runs on, killed");
                self.kill(&info);
            } else if !self.closing
                && is_over(info.ending_since.load(Ordering::Relaxed), Self::LAST_WORDS)
            {
                warn!(worker.pid = info.pid(), "worker did not end when told, killed");
                self.kill(&info);
            }
        }
    }

    /// Kills a worker through the zygote, now or as soon as its process id is known. It does not count as a worker
    /// any more.
    pub(super) fn kill(&mut self, info: &WorkerInfo) {
        let (pid, now) = (info.pid(), self.shared.now());
        let _first =
            info.killed_at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if pid != 0
            && let Some(zygote) = self.zygote_of(info.slot)
            && let Err(error) = zygote.kill(pid, Signal::KILL)
        {
            // It is killed without the zygote a second later.
            debug!(worker.pid = pid, %error, "zygote takes no orders");
        }
    }

    /// Handles a worker that was killed some time ago and whose end was not reported: kills the process itself. If
    /// there is no such process, or none was forked, and the zygote has nothing more to report about it (`overdue`),
    /// its slot is freed.
    fn see_it_ended(&mut self, info: &WorkerInfo, overdue: bool) {
        let Some(zygote) = self.zygote_of(info.slot) else { return };
        let lives = kill_child(info.pid(), zygote.pid());
        let answers = zygote.owed() == 0;
        zygote.ping();
        if !lives && overdue && answers {
            warn!(worker.pid = info.pid(), slot = info.slot, "the end of a worker was not told");
            self.exited(info.slot, Signal::KILL.as_raw().unsigned_abs());
        }
    }

    pub(super) fn enforce_time_limit(&mut self) {
        let limit = self.options().request_timeout.map_or(u64::MAX, milliseconds);
        let now = self.shared.now();
        let is_over = |info: &WorkerInfo| {
            let since = info.busy_since.load(Ordering::Relaxed);
            let deadline = info.deadline.load(Ordering::Relaxed);
            since != 0 && (now.saturating_sub(since) >= limit || (deadline != 0 && now >= deadline))
        };
        let over = self.workers.values().filter(|info| is_over(info));
        for info in over.map(Arc::clone).collect::<Vec<_>>() {
            if self.shared.end_overdue(&info, || is_over(&info)) {
                self.kill(&info);
            }
        }
    }

    pub(super) fn look_for_slow_requests(&mut self) {
        for (slow, info) in self.shared.newly_slow() {
            if self.zygote.as_mut().is_some_and(|zygote| zygote.trace(slow.pid).is_ok()) {
                self.traced.wait(&info, slow);
            } else {
                self.shared.report_slow(SlowRequest { why: Some(NO_ZYGOTE.to_owned()), ..slow });
            }
        }
    }

    /// Replaces workers whose memory exceeds the limit after a request. A worker that has answered none is not replaced
    /// for that: while it is idle, its successor would be as large.
    pub(super) fn look_at_memory(&mut self) {
        for info in self.workers.clone().into_values() {
            if !self.shared.exceeds_memory_limit(&info) || self.shared.one_shot() {
                continue;
            }
            let is_idle = info.busy_since.load(Ordering::Relaxed) == 0;
            if info.requests.load(Ordering::Relaxed) == 0 {
                // What a first request takes says nothing about the boot.
                if is_idle {
                    self.note_limit_below_boot(&info);
                }
            } else if info.life.order_successor() {
                self.replace(info.slot, "memory_limit");
            }
        }
    }

    /// Logs once that a worker exceeds the memory limit before its first request.
    fn note_limit_below_boot(&mut self, info: &WorkerInfo) {
        if !info.has_booted() || std::mem::replace(&mut self.has_noted_limit, true) {
            return;
        }
        let limit = self.options().memory_limit.map_or(0, |limit| limit.0);
        let resident = info.resident.load(Ordering::Relaxed);
        warn!(
            worker.pid = info.pid(),
            resident,
            limit,
            hint = "set `php.memory_limit` above the resident memory of an idle worker (`hearth status`)",
            "`php.memory_limit` is below what a worker needs before its first request: each worker is replaced after one request"
        );
    }
}

/// Kills a process if it is a child of `parent`; returns whether it is one. A zombie still is.
fn kill_child(pid: u32, parent: u32) -> bool {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(handle) = raw.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    // Checked after the process is held by its descriptor: a reused number has another parent.
    if parent_of(pid) != Some(parent) {
        return false;
    }
    if let Err(error) = pidfd_send_signal(&handle, Signal::KILL) {
        warn!(worker.pid = pid, %error, "worker could not be killed");
    }
    true
}

/// Returns the parent of a process (`/proc/PID/stat`, proc(5)).
fn parent_of(pid: u32) -> Option<u32> {
    process_stat::from_state_on(pid)?.split(' ').nth(1)?.parse().ok()
}
