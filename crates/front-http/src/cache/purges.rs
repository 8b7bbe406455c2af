//! What was purged lately, so that an answer that began before is not stored after.
//!
//! Invariants
//! - The list has a bound: an answer that began before its oldest entry is not stored at all.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most purges that are remembered.
const REMEMBERED: usize = 256;

/// What one purge removes.
#[derive(Clone, Debug)]
pub(super) enum Purge {
    All,
    /// Answers with one of these tags, by their hashes.
    Tags(Vec<u64>),
    /// Answers for a URL. Without a scheme: for both.
    Url {
        scheme: String,
        target: String,
    },
    /// Answers at a key.
    Key(Box<[u8]>),
}

impl Purge {
    /// Returns whether the purge concerns an answer; `key` is its key, if it may be purged by it.
    pub(super) fn concerns(&self, url: &[u8], key: Option<&[u8]>, tags: &[u64]) -> bool {
        match self {
            Self::All => true,
            Self::Tags(purged) => tags.iter().any(|tag| purged.contains(tag)),
            Self::Url { scheme, target } => {
                url.strip_suffix(target.as_bytes()).is_some_and(|rest| {
                    scheme.is_empty() && is_scheme(rest) || rest == scheme.as_bytes()
                })
            }
            Self::Key(purged) => key == Some(purged),
        }
    }
}

fn is_scheme(text: &[u8]) -> bool {
    text == b"http:" || text == b"https:"
}

/// The moment at which a request went to the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    release: u64,
    number: u64,
}

/// The latest purges.
#[derive(Debug, Default)]
pub(super) struct Purges {
    /// The newest release, which most requests find here without the lock.
    release: AtomicU64,
    recent: Mutex<Recent>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Recent {
    release: u64,
    /// The number of the next purge.
    next: u64,
    purges: VecDeque<Purge>,
}

impl Purges {
    /// Returns the hash of a tag. Two tags with one hash are purged together.
    pub(super) fn tag(&self, tag: &str) -> u64 {
        self.hasher.hash_one(tag)
    }

    pub(super) fn record(&self, purge: Purge) {
        let mut recent = self.lock();
        recent.next += 1;
        if recent.purges.len() == REMEMBERED {
            recent.purges.pop_front();
        }
        recent.purges.push_back(purge);
    }

    /// Returns true for the first request of a newer release.
    pub(super) fn enter(&self, release: u64) -> bool {
        if release <= self.release.load(Ordering::Relaxed) {
            return false;
        }
        let mut recent = self.lock();
        let newer = release > recent.release;
        if newer {
            recent.release = release;
            self.release.store(release, Ordering::Relaxed);
        }
        newer
    }

    pub(super) fn ticket(&self, release: u64) -> Ticket {
        Ticket { release, number: self.lock().next }
    }

    /// Calls `insert` if no purge since the ticket concerns the answer. A purge that comes meanwhile waits, so that it
    /// finds the answer.
    pub(super) fn insert(
        &self,
        ticket: Ticket,
        (key, url, tags): (&[u8], &[u8], &[u64]),
        insert: impl FnOnce(),
    ) -> bool {
        let recent = self.lock();
        let missed = recent.next - ticket.number;
        let known = recent.purges.len() as u64;
        let since = usize::try_from(missed.min(known)).unwrap_or(usize::MAX);
        let valid = ticket.release == recent.release
            && missed <= known
            && !recent
                .purges
                .iter()
                .rev()
                .take(since)
                .any(|purge| purge.concerns(url, Some(key), tags));
        if valid {
            insert();
        }
        valid
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(purges: &Purges, ticket: Ticket, tags: &[u64]) -> bool {
        let mut stored = false;
        let answered = purges.insert(ticket, (b"key", b"https://a.test/x", tags), || stored = true);
        assert_eq!(answered, stored);
        stored
    }

    #[test]
    fn an_answer_that_began_before_a_purge_of_it_is_not_stored() {
        let purges = Purges::default();
        let before = purges.ticket(0);
        purges.record(Purge::Tags(vec![1]));
        assert!(stores(&purges, before, &[2]));
        assert!(!stores(&purges, before, &[2, 1]));
        assert!(stores(&purges, purges.ticket(0), &[1]));
        purges.record(Purge::Key(b"key".as_slice().into()));
        assert!(!stores(&purges, before, &[]));
        let before = purges.ticket(0);
        purges.record(Purge::Url { scheme: String::new(), target: "//a.test/x".to_owned() });
        assert!(!stores(&purges, before, &[]));
    }

    #[test]
    fn an_answer_of_an_older_release_is_not_stored() {
        let purges = Purges::default();
        let before = purges.ticket(0);
        assert!(purges.enter(1));
        assert!(!purges.enter(1));
        assert!(!purges.enter(0));
        assert!(!stores(&purges, before, &[]));
        assert!(stores(&purges, purges.ticket(1), &[]));
    }

    #[test]
    fn an_answer_older_than_the_list_is_not_stored() {
        let purges = Purges::default();
        let before = purges.ticket(0);
        for _ in 0..REMEMBERED {
            purges.record(Purge::Tags(vec![9]));
        }
        assert!(stores(&purges, before, &[]));
        purges.record(Purge::Tags(vec![9]));
        assert!(!stores(&purges, before, &[]));
    }

    #[test]
    fn a_url_is_purged_with_its_scheme_or_with_both() {
        let concerns = |scheme: &str, url: &[u8]| {
            let target = "//a.test/x".to_owned();
            Purge::Url { scheme: scheme.to_owned(), target }.concerns(url, None, &[])
        };
        assert!(concerns("", b"http://a.test/x") && concerns("", b"https://a.test/x"));
        assert!(concerns("https:", b"https://a.test/x") && !concerns("https:", b"http://a.test/x"));
        assert!(!concerns("", b"https://b.test//a.test/x"));
    }
}
