//! Returns memory to the system: code that only the start has run, and what clients used, because the allocator keeps freed
//! memory between blocks that are still in use.
//!
//! Invariants
//! - Nothing on the way of a request waits for it: it runs on a thread of its own, and seldom.

use std::sync::Arc;
use std::time::Duration;

use front_http::Connections;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::system::sys;

/// The interval of checks for memory to give back.
const LOOK: Duration = Duration::from_secs(5);
/// The fewest connections that leave memory worth a check.
const CROWD: usize = 256;
/// The growth of memory in bytes that leads to a check once in [`SELDOM`], whatever connections there are.
const GROWTH: u64 = 64 << 20;
const SELDOM: Duration = Duration::from_mins(1);

/// Decides when to give memory back.
#[derive(Debug)]
struct Crowd {
    /// Most connections since memory was last given back.
    peak: usize,
    /// The least resident memory that was seen.
    floor: u64,
    last: Instant,
}

impl Crowd {
    fn new(now: Instant) -> Self {
        Self { peak: 0, floor: u64::MAX, last: now }
    }

    /// Returns whether it is time to give memory back. `peak` is the most connections since the last check.
    fn has_left(&mut self, now: Instant, peak: usize, open: usize, resident: u64) -> bool {
        self.peak = self.peak.max(peak);
        self.floor = self.floor.min(resident);
        let left = self.peak >= CROWD && open < self.peak / 2;
        let grown = resident > self.floor.saturating_add(GROWTH) && now - self.last >= SELDOM;
        if left {
            self.peak = open;
        }
        if left || grown {
            self.last = now;
        }
        left || grown
    }
}

/// Gives memory of the start back to the system, and that of closed connections until `end`.
pub(crate) async fn give_back(connections: Arc<Connections>, end: CancellationToken) {
    let _code = sys::give_back_code();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut crowd = Crowd::new(Instant::now());
    while end.run_until_cancelled(look.tick()).await.is_some() {
        let (peak, open, resident) = (connections.take_peak(), connections.len(), resident());
        if !crowd.has_left(Instant::now(), peak, open, resident) {
            continue;
        }
        if tokio::task::spawn_blocking(sys::trim).await.is_ok() {
            tracing::debug!(before = resident, after = self::resident(), "free memory given back");
        }
    }
}

/// Returns the resident memory of this process in bytes (`/proc/self/statm`, proc(5)); 0 if it cannot be read.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_trimmed_after_half_of_a_crowd_has_left() {
        const LITTLE: u64 = 30 << 20;
        let mut crowd = Crowd::new(Instant::now());
        let mut look = |after: Duration, peak, open, resident| {
            crowd.has_left(Instant::now() + after, peak, open, resident)
        };
        let seconds = Duration::from_secs;
        assert!(!look(seconds(5), 100, 0, LITTLE), "too few to matter");
        assert!(!look(seconds(10), 1000, 600, LITTLE), "most are there");
        assert!(look(seconds(15), 600, 499, LITTLE));
        assert!(!look(seconds(20), 499, 499, LITTLE), "once for a crowd");
        assert!(!look(seconds(25), 500, 450, LITTLE + GROWTH + 1), "too soon");
        assert!(look(seconds(80), 450, 450, LITTLE + GROWTH + 1));
        assert!(!look(seconds(85), 450, 450, LITTLE + GROWTH + 1));
    }
}
