//! The inboxes of event loops: where deliveries go, by the number of an event loop.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use crate::delivery::{AppNumber, Delivery, Outlet};
use crate::statistics::Counters;

/// Maximum number of event loops.
pub const EVENT_LOOPS: usize = 256;

/// The inboxes of event loops.
#[derive(Debug)]
pub(crate) struct Outlets {
    taken: AtomicU16,
    all: Box<[OnceLock<Arc<dyn Outlet>>]>,
}

impl Outlets {
    /// Returns room for all event loops, of which none is attached.
    pub(super) fn new() -> Self {
        Self { taken: AtomicU16::new(0), all: (0..EVENT_LOOPS).map(|_| OnceLock::new()).collect() }
    }

    /// Returns the number of a new event loop. `None` if there are [`EVENT_LOOPS`] already.
    pub(crate) fn attach(&self, outlet: Arc<dyn Outlet>) -> Option<u16> {
        let last = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        let next = |number| (number < last).then_some(number + 1);
        let number = self.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.all.get(usize::from(number))?.set(outlet).ok().map(|()| number)
    }

    /// Adds a delivery to all inboxes; it must be of a kind that none rejects.
    pub(crate) fn put_everywhere(&self, delivery: impl Fn() -> Delivery) {
        for outlet in self.all.iter().map_while(OnceLock::get) {
            let taken = outlet.put(AppNumber::default(), delivery());
            debug_assert!(taken.is_ok(), "what is not counted has room");
        }
    }

    /// Returns whether an event loop takes old events.
    pub(crate) fn takes_old(&self, event_loop: u16) -> bool {
        let outlet = self.all.get(usize::from(event_loop)).and_then(OnceLock::get);
        outlet.is_some_and(|outlet| outlet.takes_old())
    }

    /// Adds a delivery to an inbox. The event loop handles a full one: it records the loss and closes the affected
    /// sockets.
    pub(crate) fn put(&self, event_loop: u16, delivery: Delivery, counters: &Counters) {
        let outlet = self.all.get(usize::from(event_loop)).and_then(OnceLock::get);
        if let Some(outlet) = outlet
            && outlet.put(counters.app(), delivery).is_err()
        {
            counters.inbox_full.increase();
        }
    }
}
