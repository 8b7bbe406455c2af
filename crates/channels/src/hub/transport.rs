//! The transport of a connection: TCP or a Unix socket, with or without TLS. Never waits.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};
use rustls::ServerConnection;

use super::sys;

/// A kernel socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket with or without TLS.
pub(super) enum Transport {
    Plain(Socket),
    Tls(Box<Tls>),
}

pub(super) struct Tls {
    socket: Socket,
    session: ServerConnection,
}

impl Socket {
    fn shutdown(&self) {
        let result = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Self::Unix(socket) => socket.shutdown(Shutdown::Write),
        };
        // A peer that is already gone needs no close_notify.
        drop(result);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket) => socket,
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, _) = rustix::net::recv(self.descriptor(), buffer, RecvFlags::DONTWAIT)?;
        Ok(read)
    }
}

impl Write for Socket {
    /// Calls `send(2)`, which is faster than `write(2)` because it does not look for a file position first.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.descriptor(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport {
    pub(super) fn new(socket: Socket, tls: Option<Box<ServerConnection>>) -> Self {
        match tls {
            None => Self::Plain(socket),
            Some(session) => Self::Tls(Box::new(Tls { socket, session: *session })),
        }
    }

    /// Returns the socket.
    pub(super) fn into_socket(self) -> Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket,
        }
    }

    /// Reads available bytes. Returns [`ErrorKind::WouldBlock`] if there are none, and 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => retry(|| socket.read(buffer)),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    /// Returns whether a short read means that no bytes are left, and a short write that the socket is full. This
    /// does not hold for TLS, which is limited by its own buffers.
    pub(super) fn short_is_all(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Writes as many bytes as are accepted, or returns [`ErrorKind::WouldBlock`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => retry(|| socket.write(bytes)),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    /// Writes bytes buffered by TLS; returns [`ErrorKind::WouldBlock`] if some remain.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Ends the writing direction.
    pub(super) fn finish(&mut self) {
        match self {
            Self::Plain(socket) => socket.shutdown(),
            Self::Tls(tls) => {
                tls.session.send_close_notify();
                // Best effort: the connection ends in any case.
                drop(tls.flush());
                tls.socket.shutdown();
            }
        }
    }

    /// Ends the connection in both directions, with a `close_notify` for TLS.
    pub(super) fn close_both(&mut self) {
        if matches!(self, Self::Tls(_)) {
            self.finish();
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// Registers for writability as well.
    pub(super) fn watch_room(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.reregister(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }

    /// Returns whether the client has acknowledged data that was sent to it within the last `window`. Unknown, hence false, for Unix sockets.
    pub(super) fn acknowledged_within(&self, window: Duration) -> bool {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        };
        sys::tcp_times(socket.descriptor())
            .is_some_and(|times| times.since_sent < window && times.since_acknowledged < window)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Plain(socket) => socket.source(),
            Self::Tls(tls) => tls.socket.source(),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(socket) => socket.fmt(f),
            Self::Tls(tls) => f.debug_tuple("Tls").field(&tls.socket).finish(),
        }
    }
}

impl Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer closed without close_notify. WebSocket frames have their own lengths, so a truncation does
                // not go unnoticed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            retry(|| self.session.read_tls(&mut self.socket))?;
            let processed = self.session.process_new_packets();
            // Alerts, key updates and the end of a handshake; the rest is sent with the next write.
            match self.flush() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            retry(|| self.session.write_tls(&mut self.socket))?;
        }
        Ok(())
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
