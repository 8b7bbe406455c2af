//! The clock of event loops and of all other callers of the registry.

use rustix::time::{ClockId, clock_gettime};

use crate::moment::Moment;

/// Returns the current time of `CLOCK_MONOTONIC`.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    Moment::from_millis(seconds * 1000 + millis)
}
