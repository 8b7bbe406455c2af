//! The HTTP/1.1 connections of an origin that carry no call: which one a call gets, and what their ends say about the origin.
//!
//! Invariants
//! - The connection used last is used next.
//! - A call that is not repeatable gets a connection only if [`Reuse`] allows it. The others stay for calls that are.
//! - After an origin has sent what no request had asked for, no connection that has carried a call is kept.

use std::time::Duration;

use tokio::time::Instant;

use super::reuse::Reuse;

/// The state of a connection without a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Condition {
    /// The connection can carry a call.
    Open,
    /// The origin has closed it.
    Closed,
    /// The origin has sent unsolicited bytes.
    Unasked,
    /// The connection cannot carry another call, for a reason that proves nothing about the origin.
    Spent,
}

/// An HTTP/1.1 connection without a call.
pub(crate) trait Idle {
    /// Returns its state, as far as the reactor knows.
    fn look(&mut self) -> Condition;
    /// Returns its state. The kernel is asked, unless the call may be repeated and the connection was just in use.
    fn probe(&mut self, now: Instant, repeatable: bool) -> Condition;
    /// How many calls it has carried.
    fn calls(&self) -> u64;
    /// Returns whether the origin's last answer said that it keeps the connection.
    fn announced(&self) -> bool;
    /// When it was opened.
    fn born(&self) -> Instant;
    /// How long the origin keeps it without a call, if it said.
    fn kept_for(&self) -> Option<Duration>;
}

/// Observations about an origin's idle connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Noted {
    /// Connections that the origin has closed.
    pub(crate) closed: u64,
    /// Connections on which the origin has sent unsolicited bytes.
    pub(crate) unasked: u64,
    /// The first of these for an hour: from now on the origin's connections are not kept.
    pub(crate) unkept: bool,
}

/// The connections without a call.
#[derive(Debug)]
pub(super) struct Connections<A> {
    /// How long a connection is kept without a call.
    idle: Duration,
    age: Duration,
    list: Vec<Kept<A>>,
    reuse: Reuse,
    noted: Noted,
}

#[derive(Debug)]
struct Kept<A> {
    connection: A,
    since: Instant,
    until: Instant,
    /// When it was last seen open.
    seen: Instant,
}

impl<A: Idle> Connections<A> {
    pub(super) fn new(idle: Duration, age: Duration) -> Self {
        Self { idle, age, list: Vec::new(), reuse: Reuse::default(), noted: Noted::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes a connection for a call. Returns true with it if it is expired, for lack of a younger one.
    pub(super) fn take(&mut self, now: Instant, repeatable: bool) -> Option<(A, bool)> {
        let mut aged = None;
        let mut at = self.list.len();
        while at > 0 {
            at -= 1;
            // Unrequested bytes can remove several connections at once.
            let Some(kept) = self.list.get(at) else { continue };
            if !repeatable && !self.allows(now, kept) {
                continue;
            }
            let mut kept = self.list.remove(at);
            if kept.until <= now {
                continue;
            }
            let condition = kept.connection.probe(now, repeatable);
            if condition != Condition::Open {
                self.note(now, &kept, condition);
                continue;
            }
            if kept.connection.born() + self.age <= now {
                aged.get_or_insert(kept.connection);
                continue;
            }
            return Some((kept.connection, false));
        }
        aged.map(|connection| (connection, true))
    }

    /// Returns whether a call that is not repeatable may use it.
    fn allows(&self, now: Instant, kept: &Kept<A>) -> bool {
        let connection = &kept.connection;
        let idle = now.saturating_duration_since(kept.since);
        self.reuse.may_carry(now, connection.calls(), idle, connection.announced())
    }

    /// Keeps a connection whose call has ended, or returns it if it must be closed. `renewed`: an expired one is not
    /// needed.
    pub(super) fn put_back(&mut self, connection: A, now: Instant, renewed: bool) -> Option<A> {
        if connection.calls() > 1 {
            self.reuse.carried();
        }
        if connection.calls() > 0 && !self.reuse.keeps(now) {
            return Some(connection);
        }
        let aged = connection.born() + self.age <= now;
        if aged && (renewed || !self.list.is_empty()) {
            return Some(connection);
        }
        let kept_for = connection.kept_for().unwrap_or(self.idle).min(self.idle);
        if kept_for.is_zero() {
            return Some(connection);
        }
        self.list.push(Kept { connection, since: now, until: now + kept_for, seen: now });
        None
    }

    /// Learns from a connection that was found in this state.
    fn note(&mut self, now: Instant, kept: &Kept<A>, condition: Condition) {
        match condition {
            Condition::Open | Condition::Spent => {}
            Condition::Closed => {
                // It may have been closed right after it was last seen.
                let idle = kept.seen.saturating_duration_since(kept.since);
                self.closed(now, kept.connection.calls(), idle);
            }
            Condition::Unasked => self.unasked(now),
        }
    }

    /// The origin has closed a connection that had carried `calls` calls, after it was idle for at least `idle`.
    pub(super) fn closed(&mut self, now: Instant, calls: u64, idle: Duration) {
        self.noted.closed += 1;
        self.reuse.closed(now, calls, idle);
    }

    /// The origin has sent unsolicited bytes, so its next bytes may be a wrong response too.
    pub(super) fn unasked(&mut self, now: Instant) {
        self.noted.unasked += 1;
        self.noted.unkept |= self.reuse.unasked(now);
        self.list.retain(|kept| kept.connection.calls() == 0);
    }

    /// Returns what was observed since the last call of this function, if anything was.
    pub(super) fn noted(&mut self) -> Option<Noted> {
        if self.noted == Noted::default() {
            return None;
        }
        Some(std::mem::take(&mut self.noted))
    }

    /// Closes connections that the origin has closed or that have expired.
    pub(super) fn sweep(&mut self, now: Instant) {
        for mut kept in std::mem::take(&mut self.list) {
            match kept.connection.look() {
                Condition::Open => {
                    kept.seen = now;
                    let keeps = kept.connection.calls() == 0 || self.reuse.keeps(now);
                    if keeps && kept.until > now && kept.connection.born() + self.age > now {
                        self.list.push(kept);
                    }
                }
                condition => self.note(now, &kept, condition),
            }
        }
    }

    /// Closes the connection that has been idle longest. Returns false if there is none.
    pub(super) fn evict(&mut self) -> bool {
        let some = !self.list.is_empty();
        self.list.drain(..usize::from(some));
        some
    }

    /// Closes this many connections, the newest first: older ones soon prove that they last. `spare`: not the oldest,
    /// while that is to be found out.
    pub(super) fn make_room(&mut self, now: Instant, connections: usize, spare: bool) {
        let spared = usize::from(spare && self.reuse.undecided(now));
        self.list.truncate(self.list.len().saturating_sub(connections).max(spared));
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}
