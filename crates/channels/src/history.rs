//! Keeps events of one channel for clients that reconnect.
//!
//! Invariants
//! - A client is reported as recovered only if it receives every event after its position, each once and in order.
//! - Offsets restart only with a new epoch.

use std::collections::VecDeque;

use crate::app::History;
use crate::encoded::Encoded;
use crate::moment::Moment;
use crate::socket_id::SocketId;

/// A position in a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Identifies a period in which the channel was kept without a break; written as sixteen hexadecimal digits.
    pub epoch: u64,
    /// Number of events in the epoch so far.
    pub offset: u64,
}

#[derive(Debug)]
pub(crate) struct Kept {
    epoch: u64,
    /// Offset of the newest event.
    offset: u64,
    /// The latest events, without a gap.
    events: VecDeque<Event>,
}

#[derive(Debug)]
struct Event {
    until: Moment,
    message: Encoded,
    /// The socket that was excluded from the event.
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

    /// Adds an event with the next offset.
    pub(crate) fn add(
        &mut self,
        message: Encoded,
        except: Option<SocketId>,
        history: &History,
        now: Moment,
    ) {
        self.offset += 1;
        self.events.push_back(Event { until: now + history.age, message, except });
        while self.events.len() > history.events {
            self.events.pop_front();
        }
    }

    /// Removes expired events.
    pub(crate) fn expire(&mut self, now: Moment) {
        while self.next_end().is_some_and(|end| end <= now) {
            self.events.pop_front();
        }
        if self.events.len() * 4 < self.events.capacity() {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    /// Returns when the oldest event expires; `None` if the history is empty.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        self.events.front().map(|event| event.until)
    }

    /// Returns the events after `position` except those that excluded `socket`; `None` if not all of them are kept.
    pub(crate) fn since(
        &self,
        position: Position,
        socket: Option<SocketId>,
    ) -> Option<Vec<Encoded>> {
        if position.epoch != self.epoch {
            return None;
        }
        let missed = usize::try_from(self.offset.checked_sub(position.offset)?).ok()?;
        let first = self.events.len().checked_sub(missed)?;
        let events = self.events.range(first..);
        let others = events.filter(|event| socket.is_none() || event.except != socket);
        Some(others.map(|event| event.message.clone()).collect())
    }
}
