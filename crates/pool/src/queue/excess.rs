//! Workers that end although requests wait for them, because another group of scripts needs them more.
//!
//! Invariants
//! - Such a worker ends after an answer, never within one. What was written ahead to it goes to other workers.

use std::sync::Arc;

use super::Queue;
use crate::info::WorkerInfo;
use crate::lease::Release;
use crate::lifecycle::Dismissal;
use crate::shared::Shared;

impl Queue {
    /// Returns whether a worker that is released ends now, and counts it then.
    pub(super) fn is_too_many(&mut self, info: &WorkerInfo, release: Release) -> bool {
        // It was too many before, and had another request that it had begun.
        if info.life.dismissal() == Dismissal::Surplus {
            return true;
        }
        let ends = self.excess > 0 && release != Release::Booted;
        if ends {
            self.excess -= 1;
            info.life.dismiss(Dismissal::Surplus);
        }
        ends
    }
}

impl Shared {
    /// Lets that many workers end after their answers. `count` is called while none is released.
    pub(crate) fn end_busy(self: &Arc<Self>, count: impl FnOnce() -> usize) {
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.excess = if self.one_shot() { 0 } else { count() };
    }
}
