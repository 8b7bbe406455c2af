//! One request with one worker: writes the request as the worker reads it, reads the response as the client reads it.
//!
//! Invariants
//! - Both directions move independently, so neither can block the other.
//! - [`Failure::NotSent`] means that sending the request again is safe. The worker's shared counters prove that it
//!   was not started, or its socket refused the first byte (docs/internals/frames.md, "The shared counters").
//! - Dropping an exchange never loses a worker: a task of the pool finishes the rest of the exchange.

mod upload;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;
use traces::Span;
use tracing::{debug, error};

use self::upload::Upload;
use crate::context::{HintSender, RequestContext, ResponseObserver};
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

/// The front's observer of a response.
pub(crate) type Observer = Option<Arc<dyn ResponseObserver>>;

/// Size of a response body above which no request waits behind it in the worker's socket.
const LONG: usize = 1024 * 1024;

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
    observer: Observer,
    /// Span of PHP's work, until that has ended.
    span: Option<Span>,
}

impl Exchange {
    /// Creates an exchange; `lease.outgoing` holds the REQUEST frame, and `body` follows it. If the whole request was
    /// `written` ahead, that is its number, and `lease.outgoing` is empty.
    pub(crate) fn new(
        lease: Lease,
        written: Option<u64>,
        body: Option<Box<Source>>,
        context: &RequestContext,
        span: Option<Span>,
    ) -> Self {
        lease.begin();
        let number = written.unwrap_or_else(|| lease.port.sent() + 1);
        let upload = Upload {
            sent: written.is_some(),
            written_ahead: written.is_some(),
            open: written.is_none() && body.is_some(),
            source: body,
            ..Upload::default()
        };
        let (hints, observer) = (context.hints.clone(), context.observer.clone());
        Self { lease: Some(lease), number, upload, received: 0, hints, observer, span }
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
                    if let Some(observer) = &self.observer {
                        observer.head(head.status, &head.headers);
                    }
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
            Event::End { ready, busy, failed, took } => {
                if failed && let Some(observer) = &self.observer {
                    observer.failed();
                }
                self.worker().took = took;
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
        if !busy && !self.upload.open && self.upload.is_flushed(&lease) {
            lease.finish();
            return;
        }
        let upload = std::mem::take(&mut self.upload);
        let shared = Arc::clone(lease.shared());
        let rest = if busy { Rest::Ready } else { Rest::Upload };
        shared.tasks.spawn_on(play_out(lease, upload, rest, None), &shared.runtime);
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
        leave(lease, upload, self.number, self.observer.take());
    }
}

/// Finishes the exchange of a request that was written ahead and whose client is gone.
pub(crate) fn abandon(lease: Lease, number: u64, observer: Observer) {
    if !lease.port.withdraw(number) {
        leave(lease, Upload { sent: true, ..Upload::default() }, number, observer);
    }
}

/// Tells the worker that the client is gone, and finishes the exchange.
fn leave(lease: Lease, mut upload: Upload, number: u64, observer: Observer) {
    upload.cancel();
    // Otherwise the worker runs the request to its end. A body that is not whole is ended by an ABORT frame.
    let _told = lease.port.abort(number);
    let shared = Arc::clone(lease.shared());
    shared.tasks.spawn_on(play_out(lease, upload, Rest::Answer, observer), &shared.runtime);
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
async fn play_out(mut lease: Lease, mut upload: Upload, mut rest: Rest, observer: Observer) {
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
            Some(Ok(Event::Head(head))) if rest == Rest::Answer => {
                if let Some(observer) = &observer {
                    observer.head(head.status, &head.headers);
                }
                continue;
            }
            Some(Ok(Event::Body(_) | Event::Inform(..))) if rest == Rest::Answer => continue,
            Some(Ok(Event::End { ready, busy, failed: _, took })) if rest == Rest::Answer => {
                lease.ready = ready;
                lease.took = took;
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
