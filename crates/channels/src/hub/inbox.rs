//! Where other threads leave things for an event loop.
//!
//! Bound: [`DELIVERIES`] deliveries, or [`WEIGHT`] bytes of messages in them; as much again is being given out. One more is refused with
//! [`Full`], and whoever publishes is told. That happens when events are published faster than this core can give them to its sockets, for seconds on
//! end: the loop takes new ones only when the sockets of the last ones have been written to. Sockets that are handed over are not counted: each is a
//! descriptor, and those are bounded.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Waker;

use super::adopted::Adopted;
use crate::app::App;
use crate::delivery::{Delivery, Full, Outlet, Seat};
use std::sync::Arc;

/// Deliveries that may wait.
pub(super) const DELIVERIES: usize = 65_536;
/// Bytes of messages that may wait.
pub(super) const WEIGHT: usize = 64 * 1024 * 1024;

/// Other things that are left for a loop.
pub(super) enum Errand {
    /// A socket whose upgrade has been answered or is to be.
    Adopt(Box<Adopted>),
    /// The application that a socket's key stands for, if there is one.
    App {
        seat: Seat,
        app: Option<Arc<App>>,
    },
    /// Close all sockets within this time, then end.
    Drain(Duration),
}

/// One loop's inbox.
pub(super) struct Inbox {
    contents: Mutex<Contents>,
    waker: Waker,
}

#[derive(Default)]
struct Contents {
    deliveries: Vec<Delivery>,
    weight: usize,
    errands: Vec<Errand>,
    /// The loop waits for sockets and has to be woken.
    asleep: bool,
    /// The loop has ended.
    ended: bool,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { contents: Mutex::default(), waker }
    }

    /// Leaves an errand; given back if the loop has ended.
    pub(super) fn ask(&self, errand: Errand) -> Result<(), Errand> {
        let mut contents = self.lock();
        if contents.ended {
            return Err(errand);
        }
        contents.errands.push(errand);
        self.wake(contents);
        Ok(())
    }

    /// Everything there is, swapped for empty lists. `deliveries`: or leave those for now.
    pub(super) fn take(&self, deliveries: Option<&mut Vec<Delivery>>, errands: &mut Vec<Errand>) {
        let mut contents = self.lock();
        contents.asleep = false;
        if let Some(deliveries) = deliveries {
            debug_assert!(deliveries.is_empty(), "else they would change places");
            std::mem::swap(&mut contents.deliveries, deliveries);
            contents.weight = 0;
        }
        std::mem::swap(&mut contents.errands, errands);
    }

    /// To be called before waiting for sockets. Is there something after all?
    pub(super) fn fall_asleep(&self) -> bool {
        let mut contents = self.lock();
        let nothing = contents.deliveries.is_empty() && contents.errands.is_empty();
        contents.asleep = nothing;
        !nothing
    }

    /// The loop ends: what is there is let go, what comes is refused.
    pub(super) fn end(&self) {
        let mut contents = self.lock();
        let all = std::mem::take(&mut *contents);
        contents.ended = true;
        drop(contents);
        // Sockets among it are closed outside of the lock.
        drop(all);
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, mut contents: MutexGuard<'_, Contents>) {
        if !std::mem::take(&mut contents.asleep) {
            return;
        }
        drop(contents);
        // An eventfd takes 2^64 of these before it would refuse one.
        self.waker.wake().expect("an eventfd takes a one");
    }
}

impl Outlet for Inbox {
    fn put(&self, delivery: Delivery) -> Result<(), Full> {
        let weight = match &delivery {
            Delivery::Channel { message, .. } | Delivery::Seats { message, .. } => message.frame().len(),
            Delivery::Close { .. } => 0,
        };
        let mut contents = self.lock();
        if contents.ended {
            return Ok(());
        }
        if contents.deliveries.len() >= DELIVERIES || contents.weight + weight > WEIGHT {
            return Err(Full);
        }
        contents.weight += weight;
        contents.deliveries.push(delivery);
        self.wake(contents);
        Ok(())
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}
