//! How long to wait before a command that has ended is started again.
//!
//! Invariants
//! - Pure: the duration of the run is an argument.
//! - A command that ends at once is started less and less often; one that ran for a while is started again at once.

use std::time::Duration;

/// A run of this duration counts as stable.
const STABLE: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);
/// As many short runs in a row are a problem.
const PROBLEM: u32 = 3;

/// The short runs in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    short: u32,
}

impl Backoff {
    /// Returns the delay after a run of this duration; zero for a start that failed.
    pub(super) fn after(&mut self, run: Duration) -> Duration {
        if run >= STABLE {
            self.short = 0;
            return Duration::ZERO;
        }
        let delay = pool::pause_after(self.short, FIRST, LONGEST);
        self.short = self.short.saturating_add(1);
        delay
    }

    /// Returns whether the last runs were all short.
    pub(super) fn fails(&self) -> bool {
        self.short >= PROBLEM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_and_a_stable_run_resets_them() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> =
            (0..9).map(|_| backoff.after(Duration::from_millis(5)).as_millis()).collect();
        assert_eq!(delays, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert!(backoff.fails());
        assert_eq!(backoff.after(STABLE), Duration::ZERO);
        assert!(!backoff.fails());
        assert_eq!(backoff.after(Duration::from_secs(9)), FIRST);
    }
}
