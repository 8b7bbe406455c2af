//! The body of a response.
//!
//! Invariants
//! - A body that arrived with its head holds no connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

use crate::CallError;
use crate::http1::Http1Body;

/// The body of a response, with trailers. Dropping it before its end discards the rest.
#[derive(Debug)]
pub struct AnswerBody(Source);

#[derive(Debug)]
enum Source {
    /// All of it.
    Whole(Bytes),
    Http1(Http1Body),
    Other(UnsyncBoxBody<Bytes, CallError>),
}

impl AnswerBody {
    /// Wraps a body of another kind.
    pub fn new(body: impl Body<Data = Bytes, Error = CallError> + Send + 'static) -> Self {
        Self(Source::Other(UnsyncBoxBody::new(body)))
    }

    /// Wraps a body of HTTP/1.1. If it has arrived, its connection is free from here on. `behind`: a copy of what came with its head.
    pub(crate) fn http1(mut body: Http1Body, behind: Bytes) -> Self {
        Self(match body.whole(behind) {
            Some(bytes) => Source::Whole(bytes),
            None => Source::Http1(body),
        })
    }

    /// Takes the body if all of it has arrived and nothing of it was read. Otherwise it is read frame by frame.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Source::Whole(bytes) => Some(std::mem::take(bytes)),
            Source::Http1(_) | Source::Other(_) => None,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        match &mut self.get_mut().0 {
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Http1(body) => Pin::new(body).poll_frame(cx),
            Source::Other(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Http1(body) => body.is_end_stream(),
            Source::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Http1(body) => body.size_hint(),
            Source::Other(body) => body.size_hint(),
        }
    }
}
