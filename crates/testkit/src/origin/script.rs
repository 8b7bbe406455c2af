//! The actions of a scripted origin, for a connection and for a request.

use std::sync::Arc;
use std::time::Duration;

/// The action for a connection, before any request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Greeting {
    /// Serve HTTP, with TLS if the origin uses it.
    #[default]
    Serve,
    /// Close the connection at once.
    Close,
    /// Reset the connection at once (RST).
    Reset,
    /// Accept the connection and send nothing: with TLS, the handshake stalls.
    Silence,
    /// Send these bytes instead of TLS and HTTP, and close.
    Rubbish(Vec<u8>),
    /// HTTP/2, after the handshake: on the first request, send GOAWAY with last stream 0, then close.
    GoAwayUnprocessed,
}

/// The action for one request.
#[derive(Clone, Debug)]
pub enum Turn {
    /// Respond, in the HTTP version of the request.
    Reply(Reply),
    /// HTTP/1.1: run these steps, byte for byte. The connection closes after the last one.
    Steps(Vec<Step>),
    /// HTTP/2: reset the stream with this code (RFC 9113, 7; `REFUSED_STREAM` is 7). HTTP/1.1: reset the connection.
    ResetStream(u32),
    /// Send no response; hold the connection until the client closes it.
    Never,
}

impl From<Reply> for Turn {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

/// One step of a scripted HTTP/1.1 response.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read the request's body completely.
    ReadBody,
    /// Send bytes.
    Send(Vec<u8>),
    /// Send bytes one by one with a pause before each.
    Drip(Vec<u8>, Duration),
    /// Wait.
    Wait(Duration),
    /// Wait until the test sends a notification.
    Notified(Arc<tokio::sync::Notify>),
    /// Wait until the client closes, and close.
    Hold,
    /// Close.
    Close,
    /// Reset (RST).
    Reset,
}

impl Step {
    /// Send text.
    pub fn send(text: &str) -> Self {
        Self::Send(text.into())
    }
}

/// A valid HTTP response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Interim responses that are sent first: status and fields.
    pub interim: Vec<(u16, Fields)>,
    /// The status.
    pub status: u16,
    /// Header fields, unchanged. The framing fields are added.
    pub fields: Fields,
    /// The body.
    pub body: Body,
    /// Trailers after the body, which is then chunked.
    pub trailers: Fields,
    /// Delay before the first byte.
    pub delay: Duration,
    /// Delay before each piece of the body.
    pub pause: Duration,
    /// If true, the response does not wait for the request's body.
    pub early: bool,
    /// The state of an HTTP/1.1 connection afterwards.
    pub after: After,
}

/// Names and values in order.
pub type Fields = Vec<(String, String)>;

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Body {
    /// These bytes, with `Content-Length`.
    Bytes(Vec<u8>),
    /// These bytes, without a length.
    Pieces(Vec<Vec<u8>>),
    /// This number of bytes of a pattern, with `Content-Length`.
    Pattern(u64),
    /// The request's own body, as it arrives, without a length.
    Echo,
    /// The received request as JSON: method, target, fields, length of the body, and the connection.
    Facts,
}

/// The state of an HTTP/1.1 connection after a response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum After {
    /// The connection stays open if the request permits it.
    #[default]
    Keep,
    /// The response has `Connection: close`, and the connection is closed.
    Close,
    /// The connection is closed without a response when the next request arrives, as if it had died.
    CloseAtNext,
    /// The connection is closed at once, though the response promised to keep it open.
    CloseSilently,
}

impl Reply {
    /// Returns a 200 response with a text.
    pub fn text(text: &str) -> Self {
        Self {
            interim: Vec::new(),
            status: 200,
            fields: vec![("Content-Type".into(), "text/plain".into())],
            body: Body::Bytes(text.into()),
            trailers: Vec::new(),
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            early: false,
            after: After::Keep,
        }
    }

    /// Returns a 200 response with the request as JSON.
    pub fn facts() -> Self {
        let fields = vec![("Content-Type".into(), "application/json".into())];
        Self { body: Body::Facts, fields, ..Self::text("") }
    }

    /// Sets the status.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// Adds a header field.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Adds a trailer.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.into(), value.into()));
        self
    }

    /// Adds an interim response with one field.
    #[must_use]
    pub fn interim(mut self, status: u16, name: &str, value: &str) -> Self {
        self.interim.push((status, vec![(name.into(), value.into())]));
        self
    }

    /// Sets the delay before the first byte.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sets the state of the connection afterwards.
    #[must_use]
    pub fn after(self, after: After) -> Self {
        Self { after, ..self }
    }

    /// Responds without waiting for the request's body.
    #[must_use]
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }
}

/// Returns the byte of [`Body::Pattern`] at `position`, so that a client can verify a body.
pub const fn pattern(position: u64) -> u8 {
    // A prime number, so that a lost or repeated piece shifts the pattern.
    (position % 251) as u8
}
