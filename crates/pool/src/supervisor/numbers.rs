//! How many workers there are, and how many there should be.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Supervisor;
use crate::backend::Backend as _;
use crate::info::WorkerInfo;
use crate::scaler;
use crate::seats::Demand;

impl Supervisor {
    /// Decides the number of workers, and ends idle ones that are too many.
    pub(super) fn scale(&mut self) {
        if !self.shared.follows_load() {
            return;
        }
        let (before, had) = (self.target, self.scaler.wanted());
        let (now, load) = (self.shared.clock.instant(), self.shared.load());
        let mut again = self.scaler.look(now, load);
        let grown = self.scaler.wanted().saturating_sub(had) as u64;
        self.shared.grown.fetch_add(grown, Ordering::Relaxed);
        self.target = self.scaler.wanted();
        if let Some(share) = &self.share {
            // The first one shows that the script waits.
            let first = usize::from(self.first.is_some());
            let wanted = self.scaler.wanted().max(first);
            let needed = (load.running + load.waiting).max(first).min(wanted);
            self.target = share.report(now, Demand { needed, wanted });
            again |= load.waiting > 0 && self.target < needed;
        }
        self.look_at = again.then(|| Instant::now() + scaler::STALL);
        let wanted = self.target;
        if wanted != before {
            self.shared.want(wanted);
            debug!(before, wanted, "number of workers changed");
        }
        // Booting workers may still be surplus when they are ready; until then no idle one is ended in their place.
        let surplus =
            |this: &Self| this.living_of(WorkerInfo::has_booted).saturating_sub(this.target);
        let idle = surplus(self);
        if idle > 0 {
            self.shared.end_idle(idle);
        }
        if self.share.is_some() {
            self.shared.end_busy(|| surplus(self));
        }
    }

    /// Returns how many processes there are, a worker and its successor counted as one.
    pub(super) fn processes(&self) -> usize {
        let alive = self.workers.values().filter(|info| !info.is_given_up()).count();
        let stand_by = self.successors.values().filter(|old| self.workers.contains_key(old));
        alive.saturating_sub(stand_by.count())
    }

    /// Returns whether there is room for one more process.
    pub(super) fn has_room(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.take(self.processes()))
    }

    pub(super) fn tell_overload(&mut self) {
        let line = self.shared.line();
        if line.overloaded != self.overloaded {
            self.overloaded = line.overloaded;
            if line.overloaded {
                warn!(
                    backlog = line.backlog,
                    "more requests come than are answered: some are refused"
                );
            } else {
                info!("no requests are refused any more");
            }
        }
    }

    pub(super) fn missing(&self) -> usize {
        let wanted = self.target;
        let missing = wanted.saturating_sub(self.living());
        if self.shared.one_shot() {
            return missing.min((wanted * 2).saturating_sub(self.workers.len()));
        }
        // Processes that a signal does not end (blocked on a lost disk) are not replaced without a bound.
        let is_lost = |info: &&Arc<WorkerInfo>| info.is_given_up() || info.life.timed_out();
        let lost = self.workers.values().filter(is_lost).count();
        missing.min((wanted * 2).saturating_sub(wanted - missing + lost))
    }

    /// Returns the number of workers for further requests; of one-shot workers those that wait for their request.
    pub(super) fn living(&self) -> usize {
        self.living_of(|_| true)
    }

    pub(super) fn living_of(&self, counts: impl Fn(&WorkerInfo) -> bool) -> usize {
        let goes_on = |info: &Arc<WorkerInfo>| !info.life.is_dismissed() && !info.is_given_up();
        let going = |info: &&Arc<WorkerInfo>| counts(info) && goes_on(info);
        if self.shared.one_shot() {
            let fresh = |info: &&Arc<WorkerInfo>| !info.life.is_spent();
            return self.workers.values().filter(going).filter(fresh).count();
        }
        // A successor does not count until it is ready, or the worker that it replaces ends.
        let stands_by = |slot: &u32| {
            let replaced = self.successors.get(slot);
            replaced.and_then(|replaced| self.workers.get(replaced)).is_some_and(goes_on)
        };
        let here = self.workers.iter().filter(|(_, info)| going(info));
        here.filter(|(slot, _)| !stands_by(slot)).count()
    }
}
