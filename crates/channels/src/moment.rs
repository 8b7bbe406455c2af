//! The time, as the core is told it: nothing below the hub looks at a clock.

use std::ops::Add;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds on a clock that only goes forward. Where it began is the business of whoever reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// So many milliseconds after the clock began.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the clock began.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier`; nothing when it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Milliseconds since 1970 (UTC): what signatures and webhooks carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime(u64);

impl UnixTime {
    /// So many milliseconds since 1970.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970.
    pub const fn seconds(self) -> u64 {
        self.0 / 1000
    }
}

/// 1970 for a clock that stands before it.
impl From<SystemTime> for UnixTime {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
