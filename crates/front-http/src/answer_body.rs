//! The body of a response being sent, and the accounting of its request, which ends with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use traces::Span;

use crate::access_log::Entry;
use crate::buffered_body::BufferedBody;
use crate::cache::Filling;
use crate::compress::Encoder;
use crate::files::FileBody;
use crate::metrics::FrontMetrics;
use crate::phase::PhaseCell;
use crate::pieces::Pieces;
use crate::realtime::EventStream;
use crate::trace;

/// Size of a piece behind which others have probably arrived.
const LONG_PIECE: usize = 32 << 10;
/// Size of pieces after which no more are added.
const TOGETHER: usize = 256 << 10;

/// The error of a response that was aborted after its head. The connection or HTTP/2 stream is reset.
pub(crate) type CutError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response.
pub(crate) struct AnswerBody<B> {
    source: Source<B>,
    account: Account,
    /// Reported at the next poll: hyper has then sent the head, so the client sees an aborted response instead of
    /// none.
    broken: Option<CutError>,
    /// The client has received everything so far and waits for more.
    awaited: bool,
}

/// The source of the bytes.
pub(crate) enum Source<B> {
    Empty,
    Whole(Bytes),
    File(FileBody),
    Application(BufferedBody<Filling<B>>),
    /// An event stream of channels.
    Events(EventStream),
    /// A compressed body; `None` once the application's body has ended.
    Encoded(Option<BufferedBody<Filling<B>>>, Encoder),
}

impl<B> AnswerBody<B> {
    pub(crate) fn new(source: Source<B>, account: Account) -> Self {
        Self { source, account, broken: None, awaited: false }
    }
}

impl<B> AnswerBody<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    /// Returns whether a worker still produces the body, so that [`AnswerBody::poll_fill`] may have work.
    pub(crate) fn may_fill(&self) -> bool {
        match &self.source {
            Source::Application(body) | Source::Encoded(Some(body), _) => body.may_fill(),
            _ => false,
        }
    }

    /// Returns the next piece; with a long one also what has arrived behind it, to be written together.
    pub(crate) fn poll_pieces(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Pieces, CutError>>> {
        let Some(first) = ready!(Pin::new(&mut *self).poll_frame(cx)?) else {
            return Poll::Ready(None);
        };
        let mut pieces = Pieces::from(first.into_data().unwrap_or_default());
        if pieces.remaining() < LONG_PIECE {
            return Poll::Ready(Some(Ok(pieces)));
        }
        while pieces.remaining() < TOGETHER {
            match self.source.poll_bytes(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    self.account.sent += bytes.len() as u64;
                    pieces.push(bytes);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.fail(error);
                    break;
                }
                // It ends, or waits, once more at the next poll.
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(pieces)))
    }

    fn fail(&mut self, error: CutError) {
        self.account.cut = true;
        if let Some(span) = &mut self.account.span {
            span.fail("cut", error.to_string());
        }
        self.broken = Some(error);
    }

    /// Buffers what the worker sends while the client does not read: [`BufferedBody::poll_fill`].
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) {
        if let Source::Application(body) | Source::Encoded(Some(body), _) = &mut self.source {
            body.poll_fill(cx, self.awaited);
        }
    }
}

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = Bytes;
    type Error = CutError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutError>>> {
        let this = &mut *self;
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let next = this.source.poll_bytes(cx);
        this.awaited = next.is_pending();
        match ready!(next) {
            Some(Ok(bytes)) => {
                this.account.sent += bytes.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Err(error)) => {
                this.fail(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match &self.source {
            Source::Empty => true,
            Source::Whole(bytes) => bytes.is_empty(),
            Source::File(file) => file.left() == 0,
            Source::Application(body) => body.is_end_stream(),
            Source::Encoded(..) | Source::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::File(file) => SizeHint::with_exact(file.left()),
            Source::Application(body) => body.size_hint(),
            Source::Encoded(..) | Source::Events(_) => SizeHint::default(),
        }
    }
}

impl<B> Source<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutError>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Self::File(file) => {
                file.poll_chunk(cx).map(|next| next.map(|outcome| outcome.map_err(Into::into)))
            }
            Self::Application(body) => body.poll_data(cx),
            Self::Events(events) => {
                events.poll_bytes(cx).map(|next| next.map(|outcome| outcome.map_err(Into::into)))
            }
            Self::Encoded(body, encoder) => loop {
                let Some(open) = body else { return Poll::Ready(None) };
                let output = match open.poll_data(cx) {
                    Poll::Ready(Some(Ok(bytes))) => encoder.write(&bytes),
                    Poll::Ready(Some(Err(error))) => {
                        *body = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                    Poll::Ready(None) => {
                        *body = None;
                        encoder.finish()
                    }
                    Poll::Pending => match encoder.flush() {
                        Ok(None) => return Poll::Pending,
                        output => output,
                    },
                };
                match output {
                    Ok(None) => {}
                    Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                }
            },
        }
    }
}

/// The accounting of a request. It is counted and logged on drop, however the response ended.
pub(crate) struct Account {
    pub(crate) started: Instant,
    pub(crate) method: Method,
    pub(crate) status: StatusCode,
    pub(crate) metrics: Arc<FrontMetrics>,
    pub(crate) entry: Option<Entry>,
    /// Phase of an HTTP/1.1 connection, set to idle at the end of the response.
    pub(crate) phase: Option<Arc<PhaseCell>>,
    /// Number of body bytes passed on for sending.
    pub(crate) sent: u64,
    /// The application aborted its response.
    pub(crate) cut: bool,
    /// Span of the request, if it is sampled.
    pub(crate) span: Option<Span>,
}

impl Account {
    /// Sets the application of the request.
    pub(crate) fn of(&mut self, application: Option<&Arc<str>>) {
        if let Some(entry) = &mut self.entry {
            entry.of(application);
        }
        if let (Some(span), Some(name)) = (&mut self.span, application) {
            span.set("hearth.application", name.to_string());
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let now = Instant::now();
        let duration = now.saturating_duration_since(self.started);
        self.metrics.request(&self.method, self.status, duration, now);
        if let Some(phase) = &self.phase {
            phase.answered();
        }
        if let Some(entry) = self.entry.take() {
            entry.write(self, duration);
        }
        if let Some(span) = self.span.take() {
            trace::end(span, self.status);
        }
    }
}
