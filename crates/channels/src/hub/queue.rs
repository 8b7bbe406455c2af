//! What waits to be written to one socket.
//!
//! Invariants
//! - It holds at most [`Bound`], by bytes and by number; one more is refused. Only what ends a connection is not counted: it comes once.
//! - It is written in order, and a frame that has begun is finished before anything else.
//! - An empty queue has no memory of its own.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use super::transport::Transport;
use crate::encoded::Encoded;
use crate::websocket::Deflater;

/// The most frames of one write: more bytes than that need a socket buffer larger than most, more slices cost the kernel as much as another call.
const SLICES: usize = 64;

/// The form in which a socket gets messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Frames.
    Plain,
    /// Frames, compressed where the text has at least so many bytes.
    Deflated(u32),
    /// Server-Sent Events.
    EventStream,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) bytes: usize,
    pub(super) messages: usize,
}

/// The queue holds as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

#[derive(Debug)]
enum Queued {
    Message(Encoded),
    Own(Box<[u8]>),
}

impl Queued {
    fn bytes(&self, form: Form, deflater: &mut Deflater) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Message(message) => match form {
                Form::Deflated(from) if message.frame().len() > from as usize => {
                    message.deflated(|text| deflater.frame(text))
                }
                Form::Plain | Form::Deflated(_) => message.frame(),
                Form::EventStream => message.event_stream(super::event_stream::write),
            },
        }
    }

    /// What it counts for, in whatever form it goes out: it is the same memory for all sockets, but each is answerable for the whole.
    fn weight(&self) -> usize {
        match self {
            Self::Message(message) => message.frame().len(),
            Self::Own(bytes) => bytes.len(),
        }
    }
}

/// How a flush went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing waits any more.
    All,
    /// The socket takes no more for now.
    Blocked,
}

/// What one flush moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) bytes: usize,
    pub(super) writes: usize,
}

/// What waits for one socket.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Queued>,
    /// Bytes of the first that are written.
    begun: usize,
    /// Bytes of all messages in it.
    weight: usize,
}

impl Queue {
    /// Adds a message.
    pub(super) fn push(&mut self, message: Encoded, bound: Bound) -> Result<(), Overflow> {
        self.add(Queued::Message(message), bound)
    }

    /// Adds a frame of the hub's own.
    pub(super) fn push_own(&mut self, frame: Box<[u8]>, bound: Bound) -> Result<(), Overflow> {
        self.add(Queued::Own(frame), bound)
    }

    /// Adds what ends the connection, whatever the bound.
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

    /// Forgets all but a frame that has begun: without its end, nothing that follows could be read.
    pub(super) fn clear(&mut self) {
        self.waiting.truncate(usize::from(self.begun > 0));
        self.weight = self.waiting.iter().map(Queued::weight).sum();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Writes until nothing waits or the socket takes no more.
    pub(super) fn flush(
        &mut self,
        transport: &mut Transport,
        form: Form,
        deflater: &mut Deflater,
        moved: &mut Moved,
    ) -> io::Result<Flushed> {
        while !self.waiting.is_empty() {
            let (written, offered) = {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let (mut count, mut offered) = (0, 0);
                for (slice, queued) in slices.iter_mut().zip(&self.waiting) {
                    let mut bytes = queued.bytes(form, deflater);
                    if count == 0 {
                        bytes = bytes.split_at(self.begun).1;
                    }
                    *slice = IoSlice::new(bytes);
                    count += 1;
                    offered += bytes.len();
                }
                moved.writes += 1;
                match transport.write(&slices[..count]) {
                    Ok(written) => (written, offered),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(Flushed::Blocked);
                    }
                    Err(error) => return Err(error),
                }
            };
            moved.bytes += written;
            self.written(written, form, deflater);
            if written < offered && transport.short_is_all() {
                return Ok(Flushed::Blocked);
            }
        }
        self.waiting = VecDeque::new();
        match transport.flush() {
            Ok(()) => Ok(Flushed::All),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Flushed::Blocked),
            Err(error) => Err(error),
        }
    }

    fn written(&mut self, mut bytes: usize, form: Form, deflater: &mut Deflater) {
        while let Some(first) = self.waiting.front() {
            let left = first.bytes(form, deflater).len() - self.begun;
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
