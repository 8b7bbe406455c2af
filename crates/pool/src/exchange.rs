//! One request with one worker: writes the request as the worker reads it, reads the response as the client reads it.
//!
//! Invariants
//! - Both directions move independently, so neither can block the other.
//! - [`Failure::NotSent`] means that sending the request again is safe. The worker's shared counters prove that it
//!   was not started, or its socket refused the first byte (docs/internals/frames.md, "The shared counters").
//! - Dropping an exchange never loses a worker: a task of the pool finishes the rest of the exchange.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::Body;
use tokio::io::AsyncWrite;
use traces::Span;
use tracing::{debug, error};

use crate::context::HintSender;
use crate::info::WorkerInfo;
use crate::lease::Lease;
use crate::shared::{Command, Shared};
use crate::source::Source;
use crate::trace;
use crate::worker::{Event, Gone, Head, Worker};

/// A boxed error.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A request body of any type.
pub(crate) type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// Size of a response body above which no request waits behind it in the worker's socket.
const LONG: usize = 64 * 1024;

/// Reasons why an exchange did not complete.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The worker was gone before it could read any of the request.
    NotSent,
    /// The worker has died.
    Died { pid: u32, how: String },
    /// The worker was killed because the time limit had passed.
    TimedOut,
    /// The client's body failed.
    RequestBody(BoxError),
    /// The request's head cannot be encoded for this program.
    TooLarge,
}

/// The state of the response body in the buffer.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// No complete piece.
    Nothing,
    /// A piece, or the error that ends the body.
    Piece(Result<Bytes, Failure>),
    /// The response is complete.
    End,
}

/// A worker with a request. The REQUEST frame is in `worker.outgoing`.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The leased worker; `None` once the exchange is over.
    lease: Option<Lease>,
    /// Number of the request among those written to the worker.
    number: u64,
    upload: Upload,
    /// Bytes of the response body that have arrived.
    received: usize,
    hints: Option<HintSender>,
    /// Span of PHP's work, until that has ended.
    span: Option<Span>,
}

/// The part of the request still to be written.
struct Upload {
    /// Number of bytes of `worker.outgoing` that are written.
    written: usize,
    /// At least one byte of the request was written.
    sent: bool,
    /// The whole request was written before the worker's previous answer had ended.
    written_ahead: bool,
    /// Data that follow `worker.outgoing`.
    data: Bytes,
    /// The rest of a piece that was too large for one frame.
    rest: Bytes,
    /// The body; `None` if there is none, or no more of it is needed. Boxed, because most requests have none.
    source: Option<Box<Source>>,
    /// The body's last frame, or ABORT, is in `worker.outgoing` or written.
    closed: bool,
    /// No request may follow this one: the worker's socket accepts no more, or its client takes a long answer.
    alone: bool,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("written", &self.written)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Exchange {
    /// Creates an exchange; `lease.outgoing` holds the REQUEST frame, and `body` follows it. If the whole request was
    /// `written` ahead, that is its number, and `lease.outgoing` is empty.
    pub(crate) fn new(
        lease: Lease,
        written: Option<u64>,
        body: Option<Box<Source>>,
        hints: Option<HintSender>,
        span: Option<Span>,
    ) -> Self {
        lease.begin();
        let number = written.unwrap_or_else(|| lease.port.sent() + 1);
        let closed = written.is_some() || body.is_none();
        let upload = Upload {
            sent: written.is_some(),
            written_ahead: written.is_some(),
            closed,
            source: body,
            ..Upload::default()
        };
        Self { lease: Some(lease), number, upload, received: 0, hints, span }
    }

    /// Returns the body from its beginning, for another attempt after [`Failure::NotSent`].
    pub(crate) fn take_body(&mut self) -> Option<Box<Source>> {
        let mut source = self.upload.source.take()?;
        source.rewind();
        Some(source)
    }

    /// Returns the head of the response. Cancel safe.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Failure>> {
        loop {
            if let Poll::Ready(Err(error)) = self.poll_upload(cx) {
                let failure = Failure::RequestBody(error);
                if let Some(mut span) = self.span.take() {
                    trace::failed(&mut span, &failure);
                }
                return Poll::Ready(Err(failure));
            }
            let event = match ready!(self.worker().poll_next(cx)) {
                Ok(event) => event,
                Err(Gone::Closed) if self.may_be_tried_again() => {
                    if let Some(span) = &mut self.span {
                        trace::failed(span, &Failure::NotSent);
                    }
                    self.gone(&Gone::Closed);
                    return Poll::Ready(Err(Failure::NotSent));
                }
                Err(gone) => return Poll::Ready(Err(self.gone(&gone))),
            };
            match event {
                Event::Inform(status, headers) => {
                    if let Some(hints) = &self.hints {
                        (hints.0)(status, &headers);
                    }
                }
                Event::Head(head) => {
                    self.upload.release_body();
                    return Poll::Ready(Ok(head));
                }
                _ => return Poll::Ready(Err(self.out_of_turn())),
            }
        }
    }

    /// Returns the next piece of the response body; `None` when it is complete. Cancel safe.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if self.lease.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Err(error)) = self.poll_upload(cx) {
            // The worker still responds; it only gets no more of the body.
            debug!(%error, "request body broke off");
            self.upload.cancel();
        }
        match ready!(self.worker().poll_next(cx)) {
            Ok(event) => Poll::Ready(self.body_event(event)),
            Err(gone) => Poll::Ready(Some(Err(self.gone(&gone)))),
        }
    }

    /// Returns what has already arrived.
    pub(crate) fn buffered_body(&mut self) -> Arrived {
        if self.lease.is_none() {
            return Arrived::End;
        }
        match self.worker().buffered() {
            Ok(None) => Arrived::Nothing,
            Ok(Some(event)) => self.body_event(event).map_or(Arrived::End, Arrived::Piece),
            Err(malformed) => Arrived::Piece(Err(self.gone(&malformed.into()))),
        }
    }

    fn body_event(&mut self, event: Event) -> Option<Result<Bytes, Failure>> {
        match event {
            Event::Body(data) => {
                self.received = self.received.saturating_add(data.len());
                if self.received > LONG && !self.upload.alone {
                    self.be_alone();
                }
                Some(Ok(data))
            }
            Event::End { ready, busy } => {
                self.end(ready, busy);
                None
            }
            _ => Some(Err(self.out_of_turn())),
        }
    }

    fn worker(&mut self) -> &mut Worker {
        self.lease.as_mut().expect("an exchange has its lease until it is over")
    }

    /// Returns whether the request may be sent to another worker: this one has gone without starting it, and the
    /// whole body is still available.
    fn may_be_tried_again(&mut self) -> bool {
        self.upload.source.as_ref().is_none_or(|source| source.is_whole())
            && (!self.upload.sent || !self.is_begun())
    }

    /// Returns whether the worker has begun the request.
    fn is_begun(&mut self) -> bool {
        let number = self.number;
        self.worker().port.has_begun(number)
    }

    /// Writes the request to the worker. Ready when the whole request is written, or the client's body has failed.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Self { lease: Some(lease), upload, .. } = self else { return Poll::Ready(Ok(())) };
        let worker: &mut Worker = lease;
        upload.poll(worker, cx)
    }

    /// Ends a complete exchange: the worker is returned as soon as it can accept a request.
    fn end(&mut self, ready: bool, busy: bool) {
        let mut lease = self.lease.take().expect("an exchange has its lease until it is over");
        if let Some(mut span) = self.span.take() {
            trace::answered(&mut span, &lease.info);
        }
        lease.ready = ready;
        let busy = busy && !matches!(lease.buffered(), Ok(Some(Event::Ready)));
        if !busy && self.upload.closed && self.upload.is_flushed(&lease) {
            lease.finish();
            return;
        }
        let upload = std::mem::take(&mut self.upload);
        let shared = Arc::clone(lease.shared());
        let rest = if busy { Rest::Ready } else { Rest::Upload };
        shared.tasks.spawn_on(play_out(lease, upload, rest), &shared.runtime);
    }

    /// Gives the requests behind this one to other workers, because its client may take any time to read the answer.
    fn be_alone(&mut self) {
        self.upload.alone = true;
        if let Some(lease) = &self.lease {
            lease.port.set_open(false);
            lease.shared().withdraw_behind(lease.info.slot);
        }
    }

    /// Handles a frame that is not allowed here.
    fn out_of_turn(&mut self) -> Failure {
        self.gone(&Gone::Malformed(wire::Malformed::Payload("frame out of turn")))
    }

    /// Ends the exchange of a lost worker and returns the failure.
    fn gone(&mut self, gone: &Gone) -> Failure {
        let lease = self.lease.take().expect("an exchange has its lease until it is over");
        let shared = Arc::clone(lease.shared());
        let info = lease.discard();
        let failure = report(&shared, &info, gone);
        if let Some(mut span) = self.span.take() {
            trace::failed(&mut span, &failure);
        }
        failure
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if let Some(mut span) = self.span.take() {
            trace::abandoned(&mut span);
        }
        if !self.upload.sent || (self.upload.written_ahead && lease.port.withdraw(self.number)) {
            return; // the worker does nothing for it: its lease returns it unchanged
        }
        let upload = std::mem::take(&mut self.upload);
        leave(lease, upload, self.number);
    }
}

/// Finishes the exchange of a request that was written ahead and whose client is gone.
pub(crate) fn abandon(lease: Lease, number: u64) {
    if !lease.port.withdraw(number) {
        leave(lease, Upload { sent: true, ..Upload::default() }, number);
    }
}

/// Tells the worker that the client is gone, and finishes the exchange.
fn leave(lease: Lease, mut upload: Upload, number: u64) {
    upload.cancel();
    // Otherwise the worker runs the request to its end. A body that is not whole is ended by an ABORT frame.
    let _told = lease.port.abort(number);
    let shared = Arc::clone(lease.shared());
    shared.tasks.spawn_on(play_out(lease, upload, Rest::Answer), &shared.runtime);
}

/// The rest of an exchange whose caller is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Waiting for END.
    Answer,
    /// Waiting for READY, after an END with BUSY.
    Ready,
    /// Only unwritten bytes.
    Upload,
}

/// Finishes an exchange whose caller is gone and returns the worker.
async fn play_out(mut lease: Lease, mut upload: Upload, mut rest: Rest) {
    upload.cancel();
    loop {
        let event = std::future::poll_fn(|cx| {
            let worker: &mut Worker = &mut lease;
            if upload.poll(worker, cx).is_ready() && rest == Rest::Upload {
                return Poll::Ready(None);
            }
            worker.poll_next(cx).map(Some)
        });
        let gone = match event.await {
            None => break,
            Some(Ok(Event::Head(_) | Event::Body(_) | Event::Inform(..)))
                if rest == Rest::Answer =>
            {
                continue;
            }
            Some(Ok(Event::End { ready, busy })) if rest == Rest::Answer => {
                lease.ready = ready;
                rest = if busy { Rest::Ready } else { Rest::Upload };
                continue;
            }
            Some(Ok(Event::Ready)) if rest == Rest::Ready => {
                lease.ready = true;
                rest = Rest::Upload;
                continue;
            }
            // A one-shot worker sends no READY: it exits when its script has ended.
            Some(Err(Gone::Closed)) if rest == Rest::Ready && lease.shared().one_shot() => break,
            Some(Ok(_)) => Gone::Malformed(wire::Malformed::Payload("frame out of turn")),
            Some(Err(gone)) => gone,
        };
        let shared = Arc::clone(lease.shared());
        report(&shared, &lease.discard(), &gone);
        return;
    }
    lease.finish();
}

/// Reports how a worker was lost, and kills one that violated the protocol.
fn report(shared: &Arc<Shared>, info: &Arc<WorkerInfo>, gone: &Gone) -> Failure {
    let pid = info.pid();
    info.set_gone(shared.now());
    match gone {
        Gone::Malformed(malformed) => {
            let id = info.current_request();
            let id = id.as_ref().map(|id| &*id.0);
            error!(worker.pid = pid, request.id = id, reason = %malformed, "worker sent a malformed frame");
            shared.command(Command::Kill { slot: info.slot });
            Failure::Died { pid, how: format!("sent a malformed frame: {malformed}") }
        }
        Gone::Closed if info.life.timed_out() => Failure::TimedOut,
        Gone::Closed => {
            if shared.one_shot() {
                shared.tasks.spawn_on(
                    ended_unanswered(Arc::clone(shared), Arc::clone(info)),
                    &shared.runtime,
                );
            }
            Failure::Died { pid, how: String::new() }
        }
    }
}

/// Checks a one-shot worker that has ended without a response; it exits with 0 in the normal case.
async fn ended_unanswered(shared: Arc<Shared>, info: Arc<WorkerInfo>) {
    if info.ended().await == 0 {
        let id = info.current_request();
        let id = id.as_ref().map(|id| &*id.0);
        shared.crashes.fetch_add(1, Ordering::Relaxed);
        error!(worker.pid = info.pid(), request.id = id, "worker ended without an answer");
    }
}

impl Default for Upload {
    fn default() -> Self {
        Self {
            written: 0,
            sent: false,
            written_ahead: false,
            data: Bytes::new(),
            rest: Bytes::new(),
            source: None,
            closed: true,
            alone: false,
        }
    }
}

impl Upload {
    /// Cancels the rest of the body: the started frame is completed, then ABORT ends the body.
    fn cancel(&mut self) {
        self.source = None;
        self.rest = Bytes::new();
    }

    /// Releases the buffered body, because the worker has started the request.
    fn release_body(&mut self) {
        if self.closed {
            self.source = None;
        } else if let Some(source) = &mut self.source {
            source.release();
        }
    }

    fn is_flushed(&self, worker: &Worker) -> bool {
        self.written == worker.outgoing.len() && self.data.is_empty()
    }

    fn poll(&mut self, worker: &mut Worker, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // A body that is already available is sent together with the head.
        if !self.sent
            && worker.ready
            && self.data.is_empty()
            && !self.closed
            && let Poll::Ready(Err(error)) = self.poll_piece(worker, cx)
        {
            return Poll::Ready(Err(error));
        }
        loop {
            while !self.is_flushed(worker) {
                let Worker { stream, outgoing, .. } = worker;
                let head = outgoing.get(self.written..).unwrap_or_default();
                let written = if self.data.is_empty() {
                    ready!(Pin::new(stream).poll_write(cx, head))
                } else {
                    let both = [IoSlice::new(head), IoSlice::new(&self.data)];
                    ready!(Pin::new(stream).poll_write_vectored(cx, &both))
                };
                match written {
                    Ok(written) => {
                        if !self.sent {
                            self.sent = true;
                            worker.port.set_sent(worker.port.sent() + 1);
                        }
                        let of_head = written.min(outgoing.len() - self.written);
                        self.written += of_head;
                        self.data.advance(written - of_head);
                    }
                    Err(error) => {
                        // The reader will see its end; what it sent before is still buffered. Another worker may get
                        // the body.
                        debug!(worker.pid = worker.info.pid(), %error, "worker takes no more");
                        self.rest = Bytes::new();
                        self.closed = true;
                        self.alone = true;
                        self.written = outgoing.len();
                        self.data = Bytes::new();
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            if self.closed {
                worker.port.set_open(self.sent && !self.alone);
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_piece(worker, cx))?;
        }
    }

    /// Appends the next frame of the body to `worker.outgoing`, whose written part is dropped.
    fn poll_piece(
        &mut self,
        worker: &mut Worker,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BoxError>> {
        let mut data = std::mem::take(&mut self.rest);
        let mut last = false;
        while data.is_empty() && !last {
            let Some(source) = &mut self.source else {
                self.start_frame(worker);
                wire::send::abort(&mut worker.outgoing);
                self.closed = true;
                return Poll::Ready(Ok(()));
            };
            match ready!(source.poll_data(cx)) {
                Some(Ok(piece)) => data = piece,
                Some(Err(error)) => {
                    self.source = None;
                    return Poll::Ready(Err(error));
                }
                None => last = true,
            }
        }
        if data.len() > wire::MAX_BODY {
            self.rest = data.split_off(wire::MAX_BODY);
        } else if last || self.source.as_ref().is_some_and(|source| source.is_at_end()) {
            last = true;
            self.closed = true;
        }
        self.start_frame(worker);
        worker.outgoing.extend_from_slice(&wire::body_header(data.len(), last));
        self.data = data;
        Poll::Ready(Ok(()))
    }

    fn start_frame(&mut self, worker: &mut Worker) {
        if self.is_flushed(worker) {
            worker.outgoing.clear();
            self.written = 0;
        }
    }
}
