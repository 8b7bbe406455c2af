//! The answer cache: answers of the application, kept in memory and sent again without PHP (RFC 9111). The rules are in the
//! crate `answer-cache`; here is what remembers.
//!
//! Invariants
//! - Memory has a bound: [`CacheOptions::memory`], and [`CacheOptions::answer`] for one answer.
//! - Only a complete answer is stored: one that was cut, or whose client left, is dropped.
//! - An answer whose request began before a purge, an unsafe request or a new release is not stored if that concerns it.
//! - Requests that wait for the same answer wait only until it is known that it will not be stored.

mod fill;
mod flights;
mod purges;
mod store;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use answer_cache::{CookieFilter, Key, url_of};
use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::flights::Flights;
use self::purges::{Purge, Purges, Ticket};
use self::store::{Slot, Store};

pub(crate) use self::fill::{CACHE_STATUS, Filling, Storing};
pub(crate) use self::flights::{FlightEnd, FlightGuard, Joined, PATIENCE};
pub(crate) use self::store::Entry;

/// The most revalidations that run without a client; further ones wait for the next request.
const BACKGROUND: usize = 64;

/// Settings of the answer cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Memory of all stored answers in bytes.
    pub memory: u64,
    /// The largest stored answer in bytes.
    pub answer: u64,
    /// Names of cookies that name no user; one that ends with `*` stands for all that begin as it does.
    pub ignored_cookies: Vec<String>,
    /// Sends `Cache-Status` (RFC 9211).
    pub status_header: bool,
}

/// What the cache has done since the start, and what it has now: a part of `/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// Requests answered by a fresh stored answer.
    pub hits: u64,
    /// Requests that the application answered because nothing usable was stored.
    pub misses: u64,
    /// Requests in which the cache took no part.
    pub bypassed: u64,
    /// Requests answered by a stale answer: while it was revalidated, or because the application failed.
    pub stale: u64,
    /// Stored answers that the application has confirmed (304).
    pub revalidated: u64,
    /// Requests that waited for the answer to another one, and were answered by it.
    pub collapsed: u64,
    /// Requests that wait for the answer to another one now.
    #[serde(skip)]
    pub waiting: u64,
    /// Answers that were stored.
    pub stored: u64,
    /// Answers that went because memory was needed.
    #[serde(rename = "evictions")]
    pub evicted: u64,
    /// Purges by PHP and over the admin address, and unsafe requests that made stored answers invalid.
    pub purges: u64,
    /// Memory in use, in bytes.
    pub bytes: u64,
    /// The most memory, in bytes.
    #[serde(rename = "bytes_limit")]
    pub limit: u64,
    /// Entries in memory, the compressed forms of answers included.
    pub entries: u64,
}

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of [`CacheReport`].
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: Count,
    pub(crate) misses: Count,
    pub(crate) bypassed: Count,
    pub(crate) stale: Count,
    pub(crate) revalidated: Count,
    pub(crate) collapsed: Count,
    stored: Count,
    purges: Count,
}

/// The answer cache of a front.
pub struct AnswerCache {
    store: Store,
    flights: Flights,
    purges: Purges,
    background: Mutex<JoinSet<()>>,
    pub(crate) cookies: CookieFilter,
    pub(crate) status_header: bool,
    pub(crate) counts: Counts,
    largest: u64,
}

impl std::fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerCache").field("report", &self.report()).finish_non_exhaustive()
    }
}

impl pool::PurgeSink for AnswerCache {
    fn purge(&self, tags: &[&str]) {
        self.purge_tags(tags.iter().copied());
    }
}

/// What is stored for a request.
#[derive(Debug)]
pub(crate) enum Found {
    /// An answer.
    Entry(Arc<Entry>),
    /// Nothing, and requests for it do not wait for each other: its answers were not stored lately.
    Passed,
    /// Nothing.
    Nothing,
}

impl AnswerCache {
    pub(crate) fn new(options: &CacheOptions) -> Self {
        Self {
            store: Store::new(options.memory),
            flights: Flights::default(),
            purges: Purges::default(),
            background: Mutex::default(),
            cookies: CookieFilter::new(options.ignored_cookies.iter().map(String::as_str)),
            status_header: options.status_header,
            counts: Counts::default(),
            // An answer must fit beside others.
            largest: options.answer.min(options.memory / 4),
        }
    }

    /// Removes every answer with one of these tags, and returns how many.
    pub fn purge_tags<'t>(&self, tags: impl IntoIterator<Item = &'t str>) -> u64 {
        let tags: Vec<u64> = tags.into_iter().map(|tag| self.purges.tag(tag)).collect();
        self.purge(&Purge::Tags(tags))
    }

    /// Removes every answer for this URL, and returns how many. The scheme may be left out: `//host/path`.
    pub fn purge_url(&self, url: &str) -> u64 {
        let url = url.split('#').next().unwrap_or_default();
        let (scheme, rest) = url.split_once("//").unwrap_or(("", url));
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(at);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let target = format!("//{}{path}", host.to_ascii_lowercase());
        self.purge(&Purge::Url { scheme: scheme.to_ascii_lowercase(), target })
    }

    /// Removes every answer, and returns how many.
    pub fn purge_all(&self) -> u64 {
        self.purge(&Purge::All)
    }

    /// Removes the answers at this key: an unsafe request has changed its target.
    pub(crate) fn invalidate(&self, key: &Key) {
        self.counts.purges.add();
        self.purges.record(Purge::Key(key.as_bytes().into()));
        self.store.remove(key.as_bytes());
    }

    fn purge(&self, purge: &Purge) -> u64 {
        self.counts.purges.add();
        self.purges.record(purge.clone());
        let removed = Count::default();
        self.store.retain(|key, slot| {
            let goes = match slot {
                Slot::Entry(entry) => purge.concerns(url_of(key), None, &entry.tags),
                Slot::Rule(_) | Slot::Coded { .. } | Slot::Passed { .. } => {
                    matches!(purge, Purge::All)
                }
            };
            if goes && matches!(slot, Slot::Entry(_)) {
                removed.add();
            }
            !goes
        });
        removed.get()
    }

    /// Returns what the cache has done and has.
    pub fn report(&self) -> CacheReport {
        let counts = &self.counts;
        CacheReport {
            hits: counts.hits.get(),
            misses: counts.misses.get(),
            bypassed: counts.bypassed.get(),
            stale: counts.stale.get(),
            revalidated: counts.revalidated.get(),
            collapsed: counts.collapsed.get(),
            waiting: self.flights.waiting(),
            stored: counts.stored.get(),
            evicted: self.store.evicted(),
            purges: counts.purges.get(),
            bytes: self.store.bytes(),
            limit: self.store.limit(),
            entries: self.store.entries(),
        }
    }

    /// Tells the cache that a request of this release is here. The first one of a newer release clears it.
    pub(crate) fn enter(&self, release: u64) {
        if self.purges.enter(release) {
            self.store.retain(|_key, _slot| false);
        }
    }

    /// Returns what is stored for a request.
    pub(crate) fn look(&self, key: &Key, headers: &HeaderMap, now: Instant) -> Found {
        let found = match self.store.get(key.as_bytes()) {
            Some(Slot::Rule(rule)) => {
                let key = rule.select(key.as_bytes(), headers);
                self.store.get(&key)
            }
            found => found,
        };
        match found {
            Some(Slot::Entry(entry)) => Found::Entry(entry),
            Some(Slot::Passed { until }) if now < until => Found::Passed,
            _ => Found::Nothing,
        }
    }

    /// Joins the requests for this key: leads them, or waits for the one that does.
    pub(crate) fn join(self: &Arc<Self>, key: &Key) -> Joined {
        self.flights.join(self, key.as_bytes())
    }

    /// Notes that a request goes to the application now.
    pub(crate) fn ticket(&self, release: u64) -> Ticket {
        self.purges.ticket(release)
    }

    /// Returns the stored coded form of an answer.
    pub(crate) fn coded(&self, entry: &Entry, coding: &'static str) -> Option<Bytes> {
        match self.store.get(&entry.coded_key(coding)) {
            Some(Slot::Coded { of, bytes }) if of == entry.id => Some(bytes),
            _ => None,
        }
    }

    /// Stores the coded form of an answer.
    pub(crate) fn keep_coded(&self, entry: &Entry, coding: &'static str, bytes: Bytes) {
        self.store.insert(entry.coded_key(coding), Slot::Coded { of: entry.id, bytes });
    }

    /// Removes an answer that turned out to be wrong.
    pub(crate) fn remove(&self, entry: &Entry) {
        self.store.remove(&entry.key);
    }

    /// Runs a revalidation without a client, unless there are too many.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock().expect("no holder panics");
        while background.try_join_next().is_some() {}
        if background.len() < BACKGROUND {
            background.spawn(task);
        }
    }

    /// Ends what runs without a client.
    pub(crate) fn close(&self) {
        self.background.lock().expect("no holder panics").abort_all();
    }
}
