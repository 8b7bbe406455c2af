//! Decides which connection carries a call, and when connections are opened and closed. It uses no sockets and no clock: `now` is passed in.
//!
//! HTTP/1.1: one call per connection at a time; the most recently used one is used next, so that surplus ones expire.
//! HTTP/2: one connection carries all, and is the best there is for a cold burst, for its congestion window grows fastest. More are
//! opened when streams would have to wait, or when a burst meets a connection whose window has gone cold: then several begin at
//! once. Calls are spread over all of them.
//!
//! A slow attempt may have reached a backend that does not answer. After [`LATE`] one more is started beside it for waiting calls, the next
//! four times as long after that, and so on.
//!
//! Invariants
//! - At most [`Limits::http1`] and [`Limits::http2`] connections, those being opened counted.
//! - Until the origin's HTTP version is known, one connection is opened for all waiting calls; beside late ones, one at a time.
//! - A connection past its idle time is never used; one past its maximum age is used only until its successor is open.

mod idle;
mod reuse;

use std::time::Duration;

use tokio::time::Instant;

use idle::Connections;
pub(crate) use idle::{Condition, Idle, Noted};

/// Streams on one connection that make a burst.
pub(super) const BURST: usize = 8;
/// The pause after a failed attempt while there are other connections or attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The time after which an attempt is late. A lost SYN is sent again only then (RFC 6298, 2.1).
pub(super) const LATE: Duration = Duration::from_secs(1);
/// The factor by which the pauses between attempts beside late ones grow.
const PATIENCE: u32 = 4;

/// The part of [`crate::Options`] that [`Plan`] needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) http1: usize,
    pub(super) http2: usize,
    pub(super) idle: Duration,
    pub(super) age: Duration,
    pub(super) cold: Duration,
}

/// The origin's protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// An HTTP/2 connection.
pub(super) trait Shared {
    /// Returns how many further streams it accepts; `None`: no new ones any more.
    fn room(&mut self) -> Option<usize>;
    /// When it was opened.
    fn born(&self) -> Instant;
}

/// The number of an HTTP/2 connection.
pub(super) type Id = u64;

#[derive(Debug)]
struct Slot<B> {
    id: Id,
    connection: B,
    active: usize,
    /// When it was last used; during use, when that began.
    last: Instant,
    /// Whether it was cold when its current use began.
    woke_cold: bool,
}

/// The connections of one origin.
#[derive(Debug)]
pub(super) struct Plan<A, B> {
    limits: Limits,
    protocol: Option<Protocol>,
    idle: Connections<A>,
    busy: usize,
    slots: Vec<Slot<B>>,
    next: Id,
    /// When each running attempt was started.
    attempts: Vec<Instant>,
    /// The number of attempts started beside late ones since a connection was opened.
    beside: u32,
    /// Whether an expired connection is in use, for lack of a successor.
    renew: bool,
    /// The number of connections wanted because a burst has met a cold one.
    grow_to: usize,
    paused_until: Option<Instant>,
}

/// A connection for a call.
#[derive(Debug, PartialEq)]
pub(super) enum Taken<A, B> {
    Http1(A),
    Http2(Id, B),
}

impl<A: Idle, B: Shared + Clone> Plan<A, B> {
    pub(super) fn new(limits: Limits, protocol: Option<Protocol>) -> Self {
        Self {
            limits,
            protocol,
            idle: Connections::new(limits.idle, limits.age),
            busy: 0,
            slots: Vec::new(),
            next: 0,
            attempts: Vec::new(),
            beside: 0,
            renew: false,
            grow_to: 0,
            paused_until: None,
        }
    }

    /// Returns the number of open connections, in use or not.
    pub(super) fn open(&self) -> usize {
        self.idle.len() + self.busy + self.slots.len()
    }

    /// Returns the number of running attempts.
    pub(super) fn connecting(&self) -> usize {
        self.attempts.len()
    }

    /// Returns the number of running attempts that are not late.
    fn fresh(&self, now: Instant) -> usize {
        self.attempts.iter().filter(|begun| now < **begun + LATE).count()
    }

    /// Returns whether all running attempts are late, so that another is started beside them.
    fn overdue(&self, now: Instant) -> bool {
        // An hour later there is another in any case.
        let patience = LATE * PATIENCE.pow(self.beside.min(6));
        !self.attempts.is_empty() && self.attempts.iter().all(|begun| *begun + patience <= now)
    }

    /// Returns whether an attempt was started for a caller that arrived at this time, or has timed out since.
    pub(super) fn tried(&self, since: Instant, now: Instant) -> bool {
        self.attempts
            .iter()
            .any(|begun| *begun == since || (since < *begun && *begun + LATE <= now))
    }

    /// Returns whether connections are opened quickly: an attempt has begun since this time, and none is late.
    pub(super) fn moves(&self, since: Instant, now: Instant) -> bool {
        self.attempts.iter().any(|begun| *begun > since) && self.fresh(now) == self.attempts.len()
    }

    /// Returns whether there is neither a connection nor an attempt.
    pub(super) fn empty(&self) -> bool {
        self.open() == 0 && self.attempts.is_empty()
    }

    /// Sets the protocol after the origin has proved to use another one.
    pub(super) fn speaks(&mut self, protocol: Protocol) {
        self.protocol = Some(protocol);
    }

    /// Returns whether the origin is known to speak HTTP/2.
    pub(super) fn shares(&self) -> bool {
        self.protocol == Some(Protocol::Http2)
    }

    /// A connection for a call, if one is free. `repeatable`: one that may be made again. `most`: as many HTTP/2 connections may there be for it.
    pub(super) fn take(
        &mut self,
        now: Instant,
        repeatable: bool,
        most: usize,
    ) -> Option<Taken<A, B>> {
        if let Some((id, connection)) = self.take_stream(now, most) {
            return Some(Taken::Http2(id, connection));
        }
        self.take_idle(now, repeatable).map(Taken::Http1)
    }

    fn take_idle(&mut self, now: Instant, repeatable: bool) -> Option<A> {
        let (connection, aged) = self.idle.take(now, repeatable)?;
        self.renew |= aged;
        self.busy += 1;
        Some(connection)
    }

    /// HTTP/1.1 connections without a call are kept, though [`Plan::take`] has found none for a call.
    pub(super) fn passes_over(&self) -> bool {
        !self.idle.is_empty()
    }

    /// The origin has sent unsolicited bytes.
    pub(super) fn unasked(&mut self, now: Instant) {
        self.idle.unasked(now);
    }

    /// The origin has closed a kept connection under a call, without a response. It had carried `calls` calls before,
    /// and been idle for `idle`.
    pub(super) fn closed_under_call(&mut self, now: Instant, calls: u64, idle: Duration) {
        self.idle.closed(now, calls, idle);
    }

    /// Returns the observations about idle connections since the last call of this function, if there are any.
    pub(super) fn noted(&mut self) -> Option<Noted> {
        self.idle.noted()
    }

    fn take_stream(&mut self, now: Instant, most: usize) -> Option<(Id, B)> {
        if self.slots.is_empty() {
            return None;
        }
        let limits = self.limits;
        let mut rooms = Vec::with_capacity(self.slots.len());
        self.slots.retain_mut(|slot| {
            let room = slot.connection.room();
            rooms.extend(room);
            room.is_some()
        });
        let aged = |slot: &Slot<B>| slot.connection.born() + limits.age <= now;
        if self.slots.iter().any(aged) {
            if self.slots.iter().all(aged) {
                self.renew = true;
            } else {
                let mut rooms_left = Vec::with_capacity(rooms.len());
                let mut at = 0;
                self.slots.retain(|slot| {
                    let keep = !aged(slot);
                    if keep {
                        rooms_left.extend(rooms.get(at));
                    }
                    at += 1;
                    keep
                });
                rooms = rooms_left;
            }
        }
        let free = self.slots.iter_mut().zip(&rooms).filter(|(slot, room)| slot.active < **room);
        // The least busy one; among equals the one used last, which is the warmest.
        let (slot, _) = free.min_by_key(|(slot, _)| (slot.active, std::cmp::Reverse(slot.last)))?;
        if slot.active == 0 {
            slot.woke_cold = slot.last + limits.cold < now;
            slot.last = now;
        }
        slot.active += 1;
        let taken = (slot.id, slot.connection.clone());
        if slot.woke_cold && slot.active >= BURST {
            let active: usize = self.slots.iter().map(|slot| slot.active).sum();
            self.grow_to = self.grow_to.max(active.div_ceil(BURST).min(limits.http2).min(most));
        }
        Some(taken)
    }

    /// Returns how many connections to open now for this many waiting calls, and counts them as being opened. `most`:
    /// maximum number of HTTP/2 connections for the waiting calls.
    pub(super) fn wanted(&mut self, now: Instant, waiting: usize, most: usize) -> usize {
        let connecting = self.connecting();
        // Unless there is nothing else to wait for.
        let paused = self.paused_until.is_some_and(|until| now < until)
            && (self.open() > 0 || self.fresh(now) > 0);
        let beside = self.overdue(now);
        let one = usize::from((waiting > 0 || self.renew) && (connecting == 0 || beside));
        let wanted = match self.protocol {
            _ if paused => 0,
            None => {
                let most = self.limits.http1.min(self.limits.http2);
                one.min(most.saturating_sub(connecting))
            }
            Some(Protocol::Http1) => {
                let lacking = waiting.saturating_sub(connecting).max(one);
                let taken = self.busy + connecting;
                if waiting > connecting {
                    // No call that waits may use the idle ones.
                    let most = self.limits.http1.saturating_sub(taken + lacking);
                    let over = self.idle.len().saturating_sub(most);
                    self.idle.make_room(now, over, self.limits.http1 > 1);
                }
                lacking.min(self.limits.http1.saturating_sub(taken + self.idle.len()))
            }
            Some(Protocol::Http2) => {
                let coming = self.slots.len() + connecting;
                let grown = self.grow_to.saturating_sub(coming);
                // Whatever is renewed goes: its successor may be one too many for a moment.
                let spare = usize::from(self.renew);
                let most = self.limits.http2.min(most) + spare;
                let one = one.min(most.saturating_sub(coming));
                one.max(grown.min((self.limits.http2 + spare).saturating_sub(coming)))
            }
        };
        self.renew = false;
        self.grow_to = 0;
        if wanted > 0 && beside {
            self.beside += 1;
        }
        self.attempts.extend(std::iter::repeat_n(now, wanted));
        wanted
    }

    /// Returns whether an attempt is running whose connection the caller at this place in the queue can get, and
    /// which is not late.
    pub(super) fn makes_for(&self, place: usize, now: Instant) -> bool {
        match self.protocol {
            Some(Protocol::Http1) => self.fresh(now) >= place,
            Some(Protocol::Http2) | None => self.fresh(now) > 0,
        }
    }

    /// Returns how many of the waiting callers, the first ones, can get a connection from the running attempts.
    pub(super) fn connecting_for(&self) -> usize {
        match self.protocol {
            Some(Protocol::Http1) => self.connecting(),
            Some(Protocol::Http2) | None if self.connecting() > 0 => usize::MAX,
            Some(Protocol::Http2) | None => 0,
        }
    }

    /// Starts one more attempt regardless of need, for prewarming.
    pub(super) fn one_more(&mut self, now: Instant) {
        self.attempts.push(now);
    }

    /// The attempt that started at this time has ended.
    fn over(&mut self, begun: Instant) {
        let at = self.attempts.iter().position(|attempt| *attempt == begun);
        self.attempts.swap_remove(at.expect("it is over once"));
        if self.attempts.is_empty() {
            self.beside = 0;
        }
    }

    fn connected(&mut self, begun: Instant, protocol: Protocol) {
        self.over(begun);
        self.beside = 0;
        self.protocol = Some(protocol);
        self.paused_until = None;
    }

    /// An HTTP/1.1 connection was opened; it is in use until it is put back.
    pub(super) fn connected_http1(&mut self, begun: Instant) {
        self.connected(begun, Protocol::Http1);
        self.busy += 1;
    }

    /// An HTTP/2 connection was opened.
    pub(super) fn connected_http2(&mut self, begun: Instant, connection: B, now: Instant) -> Id {
        self.connected(begun, Protocol::Http2);
        let id = self.next;
        self.next += 1;
        self.slots.push(Slot { id, connection, active: 0, last: now, woke_cold: false });
        id
    }

    /// An attempt has failed. Returns how many of the waiting callers get the error, the first ones: the others have
    /// another attempt to wait for.
    pub(super) fn failed(&mut self, begun: Instant, now: Instant, waiting: usize) -> usize {
        self.over(begun);
        self.paused_until = Some(now + PAUSE);
        let fresh = self.fresh(now);
        match self.protocol {
            _ if self.empty() => waiting,
            // It was opened for one.
            Some(Protocol::Http1) => usize::from(waiting > fresh),
            // It was opened for all. Where there is a connection its streams come free.
            Some(Protocol::Http2) | None if self.open() == 0 && fresh == 0 => waiting,
            Some(Protocol::Http2) | None => 0,
        }
    }

    /// An attempt was given up, because it was not needed or took too long.
    pub(super) fn given_up(&mut self, begun: Instant) {
        self.over(begun);
    }

    /// An HTTP/1.1 connection whose call has ended can carry another. Returns it if it must be closed.
    pub(super) fn put_back(&mut self, connection: A, now: Instant) -> Option<A> {
        self.busy -= 1;
        self.idle.put_back(connection, now, !self.attempts.is_empty())
    }

    /// An HTTP/1.1 connection was lost during its call.
    pub(super) fn lost(&mut self) {
        self.busy -= 1;
    }

    /// A stream has ended.
    pub(super) fn release(&mut self, id: Id, now: Instant) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == id) {
            slot.active -= 1;
            slot.last = now;
        }
    }

    /// An HTTP/2 connection was lost, or accepts no new streams. Its running streams continue.
    pub(super) fn remove(&mut self, id: Id) {
        self.slots.retain(|slot| slot.id != id);
    }

    /// Closes the connection that has been idle longest.
    pub(super) fn evict(&mut self) -> bool {
        if self.idle.evict() {
            return true;
        }
        let idle = |slot: &&Slot<B>| slot.active == 0;
        let oldest =
            self.slots.iter().filter(idle).min_by_key(|slot| slot.last).map(|slot| slot.id);
        match oldest {
            Some(id) => {
                self.remove(id);
                true
            }
            None => false,
        }
    }

    /// Drops connections that are expired or closed.
    pub(super) fn sweep(&mut self, now: Instant) {
        let limits = self.limits;
        self.idle.sweep(now);
        self.slots.retain_mut(|slot| {
            let young = slot.connection.born() + limits.age > now;
            slot.connection.room().is_some() && (slot.active > 0 || young)
        });
        // One HTTP/2 connection lives on its age alone: PING keeps it. Those beyond it were for a burst.
        while self.slots.len() > 1 {
            let idle = |slot: &&Slot<B>| slot.active == 0 && slot.last + limits.idle <= now;
            let Some(id) = self.slots.iter().filter(idle).map(|slot| slot.id).max() else { break };
            self.remove(id);
        }
    }

    /// Drops connections without a call. HTTP/2 connections end with their last stream.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
        self.slots.clear();
    }
}

#[cfg(test)]
mod tests;
