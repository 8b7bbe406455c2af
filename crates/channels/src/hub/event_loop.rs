//! One event loop: a thread that accepts connections, reads from clients, delivers messages and writes, turn by turn.
//!
//! A turn has these steps. It accepts connections; reads from readable sockets; executes loop commands; puts
//! deliveries into queues, if the sockets of the previous deliveries have been written; checks timers; writes each
//! socket with a non-empty queue once. Every step except waiting has a budget; the rest comes first in the same step
//! of the next turn.

mod arrivals;
mod conversation;
mod fan_out;
mod renewal;
mod streams;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Token, Waker};

use super::audience::{Audiences, Places, Sockets};
use super::clock;
use super::connection::{Connection, Fate, Stage};
use super::dirty::Dirty;
use super::drain::{self, Drain};
use super::event_stream::Epochs;
use super::figures::{LoopFigures, Reason};
use super::inbox::{Inbox, LoopCommand};
use super::listener::Listener;
use super::options::{Options, StartError};
use super::queue::Spares;
use super::seats::Seats;
use super::sys;
use super::wheel::{Tick, Wheel};
use crate::channels::Channels;
use crate::close::Close;
use crate::delivery::{Delivery, Outlet, Seat};
use crate::moment::Moment;
use crate::session::Out;
use crate::websocket::{Deflater, Inflater};
use renewal::Renewal;

/// Maximum number of socket events per wait.
const EVENTS: usize = 1024;
/// Size of the read buffer, shared by all sockets.
const BUFFER: usize = 64 * 1024;
/// Token of the waker. No socket has it, because there are fewer slots.
const WAKER: Token = Token(usize::MAX);
/// Upper end of the listeners' tokens.
const LISTENERS: usize = usize::MAX - 1;
/// Memory is returned to the system only after at least this many sockets, when half of them are closed.
const CROWD: usize = 1024;
/// Interval of checks for memory to return.
const TRIM: Duration = Duration::from_secs(2);
/// Pause before listeners are checked again that have waiting clients but no free descriptor.
const LATER: Duration = Duration::from_millis(100);

pub(super) struct EventLoop {
    number: u16,
    poll: Poll,
    inbox: Arc<Inbox>,
    channels: Channels,
    options: Arc<Options>,
    figures: Arc<LoopFigures>,
    /// Number of sockets of all loops of the hub, including their additional descriptors.
    sockets: Arc<AtomicUsize>,
    listeners: Vec<Listener>,
    /// When to check listeners again that ran out of descriptors.
    later: Option<Moment>,
    /// Running out of descriptors has been logged.
    logged_no_descriptor: bool,

    seats: Seats<Connection>,
    audiences: Audiences,
    wheel: Wheel<Seat>,
    /// Number of sockets with a session.
    open: usize,
    /// Highest number of sockets since memory was last returned.
    peak: usize,
    /// Sockets to write.
    dirty: Dirty,
    /// Sockets with more to read than one turn allows.
    again: Vec<Seat>,
    /// Deliveries taken from the inbox, the next one last.
    deliveries: Vec<Delivery>,
    commands: Vec<LoopCommand>,
    /// Changed applications whose sockets are not all updated yet.
    renewals: VecDeque<Renewal>,
    drain: Option<Drain>,
    /// When to check for memory to return.
    trim: Moment,
    /// When to call [`Channels::tick`].
    tick: Moment,

    buffer: Box<[u8]>,
    spares: Spares,
    inflater: Inflater,
    deflater: Deflater,
    out: Out,
    /// Passed for connections that are no event streams.
    no_epochs: Epochs,
    random: Random,
    now: Moment,
}

impl Sockets for Seats<Connection> {
    fn places(&mut self, slot: u32) -> Option<&mut Places> {
        self.at_mut(slot).map(|connection| &mut connection.places)
    }
}

impl EventLoop {
    pub(super) fn new(
        listeners: Vec<Listener>,
        channels: &Channels,
        options: &Arc<Options>,
        sockets: &Arc<AtomicUsize>,
    ) -> Result<Self, StartError> {
        let poll = Poll::new().map_err(StartError::EventLoop)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(StartError::EventLoop)?;
        let inbox = Arc::new(Inbox::new(waker));
        let outlet: Arc<dyn Outlet> = Arc::<Inbox>::clone(&inbox);
        let number = channels.attach(outlet).ok_or(StartError::TooMany)?;
        let now = clock::now();
        let mut event_loop = Self {
            number,
            poll,
            inbox,
            channels: channels.clone(),
            options: Arc::clone(options),
            figures: Arc::default(),
            sockets: Arc::clone(sockets),
            listeners,
            later: None,
            logged_no_descriptor: false,
            seats: Seats::new(number),
            audiences: Audiences::default(),
            wheel: Wheel::new(now),
            open: 0,
            peak: 0,
            dirty: Dirty::default(),
            again: Vec::new(),
            deliveries: Vec::new(),
            commands: Vec::new(),
            renewals: VecDeque::new(),
            drain: None,
            trim: now,
            tick: now,
            buffer: buffer(),
            spares: Spares::default(),
            inflater: Inflater::default(),
            deflater: Deflater::default(),
            out: Out::default(),
            no_epochs: Epochs::default(),
            random: Random::default(),
            now,
        };
        for (at, listener) in event_loop.listeners.iter_mut().enumerate() {
            listener
                .register(event_loop.poll.registry(), Token(LISTENERS - at))
                .map_err(StartError::EventLoop)?;
        }
        Ok(event_loop)
    }

    pub(super) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    pub(super) fn figures(&self) -> Arc<LoopFigures> {
        Arc::clone(&self.figures)
    }

    /// Runs until a drain has finished.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_done() {
            let wait = self.wait();
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    // epoll_wait(2) has no other error for a valid descriptor.
                    tracing::error!(%error, "an event loop cannot wait for its sockets");
                    break;
                }
                _ => {}
            }
            self.now = clock::now();
            self.turn(&events);
        }
        self.inbox.end();
        for slot in 0..self.seats.slots() {
            if let Some(seat) = self.seats.seat_at(slot) {
                self.with(seat, |_, _, _| Fate::Ends(Reason::Drained));
            }
        }
    }

    fn turn(&mut self, events: &Events) {
        self.figures.turns.add(1);
        for event in events.iter().filter(|event| event.token().0 <= LISTENERS) {
            if let Some(listener) = self.listeners.get_mut(LISTENERS - event.token().0) {
                listener.ready = true;
            }
        }
        self.accept();
        for seat in std::mem::take(&mut self.again) {
            // Read up to the end, because it is not reported again.
            self.with(seat, |this, seat, connection| this.readable(seat, connection, true));
        }
        for event in events {
            self.socket(event);
        }
        self.commands();
        self.deliver();
        self.renew();
        self.timers();
        if self.drain.is_some() {
            self.drain();
        }
        self.flush();
        self.figures.sockets.set(self.seats.len() as u64);
    }

    /// Returns how long to wait for sockets: zero while there is work, `None` when no timer is set.
    fn wait(&self) -> Option<Duration> {
        let accept = self.later.is_none() && self.listeners.iter().any(|listener| listener.ready);
        let busy = accept
            || !self.dirty.is_empty()
            || !self.again.is_empty()
            || !self.renewals.is_empty()
            || !self.deliveries.is_empty();
        if busy || !self.inbox.prepare_to_sleep() {
            return Some(Duration::ZERO);
        }
        let until = |moment: Moment| moment.since(self.now);
        let waits = [
            self.wheel.wait(self.now),
            self.later.map(until),
            (self.peak >= CROWD && self.seats.len() < self.peak / 2).then(|| until(self.trim)),
            (self.number == 0).then(|| until(self.tick)),
            self.drain.map(|_| drain::SLICE),
        ];
        waits.into_iter().flatten().min()
    }

    /// Handles an event of a socket.
    fn socket(&mut self, event: &Event) {
        let Some(seat) = self.seat(event.token()) else { return };
        if event.is_writable()
            && let Some(connection) = self.seats.get_mut(seat)
            && connection.blocked.is_some()
        {
            mark(&mut self.dirty, seat.slot, connection);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            let ended = event.is_read_closed() || event.is_error();
            self.with(seat, |this, seat, connection| this.readable(seat, connection, ended));
        }
    }

    /// Returns memory to the system after many sockets were closed.
    fn trim_memory(&mut self) {
        if self.peak >= CROWD && self.seats.len() < self.peak / 2 {
            self.peak = self.seats.len();
            self.spares = Spares::default();
            sys::trim();
        }
    }

    fn commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        self.inbox.commands(&mut commands);
        for command in commands.drain(..) {
            match command {
                LoopCommand::Adopt(adopted) => self.adopt(*adopted),
                LoopCommand::AdoptStream(adopted) => self.adopt_stream(*adopted),
                LoopCommand::App { seat, app } => {
                    self.with(seat, |this, seat, connection| this.found(seat, connection, app));
                }
                LoopCommand::Drain(patience) => self.begin_drain(patience),
            }
        }
        commands.shrink_to(64);
        self.commands = commands;
    }

    fn timers(&mut self) {
        if self.number == 0 && self.now >= self.tick {
            self.tick = self.now + Duration::from_secs(1);
            self.channels.tick(self.now);
        }
        self.peak = self.peak.max(self.seats.len());
        if self.now >= self.trim {
            self.trim = self.now + TRIM;
            self.trim_memory();
        }
        let mut due = Vec::new();
        self.wheel.due(self.now, &mut due);
        for (tick, seat) in due {
            let Some(connection) = self.seats.get_mut(seat) else { continue };
            if connection.tick != tick {
                continue;
            }
            connection.tick = Tick::NEVER;
            self.with(seat, Self::time_out);
        }
    }

    /// Runs a turn of one socket. A panic in it closes only that socket.
    fn with(&mut self, seat: Seat, turn: impl FnOnce(&mut Self, Seat, &mut Connection) -> Fate) {
        let Some(mut connection) = self.seats.take(seat) else { return };
        match catch_unwind(AssertUnwindSafe(|| turn(self, seat, &mut connection))) {
            Ok(Fate::Stays) => {
                if !connection.queue.is_empty() && connection.blocked.is_none() {
                    mark(&mut self.dirty, seat.slot, &mut connection);
                }
                self.schedule(seat, &mut connection);
                self.seats.put(seat, connection);
            }
            Ok(Fate::Ends(reason)) => self.end(seat, connection, reason),
            Ok(Fate::HandedOver) => self.hand_over(seat, connection),
            Err(_) => {
                tracing::error!(socket = ?connection.socket, "a socket's turn panicked; the socket is closed");
                // The turn owned the buffer; a panic dropped it.
                self.buffer = buffer();
                self.out = Out::default();
                self.end(seat, connection, Reason::Panic);
            }
        }
    }

    /// Adds a socket to the timer wheel, unless it already has an entry that is not later than its deadline.
    fn schedule(&mut self, seat: Seat, connection: &mut Connection) {
        let due = Tick::not_before(connection.due(self.options.stall_timeout));
        if due < connection.tick {
            connection.tick = self.wheel.add(due, seat);
        }
    }

    fn end(&mut self, seat: Seat, mut connection: Box<Connection>, reason: Reason) {
        self.figures.closed(reason);
        self.leave(&mut connection);
        let descriptors = connection.descriptors();
        // The kernel removes a closed descriptor from epoll; deregistering would be an extra call.
        drop(connection);
        self.seats.release(seat);
        self.sockets.fetch_sub(descriptors, Ordering::Relaxed);
    }

    /// Ends a socket's session, if it has one.
    fn leave(&mut self, connection: &mut Connection) {
        self.audiences.leave_all(&mut connection.places, &mut self.seats);
        if !matches!(connection.stage, Stage::Open(_)) {
            return;
        }
        let closing = Stage::Closing { reason: Reason::Gone, discard_input: true, done: true };
        let Stage::Open(session) = std::mem::replace(&mut connection.stage, closing) else {
            return;
        };
        self.open -= 1;
        if catch_unwind(AssertUnwindSafe(|| session.closed(&self.channels, self.now))).is_err() {
            tracing::error!(socket = ?connection.socket, "the end of a session panicked");
        }
    }

    fn begin_drain(&mut self, patience: Duration) {
        for listener in &self.listeners {
            if let Err(error) = listener.lock() {
                tracing::warn!(%error, "connections may be lost while the listener closes");
            }
        }
        self.drain = Some(Drain::new(self.now, patience, self.open));
    }

    fn drain(&mut self) {
        let Some(mut drain) = self.drain else { return };
        if self.now >= drain.listeners_end() && !self.listeners.is_empty() {
            self.accept_all();
            self.listeners.clear();
        }
        let mut slice = drain.slice(self.open, self.now).min(self.open);
        for _ in 0..self.seats.slots() {
            if slice == 0 {
                break;
            }
            let slot = drain.slot % self.seats.slots();
            drain.slot = slot + 1;
            let Some(seat) = self.seats.seat_at(slot) else { continue };
            self.with(seat, |this, _, connection| {
                if matches!(connection.stage, Stage::Open(_)) {
                    slice -= 1;
                    drain.closed += 1;
                    this.close(connection, Close::RECONNECT, Reason::Drained);
                    connection.until = this.now + this.options.close_timeout.min(drain::CLOSING);
                }
                Fate::Stays
            });
        }
        self.drain = Some(drain);
    }

    fn is_done(&self) -> bool {
        let Some(drain) = self.drain else { return false };
        let finished = self.seats.len() == 0 && self.listeners.is_empty();
        finished || self.now >= drain.end(self.options.close_timeout)
    }

    fn seat(&self, token: Token) -> Option<Seat> {
        if token.0 > LISTENERS - self.listeners.len() {
            return None;
        }
        let token = token.0 as u64;
        let slot = u32::try_from(token & u64::from(u32::MAX)).ok()?;
        let generation = u32::try_from(token >> 32).ok()?;
        Some(Seat { event_loop: self.number, slot, generation })
    }
}

fn token(seat: Seat) -> Token {
    let token = u64::from(seat.generation) << 32 | u64::from(seat.slot);
    Token(usize::try_from(token).expect("a machine of 64 bits"))
}

/// Adds a socket to the list of sockets to write at the end of the turn.
fn mark(dirty: &mut Dirty, slot: u32, connection: &mut Connection) {
    if !std::mem::replace(&mut connection.dirty, true) {
        dirty.push(slot);
    }
}

fn buffer() -> Box<[u8]> {
    vec![0; BUFFER].into_boxed_slice()
}

/// Random numbers, fetched from the kernel in blocks.
struct Random {
    bytes: [u8; 512],
    used: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self { bytes: [0; 512], used: 512 }
    }
}

impl Random {
    fn next(&mut self) -> u64 {
        use ring::rand::SecureRandom as _;

        if self.used == self.bytes.len() {
            ring::rand::SystemRandom::new()
                .fill(&mut self.bytes)
                .expect("getrandom(2) has no error for so few bytes");
            self.used = 0;
        }
        let (_, rest) = self.bytes.split_at(self.used);
        let next = rest.first_chunk().expect("a multiple of eight");
        self.used += 8;
        u64::from_ne_bytes(*next)
    }
}
