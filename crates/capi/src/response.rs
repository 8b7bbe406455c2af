//! The outcome of a request: head, body, times, or the error.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use crate::error::{Failure, Kind};
use crate::peer::Peer;
use crate::target::Target;

/// A response, or the error instead of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// The status; 0: none.
    pub(crate) status: u16,
    /// The HTTP version: 10, 11, 20; 0: none.
    pub(crate) version: u8,
    pub(crate) headers: HeaderMap,
    /// Boxed, because few responses have some and responses are moved.
    pub(crate) trailers: Option<Box<HeaderMap>>,
    pub(crate) body: Bytes,
    pub(crate) failure: Option<Box<Failure>>,
    /// The URL that answered: the request's, or that of the last redirect.
    pub(crate) target: Option<Target>,
    pub(crate) redirect: Option<Box<str>>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) address_text: OnceLock<Box<str>>,
    /// The TLS peer.
    pub(crate) peer: Option<Arc<Peer>>,
    pub(crate) history: Vec<Arc<Self>>,
    pub(crate) timings: Timings,
    /// The mail server's replies.
    pub(crate) receipt: Option<Box<Receipt>>,
}

/// The replies of a mail server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receipt {
    pub(crate) message_id: String,
    /// The deciding reply, with its code.
    pub(crate) reply: Option<(mail::Reply, String)>,
    pub(crate) recipients: Vec<(String, Option<mail::Reply>)>,
    /// Whether the final dot was sent and no reply was received.
    pub(crate) uncertain: bool,
}

/// The times of the phases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timings {
    pub(crate) queued: Duration,
    pub(crate) resolved: Duration,
    pub(crate) connected: Duration,
    pub(crate) secured: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) total: Duration,
    pub(crate) redirects: u32,
    pub(crate) retries: u32,
    pub(crate) reused: bool,
}

impl Response {
    /// A response that does not exist yet.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self { failure: Some(Box::new(failure)), ..Self::default() }
    }

    /// Records an error. A mail whose end was sent may have been accepted.
    pub(crate) fn fail(&mut self, mut failure: Failure) {
        self.body = Bytes::new();
        if self.receipt.as_ref().is_some_and(|receipt| receipt.uncertain) {
            failure.kind = Kind::Unknown;
            failure.message =
                format!("It is unknown whether the message was accepted: {}", failure.message);
        }
        self.failure = Some(Box::new(failure));
    }

    pub(crate) fn url(&self) -> &str {
        self.target.as_ref().map_or("", Target::as_str)
    }

    /// The peer's address as text.
    pub(crate) fn address(&self) -> Option<&str> {
        let address = self.address?;
        Some(self.address_text.get_or_init(|| address.to_string().into()))
    }

    /// Returns the field at an index, in the order of the map.
    pub(crate) fn field(headers: &HeaderMap, index: usize) -> Option<(&str, &[u8])> {
        headers.iter().nth(index).map(|(name, value)| (name.as_str(), value.as_bytes()))
    }
}
