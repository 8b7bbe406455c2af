//! The log that all nodes share: it gives the events of channels with history one order and one position on all nodes.
//!
//! The adapter reads the log and applies each entry to the registry, on the node that published it too. This module
//! holds what the registry must know about the log as a whole.
//!
//! Invariants
//! - Positions increase in the order in which entries are applied. They restart only with a new epoch.
//! - A channel is complete after a position only if this node applied every later entry, or knows that no later entry
//!   concerned the channel.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::hash::{SEED, hash, mixed};

/// Number of events that one entry of the log may contain. An event's position is `sequence * EVENTS + index`, which
/// JavaScript's numbers hold exactly up to 2^53: 8 trillion entries.
pub(crate) const EVENTS: u64 = 1024;

/// Number of groups of channels. For each group the newest removed event is remembered.
const GROUPS: usize = 4096;

/// Returns the position of an event in the log.
pub(crate) fn position(sequence: u64, index: u64) -> u64 {
    sequence * EVENTS + index
}

/// An event's place in the log, and its age when it is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    pub(crate) position: u64,
    pub(crate) age: Duration,
}

/// The state of the log as this node knows it.
#[derive(Debug)]
pub(crate) struct SharedLog {
    active: AtomicBool,
    /// The epoch; 0 until the log was opened for the first time.
    epoch: AtomicU64,
    /// The log was read once up to what was its end when it was opened.
    loaded: AtomicBool,
    /// A client has resumed before that: it gets the older events, too.
    resumed_early: AtomicBool,
    /// Entries up to this position were never seen here.
    floor: AtomicU64,
    /// Position of the last applied event.
    applied: AtomicU64,
    /// How long before it was applied that event, or the one that is being applied, was stored: milliseconds.
    age: AtomicU64,
    /// Positions by group of channels: events up to there may have been removed here.
    removed: Box<[AtomicU64]>,
}

impl SharedLog {
    pub(crate) fn new() -> Self {
        Self {
            active: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            loaded: AtomicBool::new(false),
            resumed_early: AtomicBool::new(false),
            floor: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            age: AtomicU64::new(0),
            removed: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns whether histories come from the log. Otherwise each node has its own.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub(crate) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
    }

    /// Returns the epoch; `None` until the log was opened.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.epoch.load(Ordering::Acquire)).filter(|epoch| *epoch != 0)
    }

    /// Returns whether this node has read the log up to its end once. Until then it has no positions for subscribers:
    /// what it applies is older than they are.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub(crate) fn set_loaded(&self) {
        self.loaded.store(true, Ordering::Release);
    }

    /// Returns whether event loops need events that this node reads before it has loaded the log.
    pub(crate) fn has_resumed_early(&self) -> bool {
        self.resumed_early.load(Ordering::Acquire)
    }

    pub(crate) fn set_resumed_early(&self) {
        self.resumed_early.store(true, Ordering::Release);
    }

    /// Returns the position up to which this node has applied the log.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Records that everything up to this position is applied. Called while the channel of the event is locked.
    pub(crate) fn set_applied(&self, position: u64) {
        self.applied.store(position, Ordering::Release);
    }

    /// Returns the age of the event that is being applied. For outlets, which get it meanwhile.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_millis(self.age.load(Ordering::Relaxed))
    }

    /// Records the age of the event that is applied next. One task applies them all.
    pub(crate) fn set_age(&self, age: Duration) {
        let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.age.store(millis, Ordering::Relaxed);
    }

    /// Starts again: entries up to `floor` were not applied here, or belong to another epoch.
    pub(crate) fn reset(&self, epoch: u64, floor: u64) {
        for group in &self.removed {
            group.store(0, Ordering::Relaxed);
        }
        self.floor.store(floor, Ordering::Relaxed);
        self.applied.store(floor, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Returns the position after which a channel without a record is complete.
    pub(crate) fn complete_after(&self, app: &str, channel: &str) -> u64 {
        let removed = self.removed[group(app, channel)].load(Ordering::Relaxed);
        removed.max(self.floor.load(Ordering::Relaxed))
    }

    /// Records that events of a channel up to this position are not kept any more.
    pub(crate) fn remove(&self, app: &str, channel: &str, position: u64) {
        self.removed[group(app, channel)].fetch_max(position, Ordering::Relaxed);
    }
}

fn group(app: &str, channel: &str) -> usize {
    let hash = mixed(hash(app.as_bytes(), hash(channel.as_bytes(), SEED)));
    (hash >> 20) as usize % GROUPS
}

/// An event that waits to be stored in the log, or an entry that waits to be read.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub(crate) number: u64,
    pub(crate) stored: watch::Receiver<u64>,
}

impl Ticket {
    /// Waits until the event is stored, or the entry is read. Returns `false` if it never will be, because the node stops.
    ///
    /// # Cancel safety
    /// The method only waits.
    pub async fn stored(mut self) -> bool {
        let number = self.number;
        self.stored.wait_for(|stored| *stored >= number).await.is_ok()
    }
}
