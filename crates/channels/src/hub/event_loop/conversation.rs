//! The turn of one socket: reading frames, applying the session's decisions, closing.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::connection::{Asking, Connection, Fate, Stage};
use super::super::event_stream;
use super::super::figures::Reason;
use super::super::inbox::LoopCommand;
use super::super::queue::{Form, Overflow};
use super::EventLoop;
use crate::app::App;
use crate::apps::{Answered, AppRef, Found, Unavailable};
use crate::close::Close;
use crate::delivery::Seat;
use crate::hello::{Hello, Target};
use crate::session::{Out, Session};
use crate::socket_id::SocketId;
use crate::websocket::{CloseCode, Message, Violation, close_frame, pong_frame};

/// Maximum number of reads of one socket per turn; the rest waits for the next turn.
const READS: usize = 4;
/// Maximum number of bytes accepted from a client while its application is looked up.
const EARLY: usize = 16 * 1024;

impl EventLoop {
    /// Reads from a readable socket. With `ended` the peer has sent its last bytes.
    pub(super) fn readable(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        ended: bool,
    ) -> Fate {
        for _ in 0..READS {
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = connection.transport.read(&mut buffer);
            let fate = match read {
                Ok(0) => Fate::Ends(gone(connection)),
                Ok(length) => {
                    self.figures.bytes_in.add(length as u64);
                    let (bytes, rest) = buffer.split_at_mut(length);
                    let all = !rest.is_empty() && !ended && connection.transport.short_is_all();
                    let fate = self.input(seat, connection, bytes);
                    if all && fate == Fate::Stays {
                        self.buffer = buffer;
                        return fate;
                    }
                    fate
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.buffer = buffer;
                    return Fate::Stays;
                }
                Err(_) => Fate::Ends(gone(connection)),
            };
            self.buffer = buffer;
            if fate != Fate::Stays {
                return fate;
            }
        }
        self.again.push(seat);
        Fate::Stays
    }

    fn input(&mut self, seat: Seat, connection: &mut Connection, bytes: &mut [u8]) -> Fate {
        match &mut connection.stage {
            Stage::Request(before) if before.is_empty() => self.request(seat, connection, bytes),
            Stage::Request(before) => {
                let mut whole = std::mem::take(before);
                whole.extend_from_slice(bytes);
                self.request(seat, connection, &mut whole)
            }
            _ => self.read_frames(seat, connection, bytes),
        }
    }

    /// Starts a session on a socket whose WebSocket handshake succeeded.
    pub(super) fn open_session(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        target: &str,
        origin: Option<&str>,
    ) {
        self.figures.upgraded.add(1);
        let target = match Target::read(target) {
            Ok(target) => target,
            Err(close) => return self.refuse(connection, close, Reason::Refused),
        };
        if self.sockets.load(Ordering::Relaxed) > self.options.sockets {
            return self.refuse(connection, Close::OVER_CAPACITY, Reason::OverCapacity);
        }
        match self.channels.apps().find(AppRef::Key(&target.key)) {
            Found::App(app) => self.open(seat, connection, app, origin),
            Found::None => self.refuse(connection, Close::NO_SUCH_APP, Reason::Refused),
            Found::Unknown => {
                let origin = origin.map(str::to_owned);
                let asking = Asking { origin, stream: None, read: Vec::new() };
                self.send(seat, connection, &target.key, asking);
            }
        }
    }

    /// Looks up an application that is not known immediately.
    pub(super) fn send(&self, seat: Seat, connection: &mut Connection, key: &str, asking: Asking) {
        connection.stage = Stage::Asking(Box::new(asking));
        let inbox = Arc::clone(&self.inbox);
        let answer = move |app| {
            // A loop that has ended needs no result.
            drop(inbox.send(LoopCommand::App { seat, app }));
        };
        self.channels.apps().ask(AppRef::Key(key), Box::new(answer));
    }

    /// Continues with the result of the look-up.
    pub(super) fn found(&mut self, seat: Seat, connection: &mut Connection, app: Answered) -> Fate {
        let Stage::Asking(asking) = &mut connection.stage else { return Fate::Stays };
        let (origin, mut read) = (asking.origin.take(), std::mem::take(&mut asking.read));
        let app = app
            .map_err(|Unavailable| Close::LOOK_UP_FAILED)
            .and_then(|app| app.ok_or(Close::NO_SUCH_APP));
        if let Some((wanted, answered)) = asking.stream.take() {
            let origin = origin.as_deref();
            match app {
                Ok(app) => self.open_stream(seat, connection, app, &wanted, origin, answered),
                Err(close) => self.refuse_stream(connection, close, origin, answered),
            }
            return Fate::Stays;
        }
        match app {
            Ok(app) => self.open(seat, connection, app, origin.as_deref()),
            Err(close) => self.refuse(connection, close, Reason::Refused),
        }
        self.read_frames(seat, connection, &mut read)
    }

    fn open(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        app: Arc<App>,
        origin: Option<&str>,
    ) {
        connection.limit(&app.limits);
        let socket = SocketId::from_random(self.random.next());
        let hello = Hello { tls: connection.secure, origin, without_origin: false };
        let mut out = std::mem::take(&mut self.out);
        let session = Session::open(app, seat, socket, &hello, &self.channels, self.now, &mut out);
        if let Some(session) = session {
            self.open += 1;
            connection.socket = Some(socket);
            connection.stage = Stage::Open(session);
        }
        self.apply(seat, connection, &mut out);
        self.out = out;
    }

    /// Handles frames of a client.
    pub(super) fn read_frames(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        bytes: &mut [u8],
    ) -> Fate {
        if connection.form == Form::EventStream {
            // Clients of event streams send nothing.
            return Fate::Stays;
        }
        match &mut connection.stage {
            Stage::Asking(asking) if asking.read.len() + bytes.len() > EARLY => {
                self.refuse(connection, Close::OVER_CAPACITY, Reason::Refused);
                return Fate::Stays;
            }
            Stage::Asking(asking) => {
                asking.read.extend_from_slice(bytes);
                return Fate::Stays;
            }
            Stage::Closing { discard_input: true, .. } => return Fate::Stays,
            _ => {}
        }
        let mut at = 0;
        loop {
            let (_, rest) = bytes.split_at_mut(at);
            let step = match connection.decoder.next(rest, connection.rules(), &mut self.inflater) {
                Ok(step) => step,
                Err(close_after_violation) => {
                    self.close_after_violation(connection, close_after_violation);
                    return Fate::Stays;
                }
            };
            at += step.consumed;
            let Some(message) = step.message else { return Fate::Stays };
            self.figures.received.add(1);
            self.message(seat, connection, message);
            if let Stage::Closing { discard_input: true, done, reason } = connection.stage {
                let over = done && connection.queue.is_empty();
                return if over { Fate::Ends(reason) } else { Fate::Stays };
            }
        }
    }

    fn message(&mut self, seat: Seat, connection: &mut Connection, message: Message<'_>) {
        if let Message::Close { code, .. } = message {
            return self.client_closes(connection, code);
        }
        let Stage::Open(session) = &mut connection.stage else { return };
        let mut out = std::mem::take(&mut self.out);
        out.room = connection.queue.room(connection.bound);
        let mut overflow = Ok(());
        match message {
            Message::Text(text) => session.text(&text, &self.channels, self.now, &mut out),
            Message::Binary(_) => session.binary(self.now, &mut out),
            Message::Ping(payload) => {
                session.heard(self.now);
                overflow = connection.queue.push_own(pong_frame(&payload), connection.bound);
            }
            Message::Pong(_) => session.heard(self.now),
            Message::Close { .. } => {}
        }
        self.apply(seat, connection, &mut out);
        self.out = out;
        if overflow == Err(Overflow) {
            self.overflow(connection);
        }
    }

    /// Applies the decisions of a session.
    pub(super) fn apply(&mut self, seat: Seat, connection: &mut Connection, out: &mut Out) {
        let mut overflow = false;
        if out.close.is_none() {
            self.figures.delivered.add(out.frames.len() as u64);
            if let Stage::Open(session) = &connection.stage {
                session.counters().sent.add(out.frames.len() as u64);
            }
            if let Some(epochs) = &mut connection.epochs {
                out.frames.iter().for_each(|frame| epochs.store(frame));
            }
            for frame in out.frames.drain(..) {
                overflow |= connection.queue.push(frame, connection.bound).is_err();
            }
        }
        for channel in out.left.drain(..) {
            self.audiences.leave(channel, &mut connection.places, &mut self.seats);
        }
        for join in out.joined.drain(..) {
            self.audiences.join(join.channel, seat.slot, join.after, &mut connection.places);
            self.audiences.set_ahead(join.channel, seat.slot, join.ahead);
        }
        if let Some(close) = out.close.take() {
            connection.queue.push_last(out.frames.drain(..), None);
            let reason =
                if close == Close::PONG_TIMEOUT { Reason::PongTimeout } else { Reason::Refused };
            self.close(connection, close, reason);
        } else if overflow {
            self.overflow(connection);
        }
    }

    /// Handles a full queue: drops the waiting messages so that the client can receive the close reason.
    pub(super) fn overflow(&mut self, connection: &mut Connection) {
        self.figures.dropped.add(connection.queue.len() as u64);
        connection.queue.clear();
        if let Stage::Open(session) = &connection.stage {
            session.counters().closed_with_error.increase();
        }
        self.refuse(connection, Close::TOO_SLOW, Reason::TooSlow);
    }

    /// Sends an error to a client and closes the connection.
    pub(super) fn refuse(&mut self, connection: &mut Connection, close: Close, reason: Reason) {
        let mut out = Out::default();
        out.refuse(close);
        connection.queue.push_last(out.frames, None);
        self.close(connection, close, reason);
    }

    /// Closes from this side. The session ends now, the connection when the client has closed as well.
    pub(super) fn close(&mut self, connection: &mut Connection, close: Close, reason: Reason) {
        self.leave(connection);
        connection.until = self.now + self.options.close_timeout;
        if connection.form == Form::EventStream {
            // An event stream has no close frame: it ends, and the client reconnects.
            connection.queue.push_last([], Some(event_stream::RETRY.into()));
            connection.stage = Stage::Closing { reason, discard_input: true, done: true };
            return;
        }
        let code = CloseCode::new(close.code).unwrap_or(CloseCode::INTERNAL);
        connection.queue.push_last([], Some(close_frame(Some(code), close.reason)));
        connection.stage = Stage::Closing { reason, discard_input: false, done: false };
    }

    fn client_closes(&mut self, connection: &mut Connection, code: Option<CloseCode>) {
        let reason = if let Stage::Closing { reason, .. } = connection.stage {
            reason
        } else {
            self.leave(connection);
            connection.queue.push_last([], Some(close_frame(code, "")));
            connection.until = self.now + self.options.close_timeout;
            Reason::Client
        };
        connection.stage = Stage::Closing { reason, discard_input: true, done: true };
    }

    /// Closes after a violation of RFC 6455; nothing that the client sends afterwards can be parsed.
    fn close_after_violation(
        &mut self,
        connection: &mut Connection,
        close_after_violation: Violation,
    ) {
        let reason = if let Stage::Closing { reason, .. } = connection.stage {
            reason
        } else {
            self.leave(connection);
            let frame =
                close_frame(Some(close_after_violation.code()), &close_after_violation.to_string());
            connection.queue.push_last([], Some(frame));
            Reason::Violation
        };
        connection.stage = Stage::Closing { reason, discard_input: true, done: false };
        connection.until = self.now + self.options.close_timeout;
    }

    /// Checks whether the connection has reached its deadline.
    pub(super) fn time_out(&mut self, seat: Seat, connection: &mut Connection) -> Fate {
        if self.now < connection.due(self.options.stall_timeout) {
            return Fate::Stays;
        }
        match &mut connection.stage {
            Stage::Request(_) => Fate::Ends(Reason::HandshakeTimeout),
            Stage::Closing { reason, .. } => Fate::Ends(*reason),
            Stage::Asking(asking) => {
                let close = Close::LOOK_UP_FAILED;
                match asking.stream.take() {
                    Some((_, answered)) => self.refuse_stream(connection, close, None, answered),
                    None => self.refuse(connection, close, Reason::Refused),
                }
                Fate::Stays
            }
            Stage::Open(_)
                if connection
                    .blocked
                    .is_some_and(|since| self.now >= since + self.options.stall_timeout) =>
            {
                Fate::Ends(Reason::Stalled)
            }
            Stage::Open(session) if connection.form == Form::EventStream => {
                session.heard(self.now);
                if connection
                    .queue
                    .push_own(event_stream::HEARTBEAT.into(), connection.bound)
                    .is_err()
                {
                    self.overflow(connection);
                }
                Fate::Stays
            }
            Stage::Open(session) => {
                // A client that reads slowly answers the ping after everything sent before it. Acknowledged data
                // shows that it is alive. An acknowledged ping alone does not, because the kernel acknowledges for a
                // program that hangs.
                if let Some(timeout) = session.awaits_pong()
                    && connection.transport.acknowledged_within(timeout / 2)
                {
                    session.extend_pong_timeout(self.now);
                    return Fate::Stays;
                }
                let mut out = std::mem::take(&mut self.out);
                session.idle(self.now, &mut out);
                self.apply(seat, connection, &mut out);
                self.out = out;
                Fate::Stays
            }
        }
    }
}

/// Returns the reason to count when the peer ends the connection.
fn gone(connection: &Connection) -> Reason {
    match connection.stage {
        Stage::Closing { reason, .. } => reason,
        _ => Reason::Gone,
    }
}
