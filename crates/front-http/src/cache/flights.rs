//! Collapsed forwarding: of several requests for the same answer one goes to the application, and the others wait.
//!
//! Invariants
//! - Requests wait only for an answer that may be stored: when its head says that it is not, all of them go on at once,
//!   and for [`PASSED`] none waits again.
//! - If the request that leads is aborted, or its answer is purged before it is stored, one of those that wait leads next.
//!   If that answer is purged, too, all go on at once, and for [`PURGED`] none waits again: PHP is slower than the purges.
//! - That none waits is noted apart from what is stored, and ends early only when an answer is stored.
//! - If the application fails, all that wait go on at once, also if a stale answer is sent in the failure's place.
//! - No request waits longer than [`PATIENCE`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::store::Slot;
use super::{AnswerCache, passed_at};

/// How long a request waits for the answer to another one. nginx's `proxy_cache_lock_timeout`.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long requests do not wait after an answer was not stored for which some had waited.
const PASSED: Duration = Duration::from_mins(2);
/// How long requests do not wait after an answer was purged twice while PHP made it.
const PURGED: Duration = Duration::from_secs(10);

/// How the request that led has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FlightEnd {
    /// The flight was aborted.
    Aborted,
    /// The flight's answer is stored.
    Stored,
    /// The flight's answer is not stored.
    NotStored,
    /// The flight's answer was purged before it was stored.
    Purged,
}

/// A request that others wait for.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    ended: CancellationToken,
    end: AtomicU8,
    waiting: AtomicUsize,
    /// The answer of the flight before it was purged.
    again: bool,
}

impl Flight {
    /// Returns whether one of those that wait leads next after this end.
    pub(crate) fn is_followed(&self, end: FlightEnd) -> bool {
        end == FlightEnd::Aborted || (end == FlightEnd::Purged && !self.again)
    }

    /// Waits for its end, until `deadline` at the latest.
    pub(crate) async fn wait(&self, deadline: Instant) -> Option<FlightEnd> {
        let _waiter = Waiter::new(&self.waiting);
        tokio::time::timeout_at(deadline, self.ended.cancelled()).await.ok()?;
        Some(match self.end.load(Ordering::Acquire) {
            1 => FlightEnd::Stored,
            2 => FlightEnd::NotStored,
            3 => FlightEnd::Purged,
            _ => FlightEnd::Aborted,
        })
    }
}

/// Counts a request while it waits.
struct Waiter<'f>(&'f AtomicUsize);

impl<'f> Waiter<'f> {
    fn new(waiting: &'f AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The part that a request has.
pub(crate) enum Joined {
    /// The request goes to the application.
    Leads(FlightGuard),
    /// The request waits for this flight.
    Waits(Arc<Flight>),
}

/// The requests that others wait for. As many as there are requests, at most.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Box<[u8]>, Arc<Flight>>>);

impl Flights {
    /// Returns how many requests wait.
    pub(super) fn waiting(&self) -> u64 {
        let flights = self.0.lock().expect("no holder panics");
        flights.values().map(|flight| flight.waiting.load(Ordering::Relaxed) as u64).sum()
    }

    /// `again`: the request has waited for an answer that was purged.
    pub(super) fn join(&self, cache: &Arc<AnswerCache>, key: &[u8], again: bool) -> Joined {
        let mut flights = self.0.lock().expect("no holder panics");
        if let Some(flight) = flights.get(key) {
            return Joined::Waits(Arc::clone(flight));
        }
        let flight = Arc::new(Flight { again, ..Flight::default() });
        flights.insert(key.into(), Arc::clone(&flight));
        Joined::Leads(FlightGuard { cache: Arc::clone(cache), key: key.into(), flight })
    }
}

/// Leads requests. Dropping it aborts: one of those that wait leads next.
pub(crate) struct FlightGuard {
    cache: Arc<AnswerCache>,
    key: Box<[u8]>,
    flight: Arc<Flight>,
}

impl FlightGuard {
    /// Lets the others go on.
    pub(crate) fn end(self, end: FlightEnd) {
        self.flight.end.store(end as u8, Ordering::Release);
        let pause = match end {
            FlightEnd::NotStored => PASSED,
            FlightEnd::Purged if self.flight.again => PURGED,
            _ => return,
        };
        if self.flight.waiting.load(Ordering::Relaxed) > 0 {
            let until = Instant::now() + pause;
            self.cache.store.insert(&passed_at(&self.key), &Slot::Passed { until });
        }
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let flights = &self.cache.flights.0;
        flights.lock().expect("no holder panics").remove(&self.key);
        self.flight.ended.cancel();
    }
}
