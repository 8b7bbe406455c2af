//! Recent purges, so that an answer that began before one is not stored after it.
//!
//! Invariants
//! - The list has a bound: an answer that began before a purge that is no longer in it is not stored at all.
//! - Unsafe requests are not in the list, so that any number of them keeps no answer of another target out. The table that
//!   they are in has a fixed size. Targets that share a place in it are taken for one.
//! - What moves between memory and disk is checked against each purge that had not removed everything when it left.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use answer_cache::{application_of, target_of, url_of};

/// The most purges that are remembered.
const REMEMBERED: usize = 256;
/// The places of the table of targets that unsafe requests made invalid: 32 KiB.
const TARGETS: usize = 4096;

/// The answers that one purge removes.
#[derive(Clone, Debug)]
pub(super) enum Purge {
    All,
    /// Answers with one of these tags, by their hashes: of one application, or of all.
    Tags {
        application: Option<u16>,
        tags: Vec<u64>,
    },
    /// Answers for a URL. Without a scheme: for both.
    Url {
        scheme: String,
        target: String,
    },
}

impl Purge {
    /// Returns whether the purge concerns an answer at this key.
    pub(super) fn concerns(&self, key: &[u8], tags: &[u64]) -> bool {
        match self {
            Self::All => true,
            Self::Tags { application, tags: purged } => {
                application.is_none_or(|number| application_of(key) == Some(number))
                    && tags.iter().any(|tag| purged.contains(tag))
            }
            Self::Url { scheme, target } => {
                url_of(key).strip_suffix(target.as_bytes()).is_some_and(|rest| {
                    scheme.is_empty() && is_scheme(rest) || rest == scheme.as_bytes()
                })
            }
        }
    }
}

fn is_scheme(text: &[u8]) -> bool {
    text == b"http:" || text == b"https:"
}

/// The moment at which a request went to the application, or an answer left memory or disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(super) release: u64,
    /// The purges from this number on are later.
    pub(super) number: u64,
}

/// The latest purges.
#[derive(Debug, Default)]
pub(super) struct Purges {
    /// The newest release, which most requests find here without the lock.
    release: AtomicU64,
    /// The purges before this number have removed everything.
    settled: AtomicU64,
    recent: Mutex<Recent>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Recent {
    release: u64,
    /// The number of the next purge, or of the next unsafe request.
    next: u64,
    /// With their numbers, in order.
    purges: VecDeque<(u64, Purge)>,
    /// An answer whose ticket has a lower number began before a purge that is no longer in the list.
    forgotten: u64,
    /// For each place the lowest number of tickets that began after the latest unsafe request to a target there.
    targets: Box<[u64]>,
    /// The numbers of those that still remove.
    under_way: Vec<u64>,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            release: 0,
            next: 0,
            purges: VecDeque::new(),
            forgotten: 0,
            targets: vec![0; TARGETS].into(),
            under_way: Vec::new(),
        }
    }
}

impl Recent {
    /// Returns the number of what removes from now on.
    fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.under_way.push(number);
        number
    }
}

impl Purges {
    /// Returns the hash of a tag. Two tags with one hash are purged together.
    pub(super) fn tag(&self, tag: &str) -> u64 {
        self.hasher.hash_one(tag)
    }

    /// Notes a purge, and calls `remove`, which removes the answers that are stored.
    pub(super) fn purge<T>(&self, purge: Purge, remove: impl FnOnce() -> T) -> T {
        let note = |recent: &mut Recent, number| {
            if recent.purges.len() == REMEMBERED
                && let Some((oldest, _purge)) = recent.purges.pop_front()
            {
                recent.forgotten = oldest + 1;
            }
            recent.purges.push_back((number, purge));
        };
        self.removing(note, remove)
    }

    /// Notes an unsafe request to the target of this key, and calls `remove`, which removes the target's answers.
    pub(super) fn invalidate<T>(&self, key: &[u8], remove: impl FnOnce() -> T) -> T {
        let place = self.place(key);
        self.removing(|recent, number| recent.targets[place] = number + 1, remove)
    }

    fn removing<T>(&self, note: impl FnOnce(&mut Recent, u64), remove: impl FnOnce() -> T) -> T {
        let number = {
            let mut recent = self.lock();
            let number = recent.begin();
            note(&mut recent, number);
            number
        };
        let removed = remove();
        let mut recent = self.lock();
        recent.under_way.retain(|other| *other != number);
        let settled = recent.under_way.iter().min().copied().unwrap_or(recent.next);
        self.settled.store(settled, Ordering::Release);
        removed
    }

    /// Returns the place in the table of the target of this key. Clients cannot choose it.
    fn place(&self, key: &[u8]) -> usize {
        usize::try_from(self.hasher.hash_one(target_of(key)) % TARGETS as u64).unwrap_or_default()
    }

    /// Returns the number of purges that have removed everything.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
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

    /// Returns whether no request of a newer release than the ticket's has come.
    pub(super) fn is_newest(&self, ticket: Ticket) -> bool {
        ticket.release >= self.release.load(Ordering::Relaxed)
    }

    pub(super) fn ticket(&self, release: u64) -> Ticket {
        Ticket { release, number: self.lock().next }
    }

    /// Calls `insert` if no purge since the ticket concerns the answer. A purge that comes meanwhile waits, so that it
    /// finds the answer.
    pub(super) fn insert(
        &self,
        ticket: Ticket,
        (key, tags): (&[u8], &[u64]),
        insert: impl FnOnce(),
    ) -> bool {
        let place = self.place(key);
        let recent = self.lock();
        let mut later =
            recent.purges.iter().rev().take_while(|(number, _purge)| *number >= ticket.number);
        let valid = ticket.release == recent.release
            && ticket.number >= recent.forgotten
            && ticket.number >= recent.targets[place]
            && !later.any(|(_number, purge)| purge.concerns(key, tags));
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
    use crate::cache::store::VARIANT;

    /// Application 1, port 443.
    const KEY: &[u8] = b"\0\x01\x01\xbbhttps://a.test/x\0";

    fn record(purges: &Purges, purge: Purge) {
        purges.purge(purge, || ());
    }

    fn tags(application: Option<u16>, tags: &[u64]) -> Purge {
        Purge::Tags { application, tags: tags.to_vec() }
    }

    fn stores(purges: &Purges, ticket: Ticket, tags: &[u64]) -> bool {
        let mut stored = false;
        let answered = purges.insert(ticket, (KEY, tags), || stored = true);
        assert_eq!(answered, stored);
        stored
    }

    #[test]
    fn an_answer_that_began_before_a_purge_of_it_is_not_stored() {
        let purges = Purges::default();
        let before = purges.ticket(0);
        record(&purges, tags(None, &[1]));
        assert!(stores(&purges, before, &[2]));
        assert!(!stores(&purges, before, &[2, 1]));
        assert!(stores(&purges, purges.ticket(0), &[1]));
        purges.invalidate(KEY, || ());
        assert!(!stores(&purges, before, &[]));
        let before = purges.ticket(0);
        assert!(stores(&purges, before, &[]));
        record(&purges, Purge::Url { scheme: String::new(), target: "//a.test/x".to_owned() });
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
            record(&purges, tags(None, &[9]));
        }
        assert!(stores(&purges, before, &[]));
        record(&purges, tags(None, &[9]));
        assert!(!stores(&purges, before, &[]));
    }

    #[test]
    fn a_url_is_purged_with_its_scheme_or_with_both() {
        let concerns = |scheme: &str, url: &[u8]| {
            let target = "//a.test/x".to_owned();
            let key = [b"\0\0\0\x50", url, b"\0"].concat();
            Purge::Url { scheme: scheme.to_owned(), target }.concerns(&key, &[])
        };
        assert!(concerns("", b"http://a.test/x") && concerns("", b"https://a.test/x"));
        assert!(concerns("https:", b"https://a.test/x") && !concerns("https:", b"http://a.test/x"));
        assert!(!concerns("", b"https://b.test//a.test/x"));
    }

    #[test]
    fn tags_of_one_application_are_not_those_of_another() {
        assert!(tags(Some(1), &[7]).concerns(KEY, &[7]));
        assert!(!tags(Some(0), &[7]).concerns(KEY, &[7]));
        assert!(tags(None, &[7]).concerns(KEY, &[7]));
    }

    #[test]
    fn an_unsafe_request_concerns_variants_and_copies_of_its_target() {
        let purges = Purges::default();
        let before = purges.ticket(0);
        purges.invalidate(KEY, || ());
        for rest in [&[VARIANT, 9][..], b"x-host\x01b\0"] {
            let key = [KEY, rest].concat();
            assert!(!purges.insert(before, (&key, &[]), || ()), "{rest:?}");
            purges.invalidate(&key, || ());
            assert!(!stores(&purges, before, &[]), "{rest:?}");
        }
    }

    #[test]
    fn unsafe_requests_to_other_targets_keep_no_answer_out() {
        let purges = Purges::default();
        let other = |number: u32| format!("\0\0\0\x50http://a.test/track?{number}\0").into_bytes();
        let other =
            (0..64).map(other).find(|other| purges.place(other) != purges.place(KEY)).unwrap();
        let before = purges.ticket(0);
        record(&purges, tags(None, &[1]));
        for _ in 0..=4 * REMEMBERED {
            purges.invalidate(&other, || ());
        }
        assert!(stores(&purges, before, &[2]));
        // The purge is not forgotten for them.
        assert!(!stores(&purges, before, &[1]));
        assert_eq!(purges.settled(), purges.ticket(0).number);
    }

    #[test]
    fn what_leaves_while_a_purge_removes_is_checked_against_it() {
        let purges = Purges::default();
        let left = purges.purge(tags(None, &[1]), || {
            // Another purge begins later and ends earlier.
            record(&purges, tags(None, &[2]));
            Ticket { release: 0, number: purges.settled() }
        });
        assert!(!stores(&purges, left, &[1]) && !stores(&purges, left, &[2]));
        assert_eq!(purges.settled(), 2);
        assert!(stores(&purges, Ticket { release: 0, number: purges.settled() }, &[1]));
    }
}
