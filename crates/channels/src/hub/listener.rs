//! The listening sockets of a hub.
//!
//! Invariants
//! - Each event loop has its own socket on each TCP address, so no loop waits for another.
//! - The accept queue is as long as the kernel allows. A client that does not fit retries only after a second.
//! - Without a free descriptor, connections are still accepted and closed: clients get an immediate answer, and the
//!   queue does not fill.
//! - Stopping loses no connection if another process listens on the address by then (`SO_REUSEPORT`).

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockFilter, SockRef, TcpKeepalive, Type};

use super::options::{Address, StartError};
use super::transport::Socket;

/// Maximum backlog of `listen(2)`; `net.core.somaxconn` clamps it.
const BACKLOG: i32 = 65_535;
/// How long the kernel retransmits to a client that does not acknowledge.
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle time after which the kernel probes the peer, for sockets that no one else pings.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Descriptors reserved by each listener.
const SPARES: usize = 4;

/// The response to a client for which there is no descriptor.
const NO_ROOM: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    kind: Kind,
    /// Connections may be waiting.
    pub(super) ready: bool,
    /// Clients use TLS to a proxy before this listener.
    pub(super) secure: bool,
    /// Reserved descriptors that are released briefly when no other is free. Another thread may take a released one
    /// first, hence several.
    spare: Vec<File>,
}

/// Result of accepting a connection.
pub(super) enum Accepted {
    /// A connection.
    Socket(Socket),
    /// A connection was accepted and closed, because there is no descriptor for it.
    NoRoom,
    /// No connection is waiting.
    Empty,
    /// No connection can be accepted now; retry later.
    Later,
}

/// Binds the sockets of one address, one for each event loop.
pub(super) fn bind(
    address: &Address,
    secure: bool,
    loops: usize,
) -> Result<Vec<Listener>, StartError> {
    let sockets = match address {
        Address::Tcp(address) => bind_tcp(*address, loops),
        Address::Unix(path) => bind_unix(path, loops),
    };
    let listeners = sockets.and_then(|sockets| {
        sockets
            .into_iter()
            .map(|kind| {
                let mut listener =
                    Listener { kind, ready: true, secure, spare: Vec::with_capacity(SPARES) };
                listener.refill()?;
                Ok(listener)
            })
            .collect()
    });
    listeners.map_err(|cause| StartError::Listen {
        address: match address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => path.display().to_string(),
        },
        cause,
    })
}

fn bind_tcp(mut address: SocketAddr, loops: usize) -> io::Result<Vec<Kind>> {
    let mut bound = Vec::new();
    for _ in 0..loops {
        let socket = socket2::Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        // Accepted sockets inherit these options from the listener, which saves a call for each.
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4),
        )?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        // With port 0 the first socket picks a port and the others bind to the same one.
        address = socket.local_addr()?.as_socket().unwrap_or(address);
        bound.push(Kind::Tcp(TcpListener::from_std(socket.into())));
    }
    Ok(bound)
}

/// Binds one socket that all loops watch, because Unix sockets have no `SO_REUSEPORT`.
fn bind_unix(path: &Path, loops: usize) -> io::Result<Vec<Kind>> {
    let first = match std::os::unix::net::UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
            std::fs::remove_file(path)?;
            std::os::unix::net::UnixListener::bind(path)?
        }
        result => result?,
    };
    first.set_nonblocking(true)?;
    SockRef::from(&first).listen(BACKLOG)?;
    let mut bound = Vec::new();
    for _ in 1..loops {
        bound.push(Kind::Unix(UnixListener::from_std(first.try_clone()?)));
    }
    bound.push(Kind::Unix(UnixListener::from_std(first)));
    Ok(bound)
}

fn is_abandoned(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Sets the options that the hub's own sockets inherit on a socket that another front accepted.
pub(super) fn set_options(socket: &Socket) -> io::Result<()> {
    let Socket::Tcp(stream) = socket else { return Ok(()) };
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4))
}

impl Listener {
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let source: &mut dyn Source = match &mut self.kind {
            Kind::Tcp(listener) => listener,
            Kind::Unix(listener) => listener,
        };
        registry.register(source, token, Interest::READABLE)
    }

    /// Accepts the next connection. Never waits.
    pub(super) fn accept(&mut self) -> Accepted {
        loop {
            let error = match self.try_accept() {
                Ok(socket) => return Accepted::Socket(socket),
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::AGAIN) => {
                    self.ready = false;
                    return Accepted::Empty;
                }
                Some(Errno::MFILE | Errno::NFILE) => return self.accept_and_close(),
                Some(Errno::NOBUFS | Errno::NOMEM) => return Accepted::Later,
                // The client has gone, or the network reported an error (accept(2)). Only this connection is lost.
                _ => {}
            }
        }
    }

    fn try_accept(&self) -> io::Result<Socket> {
        match &self.kind {
            Kind::Tcp(listener) => listener.accept().map(|(socket, _)| Socket::Tcp(socket)),
            Kind::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        while self.spare.len() < SPARES {
            self.spare.push(File::open("/dev/null")?);
        }
        Ok(())
    }

    /// Accepts the next connection with a reserved descriptor, and closes it.
    fn accept_and_close(&mut self) -> Accepted {
        drop(self.spare.pop());
        let taken = self.try_accept();
        let outcome = match taken {
            Ok(mut socket) => {
                // The request has not been read, so the response may be lost; the end of the connection is not.
                drop(socket.write(NO_ROOM));
                Accepted::NoRoom
            }
            // Another thread took the descriptor first.
            Err(_) => Accepted::Later,
        };
        // A missing reserve is filled at the next call.
        drop(self.refill());
        outcome
    }

    /// Blocks new connections on this socket. Connections whose handshake has started still arrive, and must be
    /// accepted until [`LAST_ARRIVALS`] has passed. Other clients retry after a second (RFC 6298, 2.1) and reach the
    /// process that listens by then.
    pub(super) fn lock(&self) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(listener) => SockRef::from(listener).attach_filter(&NO_SYN),
            Kind::Unix(_) => Ok(()),
        }
    }
}

/// How long started connections may arrive after [`Listener::lock`]. It is longer than most round trips, and shorter
/// than the second after which a client retries.
pub(super) const LAST_ARRIVALS: Duration = Duration::from_millis(900);

/// Drops segments with SYN and without ACK. A classic BPF program over the TCP header
/// (linux/Documentation/networking/filter.rst).
const NO_SYN: [SockFilter; 5] = [
    SockFilter::new(0x30, 0, 0, 13),       // ldb [13]: the flags
    SockFilter::new(0x54, 0, 0, 0x12),     // and #SYN|ACK
    SockFilter::new(0x15, 0, 1, 0x02),     // jeq #SYN, next, else the one after
    SockFilter::new(0x06, 0, 0, 0),        // ret #0: drop
    SockFilter::new(0x06, 0, 0, u32::MAX), // ret all
];

/// Logs a warning if the system's limits are lower than Hearth can use.
pub(super) fn warn_of_low_limits() {
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    if let Some(somaxconn) = somaxconn.and_then(|text| text.trim().parse::<u32>().ok())
        && somaxconn < 4096
    {
        tracing::warn!(
            somaxconn,
            "net.core.somaxconn is low: clients that connect at the same time may wait a second"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn accepted_sockets_inherit_nodelay_and_keepalive_from_the_listener() {
        let address = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let mut listeners = bind(&address, false, 2).unwrap();
        let port = listeners[0].local_addr().unwrap();
        assert_eq!(listeners[1].local_addr(), Some(port), "both listen on one port");

        let _client = std::net::TcpStream::connect(port).unwrap();
        let accepted = listeners.iter_mut().find_map(|listener| match listener.accept() {
            Accepted::Socket(Socket::Tcp(socket)) => Some(socket),
            _ => None,
        });
        let accepted = accepted.unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert!(matches!(listeners[0].accept(), Accepted::Empty));
    }

    #[test]
    fn a_locked_listener_accepts_started_connections_and_no_new_ones() {
        let address = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let mut listeners = bind(&address, false, 1).unwrap();
        let port = listeners[0].local_addr().unwrap();
        let _before = std::net::TcpStream::connect(port).unwrap();
        listeners[0].lock().unwrap();
        assert!(matches!(listeners[0].accept(), Accepted::Socket(_)));
        // Its SYN is dropped; the next one is sent after a second.
        let late = std::net::TcpStream::connect_timeout(&port, Duration::from_millis(200));
        assert_eq!(late.map_err(|error| error.kind()).err(), Some(ErrorKind::TimedOut));
        assert!(matches!(listeners[0].accept(), Accepted::Empty));
    }
}
