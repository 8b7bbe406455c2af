//! The response body: frames directly from the worker's socket, read only as fast as the client reads.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::exchange::{Exchange, Failure};

/// The body of a response. Dropping it before its end tells the worker that the client is gone.
#[derive(Debug)]
pub struct ResponseBody {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The whole body; `None` once it was taken.
    Whole(Option<Bytes>),
    Streaming(Box<Streaming>),
    Foreign(Box<crate::foreign::Body>),
}

#[derive(Debug)]
struct Streaming {
    /// Pieces that arrived with the head, in order; the exchange returns the rest.
    early: [Option<Result<Bytes, Failure>>; 2],
    exchange: Exchange,
}

/// The error of an aborted response: its worker died, or the time limit passed, after the head was sent. The front
/// closes the connection.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut: {why}")]
pub struct Cut {
    why: String,
}

impl ResponseBody {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { kind: Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())) }
    }

    pub(crate) fn streaming(
        early: [Option<Result<Bytes, Failure>>; 2],
        exchange: Exchange,
    ) -> Self {
        Self { kind: Kind::Streaming(Box::new(Streaming { early, exchange })) }
    }

    pub(crate) fn foreign(body: crate::foreign::Body) -> Self {
        Self { kind: Kind::Foreign(Box::new(body)) }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let next = match &mut self.kind {
            Kind::Whole(whole) => Poll::Ready(whole.take().map(Ok)),
            Kind::Foreign(body) => body.poll_next(cx),
            Kind::Streaming(streaming) => {
                let Streaming { early: [first, second], exchange } = &mut **streaming;
                match first.take().or_else(|| second.take()) {
                    Some(early) => Poll::Ready(Some(early)),
                    None => exchange.poll_body(cx),
                }
            }
        };
        next.map(|next| next.map(|data| data.map(Frame::data).map_err(|why| Cut::from(&why))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(whole) => {
                SizeHint::with_exact(whole.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Streaming(_) | Kind::Foreign(_) => SizeHint::default(),
        }
    }
}

impl From<&Failure> for Cut {
    fn from(failure: &Failure) -> Self {
        let why = match failure {
            Failure::Died { pid, how } if how.is_empty() => format!("worker {pid} died"),
            Failure::Died { pid, how } => format!("worker {pid} died: {how}"),
            Failure::TimedOut => "the time limit passed".to_owned(),
            Failure::NotSent => "the worker was gone".to_owned(),
            Failure::TooLarge => "the request head is too large".to_owned(),
            Failure::RequestBody(cause) => format!("the request body broke off: {cause}"),
        };
        Self { why }
    }
}
