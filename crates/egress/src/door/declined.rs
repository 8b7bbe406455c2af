//! Calls that got no answer: counted by origin and reason, and told in the log now and then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::refusal::Refusal;
use crate::Fate;

/// How often the same origin and reason are told again.
const QUIET: Duration = Duration::from_mins(1);
/// Origins and reasons that are told apart; the names come from callers. When there are more, all are forgotten and told anew.
const KNOWN: usize = 1024;

/// What came through a door, and what did not. The numbers only grow, but `callers`.
#[derive(Clone, Debug, Default)]
pub struct DoorReport {
    /// Callers that are connected now.
    pub callers: usize,
    /// Calls that were asked for.
    pub calls: u64,
    /// Calls without an answer, by what came of them and why (the words of docs/internals/egress.md).
    pub unanswered: Vec<(Fate, &'static str, u64)>,
}

/// The counters of a door.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) callers: AtomicUsize,
    pub(crate) calls: AtomicU64,
    unanswered: Mutex<Unanswered>,
}

#[derive(Debug, Default)]
struct Unanswered {
    /// By whether the call failed, and why it has no answer.
    counts: HashMap<(bool, &'static str), u64>,
    told: HashMap<(String, &'static str), Told>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    since: u64,
}

impl Counters {
    /// A call to `origin` got no answer.
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

    /// Whether to tell it, with how many were not told since.
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

    pub(crate) fn report(&self) -> DoorReport {
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: Vec<_> = unanswered.counts.iter().collect();
        counts.sort_unstable();
        let fate = |failed| if failed { Fate::Failed } else { Fate::Declined };
        let counts =
            counts.into_iter().map(|((failed, word), count)| (fate(*failed), *word, *count));
        DoorReport {
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
    fn an_origin_that_is_down_is_told_once_a_minute() {
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
