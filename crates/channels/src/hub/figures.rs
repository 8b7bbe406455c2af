//! Counters of a hub.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reasons why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The client sent a close frame (RFC 6455).
    Client,
    /// The connection ended without a close frame.
    Gone,
    /// The protocol rejected it: the key, a limit, the application.
    Refused,
    /// The client did not answer a ping (4201).
    PongTimeout,
    /// The client's queue was full (4100).
    TooSlow,
    /// The client accepted no bytes for too long.
    Stalled,
    /// The client's request took too long.
    HandshakeTimeout,
    /// The client's request was invalid.
    BadRequest,
    /// The client violated RFC 6455.
    Violation,
    /// Messages for the client were lost because the event loop's inbox was full (4200).
    Lost,
    /// The hub stops (4200).
    Drained,
    /// The limit of connections or descriptors is reached (4100, or the connection is just closed).
    OverCapacity,
    /// A panic occurred in the connection's turn: a bug in Hearth.
    Panic,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::Client,
        Self::Gone,
        Self::Refused,
        Self::PongTimeout,
        Self::TooSlow,
        Self::Stalled,
        Self::HandshakeTimeout,
        Self::BadRequest,
        Self::Violation,
        Self::Lost,
        Self::Drained,
        Self::OverCapacity,
        Self::Panic,
    ];

    /// Returns the value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::PongTimeout => "pong_timeout",
            Self::TooSlow => "too_slow",
            Self::Stalled => "stalled",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::BadRequest => "bad_request",
            Self::Violation => "violation",
            Self::Lost => "lost",
            Self::Drained => "drained",
            Self::OverCapacity => "over_capacity",
            Self::Panic => "panic",
        }
    }

    fn index(self) -> usize {
        Self::ALL.iter().position(|reason| *reason == self).expect("all there are")
    }
}

/// Counters of one event loop, which is the only writer.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct LoopFigures {
    pub(super) sockets: Figure,
    pub(super) accepted: Figure,
    pub(super) upgraded: Figure,
    pub(super) handed_over: Figure,
    pub(super) received: Figure,
    pub(super) bytes_in: Figure,
    pub(super) delivered: Figure,
    pub(super) writes: Figure,
    pub(super) bytes_out: Figure,
    pub(super) blocked: Figure,
    pub(super) dropped: Figure,
    pub(super) turns: Figure,
    closed: [Figure; Reason::ALL.len()],
}

impl LoopFigures {
    pub(super) fn closed(&self, reason: Reason) {
        self.closed[reason.index()].add(1);
    }
}

/// A counter with one writer: a store is enough, no atomic addition is needed.
#[derive(Debug, Default)]
pub(super) struct Figure(AtomicU64);

impl Figure {
    pub(super) fn add(&self, by: u64) {
        self.set(self.get().wrapping_add(by));
    }

    pub(super) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of all event loops of a hub since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Open sockets, including those with incomplete requests.
    pub sockets: u64,
    /// Connections accepted from listeners.
    pub accepted: u64,
    /// WebSockets opened.
    pub upgraded: u64,
    /// Connections handed to the other front.
    pub handed_over: u64,
    /// Messages received from clients.
    pub received: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Messages put into sockets' queues.
    pub delivered: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Writes that a socket accepted only partly.
    pub blocked: u64,
    /// Messages dropped because a queue was full.
    pub dropped: u64,
    /// Turns of event loops.
    pub turns: u64,
    /// Closed connections by reason.
    pub closed: [u64; Reason::ALL.len()],
}

impl Figures {
    /// Returns the number of connections closed for this reason.
    pub fn closed_by(&self, reason: Reason) -> u64 {
        self.closed[reason.index()]
    }

    pub(super) fn add(&mut self, of: &LoopFigures) {
        self.sockets += of.sockets.get();
        self.accepted += of.accepted.get();
        self.upgraded += of.upgraded.get();
        self.handed_over += of.handed_over.get();
        self.received += of.received.get();
        self.bytes_in += of.bytes_in.get();
        self.delivered += of.delivered.get();
        self.writes += of.writes.get();
        self.bytes_out += of.bytes_out.get();
        self.blocked += of.blocked.get();
        self.dropped += of.dropped.get();
        self.turns += of.turns.get();
        for (sum, figure) in self.closed.iter_mut().zip(&of.closed) {
            *sum += figure.get();
        }
    }
}
