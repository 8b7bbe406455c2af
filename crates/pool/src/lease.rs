//! Leases of workers, and grants to waiting requests.
//!
//! Invariants
//! - A leased worker is always returned: dropping a [`Lease`] returns its worker or finishes its exchange.
//! - Dropping a grant, or a request's place, loses neither a worker nor another request.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::exchange::{self, Observer};
use crate::info::WorkerInfo;
use crate::shared::Shared;
use crate::status::WorkerState;
use crate::worker::Worker;

/// The grant that a waiting request receives.
#[derive(Debug)]
pub(crate) enum Grant {
    /// An idle worker.
    Idle(Lease),
    /// The worker that has the request already.
    Written(Written),
    /// The worker that had the request has gone, and may have begun it.
    Lost(Arc<WorkerInfo>),
}

/// A worker that has been written a request and answers it next.
#[derive(Debug)]
pub(crate) struct Written {
    lease: Option<Lease>,
    number: u64,
    observer: Observer,
}

impl Written {
    pub(crate) fn new(lease: Lease, number: u64, observer: Observer) -> Self {
        Self { lease: Some(lease), number, observer }
    }

    /// Returns the worker and the number of the request.
    pub(crate) fn into_parts(mut self) -> (Lease, u64) {
        let lease = self.lease.take().expect("it has its lease until it ends");
        (lease, self.number)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // The request stopped waiting in this moment.
        if let Some(lease) = self.lease.take() {
            exchange::abandon(lease, self.number, self.observer.take());
        }
    }
}

/// A request's place in the backlog. Dropping it gives up the place.
pub(crate) struct InLine<'s> {
    shared: &'s Arc<Shared>,
    place: Option<u64>,
}

impl<'s> InLine<'s> {
    pub(crate) fn new(shared: &'s Arc<Shared>, place: u64) -> Self {
        Self { shared, place: Some(place) }
    }

    /// The request waits no longer.
    pub(crate) fn leave(mut self) {
        self.place = None;
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.abandon(place);
        }
    }
}

/// The state of a worker that is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The worker has booted.
    Booted,
    /// The worker has answered a request.
    Answered,
    /// The worker's request was not written, or was withdrawn.
    Unused,
}

/// A leased worker.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
    worker: Option<Box<Worker>>,
}

impl Deref for Lease {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        self.worker.as_ref().expect("a lease has its worker until it ends")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("a lease has its worker until it ends")
    }
}

impl Lease {
    pub(crate) fn new(shared: Arc<Shared>, worker: Box<Worker>) -> Self {
        Self { shared, worker: Some(worker) }
    }

    /// Returns the worker, without releasing it.
    pub(crate) fn into_worker(mut self) -> Box<Worker> {
        self.worker.take().expect("a lease has its worker until it ends")
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Marks that the worker is about to receive a request. From now on a one-shot worker has a successor.
    pub(crate) fn begin(&self) {
        if self.shared.one_shot() {
            self.info.life.set_spent(true);
            self.shared.wanted.notify_one();
        }
    }

    /// Closes the socket of a worker that is of no more use. Returns its record.
    pub(crate) fn discard(mut self) -> Arc<WorkerInfo> {
        let worker = self.worker.take().expect("a lease has its worker until it ends");
        // Set before its end becomes visible: it serves nothing any more.
        worker.info.life.set_state(WorkerState::Stopping);
        worker.info.busy_since.store(0, Ordering::Relaxed);
        self.shared.lose(&worker.info);
        Arc::clone(&worker.info)
    }

    /// Ends the lease after a complete exchange: the next request may follow.
    pub(crate) fn finish(mut self) {
        let worker = self.worker.take().expect("a lease has its worker until it ends");
        worker.info.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.give_back(worker, true);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Nothing was sent through this lease: exchanges finish theirs before they drop it.
        if let Some(worker) = self.worker.take() {
            self.shared.give_back(worker, false);
        }
    }
}
