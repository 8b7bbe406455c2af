//! The actions of a scripted origin, for a connection and for a request.

use std::sync::Arc;
use std::time::Duration;

/// The action for a connection, before any request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Greeting {
    /// Speak TLS if the origin does, and HTTP.
    #[default]
    Serve,
    /// Close it at once.
    Close,
    /// Reset it at once (RST).
    Reset,
    /// Take it and never say a word: with TLS the handshake stalls.
    Silence,
    /// Send these bytes, in the place of TLS and HTTP, and close.
    Rubbish(Vec<u8>),
    /// HTTP/2, after the handshake: on the first request GOAWAY that says nothing was processed, then close.
    GoAwayUnprocessed,
}

/// The action for one request.
#[derive(Clone, Debug)]
pub enum Turn {
    /// Answer, in whichever version the request came.
    Reply(Reply),
    /// HTTP/1.1: these steps, byte for byte. The connection ends after the last one.
    Steps(Vec<Step>),
    /// HTTP/2: reset the stream with this code (RFC 9113, 7), 7 being `REFUSED_STREAM`. HTTP/1.1: reset the connection.
    ResetStream(u32),
    /// Never answer; hold the connection until the client closes it.
    Never,
}

impl From<Reply> for Turn {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

/// One step of a scripted answer over HTTP/1.1.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read the request's body to its end.
    ReadBody,
    /// Send bytes.
    Send(Vec<u8>),
    /// Send bytes one by one with a pause before each.
    Drip(Vec<u8>, Duration),
    /// Wait.
    Wait(Duration),
    /// Wait until the test notifies it.
    Notified(Arc<tokio::sync::Notify>),
    /// Wait for the client to close, and close.
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
    /// Interim answers that go before, status and fields.
    pub interim: Vec<(u16, Fields)>,
    /// The status.
    pub status: u16,
    /// Fields, as they are. Those that frame the body come by themselves.
    pub fields: Fields,
    /// The body.
    pub body: Body,
    /// Sent after the body, which is chunked then.
    pub trailers: Fields,
    /// Passes before anything of it is sent.
    pub delay: Duration,
    /// Passes before each piece of the body.
    pub pause: Duration,
    /// Do not wait for the request's body.
    pub early: bool,
    /// What happens to an HTTP/1.1 connection afterwards.
    pub after: After,
}

/// Names and values in order.
pub type Fields = Vec<(String, String)>;

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum Body {
    /// These bytes, with `Content-Length`.
    Bytes(Vec<u8>),
    /// These bytes, without a length.
    Pieces(Vec<Vec<u8>>),
    /// This number of bytes of a pattern, with `Content-Length`.
    Pattern(u64),
    /// The request's own, as it comes, without a length.
    Echo,
    /// The received request as JSON: method, target, fields, length of the body, and the connection.
    Facts,
}

/// What happens to an HTTP/1.1 connection after a response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum After {
    /// It is kept, if the request permits it.
    #[default]
    Keep,
    /// `Connection: close` is sent, and it is closed.
    Close,
    /// It is closed silently when the next request arrives: to the client a kept connection has died.
    CloseAtNext,
    /// It is closed at once, though the response promised to keep it.
    CloseSilently,
}

impl Reply {
    /// 200 with a text.
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

    /// 200 with what came, as JSON.
    pub fn facts() -> Self {
        let fields = vec![("Content-Type".into(), "application/json".into())];
        Self { body: Body::Facts, fields, ..Self::text("") }
    }

    /// Another status.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Another body.
    #[must_use]
    pub fn body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// One more field.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// One more trailer.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.into(), value.into()));
        self
    }

    /// One more interim answer, with one field.
    #[must_use]
    pub fn interim(mut self, status: u16, name: &str, value: &str) -> Self {
        self.interim.push((status, vec![(name.into(), value.into())]));
        self
    }

    /// After a while.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sets what happens to the connection.
    #[must_use]
    pub fn after(self, after: After) -> Self {
        Self { after, ..self }
    }

    /// Without waiting for the request's body.
    #[must_use]
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }
}

/// The pattern of [`Body::Pattern`], so that a client can check what came: the byte at `position`.
pub const fn pattern(position: u64) -> u8 {
    // A prime, so that a piece that is lost or repeated shifts it.
    (position % 251) as u8
}
