//! Response buffering: reads the application's response from the worker whether or not the client reads it.
//!
//! Invariants
//! - While the client reads as fast as the worker writes, bytes pass through without copy, queue or timer. A body of
//!   known size costs nothing at all.
//! - A worker is free once its response is complete, however much of it the client has yet to read.
//! - A worker is blocked only while the queue is full or its script runs; [`crate::stalled`] bounds how many a client
//!   that reads nothing can block.
//! - Dropping the body, or aborting the response, drops the application's body, which tells the worker that the
//!   client is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, SizeHint};

use crate::answer_body::CutError;
use crate::metrics::FrontMetrics;
use crate::site::Site;
use crate::spool::{Limits, Room, Spool, Spools};
use crate::stalled::{Stall, StalledAnswers};

/// Maximum number of pieces read at once before other tasks run.
const PIECES_AT_ONCE: usize = 32;

/// The shared state of all response buffers.
#[derive(Debug)]
pub(crate) struct AnswerBuffers {
    pub(crate) spools: Arc<Spools>,
    /// Limits of one response. With zero memory responses are not buffered.
    pub(crate) limits: Limits,
    pub(crate) stalled: Arc<StalledAnswers>,
    pub(crate) metrics: Arc<FrontMetrics>,
}

/// An application's body with the bytes read ahead of the client.
pub(crate) struct BufferedBody<B> {
    /// The body; `None` once it has ended, failed or been aborted.
    body: Option<B>,
    /// The failure of the body, reported when the client has received everything before it.
    failure: Option<CutError>,
    buffering: Option<Box<Buffering>>,
}

/// The buffering state of a body.
struct Buffering {
    buffers: Arc<AnswerBuffers>,
    /// The client's site; `None` if it is unknown.
    site: Option<Site>,
    stall: Stall,
    /// Bytes read ahead, allocated with the first of them.
    ahead: Option<Box<Spool>>,
    /// The response is counted as one in a file.
    in_file: bool,
}

/// The client read nothing, and neither did it for its other responses.
#[derive(Debug, thiserror::Error)]
#[error("the client read nothing while its answers held workers")]
struct Stalled;

impl<B> BufferedBody<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    /// Creates a body for a client at `site`. A body of known size is complete and blocks no worker.
    pub(crate) fn new(body: B, buffers: &Arc<AnswerBuffers>, site: Option<Site>) -> Self {
        let buffering = if buffers.limits.memory == 0 || body.size_hint().exact().is_some() {
            None
        } else {
            let (buffers, stall) = (Arc::clone(buffers), Stall::default());
            Some(Box::new(Buffering { buffers, site, stall, ahead: None, in_file: false }))
        };
        Self { body: Some(body), failure: None, buffering }
    }

    /// Returns whether [`BufferedBody::poll_fill`] may have work, now or later.
    pub(crate) fn may_fill(&self) -> bool {
        self.buffering.is_some() && self.body.is_some()
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let ahead = self.buffering.as_ref().and_then(|buffering| buffering.ahead.as_ref());
        self.failure.is_none()
            && self.body.as_ref().is_none_or(Body::is_end_stream)
            && ahead.is_none_or(|ahead| ahead.is_empty())
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) if self.buffering.is_none() => body.size_hint(),
            _ => SizeHint::default(),
        }
    }

    /// Returns the next bytes for the client. Cancel safe.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, CutError>>> {
        if let Some(buffering) = &mut self.buffering {
            buffering.stall.end();
            if let Some(ahead) = &mut buffering.ahead
                && let Some(piece) = ready!(ahead.poll_next(cx))
            {
                return Poll::Ready(Some(piece.map_err(Into::into)));
            }
        }
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let next = ready!(poll_body(body, cx));
        if !matches!(next, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(next)
    }

    /// Reads what the worker sends while the client does not read.
    ///
    /// It is polled by the task that also polls for the client, each time after the client received what it accepts.
    /// `awaited` says that the client has received everything and waits for more.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>, awaited: bool) {
        let Self { body, failure, buffering: Some(buffering) } = self else { return };
        for taken in 0.. {
            let Some(open) = body else { return };
            let next = if taken < PIECES_AT_ONCE && buffering.poll_room(cx) {
                poll_body(open, cx)
            } else {
                Poll::Pending
            };
            if taken == PIECES_AT_ONCE || (awaited && next.is_ready()) {
                cx.waker().wake_by_ref();
            }
            match next {
                Poll::Ready(Some(Ok(piece))) => buffering.append(piece),
                Poll::Ready(end) => {
                    *failure = end.and_then(Result::err);
                    *body = None;
                    buffering.stall.end();
                }
                Poll::Pending => {
                    if !awaited && buffering.poll_stall(cx).is_ready() {
                        *failure = Some(Stalled.into());
                        *body = None;
                        buffering.stall.end();
                    }
                    return;
                }
            }
        }
    }
}

impl Buffering {
    /// Returns whether there is room for the next piece. A full disk counts as no room: the worker waits, as it would
    /// for the client itself.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(ahead) = &mut self.ahead else { return true };
        let room = matches!(ahead.poll_room(cx), Poll::Ready(Ok(Room::Free)));
        if !self.in_file && ahead.uses_disk() {
            self.in_file = true;
            self.buffers.metrics.answers_in_files.increment(1);
        }
        room
    }

    fn append(&mut self, piece: Bytes) {
        let Self { ahead, buffers, .. } = self;
        ahead
            .get_or_insert_with(|| Box::new(Spool::new(&buffers.spools, buffers.limits)))
            .append(piece);
    }

    /// Ready when the response must be aborted, because bytes wait for a client that blocks more workers than
    /// allowed.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(site) = self.site else { return Poll::Pending };
        self.stall.poll(&self.buffers.stalled, site, cx)
    }
}

fn poll_body<B>(body: &mut B, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutError>>>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => {
                // PHP sends no trailers.
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}
