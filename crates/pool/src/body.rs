//! The response body: frames straight from the worker's socket, read only as fast as the client takes them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The body of an answer. Dropping it before its end tells the worker that the client is gone.
#[derive(Debug)]
pub struct ResponseBody {
    whole: Option<Bytes>,
}

/// The answer was cut: its worker died, or the time limit passed, after the head had gone out. The front closes the connection.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut: {why}")]
pub struct Cut {
    why: String,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        Poll::Ready(self.whole.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.whole.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
