//! Folds lines of the log that would repeat for each of many requests or connections. It reads no clock.

use std::ops::Add;
use std::time::Duration;

/// Interval in which one line stands for all of its kind.
const INTERVAL: Duration = Duration::from_mins(1);

/// One kind of line, at times of the type `T`.
#[derive(Debug)]
pub(crate) struct Folded<T> {
    logged: Option<T>,
    /// Since then, without a line of their own.
    others: u64,
}

impl<T> Default for Folded<T> {
    fn default() -> Self {
        Self { logged: None, others: 0 }
    }
}

impl<T: Copy + PartialOrd + Add<Duration, Output = T>> Folded<T> {
    /// Counts a line. Returns how many were folded before it, if it is to be logged.
    pub(crate) fn count(&mut self, now: T) -> Option<u64> {
        if self.logged.is_some_and(|logged| now < logged + INTERVAL) {
            self.others += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.others))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn one_line_in_a_minute_stands_for_all() {
        let (start, mut folded) = (Instant::now(), Folded::default());
        assert_eq!(folded.count(start), Some(0));
        assert!((0..59).all(|second| folded.count(start + Duration::from_secs(second)).is_none()));
        assert_eq!(folded.count(start + INTERVAL), Some(59));
        assert_eq!(folded.count(start + INTERVAL * 3), Some(0));
    }
}
