//! The body of an HTTP/3 request.
//!
//! Invariants
//! - It has exactly as many bytes as `Content-Length` says, or it is an error: another server could else see another
//!   request in it (RFC 9114, section 4.1.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;

use super::quic::{Link, Receive};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The request is malformed: its body is longer or shorter than announced.
#[derive(Debug, thiserror::Error)]
#[error("the request body has not the announced length")]
pub(crate) struct OtherLength;

/// A body as it arrives.
pub(crate) struct Incoming {
    stream: Option<RequestStream<Receive, Bytes>>,
    link: Arc<Link>,
    /// Bytes that arrived together with the head.
    begun: Option<Bytes>,
    /// The announced length.
    length: Option<u64>,
    received: u64,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Incoming {
    pub(super) fn new(
        stream: RequestStream<Receive, Bytes>,
        link: Arc<Link>,
        length: Option<u64>,
    ) -> Self {
        Self { stream: Some(stream), link, begun: None, length, received: 0 }
    }

    /// Takes what has arrived already, so that a request without a body is known to have none.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) -> Result<(), BoxError> {
        match self.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => self.begun = Some(data),
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(None) | Poll::Pending => {}
        }
        Ok(())
    }

    /// Returns the next piece.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        if let Some(begun) = self.begun.take() {
            return Poll::Ready(Some(Ok(begun)));
        }
        let Some(data) = ready!(self.poll_stream(cx)).transpose() else { return Poll::Ready(None) };
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                self.stream = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        // The end mostly arrives with the last byte: then this piece is known to be the last one.
        if self.length == Some(self.received) {
            match self.poll_stream(cx) {
                Poll::Ready(Ok(None)) | Poll::Pending => {}
                Poll::Ready(Ok(Some(_))) => return Poll::Ready(Some(Err(OtherLength.into()))),
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            }
        }
        Poll::Ready(Some(Ok(data)))
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BoxError>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(None)) };
        let Some(mut data) = ready!(stream.poll_recv_data(cx))? else {
            self.stream = None;
            let all = self.length.is_none_or(|length| length == self.received);
            return Poll::Ready(if all { Ok(None) } else { Err(OtherLength.into()) });
        };
        let data = data.copy_to_bytes(data.remaining());
        self.received += data.len() as u64;
        self.link.taken.fetch_add(data.len() as u64, Ordering::Relaxed);
        if self.length.is_some_and(|length| self.received > length) {
            return Poll::Ready(Err(OtherLength.into()));
        }
        Poll::Ready(Ok(Some(data)))
    }

    /// Returns whether all of it was read.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.begun.is_none()
    }

    /// Returns the announced length.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }
}
