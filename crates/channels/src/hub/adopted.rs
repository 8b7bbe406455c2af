//! Sockets that are handed over: from another front to the hub, and from the hub's listeners to another front.

use std::fmt;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use rustls::ServerConnection;

use crate::websocket::Upgrade;

/// A stream socket.
#[derive(Debug)]
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A Unix domain socket.
    Unix(UnixStream),
}

/// A socket whose WebSocket request another front has read.
pub struct Adopted {
    /// The socket, blocking or non-blocking.
    pub stream: Stream,
    /// TLS state after the handshake, if the socket uses TLS.
    pub tls: Option<Box<ServerConnection>>,
    /// The result of the WebSocket handshake.
    pub upgrade: Upgrade,
    /// The response (101) has been written. Otherwise the hub writes it together with the first message.
    pub answered: bool,
    /// Path and query of the request.
    pub target: String,
    /// Value of the header field `Origin`.
    pub origin: Option<String>,
    /// The client uses TLS, to this server or to a proxy before it.
    pub secure: bool,
    /// Bytes read after the request, decrypted.
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
    /// The socket, blocking or non-blocking. For HTTP/2 it is one end of a socket pair whose other end becomes the
    /// response body.
    pub stream: Stream,
    /// TLS state after the handshake, if the socket uses TLS.
    pub tls: Option<Box<ServerConnection>>,
    /// The response head has been written. Otherwise the hub writes the whole response in HTTP/1.1, and rejects with
    /// a status. A request for an id (`/app/KEY/sse/id`) always gets a whole response.
    pub answered: bool,
    /// Path and query of the request.
    pub target: String,
    /// Value of the header field `Origin`.
    pub origin: Option<String>,
    /// Value of the header field `Sec-Fetch-Site`.
    pub site: Option<String>,
    /// Value of the header field `Last-Event-ID`.
    pub last_event_id: Option<String>,
    /// Number of additional descriptors that the stream uses in this process; they count for
    /// [`super::Options::sockets`].
    pub beside: u8,
    /// The client uses TLS, to this server or to a proxy before it.
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

/// A connection accepted by the hub whose request is not for a WebSocket.
#[derive(Debug)]
pub struct ForwardedConnection {
    /// The socket, non-blocking.
    pub stream: Stream,
    /// Bytes read so far: at least the head of the request, unless it is not HTTP/1.
    pub read: Vec<u8>,
    /// Value of [`super::Listen::secure`] of the listener.
    pub secure: bool,
}

/// The front that handles all other requests: the HTTP API, Server-Sent Events, a plain `GET`.
pub trait Handover: fmt::Debug + Send + Sync {
    /// Takes a connection over. An event loop calls it, so it never waits; a front without capacity drops the
    /// connection.
    fn take(&self, forwarded: ForwardedConnection);
}
