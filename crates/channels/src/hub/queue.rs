//! The write queue of one socket.
//!
//! Invariants
//! - It is bounded by [`Bound`] in bytes and messages; one more is rejected. Only the frame that ends a connection is
//!   not counted, and there is only one.
//! - It is written in order, and a started frame is finished before anything else. The head of a response is never
//!   dropped.
//! - An empty queue holds no memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use super::event_stream::{self, Epochs};
use super::transport::Transport;
use crate::encoded::Encoded;
use crate::history::Room;
use crate::websocket::Deflater;

/// Minimum size in bytes of a frame that is written without copying. Smaller ones are first copied side by side,
/// which costs less than a vectored write: with 14 slices of 120 bytes it spends 10 % of its time on the slices.
const LARGE: usize = 16 * 1024;

/// The encoding of messages for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// WebSocket frames.
    Plain,
    /// WebSocket frames, compressed if the text has at least this many bytes.
    Deflated(u32),
    /// Server-Sent Events.
    EventStream,
}

/// Encoding parameters of one socket.
#[derive(Debug)]
pub(super) struct Encoding<'a> {
    pub(super) form: Form,
    pub(super) deflater: &'a mut Deflater,
    /// Epochs of an event stream's channels.
    pub(super) epochs: &'a Epochs,
}

/// Limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) bytes: usize,
    pub(super) messages: usize,
}

/// The error returned when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

#[derive(Debug)]
enum Queued {
    Message(Encoded),
    Own(Box<[u8]>),
    /// The head of a response, always the first.
    Head(Box<[u8]>),
}

impl Queued {
    fn bytes(&self, encoding: &mut Encoding<'_>) -> &[u8] {
        match self {
            Self::Own(bytes) | Self::Head(bytes) => bytes,
            Self::Message(message) => match encoding.form {
                Form::Deflated(from) if message.frame().len() > from as usize => {
                    message.deflated(|text| encoding.deflater.frame(text))
                }
                Form::Plain | Form::Deflated(_) => message.frame(),
                Form::EventStream => {
                    message.event_stream(|text| event_stream::write(text, encoding.epochs))
                }
            },
        }
    }

    /// Returns the size that counts for the limit, independent of the encoding. All sockets share the memory, but
    /// each counts the whole.
    fn weight(&self) -> usize {
        match self {
            Self::Message(message) => message.frame().len(),
            Self::Own(bytes) | Self::Head(bytes) => bytes.len(),
        }
    }
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// The queue is empty.
    All,
    /// The socket accepts no more bytes for now.
    Blocked,
}

/// Amount moved by one flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) bytes: usize,
    pub(super) writes: usize,
}

/// Buffers of emptied queues, reused by other queues. Without them each single message would allocate and free memory
/// for each socket.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<VecDeque<Queued>>);

impl Spares {
    /// Maximum number of buffers kept, half a megabyte in total; buffers for more than a few messages are freed.
    const KEPT: usize = 4096;
    const MESSAGES: usize = 8;

    fn keep(&mut self, empty: VecDeque<Queued>) {
        debug_assert!(empty.is_empty(), "what waits is not thrown away");
        if self.0.len() < Self::KEPT && (1..=Self::MESSAGES).contains(&empty.capacity()) {
            self.0.push(empty);
        }
    }

    fn lend(&mut self) -> VecDeque<Queued> {
        self.0.pop().unwrap_or_default()
    }
}

/// Messages waiting for one socket.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Queued>,
    /// Number of bytes of the first message that are written.
    begun: usize,
    /// Number of bytes of all messages in the queue.
    weight: usize,
}

impl Queue {
    /// Adds a message.
    pub(super) fn push(&mut self, message: Encoded, bound: Bound) -> Result<(), Overflow> {
        self.add(Queued::Message(message), bound)
    }

    /// Adds a message as [`Queue::push`] does, using a spare buffer if there is one.
    pub(super) fn push_with(
        &mut self,
        spares: &mut Spares,
        message: Encoded,
        bound: Bound,
    ) -> Result<(), Overflow> {
        if self.waiting.capacity() == 0 {
            self.waiting = spares.lend();
        }
        let added = self.push(message, bound);
        if self.waiting.is_empty() {
            spares.keep(std::mem::take(&mut self.waiting));
        }
        added
    }

    /// Adds a control frame of the hub.
    pub(super) fn push_own(&mut self, frame: Box<[u8]>, bound: Bound) -> Result<(), Overflow> {
        self.add(Queued::Own(frame), bound)
    }

    /// Adds the head of a response to an empty queue, regardless of the limit.
    pub(super) fn push_head(&mut self, head: Box<[u8]>) {
        debug_assert!(self.waiting.is_empty(), "nothing precedes the head of a response");
        let head = Queued::Head(head);
        self.weight += head.weight();
        self.waiting.push_back(head);
    }

    /// Returns the room for events that a resuming client has missed. A quarter of the queue stays free for replies and
    /// new events.
    pub(super) fn room(&self, bound: Bound) -> Room {
        let left = |bound: usize, used: usize| (bound - bound / 4).saturating_sub(used);
        Room {
            bytes: left(bound.bytes, self.weight),
            messages: left(bound.messages, self.waiting.len()),
        }
    }

    /// Adds the frame that ends the connection, regardless of the limit.
    pub(super) fn push_last(
        &mut self,
        messages: impl IntoIterator<Item = Encoded>,
        end: Option<Box<[u8]>>,
    ) {
        for last in messages.into_iter().map(Queued::Message).chain(end.map(Queued::Own)) {
            self.weight += last.weight();
            self.waiting.push_back(last);
        }
    }

    fn add(&mut self, queued: Queued, bound: Bound) -> Result<(), Overflow> {
        let weight = self.weight + queued.weight();
        if self.waiting.len() >= bound.messages || weight > bound.bytes {
            return Err(Overflow);
        }
        self.weight = weight;
        self.waiting.push_back(queued);
        Ok(())
    }

    /// Removes everything except a frame that has been started and the head of a response, because the client could
    /// parse nothing after an incomplete frame or without the head.
    pub(super) fn clear(&mut self) {
        let is_head = matches!(self.waiting.front(), Some(Queued::Head(_)));
        self.waiting.truncate(usize::from(self.begun > 0 || is_head));
        self.weight = self.waiting.iter().map(Queued::weight).sum();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Writes until the queue is empty or the socket accepts no more. Small frames are copied into `scratch`;
    /// `spares` receives the buffer of an emptied queue.
    pub(super) fn flush(
        &mut self,
        transport: &mut Transport,
        encoding: &mut Encoding<'_>,
        scratch: &mut [u8],
        spares: &mut Spares,
        moved: &mut Moved,
    ) -> io::Result<Flushed> {
        while let Some(first) = self.waiting.front() {
            let (_, first) = first.bytes(encoding).split_at(self.begun);
            let result = if self.waiting.len() == 1 || first.len() >= LARGE {
                transport.write(first).map(|written| (written, first.len()))
            } else {
                let gathered = self.gather(encoding, scratch);
                transport.write(gathered).map(|written| (written, gathered.len()))
            };
            moved.writes += 1;
            let (written, offered) = match result {
                Ok(result) => result,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Flushed::Blocked);
                }
                Err(error) => return Err(error),
            };
            moved.bytes += written;
            self.written(written, encoding);
            if written < offered && transport.short_is_all() {
                return Ok(Flushed::Blocked);
            }
        }
        spares.keep(std::mem::take(&mut self.waiting));
        match transport.flush() {
            Ok(()) => Ok(Flushed::All),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Flushed::Blocked),
            Err(error) => Err(error),
        }
    }

    /// Copies as many frames as fit, starting with the first.
    fn gather<'a>(&self, encoding: &mut Encoding<'_>, scratch: &'a mut [u8]) -> &'a [u8] {
        let (mut length, mut skip) = (0, self.begun);
        for queued in &self.waiting {
            let (_, bytes) = queued.bytes(encoding).split_at(std::mem::take(&mut skip));
            let Some(place) = scratch.get_mut(length..length + bytes.len()) else { break };
            place.copy_from_slice(bytes);
            length += bytes.len();
        }
        scratch.split_at(length).0
    }

    fn written(&mut self, mut bytes: usize, encoding: &mut Encoding<'_>) {
        while let Some(first) = self.waiting.front() {
            let left = first.bytes(encoding).len() - self.begun;
            if bytes < left {
                self.begun += bytes;
                return;
            }
            bytes -= left;
            self.begun = 0;
            self.weight -= first.weight();
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { bytes: 1000, messages: 10 };

    fn message() -> Encoded {
        Encoded::new("{}")
    }

    #[test]
    fn an_emptied_queues_buffer_is_reused() {
        let (mut spares, mut queue) = (Spares::default(), Queue::default());
        spares.keep(VecDeque::with_capacity(4));

        assert_eq!(queue.push_with(&mut spares, message(), BOUND), Ok(()));
        assert!(spares.0.is_empty(), "it was taken");
        spares.keep(VecDeque::with_capacity(4));
        assert_eq!(queue.push_with(&mut spares, message(), BOUND), Ok(()));
        assert_eq!((queue.len(), spares.0.len()), (2, 1), "a queue that has memory takes none");
    }

    #[test]
    fn spare_buffers_are_bounded_after_a_burst() {
        let mut spares = Spares::default();
        spares.keep(VecDeque::new());
        spares.keep(VecDeque::with_capacity(1000));
        assert!(spares.0.is_empty());

        for _ in 0..2 * Spares::KEPT {
            spares.keep(VecDeque::with_capacity(4));
        }
        assert_eq!(spares.0.len(), Spares::KEPT);
    }

    #[test]
    fn a_cleared_queue_keeps_the_head_of_a_response() {
        let mut queue = Queue::default();
        queue.push_head(Box::from(*b"HTTP/1.1 200 OK\r\n\r\n"));
        queue.push(message(), BOUND).unwrap();
        queue.clear();
        assert!(matches!(queue.waiting.front(), Some(Queued::Head(_))));
        assert_eq!((queue.len(), queue.weight), (1, 19));

        let mut queue = Queue::default();
        queue.push(message(), BOUND).unwrap();
        queue.clear();
        assert_eq!((queue.len(), queue.weight), (0, 0));
    }

    #[test]
    fn missed_events_leave_a_quarter_of_the_queue_free() {
        let mut queue = Queue::default();
        assert_eq!(queue.room(BOUND), Room { bytes: 750, messages: 8 });
        queue.push(message(), BOUND).unwrap();
        assert_eq!(queue.room(BOUND), Room { bytes: 746, messages: 7 });
        queue.push_last([Encoded::new(&"a".repeat(1000))], None);
        assert_eq!(queue.room(BOUND), Room { bytes: 0, messages: 6 });
    }

    #[test]
    fn a_rejected_message_leaves_an_empty_queue_empty() {
        let (mut spares, mut queue) = (Spares::default(), Queue::default());
        let none = Bound { bytes: 1, messages: 10 };
        spares.keep(VecDeque::with_capacity(4));

        assert_eq!(queue.push_with(&mut spares, message(), none), Err(Overflow));
        assert_eq!((queue.waiting.capacity(), spares.0.len()), (0, 1));
    }
}
