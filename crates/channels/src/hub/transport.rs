//! What bytes of a socket go over: TCP, a Unix socket, TLS over either. Never waits.

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

/// A socket that the kernel knows.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket, perhaps with TLS.
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
        // Whoever is gone already need not be told.
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
    /// `send(2)`: it knows that this is a socket, unlike `write(2)`, which looks for a file's position first.
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

    /// The parts, for somebody else.
    pub(super) fn into_socket(self) -> Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket,
        }
    }

    /// Reads what is there. [`ErrorKind::WouldBlock`] when nothing is; 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => retry(|| socket.read(buffer)),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    /// Does a read that comes up short mean that nothing is left, and a write that the socket is full? Not with TLS, which takes and gives as much as its
    /// buffers hold.
    pub(super) fn short_is_all(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Writes as much as is taken. [`ErrorKind::WouldBlock`] when nothing is.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => retry(|| socket.write(bytes)),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    /// Passes on what TLS has taken and not yet written: [`ErrorKind::WouldBlock`] if some of it stays.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Nothing more will be written.
    pub(super) fn finish(&mut self) {
        match self {
            Self::Plain(socket) => socket.shutdown(),
            Self::Tls(tls) => {
                tls.session.send_close_notify();
                // As far as it goes: this is a courtesy.
                drop(tls.flush());
                tls.socket.shutdown();
            }
        }
    }

    /// The connection ends now, as both sides want it: TLS has a word for that.
    pub(super) fn part(&mut self) {
        if matches!(self, Self::Tls(_)) {
            self.finish();
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// From now on the loop hears when there is room to write, too.
    pub(super) fn watch_room(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.reregister(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }

    /// Whether the client has acknowledged data that was sent to it within the last `window`. Unknown, hence false, for Unix sockets.
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
                // Closed without a close_notify: frames have lengths of their own, so nothing is cut unnoticed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            retry(|| self.session.read_tls(&mut self.socket))?;
            let processed = self.session.process_new_packets();
            // Alerts, key updates and the end of a handshake; what does not fit goes with the next write.
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
