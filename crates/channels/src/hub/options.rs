//! Settings of a hub.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::adopted::Handover;

/// Settings of a hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of event loops, each a thread: as many as there are cores for it.
    pub event_loops: NonZeroUsize,
    /// Listening addresses. Each event loop binds each TCP address (`SO_REUSEPORT`), and the kernel spreads the
    /// connections.
    pub listen: Vec<Listen>,
    /// Handles requests that are not for a WebSocket. Without it they get 404.
    pub handover: Option<Arc<dyn Handover>>,
    /// Maximum number of sockets, including their additional descriptors; further connections are closed with 4100.
    /// Should leave some of the process's descriptors for other uses.
    pub sockets: usize,
    /// Minimum size of a text in bytes for permessage-deflate, with clients that offer it. `None` turns compression
    /// off.
    pub deflate: Option<u32>,
    /// How long a client may take to send its request.
    pub handshake_timeout: Duration,
    /// How long a client may take to answer a close frame.
    pub close_timeout: Duration,
    /// How long a client may accept no bytes while messages are waiting for it.
    pub stall_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            event_loops: NonZeroUsize::MIN,
            listen: Vec::new(),
            handover: None,
            sockets: usize::MAX,
            deflate: None,
            handshake_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// One address of the hub, without TLS. Sockets with TLS are added by [`super::Hub::adopt`].
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// Clients use TLS to a proxy before this listener.
    pub secure: bool,
}

/// A listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address; port 0 picks a free port.
    Tcp(SocketAddr),
    /// Path of a Unix socket. An existing socket file on which no process listens is removed.
    Unix(PathBuf),
}

/// Reasons why a hub does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel provides no epoll instance, eventfd or thread.
    #[error("cannot start an event loop")]
    EventLoop(#[source] std::io::Error),
    /// The process has the maximum number of event loops already.
    #[error("there are too many event loops")]
    TooMany,
}
