//! Workers whose request is over its time limit.
//!
//! Invariants
//! - Such a worker gets no other request. What was written ahead to it and is not begun goes to other workers.
//! - A worker that is released in time is not ended, however late it is looked at.

use std::sync::Arc;

use super::Queue;
use crate::info::WorkerInfo;
use crate::shared::Shared;

impl Shared {
    /// Records that a worker's request is over its time limit, if it is: then the worker must be killed. Returns
    /// `false` if its request has ended by now, or if that was recorded already.
    pub(crate) fn end_overdue(
        self: &Arc<Self>,
        info: &WorkerInfo,
        is_over: impl FnOnce() -> bool,
    ) -> bool {
        // Meanwhile no worker is released or passed on to its next request.
        let mut queue = self.queue.lock().expect("no holder panics");
        if !is_over() || !self.time_out(info) {
            return false;
        }
        let Queue { waiting, lines, .. } = &mut *queue;
        if lines.withdraw_all(info.slot, waiting) {
            self.hand_out(queue);
        }
        true
    }
}
