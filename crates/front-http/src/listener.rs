//! Listening sockets: accept connections, detect their protocol, and own their tasks.
//!
//! Invariants
//! - A failing accept (out of descriptors) is logged, counted and retried after a pause; it neither spins nor ends
//!   the listener.
//! - Every connection's task is owned by its listener and ends with it.
//! - At the connection limit nothing is accepted: further clients wait in the kernel's queue, and connections that
//!   wait for their clients are closed.
//! - Descriptors reserved for the server are used by at most one connection of each listener.

mod connect;
mod handed;
mod replay;
mod sockets;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::connect::{Ends, connect};
pub(crate) use self::handed::receive;
pub(crate) use self::replay::Replay;
pub use self::sockets::{Bound, Given};
use self::sockets::{bind_tcp, bind_unix};
use crate::application::Application;
use crate::connections::Client;
use crate::files::is_out_of_descriptors;
use crate::front::Shared;
use crate::options::{Address, Listen};

/// Pause after a failed accept: long enough not to spin, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    bound: Bound,
    tls: bool,
    /// The socket file is removed with the front.
    takes_file_away: bool,
    redirect: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

enum Accepted {
    Tcp(tokio::net::TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

impl AsRawFd for Accepted {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream, _) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Listener {
    /// Binds an address, or uses a given socket; a name may have several addresses.
    pub(crate) async fn bind(listen: &Listen, given: &mut Vec<Given>) -> io::Result<Vec<Self>> {
        let Listen { tls, redirect, .. } = *listen;
        match &listen.address {
            Address::Tcp(name) => {
                let mut bound = Vec::new();
                for address in tokio::net::lookup_host(name.as_str()).await? {
                    let listener = match Given::take(given, address) {
                        Some(listener) => listener,
                        None => bind_tcp(address)?,
                    };
                    listener.set_nonblocking(true)?;
                    let socket = TcpListener::from_std(listener)?;
                    let address = socket.local_addr()?;
                    bound.push(Self {
                        socket: Socket::Tcp(socket),
                        bound: Bound::Tcp { address, tls },
                        tls,
                        takes_file_away: false,
                        redirect,
                    });
                }
                if bound.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
                }
                Ok(bound)
            }
            Address::Unix(path) => {
                let (socket, takes_file_away) = match Given::take_unix(given, path) {
                    Some((listener, takes_file_away)) => {
                        listener.set_nonblocking(true)?;
                        (UnixListener::from_std(listener)?, takes_file_away)
                    }
                    None => (bind_unix(path).await?, true),
                };
                let bound = Bound::Unix { path: path.clone(), tls };
                Ok(vec![Self {
                    socket: Socket::Unix(socket),
                    bound,
                    tls,
                    redirect,
                    takes_file_away,
                }])
            }
        }
    }

    pub(crate) fn bound(&self) -> Bound {
        self.bound.clone()
    }

    /// Duplicates the socket, for another process to accept from.
    pub(crate) fn share(&self) -> io::Result<Given> {
        Ok(match &self.socket {
            Socket::Tcp(socket) => Given::Tcp(socket.as_fd().try_clone_to_owned()?.into()),
            Socket::Unix(socket) => Given::Unix {
                listener: socket.as_fd().try_clone_to_owned()?.into(),
                takes_file_away: self.takes_file_away,
            },
        })
    }

    /// Returns the port, if the listener uses TLS.
    pub(crate) fn https_port(&self) -> Option<u16> {
        match self.bound {
            Bound::Tcp { address, tls: true } => Some(address.port()),
            _ => None,
        }
    }

    /// Accepts until `end`, then waits for the connections to end, which `drain` asks them to.
    pub(crate) async fn accept<A: Application>(
        self,
        front: Arc<Shared<A>>,
        end: CancellationToken,
        drain: CancellationToken,
    ) {
        let mut connections = JoinSet::new();
        let mut failing = false;
        // The last connection used a descriptor reserved for the server.
        let mut scarce = false;
        loop {
            let slot = async {
                if scarce {
                    front.connections.descriptor(&self.socket, || self.has_waiting()).await;
                }
                front.connections.slot(|| self.has_waiting()).await
            };
            let slot = tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                slot = slot => slot,
            };
            let accepted = tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.next() => accepted,
            };
            let accepted = match accepted {
                Ok(accepted) => {
                    failing = false;
                    accepted
                }
                Err(error) => {
                    front.metrics.accept_errors.increment(1);
                    if is_of_one_client(&error) {
                        continue;
                    }
                    if !failing {
                        tracing::error!(error = %error, listener = %self.bound, "accept fails");
                    }
                    failing = true;
                    if is_out_of_descriptors(&error) {
                        front.connections.make_room();
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            scarce = !front.connections.may_have(accepted.as_raw_fd());
            let drain = drain.child_token();
            let client = match &accepted {
                // The balancer's own address does not identify the client.
                Accepted::Tcp(..) if front.proxy_protocol => Client::UNKNOWN,
                Accepted::Tcp(_, peer) => Client::at(peer.ip(), front.trusts(peer.ip())),
                Accepted::Unix(_) => Client::UNKNOWN,
            };
            let Ok(open) = front.connections.open(slot, client, drain.clone()) else { continue };
            let front = Arc::clone(&front);
            let (tls, redirect) = (self.tls, self.redirect);
            connections.spawn(async move {
                match accepted {
                    Accepted::Tcp(stream, peer) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(error = %error, "no TCP_NODELAY");
                        }
                        let Ok(local) = stream.local_addr() else { return };
                        let trusted = front.trusts(peer.ip());
                        let ends = Ends { peer, local, trusted, redirect, client: None };
                        let span = tracing::debug_span!("connection", network.peer.address = %peer);
                        let connect = connect(&front, stream, ends, tls, &open, drain);
                        let socket = Box::pin(connect).instrument(span.clone()).await;
                        if let Some(socket) = socket {
                            socket.instrument(span).await;
                        }
                    }
                    Accepted::Unix(stream) => {
                        let ends = Ends { redirect, ..Ends::UNIX };
                        let span =
                            tracing::debug_span!("connection", network.peer.address = "unix");
                        let connect = connect(&front, stream, ends, tls, &open, drain);
                        let socket = Box::pin(connect).instrument(span.clone()).await;
                        if let Some(socket) = socket {
                            socket.instrument(span).await;
                        }
                    }
                }
            });
        }
        let Self { socket, bound, takes_file_away, .. } = self;
        drop(socket);
        if let Bound::Unix { path, .. } = bound
            && takes_file_away
            && !front.succeeded.is_cancelled()
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::debug!(error = %error, "socket file stays");
        }
        while connections.join_next().await.is_some() {}
    }

    /// Returns whether a client waits to be accepted.
    fn has_waiting(&self) -> bool {
        let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
        rustix::event::poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    async fn next(&self) -> io::Result<Accepted> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok(Accepted::Tcp(stream, peer))
            }
            Socket::Unix(socket) => Ok(Accepted::Unix(socket.accept().await?.0)),
        }
    }
}

/// Returns whether the error concerns only the client being accepted (accept(2)).
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
