//! Counters by application: current values, and totals since the process started.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::delivery::AppNumber;

/// A counter that several threads change.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds one.
    pub fn increase(&self) {
        self.add(1);
    }

    /// Adds `by`.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Adds one; returns whether it is the first.
    fn increase_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Subtracts one.
    pub fn decrease(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one unless the result would exceed `limit`.
    pub(crate) fn increase_below(&self, limit: Option<u64>) -> bool {
        let Some(limit) = limit else {
            self.increase();
            return true;
        };
        let increased = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |number| {
            (number < limit).then_some(number + 1)
        });
        increased.is_ok()
    }
}

/// The counters of one application on this node.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of the application on this node.
    number: AppNumber,
    /// Open connections.
    pub connections: Number,
    /// Channels with a record on this node: also those whose subscribers are on other nodes.
    pub(crate) records: Number,
    /// Connections opened.
    pub connected: Number,
    /// Connections rejected or closed by the server with a protocol error.
    pub closed_with_error: Number,
    /// Messages received from clients.
    pub received: Number,
    /// Messages put into clients' queues; counted by the hub.
    pub sent: Number,
    /// Published events, including client events, counted once per channel.
    pub published: Number,
    /// Client events.
    pub client_events: Number,
    /// Client events and publish requests rejected by a rate limit.
    pub rate_limited: Number,
    /// Subscriptions made.
    pub subscribed: Number,
    /// Subscriptions rejected.
    pub subscription_errors: Number,
    /// Current subscriptions.
    pub subscriptions: Number,
    /// Deliveries for which an event loop's inbox had no room.
    pub inbox_full: Number,
    /// Rejected signatures of clients and API requests.
    pub signatures_refused: Number,
    /// Sign-ins.
    pub signed_in: Number,
    /// Clients that reconnected and received all missed events.
    pub recovered: Number,
    /// Clients that reconnected and could not receive all missed events.
    pub not_recovered: Number,
}

impl Counters {
    /// Returns the number by which inboxes identify the application.
    pub fn app(&self) -> AppNumber {
        self.number
    }

    /// Counts a refused signature of application `id`, and logs the first one: a wrong secret in the settings shows only here.
    pub(crate) fn refuse_signature(&self, id: &str, signed: &'static str, why: &dyn Display) {
        if self.signatures_refused.increase_first() {
            tracing::warn!(
                app = id,
                signed,
                %why,
                "signature rejected: check that both sides use the same application secret; further ones are only counted"
            );
        }
    }
}

/// The counters of all applications that had clients or API requests.
#[derive(Debug, Default)]
pub struct Statistics(RwLock<HashMap<Arc<str>, Arc<Counters>>>);

impl Statistics {
    /// Returns the counters of the application with this id.
    pub fn of(&self, app: &Arc<str>) -> Arc<Counters> {
        if let Some(counters) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(app) {
            return Arc::clone(counters);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let number = AppNumber(u32::try_from(all.len()).unwrap_or(u32::MAX));
        let new = || Arc::new(Counters { number, ..Counters::default() });
        Arc::clone(all.entry(Arc::clone(app)).or_insert_with(new))
    }

    /// Returns whether an application has open connections or channels on this node. Unlike [`Statistics::of`] it
    /// creates no record.
    pub(crate) fn is_in_use(&self, app: &str) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(app)
            .is_some_and(|counters| counters.connections.get() > 0 || counters.records.get() > 0)
    }

    /// Returns the counters of all applications, by id.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<Counters>)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(app, counters)| (Arc::clone(app), Arc::clone(counters))).collect()
    }
}
