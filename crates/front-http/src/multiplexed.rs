//! Common parts of HTTP/2 and HTTP/3: heads without hyper, and lengths that are kept.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use http::response::Parts;
use http_body::Body;

use crate::early_hints::{belongs_in_hint, may_hint};

/// How long closing a connection without streams may take.
pub(crate) const GOODBYE: std::time::Duration = std::time::Duration::from_secs(1);

/// Adds the fields that hyper adds for HTTP/1.1, and returns the announced length.
pub(crate) fn complete_head<B: Body>(head: &mut Parts, body: &B) -> Option<u64> {
    let bodyless = head.status == StatusCode::NO_CONTENT || head.status == StatusCode::NOT_MODIFIED;
    if !body.is_end_stream()
        && !bodyless
        && let Some(length) = body.size_hint().exact()
    {
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    content_length(&head.headers)
}

/// Returns the value of `Content-Length`, if it is a number.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the fields of an interim answer that the application may send; `None` if it may not send this status.
pub(crate) fn hint(status: StatusCode, headers: &HeaderMap) -> Option<HeaderMap> {
    let fields = headers.iter().filter(|(name, _)| belongs_in_hint(name));
    may_hint(status).then(|| fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The bytes of a body that are still to be sent, if its length was announced: more is cut off, less is an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    left: u64,
    known: bool,
}

impl Announced {
    pub(crate) fn new(length: Option<u64>) -> Self {
        Self { left: length.unwrap_or(u64::MAX), known: length.is_some() }
    }

    /// Cuts off what is beyond the length.
    pub(crate) fn take(&mut self, data: &mut bytes::Bytes) {
        data.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= data.len() as u64;
    }

    /// Returns whether the body may end here.
    pub(crate) fn is_done(self) -> bool {
        !self.known || self.left == 0
    }
}
