//! One call: the request, the response, the errors. The interface between the listeners and the engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;

use crate::{Key, Scope, Secured};

/// The body of a call. An error of it ends the call: its sender has broken off.
pub type CallBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The body of a response, with trailers. Dropping it before its end discards the rest.
pub type AnswerBody = UnsyncBoxBody<Bytes, CallError>;

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
    /// For opening a connection, from look-up to TLS.
    pub connect: Duration,
    /// For a connection to become free if the limit of connections is reached.
    pub queue: Duration,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The final head and the body.
    pub response: Response<AnswerBody>,
    /// How it went.
    pub timing: Timing,
    /// What TLS has come to, where there is any and [`Options::peers`](crate::Options::peers) has it kept.
    pub secured: Option<Arc<Secured>>,
    /// Its head as the origin wrote it, over HTTP/1.1.
    pub(crate) written: Option<Bytes>,
}

/// An interim answer (100 to 199), passed on as it comes; its head as it was written, over HTTP/1.1.
pub type Interim<'a> = (StatusCode, &'a HeaderMap, Option<&'a [u8]>);

/// When what was done, from the call's begin. Zero: it was there already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// The name was resolved.
    pub resolved: Duration,
    /// The connection was there.
    pub connected: Duration,
    /// TLS was there.
    pub secured: Duration,
    /// The head of the answer came.
    pub first_byte: Duration,
    /// The connection had carried a call before.
    pub reused: bool,
    /// How often it was made again, because the attempt before had not been processed.
    pub repeated: u8,
    /// Over HTTP/2.
    pub http2: bool,
    /// The other end.
    pub address: Option<SocketAddr>,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// What may be done about it.
    pub fate: Fate,
    /// Why, as programs read it.
    pub reason: Reason,
    /// The number of the libcurl error that fits best (curl/curl.h), 0: none does.
    pub curl: u8,
    /// Why, as libcurl would say it.
    pub message: String,
    /// The other end, where there was a connection.
    pub address: Option<SocketAddr>,
    /// The system had no descriptor for a connection.
    pub exhausted: bool,
    /// It went over a connection that had carried calls before: the origin may have closed it in the same moment.
    pub kept: bool,
}

/// What a call that has no answer has come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Nothing was sent to the origin: the caller may make the call itself.
    Declined,
    /// Something has gone out: final.
    Failed,
}

/// Why a call has no answer; the words of docs/internals/egress.md.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// The name was not found.
    Resolve,
    /// No address could be connected to.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The certificate is not to be trusted.
    Certificate,
    /// The proxy refused, or could not be reached.
    Proxy,
    /// No connection became free in time.
    Queue,
    /// The address is on the deny-list.
    Denied,
    /// The wish cannot be fulfilled here.
    Unsupported,
    /// The connection broke.
    Reset,
    /// The connection was closed without an answer.
    Empty,
    /// What came is no HTTP.
    Rubbish,
    /// The HTTP/2 stream was reset.
    Stream,
    /// The sender of the body broke off.
    Body,
}

impl Reason {
    /// The word for it.
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
