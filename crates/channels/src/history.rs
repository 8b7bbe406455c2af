//! Events of one channel, kept for clients that come back.
//!
//! Invariants
//! - A client is told it has recovered only when it gets every event after the one it names, each once and in order.
//! - Offsets begin anew only with a new epoch.

use std::collections::VecDeque;
use std::time::Duration;

use crate::encoded::Encoded;
use crate::moment::Moment;
use crate::socket_id::SocketId;

/// A place in a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// While the channel is kept without a break; shown as sixteen hexadecimal digits.
    pub epoch: u64,
    /// How many events there were.
    pub offset: u64,
}

#[derive(Debug)]
pub(crate) struct Kept {
    epoch: u64,
    /// Of the newest event.
    offset: u64,
    /// The last ones, without a gap.
    events: VecDeque<Event>,
}

#[derive(Debug)]
struct Event {
    at: Moment,
    message: Encoded,
    /// Who had it already.
    except: Option<SocketId>,
}

impl Kept {
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, offset: 0, events: VecDeque::new() }
    }

    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch, offset: self.offset }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What the next event will have.
    pub(crate) fn next_offset(&self) -> u64 {
        self.offset + 1
    }

    /// Keeps the next event, and no more than `limit`.
    pub(crate) fn add(
        &mut self,
        message: Encoded,
        except: Option<SocketId>,
        limit: usize,
        now: Moment,
    ) {
        self.offset += 1;
        self.events.push_back(Event { at: now, message, except });
        while self.events.len() > limit {
            self.events.pop_front();
        }
    }

    /// Forgets what is older than `age`.
    pub(crate) fn expire(&mut self, age: Duration, now: Moment) {
        while self.events.front().is_some_and(|event| event.at + age <= now) {
            self.events.pop_front();
        }
        if self.events.len() * 4 < self.events.capacity() {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    /// When the newest event is forgotten; none when nothing is kept.
    pub(crate) fn ends(&self, age: Duration) -> Option<Moment> {
        self.events.back().map(|event| event.at + age)
    }

    /// What came after `position`, but for what `socket` itself had said; none when not all of it is kept.
    pub(crate) fn since(
        &self,
        position: Position,
        socket: Option<SocketId>,
    ) -> Option<Vec<Encoded>> {
        let missed = self.offset.checked_sub(position.offset)?;
        let missed = usize::try_from(missed).ok()?;
        let first = self.events.len().checked_sub(missed)?;
        if position.epoch != self.epoch {
            return None;
        }
        let events = self.events.range(first..);
        let others = events.filter(|event| socket.is_none() || event.except != socket);
        Some(others.map(|event| event.message.clone()).collect())
    }
}
