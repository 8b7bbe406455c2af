//! Answers of the emulator: the result of an invocation for its caller, and the body of a response.

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;

use super::FunctionError;

/// Maximum number of chunks of a streamed response that wait for a slow caller; then the runtime waits.
pub(super) const CHUNKS: usize = 16;

/// The result of an invocation for its caller.
#[derive(Debug)]
pub(super) enum Answer {
    /// The whole response.
    Whole { body: Bytes },
    /// A streamed response; an error means that it was aborted.
    Stream { media_type: Option<HeaderValue>, chunks: Chunks },
    /// An error.
    Failed(FunctionError),
}

/// The chunks of a streamed response.
#[derive(Debug)]
pub(super) struct Chunks(pub(super) mpsc::Receiver<Chunk>);

/// A part of a streamed response.
#[derive(Debug)]
pub(super) enum Chunk {
    Data(Bytes),
    Failed(FunctionError),
    /// The end; without it the response was aborted.
    End,
}

impl Chunks {
    /// Returns the next part; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, FunctionError>> {
        match self.0.recv().await {
            Some(Chunk::Data(data)) => Some(Ok(data)),
            Some(Chunk::Failed(error)) => Some(Err(error)),
            Some(Chunk::End) => None,
            None => Some(Err(FunctionError::truncated())),
        }
    }
}

/// The body of every response.
pub(super) type Body = UnsyncBoxBody<Bytes, BrokenOff>;

/// The error of an incomplete streamed response: the connection is reset.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(super) struct BrokenOff;

/// Returns a body of known content.
pub(super) fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a complete response.
pub(super) fn answer(
    status: http::StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
