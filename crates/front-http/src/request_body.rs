//! The request body on its way to PHP: read only as fast as PHP takes it, bounded in size and in the client's pauses.
//!
//! Invariants
//! - Never more bytes than the limit come out.
//! - HTTP/2 flow-control credit is given back only once the application has asked for more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

/// The body of a request.
pub struct RequestBody {
    source: Source,
    /// Sends `100 Continue` over HTTP/2; hyper does so itself over HTTP/1.1.
    on_first_read: Option<Box<dyn FnOnce() + Send>>,
    left: u64,
    limit: u64,
    pause: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    verdict: Option<Verdict>,
}

#[derive(Debug)]
enum Source {
    Empty,
    Http1(hyper::body::Incoming),
    Http2 { stream: h2::RecvStream, unreleased: usize, length: Option<u64> },
}

/// Why a request body could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// Larger than allowed: 413.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The client paused for too long: 408.
    #[error("the request body paused for {pause:?}")]
    TimedOut {
        /// The limit.
        pause: Duration,
    },
    /// The client went away or broke the protocol: 400, if anybody still listens.
    #[error("the request body broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl BodyError {
    /// The answer to it.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// What became of a request body, readable after the body has moved to the application: an application may swallow the error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<AtomicU8>);

impl Verdict {
    /// The status of the error that ended the body, if one did.
    pub(crate) fn failure(&self) -> Option<StatusCode> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(StatusCode::PAYLOAD_TOO_LARGE),
            2 => Some(StatusCode::REQUEST_TIMEOUT),
            3 => Some(StatusCode::BAD_REQUEST),
            _ => None,
        }
    }

    fn set(&self, error: &BodyError) {
        let code = match error {
            BodyError::TooLarge { .. } => 1,
            BodyError::TimedOut { .. } => 2,
            BodyError::Broken(_) => 3,
        };
        self.0.store(code, Ordering::Release);
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody")
            .field("source", &self.source)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl RequestBody {
    /// No body.
    pub(crate) fn empty() -> Self {
        Self::new(Source::Empty)
    }

    pub(crate) fn http1(incoming: hyper::body::Incoming) -> Self {
        if incoming.is_end_stream() { Self::empty() } else { Self::new(Source::Http1(incoming)) }
    }

    pub(crate) fn http2(stream: h2::RecvStream, headers: &HeaderMap) -> Self {
        if stream.is_end_stream() {
            return Self::empty();
        }
        let length = headers
            .get(http::header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Self::new(Source::Http2 { stream, unreleased: 0, length })
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            on_first_read: None,
            left: u64::MAX,
            limit: u64::MAX,
            pause: Duration::MAX,
            timer: None,
            verdict: None,
        }
    }

    /// Called once, when the application first asks for the body.
    pub(crate) fn on_first_read(&mut self, action: impl FnOnce() + Send + 'static) {
        if !matches!(self.source, Source::Empty) {
            self.on_first_read = Some(Box::new(action));
        }
    }

    /// Bounds the body. The verdict is for whoever answers; bodies that are empty need none.
    pub(crate) fn limit(&mut self, limit: u64, pause: Duration) -> Option<Verdict> {
        if matches!(self.source, Source::Empty) {
            return None;
        }
        self.left = limit;
        self.limit = limit;
        self.pause = pause;
        let verdict = Verdict::default();
        self.verdict = Some(verdict.clone());
        Some(verdict)
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(verdict) = &self.verdict {
            verdict.set(&error);
        }
        self.source = Source::Empty;
        self.timer = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Source {
    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Http1(incoming) => loop {
                match std::task::ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    Some(Ok(frame)) => {
                        // Trailers of a request have no place in CGI: dropped (RFC 9110, section 6.5.1).
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Some(Ok(data)));
                        }
                    }
                }
            },
            Self::Http2 { stream, unreleased, .. } => {
                if *unreleased > 0 {
                    let credit = std::mem::take(unreleased);
                    if let Err(error) = stream.flow_control().release_capacity(credit) {
                        return Poll::Ready(Some(Err(error.into())));
                    }
                }
                match std::task::ready!(stream.poll_data(cx)) {
                    None => Poll::Ready(None),
                    Some(Err(error)) => Poll::Ready(Some(Err(error.into()))),
                    Some(Ok(data)) => {
                        *unreleased = data.len();
                        Poll::Ready(Some(Ok(data)))
                    }
                }
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(action) = this.on_first_read.take() {
            action();
        }
        match this.source.poll_data(cx) {
            Poll::Ready(None) => {
                this.source = Source::Empty;
                this.timer = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(data))) => {
                this.timer = None;
                match this.left.checked_sub(data.len() as u64) {
                    Some(left) => {
                        this.left = left;
                        Poll::Ready(Some(Ok(Frame::data(data))))
                    }
                    None => this.fail(BodyError::TooLarge { limit: this.limit }),
                }
            }
            Poll::Ready(Some(Err(error))) => this.fail(BodyError::Broken(error)),
            Poll::Pending => {
                let pause = this.pause;
                let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
                if timer.as_mut().poll(cx).is_ready() {
                    return this.fail(BodyError::TimedOut { pause });
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Http1(incoming) => incoming.is_end_stream(),
            Source::Http2 { stream, .. } => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Http1(incoming) => incoming.size_hint(),
            Source::Http2 { length: Some(length), .. } => {
                SizeHint::with_exact((*length).saturating_sub(self.limit - self.left))
            }
            Source::Http2 { length: None, .. } => SizeHint::default(),
        }
    }
}
