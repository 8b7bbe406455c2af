//! The queue of an event loop for other threads.
//!
//! Bound: [`DELIVERIES`] deliveries, or [`WEIGHT`] bytes of messages; as much again may be in processing. The inbox
//! fills only if events are published faster than this core can send them, for seconds on end, because the loop takes
//! new deliveries once the sockets of the previous ones have been written.
//!
//! Deliveries beyond the bound are lost. No subscriber may miss an event unnoticed, so the loop closes the affected
//! sockets with 4200; the clients reconnect, and resume where there is a history. When one application has filled the
//! inbox, each other application still has a [`RESERVE`] of its own, so its clients lose nothing. Handed-over sockets
//! are not counted, because each is a descriptor and descriptors are bounded.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::Waker;

use super::adopted::{Adopted, AdoptedStream};
use crate::apps::Answered;
use crate::delivery::{AppNumber, ChannelId, Delivery, Full, Outlet, Seat};

/// Maximum number of waiting deliveries.
pub(super) const DELIVERIES: usize = 65_536;
/// Maximum number of bytes of waiting messages.
pub(super) const WEIGHT: usize = 64 * 1024 * 1024;

/// Reserve of each application when the inbox is full, until all reserves together equal the bound.
const RESERVE: Reserve = Reserve { deliveries: DELIVERIES / 16, weight: WEIGHT / 16 };

/// Deliveries and bytes of one application since the inbox became full.
#[derive(Debug, Default)]
struct Reserve {
    deliveries: usize,
    weight: usize,
}

/// Commands for an event loop.
pub(super) enum LoopCommand {
    /// Adds a socket whose WebSocket request another front has read.
    Adopt(Box<Adopted>),
    /// Adds a socket whose event stream request another front has read.
    AdoptStream(Box<AdoptedStream>),
    /// Returns the result of an application look-up.
    App { seat: Seat, app: Answered },
    /// Closes all sockets within this time, then ends the loop.
    Drain(Duration),
}

/// Recipients of lost deliveries of one application.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) channels: HashSet<ChannelId>,
    pub(super) seats: HashSet<Seat>,
    /// More channels and seats were affected than are stored: all clients of the application.
    pub(super) all: bool,
}

/// Maximum number of lost deliveries stored individually per application.
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
            *self = Self { all: true, ..Self::default() };
        }
    }
}

/// The inbox of one event loop.
pub(super) struct Inbox {
    contents: Mutex<Contents>,
    waker: Waker,
}

#[derive(Default)]
struct Contents {
    deliveries: Vec<Delivery>,
    weight: usize,
    /// Reserves of the applications that have added deliveries since the inbox became full.
    reserves: HashMap<AppNumber, Reserve>,
    losses: HashMap<AppNumber, Losses>,
    commands: Vec<LoopCommand>,
    /// The loop waits for sockets and must be woken.
    asleep: bool,
    /// The loop has ended.
    ended: bool,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { contents: Mutex::default(), waker }
    }

    /// Adds a command; returns it if the loop has ended.
    pub(super) fn send(&self, command: LoopCommand) -> Result<(), LoopCommand> {
        let mut contents = self.lock();
        if contents.ended {
            return Err(command);
        }
        contents.commands.push(command);
        self.wake(contents);
        Ok(())
    }

    /// Moves the commands into the given list, which must be empty.
    pub(super) fn commands(&self, commands: &mut Vec<LoopCommand>) {
        let mut contents = self.lock();
        contents.asleep = false;
        std::mem::swap(&mut contents.commands, commands);
    }

    /// Moves the deliveries into the given list, which must be empty, and returns the losses after them.
    pub(super) fn deliveries(&self, deliveries: &mut Vec<Delivery>) -> HashMap<AppNumber, Losses> {
        let mut contents = self.lock();
        std::mem::swap(&mut contents.deliveries, deliveries);
        contents.weight = 0;
        contents.reserves.clear();
        std::mem::take(&mut contents.losses)
    }

    /// Must be called before waiting for sockets: from then on each addition wakes the loop. Returns `false` if the
    /// inbox is not empty.
    pub(super) fn prepare_to_sleep(&self) -> bool {
        let mut contents = self.lock();
        contents.asleep = contents.deliveries.is_empty() && contents.commands.is_empty();
        contents.asleep
    }

    /// Closes the inbox: its contents are dropped, additions are rejected.
    pub(super) fn end(&self) {
        let mut contents = self.lock();
        let all = std::mem::take(&mut *contents);
        contents.ended = true;
        drop(contents);
        // The contents may include sockets, which are closed outside of the lock.
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
        // An eventfd accepts 2^64 - 2 of these before it blocks.
        self.waker.wake().expect("an eventfd accepts a one");
    }
}

impl Contents {
    /// Returns whether there is room for a message of `weight` bytes.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use mio::{Events, Poll, Token};

    use super::*;

    /// A deterministic source of pauses (xorshift64, Marsaglia 2003).
    struct Pauses(u64);

    impl Pauses {
        fn pause(&mut self) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            match self.0 % 16 {
                0 => thread::yield_now(),
                steps => (0..steps * steps).for_each(|_| std::hint::spin_loop()),
            }
        }
    }

    fn close(slot: u32) -> Delivery {
        let seat = Seat { event_loop: 0, slot, generation: 0 };
        Delivery::Close { seat, code: 4200, reason: "" }
    }

    /// A loop that sleeps without a time limit receives each addition of four threads. A lost wake-up ends the test
    /// by its limit.
    #[test]
    fn a_sleeping_loop_misses_no_addition_to_its_inbox() {
        const EACH: u32 = 20_000;
        const LIMIT: Duration = Duration::from_mins(1);
        for seed in 1..=4_u64 {
            let mut poll = Poll::new().unwrap();
            let inbox = Arc::new(Inbox::new(Waker::new(poll.registry(), Token(0)).unwrap()));
            let threads: Vec<_> = (1..=4)
                .map(|number| {
                    let inbox = Arc::clone(&inbox);
                    thread::spawn(move || {
                        let mut pauses = Pauses(seed << 32 | number);
                        for count in 0..EACH {
                            pauses.pause();
                            if count % 2 == 0 {
                                inbox.put(AppNumber(0), close(count)).unwrap();
                            } else {
                                let left = inbox.send(LoopCommand::Drain(Duration::ZERO));
                                assert!(left.is_ok(), "the loop has not ended");
                            }
                        }
                    })
                })
                .collect();
            let (mut received, mut pauses) = (0, Pauses(seed));
            let mut events = Events::with_capacity(8);
            while received < 4 * EACH as usize {
                let wait = if inbox.prepare_to_sleep() { LIMIT } else { Duration::ZERO };
                poll.poll(&mut events, Some(wait)).unwrap();
                assert!(wait.is_zero() || !events.is_empty(), "seed {seed}: {received} received");
                let (mut commands, mut deliveries) = (Vec::new(), Vec::new());
                inbox.commands(&mut commands);
                pauses.pause();
                inbox.deliveries(&mut deliveries);
                received += commands.len() + deliveries.len();
            }
            for thread in threads {
                thread.join().unwrap();
            }
        }
    }
}
