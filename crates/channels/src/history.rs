//! Keeps events of one channel for clients that reconnect.
//!
//! Invariants
//! - A client is reported as recovered only if it receives every event after its position, each once and in order.
//! - Offsets increase. They restart only with a new epoch.
//! - What a client missed fits its queue, or the client is not recovered: an overflow would close it, and it would come
//!   back with the same position.

use std::collections::VecDeque;

use crate::app::History;
use crate::encoded::Encoded;
use crate::moment::Moment;
use crate::registry::places::Place;
use crate::socket_id::SocketId;

/// A position in a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Identifies a period in which the channel was kept without a break; written as sixteen hexadecimal digits.
    pub epoch: u64,
    /// The client has every event up to this offset. With one node it is the number of events in the epoch; with
    /// [a shared log](crate::shared_log) a place in the log.
    pub offset: u64,
}

/// The room for missed events in a client's queue; unlimited by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In bytes of frames.
    pub bytes: usize,
    /// In frames.
    pub messages: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: usize::MAX, messages: usize::MAX }
    }
}

impl Room {
    /// Returns the room beside these frames.
    pub(crate) fn beside(self, frames: &[Encoded]) -> Self {
        let bytes = frames.iter().map(|frame| frame.frame().len()).sum();
        Self {
            bytes: self.bytes.saturating_sub(bytes),
            messages: self.messages.saturating_sub(frames.len()),
        }
    }

    fn fits(self, frames: &[Encoded]) -> bool {
        let bytes: usize = frames.iter().map(|frame| frame.frame().len()).sum();
        bytes <= self.bytes && frames.len() <= self.messages
    }
}

#[derive(Debug)]
pub(crate) struct Kept {
    epoch: u64,
    /// Offset of the newest event.
    newest: u64,
    /// Every event with a higher offset is kept.
    complete_after: u64,
    events: VecDeque<Event>,
    /// Set when the last subscriber has left: the time until which the history is kept, and its place.
    wait: Option<(Moment, Place)>,
}

#[derive(Debug)]
struct Event {
    offset: u64,
    until: Moment,
    message: Encoded,
    /// The socket that was excluded from the event.
    except: Option<SocketId>,
}

impl Kept {
    /// Creates an empty history. Events up to `complete_after` are not kept any more.
    pub(crate) fn new(epoch: u64, complete_after: u64) -> Self {
        Self { epoch, newest: complete_after, complete_after, events: VecDeque::new(), wait: None }
    }

    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch, offset: self.newest }
    }

    /// Keeps it until then without events and subscribers, who may come back.
    pub(crate) fn wait(&mut self, until: Moment, place: Place) {
        self.wait = Some((until, place));
    }

    /// A subscriber has come.
    pub(crate) fn end_wait(&mut self) {
        self.wait = None;
    }

    /// Returns when it changes next; `None` if it holds no events and waits for no subscribers.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        let waits = self.wait.as_ref().map(|(until, _)| *until);
        [waits, self.next_expiry()].into_iter().flatten().min()
    }

    /// Returns the offset up to which events may have been removed.
    pub(crate) fn complete_after(&self) -> u64 {
        self.complete_after
    }

    /// Adds an event with a higher offset than all others; `until` is when it expires.
    pub(crate) fn add(
        &mut self,
        offset: u64,
        message: Encoded,
        except: Option<SocketId>,
        history: &History,
        until: Moment,
    ) {
        self.newest = offset;
        self.events.push_back(Event { offset, until, message, except });
        while self.events.len() > history.events {
            self.remove_oldest();
        }
    }

    /// Removes expired events.
    pub(crate) fn expire(&mut self, now: Moment) {
        self.wait.take_if(|(until, _)| *until <= now);
        while self.next_expiry().is_some_and(|end| end <= now) {
            self.remove_oldest();
        }
        if self.events.len() * 4 < self.events.capacity() {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.complete_after = event.offset;
        }
    }

    fn next_expiry(&self) -> Option<Moment> {
        self.events.front().map(|event| event.until)
    }

    /// Returns the events after `position` except those that excluded `socket`; `None` if not all of them are kept or
    /// fit `room`, or if the position is after `newest`.
    pub(crate) fn since(
        &self,
        position: Position,
        newest: u64,
        socket: Option<SocketId>,
        room: Room,
    ) -> Option<Vec<Encoded>> {
        if position.epoch != self.epoch
            || position.offset < self.complete_after
            || position.offset > newest
        {
            return None;
        }
        let first = self.events.partition_point(|event| event.offset <= position.offset);
        let events = self.events.range(first..);
        let others = events.filter(|event| socket.is_none() || event.except != socket);
        let missed: Vec<_> = others.map(|event| event.message.clone()).collect();
        room.fits(&missed).then_some(missed)
    }
}
