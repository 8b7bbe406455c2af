//! New sockets of an event loop: from its listeners and from other fronts.

use std::sync::atomic::Ordering;

use rustls::ServerConnection;

use super::super::adopted::{Adopted, ForwardedConnection, Stream};
use super::super::connection::{Connection, Fate, Stage};
use super::super::figures::Reason;
use super::super::listener::{self, Accepted};
use super::super::request;
use super::super::transport::{Socket, Transport};
use super::{EventLoop, LATER, token};
use crate::delivery::Seat;

/// Maximum number of connections accepted from one listener per turn.
const ACCEPTS: usize = 512;
/// Maximum number of connections accepted from a listener before it closes; more than its queue can hold.
const LAST_ACCEPTS: usize = 100_000;

impl EventLoop {
    /// Accepts waiting connections.
    pub(super) fn accept(&mut self) {
        if self.later.is_some_and(|later| self.now < later) {
            return;
        }
        self.later = None;
        for at in 0..self.listeners.len() {
            self.accept_some(at, ACCEPTS);
        }
    }

    /// Accepts all waiting connections before the listeners close.
    pub(super) fn accept_all(&mut self) {
        for at in 0..self.listeners.len() {
            self.listeners[at].ready = true;
            self.accept_some(at, LAST_ACCEPTS);
        }
    }

    fn accept_some(&mut self, at: usize, budget: usize) {
        for _ in 0..budget {
            let Some(listener) = self.listeners.get_mut(at).filter(|listener| listener.ready)
            else {
                return;
            };
            let secure = listener.secure;
            match listener.accept() {
                Accepted::Socket(socket) => {
                    self.figures.accepted.add(1);
                    self.logged_no_descriptor = false;
                    let connection = Connection::new(
                        Transport::new(socket, None),
                        secure,
                        self.now + self.options.handshake_timeout,
                    );
                    self.add_socket(connection, |_, _, _| Fate::Stays);
                }
                Accepted::NoRoom => {
                    self.figures.closed(Reason::OverCapacity);
                    self.no_room();
                }
                Accepted::Empty => return,
                Accepted::Later => {
                    self.no_room();
                    self.later = Some(self.now + LATER);
                    return;
                }
            }
        }
    }

    fn no_room(&mut self) {
        if !std::mem::replace(&mut self.logged_no_descriptor, true) {
            tracing::error!(
                "no file descriptor is left: new connections are rejected; raise ulimit -n or LimitNOFILE="
            );
        }
    }

    /// Adds a socket whose request another front has read.
    pub(super) fn adopt(&mut self, adopted: Adopted) {
        let Adopted { stream, tls, upgrade, answered, target, origin, secure, mut read } = adopted;
        let Some(connection) = self.connection(stream, tls, secure) else { return };
        self.add_socket(connection, |this, seat, connection| {
            if !answered {
                connection.queue.push_last([], Some(upgrade.answer()));
            }
            connection.agree(upgrade, this.options.deflate);
            this.open_session(seat, connection, &target, origin.as_deref());
            let fate = this.read_frames(seat, connection, &mut read);
            // The TLS buffers may hold data that epoll does not report.
            if fate == Fate::Stays { this.readable(seat, connection, false) } else { fate }
        });
    }

    /// Creates the connection for a socket of another front; `None` if the socket is closed.
    pub(super) fn connection(
        &self,
        stream: Stream,
        tls: Option<Box<ServerConnection>>,
        secure: bool,
    ) -> Option<Connection> {
        let socket = match stream {
            Stream::Tcp(stream) => stream
                .set_nonblocking(true)
                .map(|()| Socket::Tcp(mio::net::TcpStream::from_std(stream))),
            Stream::Unix(stream) => stream
                .set_nonblocking(true)
                .map(|()| Socket::Unix(mio::net::UnixStream::from_std(stream))),
        };
        let socket = socket.and_then(|socket| listener::set_options(&socket).map(|()| socket));
        let Ok(socket) = socket else {
            self.figures.closed(Reason::Gone);
            return None;
        };
        let until = self.now + self.options.handshake_timeout;
        Some(Connection::new(Transport::new(socket, tls), secure, until))
    }

    /// Assigns a seat to a socket and runs its first turn.
    pub(super) fn add_socket(
        &mut self,
        mut connection: Connection,
        turn: impl FnOnce(&mut Self, Seat, &mut Connection) -> Fate,
    ) {
        let seat = self.seats.reserve();
        self.sockets.fetch_add(connection.descriptors(), Ordering::Relaxed);
        let registered = connection.transport.register(self.poll.registry(), token(seat));
        self.seats.put(seat, Box::new(connection));
        self.with(seat, |this, seat, connection| match registered {
            Ok(()) => turn(this, seat, connection),
            Err(_) => Fate::Ends(Reason::OverCapacity),
        });
    }

    /// Parses the request at the start of a connection; `bytes` is all that was received.
    pub(super) fn request(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        bytes: &mut [u8],
    ) -> Fate {
        let deflate = self.options.deflate;
        let length = match request::read(bytes, deflate.is_some()) {
            request::Request::WebSocket { length, upgrade, target, origin } => {
                connection.queue.push_last([], Some(upgrade.answer()));
                connection.agree(upgrade, deflate);
                self.open_session(seat, connection, target, origin);
                length
            }
            request::Request::EventStream(asked) => {
                self.stream(seat, connection, &asked, false);
                return Fate::Stays;
            }
            request::Request::Partial if bytes.len() > request::MAX_HEAD => {
                self.refuse_request(connection, request::TOO_LARGE);
                return Fate::Stays;
            }
            request::Request::Partial => {
                connection.stage = Stage::Request(bytes.to_vec());
                return Fate::Stays;
            }
            request::Request::Refused(answer) => {
                self.refuse_request(connection, answer);
                return Fate::Stays;
            }
            request::Request::Other if self.options.handover.is_some() => {
                connection.stage = Stage::Request(bytes.to_vec());
                return Fate::HandedOver;
            }
            request::Request::Other => {
                self.refuse_request(connection, request::NOT_FOUND);
                return Fate::Stays;
            }
        };
        let (_, rest) = bytes.split_at_mut(length);
        self.read_frames(seat, connection, rest)
    }

    fn refuse_request(&mut self, connection: &mut Connection, answer: &[u8]) {
        connection.queue.push_last([], Some(answer.into()));
        connection.stage =
            Stage::Closing { reason: Reason::BadRequest, discard_input: true, done: false };
        connection.until = self.now + self.options.close_timeout;
    }

    /// Hands a connection to the other front.
    pub(super) fn hand_over(&mut self, seat: Seat, connection: Box<Connection>) {
        self.sockets.fetch_sub(connection.descriptors(), Ordering::Relaxed);
        let Connection { mut transport, stage, secure, .. } = *connection;
        self.seats.release(seat);
        self.figures.handed_over.add(1);
        let (Some(front), Stage::Request(read)) = (&self.options.handover, stage) else { return };
        // Without this the loop would receive events of a descriptor that stays open.
        if transport.deregister(self.poll.registry()).is_err() {
            return;
        }
        let stream = match transport.into_socket() {
            Socket::Tcp(socket) => Stream::Tcp(socket.into()),
            Socket::Unix(socket) => Stream::Unix(socket.into()),
        };
        front.take(ForwardedConnection { stream, read, secure });
    }
}
