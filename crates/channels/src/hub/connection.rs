//! The state of one socket in its event loop.

use crate::app::Limits;
use crate::moment::Moment;
use crate::session::Session;
use crate::socket_id::SocketId;
use crate::websocket::{Decoder, Rules, Upgrade};

use super::audience::Places;
use super::event_stream::{Epochs, StreamSubscription};
use super::figures::Reason;
use super::queue::{Bound, Form, Queue};
use super::transport::Transport;
use super::wheel::Tick;

/// A socket, from accept to close.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) stage: Stage,
    pub(super) queue: Queue,
    pub(super) decoder: Decoder,
    pub(super) form: Form,
    /// Socket id, once the session exists.
    pub(super) socket: Option<SocketId>,
    /// Channels to which the socket is subscribed.
    pub(super) places: Places,
    /// Limits of its queue.
    pub(super) bound: Bound,
    /// Maximum size of one incoming message in bytes.
    pub(super) message: usize,
    /// Deadline of the current stage, unless the session determines it.
    pub(super) until: Moment,
    /// Epochs of its channels, if the connection is an event stream.
    pub(super) epochs: Option<Box<Epochs>>,
    /// Tick of its entry in the timer wheel.
    pub(super) tick: Tick,
    /// Time since which the socket has accepted no bytes.
    pub(super) blocked: Option<Moment>,
    /// The socket is in the list of sockets to write at the end of the turn.
    pub(super) dirty: bool,
    /// The event loop is notified when the socket becomes writable.
    pub(super) watches_room: bool,
    /// The client uses TLS.
    pub(super) secure: bool,
    /// Number of additional descriptors that the connection uses.
    pub(super) beside: u8,
}

/// Stage of a connection.
#[derive(Debug)]
pub(super) enum Stage {
    /// The request is incomplete; these bytes have been received.
    Request(Vec<u8>),
    /// The application is being looked up.
    Asking(Box<Asking>),
    /// The session is open.
    Open(Session),
    /// The connection is being closed for this reason.
    Closing {
        reason: Reason,
        /// Incoming bytes are discarded: they could not be parsed, or the client has closed as well.
        discard_input: bool,
        /// The connection ends without a further frame from the client.
        done: bool,
    },
}

/// State kept during the look-up of an application.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) origin: Option<String>,
    /// The requested event stream, if any, and whether the response head has been written.
    pub(super) stream: Option<(StreamSubscription, bool)>,
    /// Bytes received in the meantime.
    pub(super) read: Vec<u8>,
}

/// The next step of a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Fate {
    Stays,
    Ends(Reason),
    /// The connection is handed to the other front together with its stage.
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

    /// Returns the number of descriptors that the connection uses.
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

    /// Returns the next deadline at which the loop must check the connection.
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
