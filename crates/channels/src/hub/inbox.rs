//! Where other threads leave things for an event loop.
//!
//! Bound: [`DELIVERIES`] deliveries, or [`WEIGHT`] bytes of messages in them; as much again is being given out. More of them come only when events are
//! published faster than this core can give them to its sockets, for seconds on end: the loop takes new ones when the sockets of the last ones have been
//! written to. What comes then is lost, and since no subscriber may miss an event without knowing, the loop closes those it was for with 4200: they come
//! back at once, and resume where there is a history. When one application has filled the inbox, each other still has a [`RESERVE`] of its own: who keeps one
//! busy is no loss to the others' clients. Sockets that are handed over are not counted: each is a descriptor, and those are bounded.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Waker;

use super::adopted::{Adopted, AdoptedStream};
use crate::apps::Answered;
use crate::delivery::{AppNumber, ChannelId, Delivery, Full, Outlet, Seat};

/// Deliveries that may wait.
pub(super) const DELIVERIES: usize = 65_536;
/// Bytes of messages that may wait.
pub(super) const WEIGHT: usize = 64 * 1024 * 1024;

/// Of both, what each application may add when the inbox is full, until all are as much again.
const RESERVE: Reserve = Reserve { deliveries: DELIVERIES / 16, weight: WEIGHT / 16 };

/// What waits of one application since the inbox was full.
#[derive(Debug, Default)]
struct Reserve {
    deliveries: usize,
    weight: usize,
}

/// Other things that are left for a loop.
pub(super) enum Errand {
    /// A socket whose upgrade has been answered or is to be.
    Adopt(Box<Adopted>),
    /// The same, for an event stream.
    AdoptStream(Box<AdoptedStream>),
    /// The application that a socket's key stands for, if there is one.
    App { seat: Seat, app: Answered },
    /// Close all sockets within this time, then end.
    Drain(Duration),
}

/// Whom deliveries of one application were for that are lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) channels: HashSet<ChannelId>,
    pub(super) seats: HashSet<Seat>,
    /// There were too many to remember: all its clients.
    pub(super) everybody: bool,
}

/// Losses of an application that are remembered one by one.
const LOSSES: usize = 4096;

impl Losses {
    fn add(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Channel { channel, .. } => {
                self.channels.insert(channel);
            }
            Delivery::Seats { seats, .. } => self.seats.extend(seats),
            Delivery::App { .. } | Delivery::Close { .. } => {}
        }
        if self.channels.len() + self.seats.len() > LOSSES {
            *self = Self { everybody: true, ..Self::default() };
        }
    }
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
    /// Of those that have put something here since it was full.
    reserves: HashMap<AppNumber, Reserve>,
    losses: HashMap<AppNumber, Losses>,
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

    /// The errands there are. The list given must be empty.
    pub(super) fn errands(&self, errands: &mut Vec<Errand>) {
        let mut contents = self.lock();
        contents.asleep = false;
        std::mem::swap(&mut contents.errands, errands);
    }

    /// The deliveries there are, and who missed some that came after them. The list given must be empty.
    pub(super) fn deliveries(&self, deliveries: &mut Vec<Delivery>) -> HashMap<AppNumber, Losses> {
        let mut contents = self.lock();
        std::mem::swap(&mut contents.deliveries, deliveries);
        contents.weight = 0;
        contents.reserves.clear();
        std::mem::take(&mut contents.losses)
    }

    /// To be called before waiting for sockets: from now on whoever puts something here wakes the loop. False if something is here already.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut contents = self.lock();
        contents.asleep = contents.deliveries.is_empty() && contents.errands.is_empty();
        contents.asleep
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

impl Contents {
    /// Is there room for a message of so many bytes?
    fn takes(&mut self, app: AppNumber, weight: usize) -> bool {
        let (deliveries, all) = (self.deliveries.len(), self.weight + weight);
        if deliveries < DELIVERIES && all <= WEIGHT {
            return true;
        }
        let reserve = self.reserves.entry(app).or_default();
        let takes = deliveries < 2 * DELIVERIES
            && all <= 2 * WEIGHT
            && reserve.deliveries < RESERVE.deliveries
            && reserve.weight + weight <= RESERVE.weight;
        if takes {
            reserve.deliveries += 1;
            reserve.weight += weight;
        }
        takes
    }
}

impl Outlet for Inbox {
    fn put(&self, app: AppNumber, delivery: Delivery) -> Result<(), Full> {
        let weight = match &delivery {
            Delivery::Channel { message, .. } | Delivery::Seats { message, .. } => {
                message.frame().len()
            }
            Delivery::App { .. } | Delivery::Close { .. } => 0,
        };
        let mut contents = self.lock();
        if contents.ended {
            return Ok(());
        }
        let counted = !matches!(delivery, Delivery::App { .. } | Delivery::Close { .. });
        if counted && !contents.takes(app, weight) {
            contents.losses.entry(app).or_default().add(delivery);
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
