//! Calls without a response: counted by origin and reason, and logged from time to time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::refusal::Refusal;
use crate::Fate;

/// How often the same origin and reason are logged again.
const QUIET: Duration = Duration::from_mins(1);
/// The most pairs of origin and reason that are tracked; the names come from callers. Above it all are forgotten and logged again.
const KNOWN: usize = 1024;

/// Statistics of a listener. All numbers but `callers` only grow.
#[derive(Clone, Debug, Default)]
pub struct ListenerReport {
    /// The number of connected callers.
    pub callers: usize,
    /// The number of requested calls.
    pub calls: u64,
    /// The number of calls without a response, by outcome and reason (as in docs/internals/egress.md).
    pub unanswered: Vec<(Fate, &'static str, u64)>,
}

/// The counters of a listener.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) callers: AtomicUsize,
    pub(crate) calls: AtomicU64,
    unanswered: Mutex<Unanswered>,
}

#[derive(Debug, Default)]
struct Unanswered {
    /// Counts, by whether the call failed, and by reason.
    counts: HashMap<(bool, &'static str), u64>,
    told: HashMap<(String, &'static str), Told>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    since: u64,
}

impl Counters {
    /// Counts a call to `origin` that got no response.
    pub(crate) fn refused(&self, origin: &str, refusal: &Refusal) {
        let Some(since) = self.count(origin, refusal, Instant::now()) else { return };
        let (reason, detail) = (refusal.word, &*refusal.message);
        match refusal.fate {
            Fate::Declined => {
                tracing::warn!(origin, reason, detail, since, "outgoing call declined");
            }
            Fate::Failed => tracing::warn!(origin, reason, detail, since, "outgoing call failed"),
        }
    }

    /// Returns whether to log it now, and how many were not logged since.
    fn count(&self, origin: &str, refusal: &Refusal, now: Instant) -> Option<u64> {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        *unanswered.counts.entry((refusal.fate == Fate::Failed, refusal.word)).or_default() += 1;
        if unanswered.told.len() >= KNOWN {
            unanswered.told.clear();
        }
        let key = (origin.to_owned(), refusal.word);
        if let Some(told) = unanswered.told.get_mut(&key) {
            if now.duration_since(told.at) < QUIET {
                told.since += 1;
                return None;
            }
            told.at = now;
            return Some(std::mem::take(&mut told.since));
        }
        unanswered.told.insert(key, Told { at: now, since: 0 });
        Some(0)
    }

    pub(crate) fn report(&self) -> ListenerReport {
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: Vec<_> = unanswered.counts.iter().collect();
        counts.sort_unstable();
        let fate = |failed| if failed { Fate::Failed } else { Fate::Declined };
        let counts =
            counts.into_iter().map(|((failed, word), count)| (fate(*failed), *word, *count));
        ListenerReport {
            callers: self.callers.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
            unanswered: counts.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_origin_is_logged_once_a_minute() {
        let counters = Counters::default();
        let refusal = Refusal::unsupported("");
        let begun = Instant::now();
        let told: Vec<Option<u64>> = (0..150)
            .map(|second| counters.count("a", &refusal, begun + Duration::from_secs(second)))
            .collect();
        let lines: Vec<u64> = told.into_iter().flatten().collect();
        assert_eq!(lines, [0, 59, 59]);
        assert_eq!(counters.count("b", &refusal, begun), Some(0));
        assert_eq!(counters.report().unanswered, [(Fate::Declined, "unsupported", 151)]);
    }
}
