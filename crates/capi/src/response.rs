//! What came of a request: head, body, how it went, or why there is nothing.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use crate::error::{Failure, Kind};
use crate::peer::Peer;
use crate::target::Target;

/// An answer, or the lack of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// 0: there is none.
    pub(crate) status: u16,
    /// 10, 11, 20; 0: there is none.
    pub(crate) version: u8,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) body: Bytes,
    pub(crate) failure: Option<Box<Failure>>,
    /// Which URL it is the answer of: what was asked for, or what a redirect has led to.
    pub(crate) target: Option<Target>,
    pub(crate) redirect: Option<Box<str>>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) address_text: OnceLock<Box<str>>,
    /// The other end of TLS.
    pub(crate) peer: Option<Arc<Peer>>,
    pub(crate) history: Vec<Arc<Self>>,
    pub(crate) timings: Timings,
    /// Of a mail.
    pub(crate) receipt: Option<Box<Receipt>>,
}

/// What a mail server has said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receipt {
    pub(crate) message_id: String,
    /// The words that decided, with their code.
    pub(crate) reply: Option<(mail::Reply, String)>,
    pub(crate) recipients: Vec<(String, Option<mail::Reply>)>,
    /// The final dot has gone out, and no reply has come.
    pub(crate) uncertain: bool,
}

/// How long what took.
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
    /// There is no answer.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self { failure: Some(Box::new(failure)), ..Self::default() }
    }

    /// There is no answer, or none that counts. A mail whose end has gone out may have been taken.
    pub(crate) fn fail(&mut self, mut failure: Failure) {
        self.body = Bytes::new();
        if self.receipt.as_ref().is_some_and(|receipt| receipt.uncertain) {
            failure.kind = Kind::Unknown;
            failure.message =
                format!("Nobody knows whether the message was taken: {}", failure.message);
        }
        self.failure = Some(Box::new(failure));
    }

    pub(crate) fn url(&self) -> &str {
        self.target.as_ref().map_or("", Target::as_str)
    }

    /// The other end, as text.
    pub(crate) fn address(&self) -> Option<&str> {
        let address = self.address?;
        Some(self.address_text.get_or_init(|| address.to_string().into()))
    }

    /// The field at an index, in the order of the map.
    pub(crate) fn field(headers: &HeaderMap, index: usize) -> Option<(&str, &[u8])> {
        headers.iter().nth(index).map(|(name, value)| (name.as_str(), value.as_bytes()))
    }
}
