//! What a hub is told when it starts.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::adopted::Handover;

/// Settings of a hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Event loops, each a thread: as many as there are cores for it.
    pub event_loops: NonZeroUsize,
    /// Where it listens itself. Each event loop binds each TCP address (`SO_REUSEPORT`): connections are spread by the kernel.
    pub listen: Vec<Listen>,
    /// Who answers requests that are not for a WebSocket. Without one they get 404.
    pub handover: Option<Arc<dyn Handover>>,
    /// Sockets this hub has at a time, and descriptors that they cost beside; more are told 4100. Should leave some of the process's descriptors to others.
    pub sockets: usize,
    /// permessage-deflate for texts of at least so many bytes, with clients that offer it. None: never.
    pub deflate: Option<u32>,
    /// How long a client may take for its request.
    pub handshake_timeout: Duration,
    /// How long a client may take to answer a close.
    pub close_timeout: Duration,
    /// How long a client may take nothing at all while something waits for it.
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

/// One address of a hub's own. Without TLS: sockets with TLS come by [`super::Hub::adopt`].
#[derive(Clone, Debug)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// Is there a proxy before it to which clients speak TLS?
    pub secure: bool,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Over IP; port 0: any that is free.
    Tcp(SocketAddr),
    /// On this machine. A file in the way that is a socket nobody listens on is removed.
    Unix(PathBuf),
}

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel gives no epoll, eventfd or thread.
    #[error("cannot start an event loop")]
    EventLoop(#[source] std::io::Error),
    /// There are as many event loops in this process as there may be.
    #[error("there are too many event loops")]
    TooMany,
}
