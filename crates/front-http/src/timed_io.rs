//! The byte stream under HTTP: replays peeked bytes, enforces time-outs, and injects 1xx heads between messages.
//!
//! Invariants
//! - Hint bytes are written only at a message boundary: every earlier byte is flushed, none of the next message is
//!   written.
//! - No timer is touched while a request is being answered; an idle connection owns at most one.
//! - A client that reads nothing for the write time-out is disconnected, and so is one that sends an incomplete head
//!   for the header time-out.
//! - A client that closes its sending side with its request gets its response; one that closes it later counts as
//!   gone (docs/decisions/0011-half-close.md).

mod linger;

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

pub(crate) use self::linger::discard_input;
use crate::early_hints::HintQueue;
use crate::metrics::{ClientLimit, FrontMetrics};
use crate::phase::{Phase, PhaseCell};

/// A client that closes its sending side this soon after the last byte of its request waits for the response.
const HALF_CLOSE: Duration = Duration::from_millis(500);

/// Maximum number of bytes per read that looks for the end of the client's input. These may be the rest of the
/// request's body, so small reads would make an upload slow.
const PROBE: usize = 16 << 10;

/// Time-outs of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) header: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) write: Duration,
}

/// A stream with time-outs and hints.
pub(crate) struct TimedIo<S> {
    stream: S,
    /// Bytes read to detect the protocol.
    peeked: Bytes,
    phase: Arc<PhaseCell>,
    hints: Option<Arc<HintQueue>>,
    patience: Patience,
    /// The current wait; compared with `phase` to detect a change.
    wait: Option<Wait>,
    idle: Option<Pin<Box<Sleep>>>,
    stall: Option<Pin<Box<Sleep>>>,
    metrics: Arc<FrontMetrics>,
    /// The stream enforces the time-outs of requests. For HTTP/2 another module does.
    timed: bool,
    /// Time of the last received bytes.
    last_bytes: Option<Instant>,
    /// The client has closed its sending side.
    ended: bool,
    /// HTTP was given the end of the client's input.
    end_read: bool,
    /// The server has closed its sending side.
    shut: bool,
}

/// A wait with its deadline.
#[derive(Clone, Copy, Debug)]
struct Wait {
    phase: Phase,
    /// The request after which it began.
    request: u32,
    until: Instant,
    /// hyper was woken at its end.
    over: bool,
}

impl<S> TimedIo<S> {
    pub(crate) fn new(
        stream: S,
        peeked: Bytes,
        phase: Arc<PhaseCell>,
        patience: Patience,
        metrics: Arc<FrontMetrics>,
    ) -> Self {
        metrics.bytes_in.increment(peeked.len() as u64);
        let last_bytes = (!peeked.is_empty()).then(Instant::now);
        Self {
            stream,
            peeked,
            phase,
            hints: None,
            patience,
            wait: None,
            idle: None,
            stall: None,
            metrics,
            timed: true,
            last_bytes,
            ended: false,
            end_read: false,
            shut: false,
        }
    }

    /// Enables the injection of hints.
    pub(crate) fn with_hints(mut self, hints: Arc<HintQueue>) -> Self {
        self.hints = Some(hints);
        self
    }

    /// Leaves the phase and the request time-outs to the protocol above. Writes are still timed.
    pub(crate) fn untimed(mut self) -> Self {
        self.timed = false;
        self
    }

    /// Returns whether the server has closed its sending side before the client's input ended.
    pub(crate) fn closed_first(&self) -> bool {
        self.shut && !self.ended && !self.end_read
    }

    /// Returns the stream and the peeked bytes not read yet.
    pub(crate) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.peeked)
    }

    /// Ready when the deadline of the current wait has passed.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let (phase, request) = (self.phase.get(), self.phase.requests());
        if phase == Phase::Busy || !self.timed {
            return Poll::Pending;
        }
        let deadline = match self.wait {
            Some(wait) if wait.phase == phase && wait.request == request => wait.until,
            _ => {
                let limit = match phase {
                    Phase::Idle => self.patience.keep_alive,
                    Phase::First | Phase::Head | Phase::Busy => self.patience.header,
                };
                let until = Instant::now() + limit;
                self.wait = Some(Wait { phase, request, until, over: false });
                until
            }
        };
        // The timer is moved only if it would fire too late; one that fires too early is set again. A busy keep-alive
        // connection therefore does not touch the timer wheel.
        let timer = self.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(phase);
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> TimedIo<S> {
    /// Writes hints first, if that is possible now.
    fn poll_hints(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(hints) = &self.hints else { return Poll::Ready(Ok(())) };
        while let Some(bytes) = hints.next() {
            match Pin::new(&mut self.stream).poll_write(cx, &bytes) {
                Poll::Ready(Ok(written)) => hints.written(bytes, written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    hints.written(bytes, 0);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Handles the result of a write; while it is pending, the stall timer runs.
    fn progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            if self.stall.is_some() {
                self.stall = None;
                self.phase.stall(false);
            }
            return outcome;
        }
        let limit = self.patience.write;
        let stall = self.stall.get_or_insert_with(|| {
            self.phase.stall(true);
            Box::pin(tokio::time::sleep(limit))
        });
        ready!(stall.as_mut().poll(cx));
        self.metrics.limited(ClientLimit::SlowReading);
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes nothing of the answer",
        )))
    }

    /// Sends a 408 to a client that was too slow with its head, if the socket accepts it at once.
    fn refuse_slow_head(&mut self, cx: &mut Context<'_>) {
        const ANSWER: &[u8] =
            b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        if Pin::new(&mut self.stream).poll_write(cx, ANSWER).is_ready() {
            let _flushed = Pin::new(&mut self.stream).poll_flush(cx);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.peeked.has_remaining() {
            let length = this.peeked.len().min(buffer.remaining());
            buffer.put_slice(&this.peeked.split_to(length));
            this.bytes_came();
            return Poll::Ready(Ok(()));
        }
        if this.ended {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                let read = buffer.filled().len() - before;
                if read > 0 {
                    this.metrics.bytes_in.increment(read as u64);
                    this.bytes_came();
                    this.last_bytes = Some(Instant::now());
                } else {
                    this.end_read = true;
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if this.timed && this.phase.is_draining() {
                    // An idle connection is just closed; one with an incomplete head was too late.
                    this.end_read = true;
                    return Poll::Ready(Ok(()));
                }
                match ready!(this.poll_deadline(cx)) {
                    Phase::Head => {
                        this.metrics.limited(ClientLimit::SlowHead);
                        this.refuse_slow_head(cx);
                    }
                    Phase::First | Phase::Idle | Phase::Busy => {}
                }
                this.end_read = true;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> TimedIo<S> {
    /// Checks whether the client has disconnected while an HTTP/1.1 request is answered, because hyper does not read
    /// then. Bytes of the next request are kept.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.hints.is_none()
            || self.ended
            || self.peeked.has_remaining()
            || self.phase.get() != Phase::Busy
        {
            return Poll::Pending;
        }
        let mut bytes = [MaybeUninit::uninit(); PROBE];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
            Ok(()) if !buffer.filled().is_empty() => {
                self.metrics.bytes_in.increment(buffer.filled().len() as u64);
                self.last_bytes = Some(Instant::now());
                self.peeked = Bytes::copy_from_slice(buffer.filled());
                // hyper may be waiting for these bytes.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(()) => {
                self.ended = true;
                if self.last_bytes.is_some_and(|last| last.elapsed() < HALF_CLOSE) {
                    return Poll::Pending;
                }
                Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "the client has left"))
            }
            Err(error) => Poll::Ready(error),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TimedIo<S> {
    /// Writes behind the hints that wait, and looks whether a client that takes nothing is still there.
    fn write_by(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let outcome = match self.poll_hints(cx) {
            Poll::Ready(Ok(())) => write(Pin::new(&mut self.stream), cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        self.wrote(&outcome);
        if outcome.is_pending()
            && let Poll::Ready(gone) = self.poll_gone(cx)
        {
            return Poll::Ready(Err(gone));
        }
        self.progress(cx, outcome)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write_by(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_by(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(hints) = &this.hints {
            hints.boundary();
        }
        if let Poll::Ready(gone) = this.poll_gone(cx) {
            return Poll::Ready(Err(gone));
        }
        let outcome = match this.poll_hints(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.stream).poll_flush(cx),
            other => other,
        };
        // The next request arrived while the last one was answered. hyper reads it only after the flush, for which the
        // socket wakes the task.
        if outcome.is_ready() && this.peeked.has_remaining() && this.phase.get() == Phase::Idle {
            cx.waker().wake_by_ref();
        }
        // hyper reads again when the socket wakes it; the wait begins here. At the deadline hyper is woken once, to
        // read the end of the stream.
        if this.poll_deadline(cx).is_ready()
            && let Some(wait) = &mut this.wait
            && !std::mem::replace(&mut wait.over, true)
        {
            cx.waker().wake_by_ref();
        }
        this.progress(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let outcome = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.shut |= matches!(outcome, Poll::Ready(Ok(())));
        this.progress(cx, outcome)
    }
}

impl<S> TimedIo<S> {
    fn bytes_came(&self) {
        if self.timed {
            self.phase.bytes_came();
        }
    }

    fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(written)) = outcome {
            self.metrics.bytes_out.increment(*written as u64);
            if let Some(hints) = &self.hints {
                hints.mid_message();
            }
        }
    }
}

#[cfg(test)]
mod tests;
