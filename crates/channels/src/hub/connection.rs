//! One socket, as its event loop has it.

use crate::app::Limits;
use crate::moment::Moment;
use crate::session::Session;
use crate::socket_id::SocketId;
use crate::websocket::{Decoder, Rules, Upgrade};

use super::audience::Places;
use super::event_stream::{Epochs, Wanted};
use super::figures::Reason;
use super::queue::{Bound, Form, Queue};
use super::transport::Transport;
use super::wheel::Tick;

/// A socket from when it is accepted to when it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) stage: Stage,
    pub(super) queue: Queue,
    pub(super) decoder: Decoder,
    pub(super) form: Form,
    /// Its id, once it has a session.
    pub(super) socket: Option<SocketId>,
    /// The channels it hears.
    pub(super) places: Places,
    /// How much may wait for it.
    pub(super) bound: Bound,
    /// Bytes of one message from it.
    pub(super) message: usize,
    /// When it has to be done with its stage, where that is not the session's to say.
    pub(super) until: Moment,
    /// Of the channels it hears, if it is an event stream.
    pub(super) epochs: Option<Box<Epochs>>,
    /// When it comes up in the timer wheel.
    pub(super) tick: Tick,
    /// Since when it takes nothing.
    pub(super) blocked: Option<Moment>,
    /// It is among those that are written to at the end of the turn.
    pub(super) dirty: bool,
    /// The loop hears when there is room to write.
    pub(super) watches_room: bool,
    /// Does the client speak TLS?
    pub(super) secure: bool,
    /// Descriptors that it costs beside its own.
    pub(super) beside: u8,
}

/// How far a socket is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its request is not here, or not whole: what there is of it.
    Request(Vec<u8>),
    /// Its application is being asked for.
    Asking(Box<Asking>),
    /// It has a session.
    Open(Session),
    /// It is being closed, for this reason.
    Closing {
        reason: Reason,
        /// Whatever comes is let go: it could not be read, or the client has closed as well.
        deaf: bool,
        /// Nothing has to come from the client before the connection ends.
        done: bool,
    },
}

/// What is kept while an application is asked for.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) origin: Option<String>,
    /// What it is to hear, if it is to be an event stream, and whether the head of the answer has been written.
    pub(super) stream: Option<(Wanted, bool)>,
    /// What came meanwhile.
    pub(super) read: Vec<u8>,
}

/// What becomes of a socket after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Fate {
    Stays,
    Ends(Reason),
    /// To the other front, with what its stage holds.
    HandedOver,
}

impl Connection {
    pub(super) fn new(transport: Transport, secure: bool, until: Moment) -> Self {
        let limits = Limits::default();
        Self {
            transport,
            stage: Stage::Request(Vec::new()),
            queue: Queue::default(),
            decoder: Decoder::new(),
            form: Form::Plain,
            socket: None,
            places: Places::new(),
            bound: Bound { bytes: limits.queue_bytes, messages: limits.queue_messages },
            message: limits.message,
            until,
            epochs: None,
            tick: Tick::NEVER,
            blocked: None,
            dirty: false,
            watches_room: false,
            secure,
            beside: 0,
        }
    }

    /// Descriptors that it costs.
    pub(super) fn descriptors(&self) -> usize {
        1 + usize::from(self.beside)
    }

    pub(super) fn limit(&mut self, limits: &Limits) {
        self.bound = Bound { bytes: limits.queue_bytes, messages: limits.queue_messages };
        self.message = limits.message;
    }

    pub(super) fn agree(&mut self, upgrade: Upgrade, deflate: Option<u32>) {
        if let Some(from) = deflate.filter(|_| upgrade.deflate()) {
            self.form = Form::Deflated(from);
        }
    }

    pub(super) fn rules(&self) -> Rules {
        Rules { message: self.message, deflate: matches!(self.form, Form::Deflated(_)) }
    }

    /// When the loop has to look at it again, if nothing happens until then.
    pub(super) fn due(&self, stall: std::time::Duration) -> Moment {
        let stage = match &self.stage {
            Stage::Open(session) => session.due(),
            _ => self.until,
        };
        match self.blocked {
            Some(since) => stage.min(since + stall),
            None => stage,
        }
    }
}
