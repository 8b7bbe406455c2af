//! One call: the request, the response, the errors. The interface between the listeners and the engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;

use crate::{AnswerBody, Key, Scope, Secured};

/// The body of a call. An error ends the call: its sender has aborted it.
pub type CallBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// One call.
#[derive(Debug)]
pub struct Call {
    /// The origin, and the properties of the connection.
    pub key: Key,
    /// Method, absolute URI, fields in order, body; without hop-by-hop fields.
    pub request: Request<CallBody>,
    /// The time limits.
    pub limits: Limits,
    /// The calls whose connections are limited together with this one's.
    pub scope: Option<Scope>,
}

/// The time limits of a call before it is under way. After that its owner ends it by dropping it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit for opening a connection, from look-up to TLS.
    pub connect: Duration,
    /// Time limit for a connection to become free if the limit of connections is reached.
    pub queue: Duration,
}

/// The result of a call.
#[derive(Debug)]
pub struct Answer {
    /// The final head and the body.
    pub response: Response<AnswerBody>,
    /// The times of the call.
    pub timing: Timing,
    /// The outcome of TLS, if it is used and [`Options::peers`](crate::Options::peers) records it.
    pub secured: Option<Arc<Secured>>,
    /// The head as the origin wrote it, over HTTP/1.1.
    pub(crate) written: Option<Bytes>,
}

/// An interim response (100 to 199), passed on as it arrives, and its head as it was written over HTTP/1.1.
pub type Interim<'a> = (StatusCode, &'a HeaderMap, Option<&'a [u8]>);

/// When each step was done, counted from the start of the call. Zero: it was done before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// The name was resolved.
    pub resolved: Duration,
    /// The connection was established.
    pub connected: Duration,
    /// The TLS handshake was done.
    pub secured: Duration,
    /// The head of the response had arrived.
    pub first_byte: Duration,
    /// Whether the connection had carried a call before.
    pub reused: bool,
    /// How often the call was repeated, because the previous attempt was not processed.
    pub repeated: u8,
    /// Whether HTTP/2 was used.
    pub http2: bool,
    /// The peer's address.
    pub address: Option<SocketAddr>,
}

/// Why a call has no response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// Whether the caller may make the call itself.
    pub fate: Fate,
    /// The reason for programs.
    pub reason: Reason,
    /// The number of the libcurl error that fits best (curl/curl.h); 0 if none does.
    pub curl: u8,
    /// The reason in libcurl's words.
    pub message: String,
    /// The peer's address, if there was a connection.
    pub address: Option<SocketAddr>,
    /// Whether the system had no descriptor for a connection.
    pub exhausted: bool,
    /// Whether the connection had carried calls before: the origin may have closed it at the same moment.
    pub kept: bool,
}

/// The caller's options after a call without a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Nothing was sent to the origin: the caller may make the call itself.
    Declined,
    /// Something was sent: the failure is final.
    Failed,
}

/// The reason of a failure, as in docs/internals/egress.md.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// The name was not found.
    Resolve,
    /// No address could be connected to.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The certificate is not trusted.
    Certificate,
    /// The proxy refused or could not be reached.
    Proxy,
    /// No connection became free in time.
    Queue,
    /// The address is on the deny-list.
    Denied,
    /// The option is not supported.
    Unsupported,
    /// The connection broke.
    Reset,
    /// The connection was closed without an answer.
    Empty,
    /// The response is not HTTP.
    Rubbish,
    /// The HTTP/2 stream was reset.
    Stream,
    /// The sender of the body aborted it.
    Body,
}

impl Reason {
    /// Returns the reason's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Certificate => "certificate",
            Self::Proxy => "proxy",
            Self::Queue => "queue",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Reset => "reset",
            Self::Empty => "empty",
            Self::Rubbish => "rubbish",
            Self::Stream => "stream",
            Self::Body => "body",
        }
    }
}
