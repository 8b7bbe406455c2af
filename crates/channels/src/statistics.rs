//! Numbers by application: what is now, and what has been since the process began.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::delivery::AppNumber;

/// One number that several threads change.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// One more.
    pub fn increase(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// One more; returns whether it is the first.
    fn increase_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// One less.
    pub fn decrease(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, unless that would be more than `limit`.
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

/// The numbers of one application on this node.
#[derive(Debug, Default)]
pub struct Counters {
    /// Which application's: each has another.
    number: AppNumber,
    /// Sockets open now.
    pub connections: Number,
    /// Sockets opened.
    pub connected: Number,
    /// Sockets turned away or closed by us with an error of the protocol.
    pub closed_with_error: Number,
    /// Messages from clients.
    pub received: Number,
    /// Messages put into clients' queues: the hub counts them.
    pub sent: Number,
    /// Events published, by clients too, one for each channel.
    pub published: Number,
    /// Client events among them.
    pub client_events: Number,
    /// Client events and publications refused because there were too many.
    pub rate_limited: Number,
    /// Subscriptions made.
    pub subscribed: Number,
    /// Subscriptions refused.
    pub subscription_errors: Number,
    /// Subscriptions there are now.
    pub subscriptions: Number,
    /// Deliveries that an event loop had no room for.
    pub inbox_full: Number,
    /// Signatures of clients and of calls that were refused.
    pub signatures_refused: Number,
    /// Users that signed in.
    pub signed_in: Number,
    /// Clients that came back and got all they had missed.
    pub recovered: Number,
    /// Clients that came back and could not.
    pub not_recovered: Number,
}

impl Counters {
    /// For inboxes, which know applications by it.
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
                "signature refused; is the application's secret the same here and there? Further ones are only counted"
            );
        }
    }
}

/// The numbers of all applications that had clients or calls.
#[derive(Debug, Default)]
pub struct Statistics(RwLock<HashMap<Arc<str>, Arc<Counters>>>);

impl Statistics {
    /// Those of the application with this id.
    pub fn of(&self, app: &Arc<str>) -> Arc<Counters> {
        if let Some(counters) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(app) {
            return Arc::clone(counters);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let number = AppNumber(u32::try_from(all.len()).unwrap_or(u32::MAX));
        let new = || Arc::new(Counters { number, ..Counters::default() });
        Arc::clone(all.entry(Arc::clone(app)).or_insert_with(new))
    }

    /// Sockets that an application has open. Unlike [`Statistics::of`] it makes no record of one that has had none.
    pub fn connections(&self, app: &str) -> u64 {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(app).map_or(0, |counters| counters.connections.get())
    }

    /// Those of all, by id.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<Counters>)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(app, counters)| (Arc::clone(app), Arc::clone(counters))).collect()
    }
}
