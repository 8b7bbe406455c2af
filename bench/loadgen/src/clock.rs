//! One monotonic clock for every process on the machine, in nanoseconds; a call costs about 25 ns.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment before the program started.
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Seconds since 1970, for signatures.
pub(crate) fn epoch_seconds() -> u64 {
    nanoseconds(ClockId::Realtime) / 1_000_000_000
}

/// Converts a duration for sums with [`now`]; it saturates at 584 years.
pub(crate) fn span(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).expect("both clocks start at 0 and go up");
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
