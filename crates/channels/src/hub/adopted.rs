//! Sockets that change hands: from another front to the hub, and from the hub's listeners to another front.

use std::fmt;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use rustls::ServerConnection;

use crate::websocket::Upgrade;

/// A stream socket.
#[derive(Debug)]
pub enum Stream {
    /// Over IP.
    Tcp(TcpStream),
    /// On this machine.
    Unix(UnixStream),
}

/// A socket whose request for a WebSocket another front has read.
pub struct Adopted {
    /// The socket, non-blocking or not.
    pub stream: Stream,
    /// Its TLS, if it has: the handshake is done.
    pub tls: Option<Box<ServerConnection>>,
    /// What was agreed on.
    pub upgrade: Upgrade,
    /// Has the answer (101) been written? Otherwise the hub writes it, together with the first message.
    pub answered: bool,
    /// The request's path and query.
    pub target: String,
    /// The header field `Origin`.
    pub origin: Option<String>,
    /// Does the client speak TLS, with us or with a proxy before us?
    pub secure: bool,
    /// What was read after the request, decrypted.
    pub read: Vec<u8>,
}

impl fmt::Debug for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted")
            .field("stream", &self.stream)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// A socket whose request for an event stream (`GET /app/KEY/sse?...`) another front has read.
pub struct AdoptedStream {
    /// The socket, non-blocking or not. For HTTP/2 one end of a pair, the other end of which becomes the body.
    pub stream: Stream,
    /// Its TLS, if it has: the handshake is done.
    pub tls: Option<Box<ServerConnection>>,
    /// Has the head of the answer been written? Otherwise the hub writes the whole answer, in HTTP/1.1, and refuses with a status. A request for an id
    /// (`/app/KEY/sse/id`) is answered as a whole in any case.
    pub answered: bool,
    /// The request's path and query.
    pub target: String,
    /// The header field `Origin`.
    pub origin: Option<String>,
    /// The header field `Sec-Fetch-Site`.
    pub site: Option<String>,
    /// The header field `Last-Event-ID`.
    pub last_event_id: Option<String>,
    /// Descriptors that it costs this process beside the socket's own: they count for [`super::Options::sockets`].
    pub beside: u8,
    /// Does the client speak TLS, with us or with a proxy before us?
    pub secure: bool,
}

impl fmt::Debug for AdoptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdoptedStream")
            .field("stream", &self.stream)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// A socket that came to a listener of the hub and asks for something else than a WebSocket.
#[derive(Debug)]
pub struct Visitor {
    /// The socket, non-blocking.
    pub stream: Stream,
    /// What was read of it so far: the start of a request, at least its head unless that is not HTTP/1.
    pub read: Vec<u8>,
    /// As [`super::Listen::secure`] of the listener it came to.
    pub secure: bool,
}

/// The front that answers all other requests: the HTTP API, Server-Sent Events, a plain `GET`.
pub trait Handover: fmt::Debug + Send + Sync {
    /// Takes a socket over. Called by an event loop, so it never waits; a front that can take no more drops it.
    fn take(&self, visitor: Visitor);
}
