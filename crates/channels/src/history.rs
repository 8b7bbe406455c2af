//! Events of one channel, kept for clients that come back.
//!
//! Invariants
//! - A client is told it has recovered only when it gets every event after the one it names, each once and in order.
//! - Offsets begin anew only with a new epoch.

use std::collections::VecDeque;

use crate::app::History;
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
    until: Moment,
    message: Encoded,
    /// Who did not want to hear it.
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

    /// Keeps the next event: it has the next offset.
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

    /// Forgets what is too old.
    pub(crate) fn expire(&mut self, now: Moment) {
        while self.next_end().is_some_and(|end| end <= now) {
            self.events.pop_front();
        }
        if self.events.len() * 4 < self.events.capacity() {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    /// When the oldest event will be too old; none when nothing is kept.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        self.events.front().map(|event| event.until)
    }

    /// What came after `position`, but for what `socket` did not want to hear; none when not all of it is kept.
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
