//! One open WebSocket: reads messages, has the application handle them, and writes what waits for the client.
//!
//! Invariants
//! - One event at a time, in the order of arrival; pings are answered and a close is noticed meanwhile.
//! - At most [`AHEAD`] messages wait for the application, of [`super::WebSocketLimits::message`] bytes together or one
//!   larger; then nothing is read. While the outbox is full no message is handled.
//! - An idle connection holds no buffer. What comes after a violation or both close frames is not kept.
//! - Whatever ends the connection, its close event comes last.
//! - A client that has left gets no answer, but what it sent is read and handled. A server that leaves reads what is
//!   there, at most as much as one message may have, and handles it.

mod ending;
mod incoming;
mod transfer;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use channels::websocket::{CloseCode, Decoder, Inflater, Rules, ping_frame, pong_frame};
use http::{Response, header};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use self::ending::{Ending, Reason};
use self::incoming::Incoming;
use self::transfer::{read_now, read_some, write_some};
use super::events::{self, Event, Failed, Visitor};
use super::outbox::Ask;
use super::rate::Rate;
use super::registry::Seat;
use crate::application::Application;
use crate::front::Shared;

/// Maximum number of messages that wait for the application.
const AHEAD: usize = 8;
/// How long a client may take for its close frame and for the end of its connection, once ours has been written.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a client may accept nothing once the server leaves: less than a stop takes, so that its end is reported.
const LEAVE_PATIENCE: Duration = Duration::from_secs(10);
/// When the clock is looked at if nothing is due.
const FAR: Duration = Duration::from_hours(1);
/// The reason that a client reads, whatever went wrong.
const FAILED: &str = "the application failed";
/// An accepted connection whose handshake is being written.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) visitor: Visitor,
    pub(crate) seat: Seat,
    /// permessage-deflate was negotiated.
    pub(crate) deflate: bool,
}

/// Reports the end of a connection whose handshake was not written.
pub(crate) async fn lost<A: Application>(front: &Shared<A>, accepted: Accepted) {
    let reason = Reason { code: Reason::LOST, text: String::new() };
    accepted.seat.socket.figures().opened.fetch_add(1, Relaxed);
    close_event(front, &accepted.seat, &accepted.visitor, reason).await;
}

/// An open connection that is served as long as it is polled: until it has ended and its close event is handled.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins to serve a connection. `read` is what came after the upgrade.
///
/// What it returns outlives the future that served HTTP on this connection, and is all that an idle one holds.
pub(crate) fn begin<A: Application, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    front: Arc<Shared<A>>,
    accepted: Box<Accepted>,
    stream: S,
    read: &[u8],
    drain: CancellationToken,
) -> Running {
    let (reader, writer) = tokio::io::split(stream);
    let input = if read.is_empty() { BytesMut::new() } else { BytesMut::from(read) };
    Box::pin(run(front, accepted, reader, writer, input, drain))
}

async fn run<A: Application, S: AsyncRead + AsyncWrite + Unpin>(
    front: Arc<Shared<A>>,
    accepted: Box<Accepted>,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    input: BytesMut,
    drain: CancellationToken,
) {
    let Accepted { visitor, seat, deflate } = &*accepted;
    seat.socket.figures().opened.fetch_add(1, Relaxed);
    let now = Instant::now();
    let mut session = Session {
        seat,
        visitor,
        write_timeout: front.patience.write,
        rules: Rules { message: visitor.limits.message, deflate: *deflate },
        reader,
        writer,
        input,
        decoder: Decoder::new(),
        pending: VecDeque::new(),
        pending_bytes: 0,
        rate: Rate::new(visitor.limits.rate),
        output: Bytes::new(),
        unflushed: false,
        output_since: now,
        heard: now,
        pinged: None,
        active: now,
        ending: Ending::default(),
        to_read: 0,
    };
    let reason = session.serve(&front, &drain).await;
    Box::pin(close_event(&front, seat, visitor, reason)).await;
}

async fn close_event<A: Application>(
    front: &Shared<A>,
    seat: &Seat,
    visitor: &Visitor,
    reason: Reason,
) {
    seat.forget();
    let _turn = front.websockets.closing.acquire().await.expect("it is never closed");
    let Reason { code, text: reason } = reason;
    let _ignored = events::call(front, seat, visitor, Event::Close { code, reason }).await;
    seat.socket.figures().closed.fetch_add(1, Relaxed);
}

type Handling<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Failed>> + Send + 'a>>;

struct Session<'a, S> {
    seat: &'a Seat,
    visitor: &'a Visitor,
    write_timeout: Duration,
    rules: Rules,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    /// Received and not decoded.
    input: BytesMut,
    decoder: Decoder,
    /// Messages that wait for the application.
    pending: VecDeque<Event>,
    pending_bytes: usize,
    rate: Rate,
    /// Being written.
    output: Bytes,
    unflushed: bool,
    /// When the client last took something, or there was nothing to take.
    output_since: Instant,
    /// When the client last sent something, or was not read from.
    heard: Instant,
    /// When the unanswered ping was sent.
    pinged: Option<Instant>,
    /// When the last message was sent or received.
    active: Instant,
    ending: Ending,
    /// How many bytes that are there are still read now that the server leaves.
    to_read: usize,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Session<'a, S> {
    /// Serves until the connection has ended, and returns why.
    async fn serve<A: Application>(
        &mut self,
        front: &'a Arc<Shared<A>>,
        drain: &CancellationToken,
    ) -> Reason {
        let mut handling: Option<Handling<'a>> = None;
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        let (mut alive, mut unreachable) = (true, false);
        loop {
            if alive {
                self.decode();
                self.read_last().await;
                self.obey();
            }
            if alive
                && handling.is_none()
                && self.seat.socket.outbox.has_room()
                && let Some(event) = self.next_event()
            {
                handling = Some(Box::pin(events::call(front, self.seat, self.visitor, event)));
            }
            if handling.is_none() && self.pending.is_empty() && alive {
                self.end_when_idle();
            }
            if self.output.is_empty() && alive {
                self.output = self.seat.socket.outbox.take();
                if !self.output.is_empty() {
                    self.output_since = Instant::now();
                }
            }
            let written = self.is_written();
            if written {
                self.ending.has_written(CLOSE_PATIENCE);
            }
            if alive && written && self.ending.closes_writing() {
                // The client sees the end of the stream, and closes.
                // With TLS this writes, and a client that does not read would never let it end.
                let until = self.ending.until().unwrap_or_else(|| Instant::now() + CLOSE_PATIENCE);
                let closed = tokio::time::timeout_at(until, self.writer.shutdown()).await;
                alive = matches!(closed, Ok(Ok(())));
                self.ending.has_closed_writing();
                self.input = BytesMut::new();
            }
            if !alive || self.ending.is_over(written) {
                break;
            }
            let until = self.deadline();
            let timer = match &mut timer {
                Some(timer) => {
                    if timer.deadline() > until || timer.is_elapsed() {
                        timer.as_mut().reset(until);
                    }
                    timer
                }
                None => timer.insert(Box::pin(tokio::time::sleep_until(until))),
            };
            let reads = self.reads();
            if !reads {
                (self.heard, self.pinged) = (Instant::now(), None);
            }
            let (leaves, discards) = (self.ending.may_start(), self.ending.discards());
            let Self { reader, writer, input, output, unflushed, seat, .. } = &mut *self;
            tokio::select! {
                outcome = async { handling.as_mut().expect("there is one").await }, if handling.is_some() => {
                    handling = None;
                    self.handled(outcome);
                }
                outcome = write_some(writer, output, unflushed), if !written => match outcome {
                    Ok(()) => self.output_since = Instant::now(),
                    Err(_gone) => (alive, unreachable) = (false, true),
                },
                () = seat.socket.outbox.changed() => {}
                outcome = read_some(reader, (!discards).then_some(input)), if reads => match outcome {
                    Ok(0) | Err(_) => alive = self.ending.end_of_stream(),
                    Ok(_) => (self.heard, self.pinged) = (Instant::now(), None),
                },
                () = timer.as_mut() => alive = self.tick(),
                () = drain.cancelled(), if leaves => self.leave(),
                () = front.succeeded.cancelled(), if leaves => self.leave(),
            }
        }
        self.seat.forget();
        if let Some(handling) = handling {
            let _unsent = handling.await;
        }
        Box::pin(self.handle_rest(front, unreachable, drain)).await;
        self.ending.reason()
    }

    /// Has the application handle what the client sent before it left. An end that drops messages has left none.
    /// With `unreachable` the client could not be written to, and its stream has not been read to its end.
    async fn handle_rest<A: Application>(
        &mut self,
        front: &Shared<A>,
        unreachable: bool,
        drain: &CancellationToken,
    ) {
        loop {
            self.decode();
            if let Some(event) = self.next_event() {
                let _unsent = events::call(front, self.seat, self.visitor, event).await;
                continue;
            }
            if !unreachable || !self.ending.is_open() {
                return;
            }
            let Self { reader, input, .. } = self;
            let read = tokio::time::timeout(CLOSE_PATIENCE, read_some(reader, Some(input)));
            tokio::select! {
                outcome = read => if !matches!(outcome, Ok(Ok(1..))) { return },
                () = drain.cancelled() => return,
                () = front.succeeded.cancelled() => return,
            }
        }
    }

    /// Reads what is there of a client that the server leaves, as long as earlier messages are handled.
    async fn read_last(&mut self) {
        while self.to_read > 0 && self.input.is_empty() && self.takes_messages() {
            tokio::task::consume_budget().await;
            match read_now(&mut self.reader, &mut self.input).await {
                0 => break,
                came => self.to_read = self.to_read.saturating_sub(came),
            }
            self.decode();
        }
    }

    /// Decodes as many messages as may wait.
    fn decode(&mut self) {
        thread_local! {
            static INFLATER: RefCell<Inflater> = RefCell::default();
        }
        while !self.input.is_empty() && self.takes_messages() {
            let Self { input, decoder, rules, .. } = self;
            let step = INFLATER.with_borrow_mut(|inflater| decoder.next(input, *rules, inflater));
            let (consumed, message) = match step {
                Ok(step) => (step.consumed, step.message.map(Incoming::of)),
                Err(violation) => {
                    self.input = BytesMut::new();
                    self.ending.violated(violation.code(), &violation.to_string());
                    return;
                }
            };
            self.input.advance(consumed);
            if self.input.is_empty() {
                self.input = BytesMut::new();
            }
            match message {
                None | Some(Incoming::Pong) => {}
                Some(Incoming::Ping(payload)) => {
                    self.seat.socket.outbox.push_control(pong_frame(&payload).into());
                }
                Some(Incoming::Close(code, reason)) => self.ending.client_closes(code, reason),
                // Our close frame is on its way.
                Some(Incoming::Message(..)) if !self.ending.handles() => {}
                Some(Incoming::Message(event, size)) => {
                    self.active = Instant::now();
                    self.seat.socket.figures().received.fetch_add(1, Relaxed);
                    if !self.rate.allows(self.active) {
                        self.fail(CloseCode::POLICY, "too many messages per second", false);
                        return;
                    }
                    self.pending_bytes += size;
                    self.pending.push_back(event);
                }
            }
        }
    }

    /// Whether further messages may be decoded.
    fn takes_messages(&self) -> bool {
        self.ending.listens()
            && self.pending.len() < AHEAD
            && (self.pending.is_empty() || self.pending_bytes < self.rules.message)
    }

    /// Whether the client is read from.
    fn reads(&self) -> bool {
        self.ending.reads()
            && (self.ending.discards() || (self.input.is_empty() && self.takes_messages()))
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = self.pending.pop_front()?;
        if let Event::Message { payload, .. } = &event {
            self.pending_bytes -= payload.len();
        }
        Some(event)
    }

    /// Does what others want of the session.
    fn obey(&mut self) {
        match self.seat.socket.outbox.ask() {
            Some(Ask::Overflow) => {
                self.seat.socket.figures().overflowed.fetch_add(1, Relaxed);
                self.fail(CloseCode::TRY_AGAIN, "the client does not read", true);
                self.ending.cut_at(Instant::now() + CLOSE_PATIENCE);
            }
            Some(Ask::Close(code, reason)) => {
                self.forget_messages();
                self.ending.starts(code, &reason);
            }
            None => {}
        }
    }

    /// Uses the application's answer to a message.
    fn handled(&mut self, outcome: Result<Response<Bytes>, Failed>) {
        let response = match outcome {
            Ok(response) => response,
            Err(Failed::Busy) => {
                return self.fail(CloseCode::TRY_AGAIN, "the server is busy", false);
            }
            Err(Failed::Gone) => {
                return self.fail(CloseCode::GOING_AWAY, "the path is gone", false);
            }
            Err(_failed) => return self.fail(CloseCode::INTERNAL, FAILED, false),
        };
        if response.status().is_server_error() {
            self.seat.socket.figures().failed.fetch_add(1, Relaxed);
            return self.fail(CloseCode::INTERNAL, FAILED, false);
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let binary =
            kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/octet-stream"));
        let body = response.into_body();
        if body.is_empty() {
            return;
        }
        if !binary && str::from_utf8(&body).is_err() {
            tracing::warn!(
                socket.id = self.visitor.id,
                "WebSocket answer is not UTF-8: a binary one has the type application/octet-stream"
            );
            return self.fail(CloseCode::INTERNAL, FAILED, false);
        }
        self.active = Instant::now();
        self.seat.socket.figures().sent.fetch_add(1, Relaxed);
        let socket = &self.seat.socket;
        socket.outbox.push_answer(socket.frame(binary, &body));
    }

    /// Closes the connection: messages that wait for the application are dropped; with `clear` those for the client, too.
    fn fail(&mut self, code: CloseCode, why: &str, clear: bool) {
        if self.ending.starts(code, why) {
            self.forget_messages();
            self.seat.socket.outbox.finish(Some(code), why, clear);
        }
    }

    fn forget_messages(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
    }

    /// The server goes away: messages that came are handled before.
    fn leave(&mut self) {
        self.to_read = self.rules.message;
        self.write_timeout = self.write_timeout.min(LEAVE_PATIENCE);
        self.ending.server_leaves();
    }

    /// Sends the close frame that waited for the last answer.
    fn end_when_idle(&mut self) {
        if let Some((code, text)) = self.ending.due() {
            self.seat.socket.outbox.finish(code, &text, false);
        }
    }

    /// Whether nothing waits to be written but what is in the outbox.
    fn is_written(&self) -> bool {
        self.output.is_empty() && !self.unflushed
    }

    /// Returns when to look at the clock again.
    fn deadline(&self) -> Instant {
        let limits = &self.visitor.limits;
        let mut until = Instant::now() + FAR;
        if self.ending.is_open() {
            until = match (self.pinged, limits.ping_interval) {
                (Some(pinged), _) => pinged + limits.pong_timeout,
                (None, Some(interval)) => self.heard + interval,
                (None, None) => until,
            };
            if let Some(idle) = limits.idle {
                until = until.min(self.active + idle);
            }
        }
        if !self.is_written() {
            until = until.min(self.output_since + self.write_timeout);
        }
        if let Some(end) = self.ending.until() {
            until = until.min(end);
        }
        until
    }

    /// Does what is due. Returns false if the connection must be cut.
    fn tick(&mut self) -> bool {
        let (now, limits) = (Instant::now(), &self.visitor.limits);
        if self.ending.until().is_some_and(|end| end <= now) {
            return false;
        }
        if !self.is_written() && self.output_since + self.write_timeout <= now {
            self.seat.socket.figures().overflowed.fetch_add(1, Relaxed);
            self.ending.starts(CloseCode::TRY_AGAIN, "the client does not read");
            self.forget_messages();
            return false;
        }
        if !self.ending.is_open() {
            return true;
        }
        if limits.idle.is_some_and(|idle| self.active + idle <= now) {
            self.fail(CloseCode::GOING_AWAY, "idle", false);
            return true;
        }
        match self.pinged {
            Some(pinged) if pinged + limits.pong_timeout <= now => {
                self.ending.lost("no pong");
                return false;
            }
            None if limits.ping_interval.is_some_and(|interval| self.heard + interval <= now) => {
                self.seat.socket.outbox.push_control(ping_frame());
                self.pinged = Some(now);
            }
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests;
