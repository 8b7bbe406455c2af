//! The places for records of channels that neither have subscribers nor events.
//!
//! Invariants
//! - Clients choose names, so the number of such records has a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of places: some 20 MB of records.
const PLACES: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    /// Takes a place, if one is left.
    pub(crate) fn take(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < PLACES).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
