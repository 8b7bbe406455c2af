//! A hub's numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The client closed, as RFC 6455 has it.
    Client,
    /// The connection ended without a close.
    Gone,
    /// The protocol's decision: the key, a limit, the application.
    Refused,
    /// It did not answer when asked whether it is there (4201).
    PongTimeout,
    /// More waited for it than may (4100).
    TooSlow,
    /// It took nothing at all for too long.
    Stalled,
    /// Its request took too long.
    HandshakeTimeout,
    /// Its request was no good one.
    BadRequest,
    /// It broke RFC 6455.
    Violation,
    /// Messages for it were lost, because the event loop's inbox was full (4200).
    Lost,
    /// The hub ends (4200).
    Drained,
    /// There are as many sockets as there may be (4100, or no descriptor was left).
    OverCapacity,
    /// A panic in its turn: a defect of ours.
    Panic,
}

impl Reason {
    /// All there are.
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

    /// For a metric's label.
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

/// One event loop's numbers, which it alone changes.
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

/// A number of which one thread is the only writer: a store, not an atomic addition.
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

/// What a hub has done since it began, all its event loops together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Sockets there are now, those with unfinished requests too.
    pub sockets: u64,
    /// Connections taken from listeners.
    pub accepted: u64,
    /// WebSockets opened.
    pub upgraded: u64,
    /// Connections given to the other front.
    pub handed_over: u64,
    /// Messages of clients.
    pub received: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Messages put into queues of sockets.
    pub delivered: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Times a socket took less than there was for it.
    pub blocked: u64,
    /// Messages let go because their socket's queue was full.
    pub dropped: u64,
    /// Turns of event loops.
    pub turns: u64,
    /// Sockets that ended, by reason.
    pub closed: [u64; Reason::ALL.len()],
}

impl Figures {
    /// Sockets that ended for this reason.
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
