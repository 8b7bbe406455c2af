//! The scheduling policy of a thread that serves requests.
//!
//! While many requests are written ahead, a worker goes on with its next one when it has answered one. If no processor is
//! idle, the server would displace the worker to read that one answer. In `SCHED_BATCH` a thread that wakes up displaces
//! no other (sched(7)): the server runs when the workers' sockets are empty or their time slices are over, and finds
//! several answers.
//!
//! Invariants
//! - Without many requests ahead the thread is scheduled as any: then it matters how soon it runs.
//! - So it is while a request takes unusually long: its worker would use its whole time slice each time.
//! - A policy that an operator has chosen (`SCHED_FIFO`, `SCHED_IDLE`, …) stays. So does that of several threads that
//!   serve requests.

use std::cell::Cell;

use crate::sys;

/// A turn with many requests ahead counts twice. A client with few connections sends its next requests when it has the
/// answers, so that there are none ahead in every other turn.
const AHEAD: u8 = 2;
/// The count at which the policy changes; at zero it changes back.
const ENOUGH: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Ordinary,
    Batch,
    /// The operator's, or one that the system does not let this thread change.
    Fixed,
}

thread_local! {
    static POLICY: Cell<Policy> = Cell::new(inherited());
    static COUNT: Cell<u8> = const { Cell::new(0) };
}

/// Returns the policy that this thread began with. That of a server that was upgraded under load may be `SCHED_BATCH`.
fn inherited() -> Policy {
    match sys::scheduling_policy() {
        Some(libc::SCHED_OTHER) => Policy::Ordinary,
        Some(libc::SCHED_BATCH) => Policy::Batch,
        _ => Policy::Fixed,
    }
}

/// Records at the end of a turn of this thread whether many requests are ahead.
pub(crate) fn turn(many: bool) {
    let count = COUNT.get();
    let count = if many { (count + AHEAD).min(ENOUGH) } else { count.saturating_sub(1) };
    COUNT.set(count);
    match (count, POLICY.get()) {
        (ENOUGH, Policy::Ordinary) => take(Policy::Batch, libc::SCHED_BATCH),
        (0, Policy::Batch) => take(Policy::Ordinary, libc::SCHED_OTHER),
        _ => {}
    }
}

/// Has this thread scheduled as any from now on.
pub(crate) fn be_ordinary() {
    COUNT.set(0);
    if POLICY.get() == Policy::Batch {
        take(Policy::Ordinary, libc::SCHED_OTHER);
    }
}

fn take(policy: Policy, number: libc::c_int) {
    let changed = sys::set_scheduling_policy(number);
    POLICY.set(if changed { policy } else { Policy::Fixed });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_batch() -> bool {
        sys::scheduling_policy() == Some(libc::SCHED_BATCH)
    }

    fn turns(number: u32, ahead: impl Fn(u32) -> bool) {
        (0..number).for_each(|number| turn(ahead(number)));
    }

    #[test]
    fn the_policy_follows_what_is_ahead_in_most_turns() {
        if sys::scheduling_policy() != Some(libc::SCHED_OTHER) {
            return;
        }
        turns(7, |_| true);
        assert!(!is_batch(), "a burst");
        turns(40, |number| number % 2 == 0);
        assert!(is_batch(), "in every other turn");
        turns(10, |_| false);
        assert!(is_batch(), "a pause");
        turns(10, |_| false);
        assert!(!is_batch(), "no load");
        turns(40, |number| number % 4 == 0);
        assert!(!is_batch(), "little load");
        turns(8, |_| true);
        assert!(is_batch());
        be_ordinary();
        assert!(!is_batch());
    }

    #[test]
    fn a_policy_that_was_inherited_ends_with_the_first_turn_without_load() {
        if sys::scheduling_policy() != Some(libc::SCHED_OTHER) {
            return;
        }
        assert!(sys::set_scheduling_policy(libc::SCHED_BATCH));
        turn(true);
        assert!(is_batch());
        turns(2, |_| false);
        assert!(!is_batch());
    }

    #[test]
    fn a_policy_that_an_operator_chose_stays() {
        let idle = libc::SCHED_IDLE;
        assert!(sys::set_scheduling_policy(idle));
        turns(40, |_| true);
        turns(40, |_| false);
        be_ordinary();
        assert_eq!(sys::scheduling_policy(), Some(idle));
    }
}
