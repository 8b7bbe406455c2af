//! Listening sockets before they accept: their addresses, and those that were bound or handed over before the front.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::http3::GivenQuic;
use crate::options::Address;

/// Length of the kernel's accept queue.
const QUEUE: i32 = 1024;

/// A listening address of a front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A TCP address with its port.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The listener uses TLS.
        tls: bool,
    },
    /// A unix socket.
    Unix {
        /// Path of the socket.
        path: PathBuf,
        /// The listener uses TLS.
        tls: bool,
    },
}

impl fmt::Display for Bound {
    /// Writes a URL, for example `http://127.0.0.1:8080`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = |tls: &bool| if *tls { "https" } else { "http" };
        match self {
            Self::Tcp { address, tls } => write!(f, "{}://{address}", scheme(tls)),
            Self::Unix { path, tls } => write!(f, "{}+unix:{}", scheme(tls), path.display()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket bound before the front.
#[derive(Debug)]
pub enum Given {
    /// A TCP socket.
    Tcp(std::net::TcpListener),
    /// A UDP socket for QUIC.
    Quic(GivenQuic),
    /// A unix socket.
    Unix {
        /// The socket.
        listener: std::os::unix::net::UnixListener,
        /// The front owns the socket file and removes it at its end.
        takes_file_away: bool,
    },
}

impl Given {
    /// Binds an address before the front is created, for a process that will lose the permission to bind. The front
    /// uses the socket if it is configured to listen there.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        bind_tcp(address).map(Self::Tcp)
    }

    /// Binds the UDP address of HTTP/3 in the same way.
    pub fn bind_quic(address: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(address)?;
        Ok(Self::Quic(GivenQuic { socket, relay: None }))
    }

    /// Adds sockets for TCP and UDP on one port, which the system chooses and which is free for both, unless a socket for
    /// TCP is given. The port of `address` is 0.
    pub fn add_free_pair(given: &mut Vec<Self>, address: SocketAddr) -> io::Result<()> {
        const ATTEMPTS: usize = 32;
        if given.iter().any(|given| given.is_tcp_at(address)) {
            return Ok(());
        }
        for attempt in 1.. {
            let tcp = bind_tcp(address)?;
            match Self::bind_quic(tcp.local_addr()?) {
                Ok(udp) => {
                    given.extend([Self::Tcp(tcp), udp]);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether it is a TCP socket of this address. Port 0 matches any port.
    fn is_tcp_at(&self, wanted: SocketAddr) -> bool {
        let Self::Tcp(listener) = self else { return false };
        listener.local_addr().is_ok_and(|address| {
            address.ip() == wanted.ip() && (wanted.port() == 0 || address.port() == wanted.port())
        })
    }

    /// Returns the listening address; `None` for a unix socket without a file, and for UDP.
    pub fn address(&self) -> io::Result<Option<Address>> {
        Ok(match self {
            Self::Tcp(listener) => Some(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Quic(_) => None,
            Self::Unix { listener, .. } => {
                let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
                path.map(Address::Unix)
            }
        })
    }

    /// Removes the socket with this address from the given ones. Port 0 matches any port.
    pub(super) fn take(given: &mut Vec<Self>, wanted: SocketAddr) -> Option<std::net::TcpListener> {
        match given.extract_if(.., |given| given.is_tcp_at(wanted)).next() {
            Some(Self::Tcp(listener)) => Some(listener),
            _ => None,
        }
    }

    /// Removes the UDP socket with this address from the given ones.
    pub(crate) fn take_quic(given: &mut Vec<Self>, wanted: SocketAddr) -> Option<GivenQuic> {
        let is_wanted = |given: &mut Self| match given {
            Self::Quic(quic) => quic.socket.local_addr().is_ok_and(|address| address == wanted),
            Self::Tcp(_) | Self::Unix { .. } => false,
        };
        match given.extract_if(.., is_wanted).next() {
            Some(Self::Quic(quic)) => Some(quic),
            _ => None,
        }
    }

    /// Removes the unix socket with this path from the given ones.
    pub(super) fn take_unix(
        given: &mut Vec<Self>,
        wanted: &Path,
    ) -> Option<(std::os::unix::net::UnixListener, bool)> {
        let is_wanted = |given: &mut Self| match given {
            Self::Unix { listener, .. } => {
                listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(wanted))
            }
            Self::Tcp(_) | Self::Quic(_) => false,
        };
        match given.extract_if(.., is_wanted).next() {
            Some(Self::Unix { listener, takes_file_away }) => Some((listener, takes_file_away)),
            _ => None,
        }
    }
}

pub(super) fn bind_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    // std sets SO_REUSEADDR.
    let listener = std::net::TcpListener::bind(address)?;
    rustix::net::listen(&listener, QUEUE)?;
    Ok(listener)
}

/// Binds a socket file. A file left by a process that has ended is replaced.
pub(super) async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if tokio::net::UnixStream::connect(path).await.is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        outcome => outcome,
    }
}
