//! Stored answers in memory: a bounded map that keeps what is used often, also when a crawler passes by (`quick_cache`: the
//! frequently used ones are not evicted by those that are used once).
//!
//! Invariants
//! - The weight of all slots together stays below the bound; a slot weighs its bytes and what holds them.
//! - Only what goes because memory is needed counts as evicted and is offered to the disk, not what a newer one replaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use answer_cache::{Freshness, Rule};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use super::disk::Disk;
use super::purges::Purges;

/// The memory of a slot beside its bytes, roughly: the map's entry, allocations, the reference count.
const OVERHEAD: u64 = 256;
/// The memory of a header field beside its bytes, roughly: the map's entry, and an allocation each for name and value.
const FIELD_OVERHEAD: usize = 128;
/// The expected size of an answer, by which the map is laid out.
const TYPICAL: u64 = 16 << 10;
/// Independently locked parts of a large map. Each has its share of the memory, and room for the largest answer: a quarter of all.
const SHARDS: usize = 4;

/// The byte between the key of a target and the values that select one of its answers.
pub(super) const VARIANT: u8 = 0xfe;
/// The byte after a target at whose key the number of its copies is: answers to requests with fields that rewrite the
/// target.
pub(super) const COPIES: u8 = 0xfd;
/// The byte after the key at which requests wait for each other: what is there says that they do not.
pub(super) const PASSED: u8 = 0xfc;

/// A stored answer.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) status: StatusCode,
    /// The answer's fields, `Date` included; without `Age`.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) freshness: Freshness,
    /// The time at which it was received.
    pub(crate) since: Instant,
    /// Hashes of its tags.
    pub(crate) tags: Box<[u64]>,
    /// A number that no other entry has.
    pub(crate) id: u64,
    /// The key at which it is stored.
    pub(crate) key: Box<[u8]>,
    /// The release whose application made it.
    pub(crate) release: u64,
}

impl Entry {
    /// Returns the bytes that it takes in memory.
    pub(super) fn weight(&self) -> u64 {
        let fields = self.headers.iter();
        let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
        let fields: usize = fields.sum();
        (self.body.len() + fields + self.key.len() + self.tags.len() * 8) as u64
    }

    /// Returns whether the application can confirm it.
    pub(crate) fn has_validator(&self) -> bool {
        self.headers.contains_key(header::ETAG) || self.headers.contains_key(header::LAST_MODIFIED)
    }

    /// Returns the key of its coded form.
    pub(crate) fn coded_key(&self, coding: &str) -> Box<[u8]> {
        [&self.key, &[0xff][..], coding.as_bytes()].concat().into()
    }
}

/// The fields by which answers of one target differ, or the number of its copies.
#[derive(Debug)]
pub(super) struct Variants {
    pub(super) rule: Rule,
    /// A number that no other has: answers stored under an earlier rule are not found again.
    pub(super) id: u64,
    /// The release whose answers named them.
    pub(super) release: u64,
}

impl Variants {
    /// Returns the key of the answer that a request selects.
    pub(super) fn select(&self, key: &[u8], headers: &HeaderMap) -> Box<[u8]> {
        let mut selected = self.below(key);
        self.rule.select(headers, &mut selected);
        selected.into()
    }

    /// Returns what the keys of all these answers begin with.
    pub(super) fn below(&self, key: &[u8]) -> Vec<u8> {
        let mut below = Vec::with_capacity(key.len() + 64);
        below.extend_from_slice(key);
        below.push(VARIANT);
        below.extend_from_slice(&self.id.to_be_bytes());
        below
    }
}

/// The stored answers at a key.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Entry(Arc<Entry>),
    /// The answers are at keys of their own.
    Rule(Arc<Variants>),
    /// The coded body of the entry with this number.
    Coded {
        of: u64,
        bytes: Bytes,
    },
    /// Answers were not stored lately: until then no request waits for another.
    Passed {
        until: Instant,
    },
}

impl Slot {
    /// Returns whether both are the very same answer or rule.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Entry(one), Self::Entry(other)) => Arc::ptr_eq(one, other),
            (Self::Rule(one), Self::Rule(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<Box<[u8]>, Slot> for Weigh {
    fn weight(&self, key: &Box<[u8]>, slot: &Slot) -> u64 {
        let inner = match slot {
            Slot::Entry(entry) => entry.weight(),
            Slot::Rule(variants) => variants.rule.size() as u64,
            Slot::Coded { bytes, .. } => bytes.len() as u64,
            Slot::Passed { .. } => 0,
        };
        inner + key.len() as u64 + OVERHEAD
    }
}

/// Collects what an insertion pushes out, so that it is dropped or offered to the disk outside of the lock.
#[derive(Clone, Debug)]
struct Collect;

impl Lifecycle<Box<[u8]>, Slot> for Collect {
    type RequestState = Vec<(Box<[u8]>, Slot)>;

    fn on_evict(&self, out: &mut Self::RequestState, key: Box<[u8]>, slot: Slot) {
        out.push((key, slot));
    }
}

/// The map.
pub(super) struct Store {
    map: Cache<Box<[u8]>, Slot, Weigh, DefaultHashBuilder, Collect>,
    disk: Option<(Arc<Disk>, Arc<Purges>)>,
    evicted: AtomicU64,
    numbers: AtomicU64,
}

impl Store {
    pub(super) fn new(memory: u64, disk: Option<(Arc<Disk>, Arc<Purges>)>) -> Self {
        let typical = usize::try_from(memory / TYPICAL).unwrap_or(usize::MAX).max(64);
        let options = OptionsBuilder::new()
            .shards(if memory < 64 << 20 { 1 } else { SHARDS })
            .estimated_items_capacity(typical)
            .weight_capacity(memory)
            .build()
            .expect("capacity and number of items are set");
        let map = Cache::with_options(options, Weigh, DefaultHashBuilder::default(), Collect);
        Self { map, disk, evicted: AtomicU64::new(0), numbers: AtomicU64::new(1) }
    }

    /// Returns a number that was not returned before.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Slot> {
        self.map.get(key)
    }

    /// Inserts a slot. What memory has no room for then is counted, and offered to the disk; what the slot replaces is not.
    pub(super) fn insert(&self, key: &[u8], slot: &Slot) {
        // Read before something leaves: a purge that comes meanwhile does not find it, and is checked again.
        let settled = self.disk.as_ref().map(|(_disk, purges)| purges.settled());
        let mut out = Vec::new();
        self.map.insert_with_lifecycle(key.into(), slot.clone(), &mut out);
        for (old_key, old) in out {
            if *old_key == *key && !old.is(slot) {
                continue;
            }
            if matches!(old, Slot::Entry(_)) {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            if let (Some((disk, _purges)), Some(settled)) = (&self.disk, settled) {
                disk.offer(&old_key, &old, settled);
            }
        }
    }

    pub(super) fn remove(&self, key: &[u8]) {
        drop(self.map.remove(key));
    }

    pub(super) fn retain(&self, keep: impl Fn(&[u8], &Slot) -> bool) {
        self.map.retain(|key, slot| keep(key, slot));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.map.weight()
    }

    pub(super) fn limit(&self) -> u64 {
        self.map.capacity()
    }

    pub(super) fn entries(&self) -> u64 {
        self.map.len() as u64
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
