//! The request body on its way to PHP: received completely in advance, or read only as fast as PHP reads. It is
//! limited in size, pauses and minimum rate.
//!
//! Invariants
//! - Never more bytes than the limit are returned.
//! - Flow-control credit of HTTP/2 and HTTP/3 is granted only when more is requested: by the application, or by the code that
//!   receives the body for it.
//! - A received body has a known size and does not fail because of the client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::http3;
use crate::multiplexed::content_length;
use crate::pace::{Pace, PaceLimits, Slow, UnreadBodies, UnreadBody};
use crate::spool::{self, Room, Spool, Spools};

/// The body of a request.
pub struct RequestBody {
    source: Source,
    /// Sends `100 Continue` over HTTP/2 and HTTP/3; hyper does so itself over HTTP/1.1.
    on_first_read: Option<Box<dyn FnOnce() + Send>>,
    left: u64,
    limit: u64,
    pace: Pace,
    /// The body among those of its HTTP/2 or HTTP/3 connection.
    unread: Option<UnreadBody>,
    timer: Option<Pin<Box<Sleep>>>,
    verdict: Option<Verdict>,
}

#[derive(Debug)]
enum Source {
    Empty,
    Http1(hyper::body::Incoming),
    Http2 {
        stream: h2::RecvStream,
        unreleased: usize,
        length: Option<u64>,
    },
    Http3(Box<http3::Incoming>),
    /// The complete body in one piece.
    Whole(Bytes),
    /// The complete body in a queue, with the number of unread bytes.
    Received(Box<Spool>, u64),
}

/// The part of a body that has arrived at the first poll.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// The complete body, which the body returns again.
    Whole,
    /// The first bytes, if any.
    Part(Option<Bytes>),
}

/// Reasons why a request body could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is larger than allowed: 413.
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
    /// The client's rate was below the minimum: 408.
    #[error("the request body arrived at less than {rate} bytes per second")]
    TooSlow {
        /// The limit in bytes per second.
        rate: u64,
    },
    /// The server could not store the body until it was complete: 507 if there is no room, otherwise 500.
    #[error("the request body could not be kept")]
    NotKept(#[source] std::io::Error),
    /// The client disconnected or violated the protocol: 400, if the connection is still open.
    #[error("the request body broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl BodyError {
    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut { .. } | Self::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::NotKept(cause) if spool::is_disk_full(cause) => StatusCode::INSUFFICIENT_STORAGE,
            Self::NotKept(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl From<Slow> for BodyError {
    fn from(slow: Slow) -> Self {
        match slow {
            Slow::Paused(pause) => Self::TimedOut { pause },
            Slow::BelowRate(rate) => Self::TooSlow { rate },
        }
    }
}

/// The outcome of reading a request body, available after the body has moved to the application, which may ignore the
/// error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<AtomicU8>);

impl Verdict {
    /// Returns the status of the error that ended the body, if any.
    pub(crate) fn failure(&self) -> Option<StatusCode> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(StatusCode::PAYLOAD_TOO_LARGE),
            2 => Some(StatusCode::REQUEST_TIMEOUT),
            3 => Some(StatusCode::BAD_REQUEST),
            4 => Some(StatusCode::INTERNAL_SERVER_ERROR),
            _ => None,
        }
    }

    fn set(&self, error: &BodyError) {
        let code = match error {
            BodyError::TooLarge { .. } => 1,
            BodyError::TimedOut { .. } | BodyError::TooSlow { .. } => 2,
            BodyError::Broken(_) => 3,
            BodyError::NotKept(_) => 4,
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
    /// Returns an empty body.
    pub(crate) fn empty() -> Self {
        Self::new(Source::Empty)
    }

    /// Returns a body that is complete and not empty.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::new(Source::Whole(bytes))
    }

    pub(crate) fn http1(incoming: hyper::body::Incoming) -> Self {
        if incoming.is_end_stream() { Self::empty() } else { Self::new(Source::Http1(incoming)) }
    }

    pub(crate) fn http2(
        stream: h2::RecvStream,
        headers: &HeaderMap,
        unread: &UnreadBodies,
    ) -> Self {
        if stream.is_end_stream() {
            return Self::empty();
        }
        let length = content_length(headers);
        let unread = Some(unread.begin());
        Self { unread, ..Self::new(Source::Http2 { stream, unreleased: 0, length }) }
    }

    pub(crate) fn http3(incoming: http3::Incoming, unread: &UnreadBodies) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        Self { unread: Some(unread.begin()), ..Self::new(Source::Http3(Box::new(incoming))) }
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            on_first_read: None,
            left: u64::MAX,
            limit: u64::MAX,
            pace: Pace::new(PaceLimits::NONE),
            unread: None,
            timer: None,
            verdict: None,
        }
    }

    /// Sets an action that is called once, when the application first reads the body.
    pub(crate) fn on_first_read(&mut self, action: impl FnOnce() + Send + 'static) {
        if !matches!(self.source, Source::Empty) {
            self.on_first_read = Some(Box::new(action));
        }
    }

    /// Limits the body, or rejects it if its announced length is above the limit. The verdict tells how reading the body has ended; a
    /// body that is empty, or was received before, needs none.
    pub(crate) fn limit(
        &mut self,
        limit: u64,
        pace: PaceLimits,
    ) -> Result<Option<Verdict>, BodyError> {
        if matches!(self.source, Source::Empty | Source::Whole(_) | Source::Received(..)) {
            return Ok(None);
        }
        if self.size_hint().lower() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        self.left = limit;
        self.limit = limit;
        self.pace = Pace::new(pace);
        let verdict = Verdict::default();
        self.verdict = Some(verdict.clone());
        Ok(Some(verdict))
    }

    /// Takes what is available without waiting, at the first poll.
    pub(crate) fn take_arrived(&mut self, cx: &mut Context<'_>) -> Result<Arrived, BodyError> {
        match Pin::new(&mut *self).poll_frame(cx) {
            Poll::Pending => Ok(Arrived::Part(None)),
            Poll::Ready(None) => Ok(Arrived::Whole),
            Poll::Ready(Some(Err(error))) => Err(error),
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if self.is_end_stream() {
                    // The bytes count only once.
                    self.left = self.limit;
                    self.source = Source::Whole(data);
                    self.unread = None;
                    return Ok(Arrived::Whole);
                }
                Ok(Arrived::Part(Some(data)))
            }
        }
    }

    /// Returns whether all of it has arrived, so that reading it does not wait for the client.
    pub(crate) fn has_arrived(&self) -> bool {
        matches!(self.source, Source::Whole(_) | Source::Received(..))
    }

    /// Receives the rest after `begun`: in memory, and beyond its limit in a file. Afterwards the body returns all of
    /// it.
    ///
    /// # Cancel safety
    /// The received bytes are lost.
    pub(crate) async fn receive(
        &mut self,
        begun: Option<Bytes>,
        spools: &Arc<Spools>,
        limits: spool::Limits,
    ) -> Result<(), BodyError> {
        let mut spool = Spool::new(spools, limits);
        let mut next = begun;
        loop {
            if let Some(piece) = next {
                let room = std::future::poll_fn(|cx| spool.poll_room(cx)).await;
                match room.map_err(BodyError::NotKept)? {
                    Room::Free => spool.append(piece),
                    Room::Full => {
                        return Err(BodyError::NotKept(std::io::ErrorKind::StorageFull.into()));
                    }
                }
            }
            if self.is_end_stream() {
                break;
            }
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            match frame.transpose()? {
                Some(frame) => next = frame.into_data().ok(),
                None => break,
            }
        }
        let length = spool.appended();
        (self.timer, self.unread) = (None, None);
        self.source = Source::Received(Box::new(spool), length);
        Ok(())
    }

    /// Returns the number of bytes to come of a body with this announced length.
    fn rest_of(&self, length: Option<u64>) -> SizeHint {
        length.map_or_else(SizeHint::default, |length| {
            SizeHint::with_exact(length.saturating_sub(self.limit - self.left))
        })
    }

    /// Ready when the client is too slow.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<Slow> {
        loop {
            let now = Instant::now();
            let blocked = self.unread.as_ref().is_some_and(UnreadBody::is_blocked);
            let next = if blocked { Ok(self.pace.blocked(now)) } else { self.pace.wait(now) };
            let until = match next {
                Ok(Some(until)) => until,
                Ok(None) => return Poll::Pending,
                Err(slow) => return Poll::Ready(slow),
            };
            // The timer is moved only if it would fire too late; one that fires too early is set again.
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until);
            }
            std::task::ready!(timer.as_mut().poll(cx));
            if timer.deadline() < until {
                timer.as_mut().reset(until);
            }
        }
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(verdict) = &self.verdict {
            verdict.set(&error);
        }
        self.source = Source::Empty;
        (self.timer, self.unread) = (None, None);
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
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Self::Received(..) => unreachable!("it is read without the client's limits"),
            Self::Http1(incoming) => loop {
                match std::task::ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    Some(Ok(frame)) => {
                        // CGI has no request trailers, so they are dropped (RFC 9110, section 6.5.1).
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Some(Ok(data)));
                        }
                    }
                }
            },
            Self::Http3(incoming) => incoming.poll_data(cx),
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
        if let Source::Received(spool, left) = &mut this.source {
            let next = std::task::ready!(spool.poll_next(cx));
            return Poll::Ready(next.map(|bytes| {
                let bytes = bytes.map_err(BodyError::NotKept)?;
                *left = left.saturating_sub(bytes.len() as u64);
                Ok(Frame::data(bytes))
            }));
        }
        if let Some(action) = this.on_first_read.take() {
            action();
        }
        let next = this.source.poll_data(cx);
        if let Some(unread) = &mut this.unread {
            unread.set(next.is_ready());
        }
        match next {
            Poll::Ready(None) => {
                this.source = Source::Empty;
                (this.timer, this.unread) = (None, None);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(data))) => {
                this.pace.arrived(data.len(), Instant::now);
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
                let slow = std::task::ready!(this.poll_too_slow(cx));
                this.fail(slow.into())
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Received(_, left) => *left == 0,
            Source::Http1(incoming) => incoming.is_end_stream(),
            Source::Http2 { stream, .. } => stream.is_end_stream(),
            Source::Http3(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Received(_, left) => SizeHint::with_exact(*left),
            Source::Http1(incoming) => incoming.size_hint(),
            Source::Http2 { length, .. } => self.rest_of(*length),
            Source::Http3(incoming) => self.rest_of(incoming.length()),
        }
    }
}
