//! The answer cache: answers of the application, kept in memory and on disk, and sent again without PHP (RFC 9111). The rules
//! are in the crate `answer-cache`; here is what remembers.
//!
//! Invariants
//! - Memory has a bound: [`CacheOptions::memory`], and [`CacheOptions::answer`] for one answer. So has the disk.
//! - Only a complete answer is stored: one that was cut, or whose client left, is dropped.
//! - An answer whose request began before a purge, an unsafe request or a new release is not stored if that concerns it.
//! - An unsafe request makes every answer of its target invalid, whatever fields those were selected by.
//! - Requests that wait for the same answer wait only until it is known that it will not be stored.

mod disk;
mod fill;
mod flights;
mod invalidation;
mod purges;
mod store;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use answer_cache::{CookieFilter, Key, Rule};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::disk::Disk;
use self::flights::Flights;
use self::purges::{Purge, Purges, Ticket};
use self::store::{COPIES, PASSED, Slot, Store, Variants};

pub use self::disk::DiskReport;
pub(crate) use self::fill::{CACHE_STATUS, Filling, Storing};
pub(crate) use self::flights::{FlightEnd, FlightGuard, Joined, PATIENCE};
pub(crate) use self::invalidation::Invalidation;
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
    /// Where answers go that memory has no room for.
    pub disk: Option<DiskOptions>,
    /// Names of cookies that name no user; one that ends with `*` stands for all that begin as it does.
    pub ignored_cookies: Vec<String>,
    /// Sends `Cache-Status` (RFC 9211).
    pub status_header: bool,
}

/// Settings of the answers on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder of the file, which has no name.
    pub folder: PathBuf,
    /// The space of all answers in bytes.
    pub limit: u64,
}

/// The folder of [`DiskOptions`] cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the answer cache cannot keep a file in {}", folder.display())]
pub struct DiskError {
    /// The folder.
    pub folder: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Counters of the cache since the start, and its content now: a part of `/status`.
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
    /// Revalidations that run without a client now.
    #[serde(skip)]
    pub revalidating: u64,
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
    /// The answers on disk, if `http.cache_disk` is set.
    pub disk: Option<DiskReport>,
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
    disk: Option<Arc<Disk>>,
    flights: Flights,
    purges: Arc<Purges>,
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

/// The answers of one application, which its PHP may purge.
#[derive(Debug)]
struct OfApplication {
    cache: Arc<AnswerCache>,
    application: u16,
}

impl pool::PurgeSink for OfApplication {
    fn purge(&self, tags: &[&str]) {
        self.cache.purge_tagged(Some(self.application), tags.iter().copied());
    }
}

impl AnswerCache {
    pub(crate) fn new(options: &CacheOptions) -> Result<Self, DiskError> {
        let purges = Arc::<Purges>::default();
        let open = |disk: &DiskOptions| {
            let opened = Disk::open(&disk.folder, disk.limit, Arc::clone(&purges));
            opened.map(Arc::new).map_err(|source| DiskError { folder: disk.folder.clone(), source })
        };
        let disk = options.disk.as_ref().map(open).transpose()?;
        let both = disk.clone().map(|disk| (disk, Arc::clone(&purges)));
        Ok(Self {
            store: Store::new(options.memory, both),
            disk,
            flights: Flights::default(),
            purges,
            background: Mutex::default(),
            cookies: CookieFilter::new(options.ignored_cookies.iter().map(String::as_str)),
            status_header: options.status_header,
            counts: Counts::default(),
            // An answer must fit beside others.
            largest: options.answer.min(options.memory / 4),
        })
    }

    /// Returns the sink of the purges that one application's PHP asks for: its own answers. `application` is its place in
    /// the release.
    pub fn of_application(self: &Arc<Self>, application: usize) -> Arc<dyn pool::PurgeSink> {
        // Answers of applications beyond are not stored.
        let application = u16::try_from(application).unwrap_or(u16::MAX);
        Arc::new(OfApplication { cache: Arc::clone(self), application })
    }

    /// Removes every answer with one of these tags, of all applications, and returns how many.
    pub fn purge_tags<'t>(&self, tags: impl IntoIterator<Item = &'t str>) -> u64 {
        self.purge_tagged(None, tags)
    }

    fn purge_tagged<'t>(
        &self,
        application: Option<u16>,
        tags: impl IntoIterator<Item = &'t str>,
    ) -> u64 {
        let tags = tags.into_iter().map(|tag| self.purges.tag(tag)).collect();
        self.purge(&Purge::Tags { application, tags })
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

    /// Removes the answers of this key's target: an unsafe request has changed it. Variants and copies are no longer found
    /// without the slots that have their numbers.
    pub(crate) fn invalidate(&self, key: &Key) {
        self.counts.purges.add();
        self.purges.invalidate(key.target(), || {
            self.remove_at(key.target());
            self.remove_at(&copies_of(key));
        });
    }

    fn purge(&self, purge: &Purge) -> u64 {
        self.counts.purges.add();
        let all = matches!(purge, Purge::All);
        let removed = AtomicU64::new(0);
        let stays = |key: &[u8], tags: &[u64], counts: bool| {
            let goes = purge.concerns(key, tags);
            removed.fetch_add(u64::from(goes && counts), Ordering::Relaxed);
            !goes
        };
        // What leaves memory for the disk meanwhile, or comes from there, is checked again.
        self.purges.purge(purge.clone(), || {
            self.store.retain(|key, slot| match slot {
                // An answer that is on disk, too, counts there.
                Slot::Entry(entry) => stays(key, &entry.tags, !self.is_on_disk(entry)),
                Slot::Rule(_) | Slot::Coded { .. } => !all,
                // It is no answer: purges that are faster than PHP are a reason for it.
                Slot::Passed { .. } => true,
            });
            if let Some(disk) = &self.disk {
                disk.retain(|key, kept| kept.tags().map_or(!all, |tags| stays(key, tags, true)));
            }
        });
        removed.into_inner()
    }

    fn is_on_disk(&self, entry: &Entry) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.has(entry))
    }

    fn remove_at(&self, key: &[u8]) {
        self.store.remove(key);
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
    }

    fn disk(&self) -> Option<&Disk> {
        self.disk.as_deref()
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
            revalidating: self.background().len() as u64,
            stored: counts.stored.get(),
            evicted: self.store.evicted(),
            purges: counts.purges.get(),
            bytes: self.store.bytes(),
            limit: self.store.limit(),
            entries: self.store.entries(),
            disk: self.disk().map(Disk::report),
        }
    }

    /// Tells the cache that a request of this release is here. The first one of a newer release clears it.
    pub(crate) fn enter(&self, release: u64) {
        if self.purges.enter(release) {
            self.store.retain(|_key, _slot| false);
            if let Some(disk) = &self.disk {
                disk.retain(|_key, _kept| false);
            }
        }
    }

    /// Returns the answer that is stored for a request, from disk if it is not in memory.
    pub(crate) async fn look(&self, key: &Key, headers: &HeaderMap) -> Option<Arc<Entry>> {
        let base = self.base(key)?;
        let found = self.store.get(&base);
        let selected = self.rule(&base, found.as_ref()).map(|rule| rule.select(&base, headers));
        let (at, found) = match &selected {
            Some(selected) => (&**selected, self.store.get(selected)),
            None => (&*base, found),
        };
        if let Some(Slot::Entry(entry)) = found {
            return Some(entry);
        }
        self.read(self.disk()?, at).await
    }

    /// Returns the key at which the answers for a request are. It is that of the request, or for copies of a target one with
    /// a number that the next unsafe request changes. `None` if the target has no copies.
    fn base<'k>(&self, key: &'k Key) -> Option<Cow<'k, [u8]>> {
        if !key.is_rewritten() {
            return Some(Cow::Borrowed(key.as_bytes()));
        }
        Some(Cow::Owned(self.variants(&copies_of(key))?.below(key.as_bytes())))
    }

    /// Returns the same key for an answer that will be stored.
    fn base_or_new<'k>(&self, key: &'k Key, release: u64) -> Cow<'k, [u8]> {
        self.base(key).unwrap_or_else(|| {
            let (rule, id) = (Rule::default(), self.store.number());
            let copies = Arc::new(Variants { rule, id, release });
            let base = copies.below(key.as_bytes());
            self.store.insert(&copies_of(key), &Slot::Rule(copies));
            Cow::Owned(base)
        })
    }

    /// Returns the fields by which the answers at a key differ.
    fn variants(&self, key: &[u8]) -> Option<Arc<Variants>> {
        self.rule(key, self.store.get(key).as_ref())
    }

    /// Returns whether the answers for a request differ by this field of it.
    pub(crate) fn selects_by(&self, key: &Key, name: &HeaderName) -> bool {
        let variants = self.base(key).and_then(|base| self.variants(&base));
        variants.is_some_and(|variants| variants.rule.names(name))
    }

    /// Returns the fields by which the answers at a key differ, if memory has `found` there.
    fn rule(&self, key: &[u8], found: Option<&Slot>) -> Option<Arc<Variants>> {
        match found {
            Some(Slot::Rule(variants)) => Some(Arc::clone(variants)),
            Some(_) => None,
            None => self.disk.as_ref()?.rule(key),
        }
    }

    /// Reads an answer from disk into memory, unless it is purged meanwhile.
    async fn read(&self, disk: &Disk, key: &[u8]) -> Option<Arc<Entry>> {
        let number = self.purges.settled();
        let entry = Arc::new(disk.read(key).await?);
        let ticket = Ticket { release: entry.release, number };
        let mut newest = false;
        self.purges.insert(ticket, (&entry.key, &entry.tags), || {
            // A newer answer that was stored meanwhile has removed this one.
            newest = disk.has(&entry);
            if newest {
                self.store.insert(&entry.key, &Slot::Entry(Arc::clone(&entry)));
            }
        });
        newest.then_some(entry)
    }

    /// Returns whether requests for this key do not wait for each other: answers to them were not stored lately.
    pub(crate) fn is_passed(&self, key: &Key, now: Instant) -> bool {
        let at = passed_at(key.as_bytes());
        match self.store.get(&at) {
            Some(Slot::Passed { until }) if now < until => true,
            Some(_) => {
                self.store.remove(&at);
                false
            }
            None => false,
        }
    }

    /// Joins the requests for this key: leads them, or waits for the one that does. `again`: it has waited for an answer that was
    /// purged.
    pub(crate) fn join(self: &Arc<Self>, key: &Key, again: bool) -> Joined {
        self.flights.join(self, key.as_bytes(), again)
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
        self.store.insert(&entry.coded_key(coding), &Slot::Coded { of: entry.id, bytes });
    }

    /// Removes an answer that turned out to be wrong.
    pub(crate) fn remove(&self, entry: &Entry) {
        self.remove_at(&entry.key);
    }

    /// Runs a revalidation without a client, unless there are too many.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background();
        if background.len() < BACKGROUND {
            background.spawn(task);
        }
    }

    /// Ends what runs without a client.
    pub(crate) fn close(&self) {
        self.background().abort_all();
    }

    /// Returns what runs without a client.
    fn background(&self) -> MutexGuard<'_, JoinSet<()>> {
        let mut background = self.background.lock().expect("no holder panics");
        while background.try_join_next().is_some() {}
        background
    }
}

/// Returns the key at which it stands that requests for `key` do not wait for each other. No purge, no unsafe request and
/// no rule changes it.
fn passed_at(key: &[u8]) -> Box<[u8]> {
    [key, &[PASSED]].concat().into()
}

/// Returns the key of the number of a target's copies.
fn copies_of(key: &Key) -> Box<[u8]> {
    [key.target(), &[COPIES]].concat().into()
}
