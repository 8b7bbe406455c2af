//! A worker's activity, the reason why it is to end, and whether a successor is ordered: one value each, in one place.
//!
//! Invariants
//! - A reason to end is only ever replaced by a stronger one.
//! - At most one successor is ordered for a worker at a time.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::status::WorkerState;

/// Why the server wants a worker to end, the stronger reason last. A worker that ends without one has crashed or
/// retired.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Dismissal {
    /// The worker goes on.
    None,
    /// The worker is replaced, or the pool ends.
    Recycled,
    /// There are more idle workers than needed.
    Surplus,
    /// The worker's request has exceeded its time limit.
    TimedOut,
}

/// Whether a worker has a successor.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
enum Succession {
    None,
    /// The successor is ordered or boots.
    Ordered,
    /// The successor has taken the worker's place. The worker ends when it is released.
    Done,
}

/// May be read and changed from any task at any time.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    dismissal: AtomicU8,
    succession: AtomicU8,
    /// A one-shot worker has been given its request.
    spent: AtomicBool,
}

impl Lifecycle {
    /// A worker that boots.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(WorkerState::Booting as u8),
            dismissal: AtomicU8::new(Dismissal::None as u8),
            succession: AtomicU8::new(Succession::None as u8),
            spent: AtomicBool::new(false),
        }
    }

    pub(crate) fn state(&self) -> WorkerState {
        WorkerState::from_number(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn set_state(&self, state: WorkerState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Records why the worker is to end. Returns `false` if this reason or a stronger one was recorded already.
    pub(crate) fn dismiss(&self, why: Dismissal) -> bool {
        self.dismissal.fetch_max(why as u8, Ordering::Relaxed) < why as u8
    }

    pub(crate) fn dismissal(&self) -> Dismissal {
        match self.dismissal.load(Ordering::Relaxed) {
            0 => Dismissal::None,
            1 => Dismissal::Recycled,
            2 => Dismissal::Surplus,
            _ => Dismissal::TimedOut,
        }
    }

    /// Returns whether the server wants the worker to end.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissal() != Dismissal::None
    }

    /// Returns whether the worker was killed because its request took too long.
    pub(crate) fn timed_out(&self) -> bool {
        self.dismissal() == Dismissal::TimedOut
    }

    /// Marks that a successor is ordered. Returns false if one is ordered or ready already.
    pub(crate) fn order_successor(&self) -> bool {
        self.succession
            .compare_exchange(
                Succession::None as u8,
                Succession::Ordered as u8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// The ordered successor will not come: another one may be ordered.
    pub(crate) fn lose_successor(&self) {
        let _ordered = self
            .succession
            .compare_exchange(
                Succession::Ordered as u8,
                Succession::None as u8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok();
    }

    /// Another worker has taken this one's place: it ends when it is released.
    pub(crate) fn succeed(&self) {
        self.succession.store(Succession::Done as u8, Ordering::Relaxed);
        self.dismiss(Dismissal::Recycled);
    }

    /// Returns whether a successor is ordered or ready.
    pub(crate) fn has_successor(&self) -> bool {
        self.succession.load(Ordering::Relaxed) != Succession::None as u8
    }

    /// Returns whether the worker ends when it is released.
    pub(crate) fn is_succeeded(&self) -> bool {
        self.succession.load(Ordering::Relaxed) == Succession::Done as u8
    }

    /// Keeps whether a one-shot worker has been given its request.
    pub(crate) fn set_spent(&self, spent: bool) {
        self.spent.store(spent, Ordering::Relaxed);
    }

    /// Returns whether a one-shot worker has been given its request.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stronger_reason_replaces_a_reason_to_end() {
        let lifecycle = Lifecycle::new();
        assert!(!lifecycle.is_dismissed());
        assert!(lifecycle.dismiss(Dismissal::Surplus));
        assert!(!lifecycle.dismiss(Dismissal::Recycled));
        assert_eq!(lifecycle.dismissal(), Dismissal::Surplus);
        assert!(lifecycle.dismiss(Dismissal::TimedOut) && !lifecycle.dismiss(Dismissal::TimedOut));
        assert!(lifecycle.timed_out());
    }

    #[test]
    fn one_successor_is_ordered_at_a_time() {
        let lifecycle = Lifecycle::new();
        assert!(lifecycle.order_successor() && !lifecycle.order_successor());
        lifecycle.lose_successor();
        assert!(!lifecycle.has_successor() && lifecycle.order_successor());
        lifecycle.succeed();
        lifecycle.lose_successor();
        assert!(lifecycle.is_succeeded() && lifecycle.is_dismissed());
        assert!(!lifecycle.order_successor());
    }
}
