//! One call at a time on an HTTP/1.1 connection.
//!
//! The crate `http1` reads and writes the messages; here bytes are moved. The connection is driven by
//! the caller and by the reader of its answer: no task, no hop. Between calls nothing drives it; [`Http1::probe`] looks
//! whether it was closed.
//!
//! Invariants
//! - A connection is kept only if the answer was read to its end, the whole request was written, and both sides keep
//!   it. It is never kept after a call that has authenticated it.
//! - A connection that is dropped while it carries a call is closed, and its origin knows.

mod answer;
mod between;
mod transfer;

use std::io;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use ::http1::WriteBuffer;
use ::http1::{BadHead, Decoder, Encoder, HeadLimits, ResponseHead, ResponseReader};
use bytes::{Bytes, BytesMut};
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::connect::{Birth, Connected};
use crate::errors::code;
use crate::origin::{Condition, Origin};
use crate::repeat::Progress;
use crate::request;
use crate::scope::Ticket;
use crate::stream::Stream;
use crate::upload::{Upload, Watch};
use crate::{CallError, Interim, Key, Reason, Secured};

pub(crate) use answer::Http1Body;
use between::{kept_for, unasked};
use transfer::{Lost, ROOM};
/// The limits of a head, as in libcurl (lib/http.h, `MAX_HTTP_RESP_HEADER_COUNT`). As many bytes may precede the
/// response's head.
const HEAD: HeadLimits = HeadLimits { bytes: 400 << 10, fields: 5000 };
/// Within this time after a response the kernel is not asked about a connection if the call may be repeated.
const FRESH: Duration = Duration::from_micros(100);

/// An HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    stream: Stream,
    /// Bytes that were received and not parsed yet.
    input: BytesMut,
    room: usize,
    outgoing: WriteBuffer,
    /// Whether TLS may hold bytes back.
    unflushed: bool,
    /// The rest of the body to be sent; `None`: all of it is in `outgoing`.
    upload: Option<Upload>,
    /// The encoder of the request's body.
    encoder: Encoder,
    /// The decoder of the response's body.
    body: Decoder,
    /// The number of bytes sent in this call.
    sent: u64,
    received: u64,
    /// Whether both sides keep the connection.
    keeps: bool,
    /// Whether the last response was HTTP/1.0, so that keeping must be requested.
    persist: bool,
    used: Instant,
    birth: Birth,
    secured: Option<Arc<Secured>>,
    born: Instant,
    kept_for: Option<Duration>,
    /// Whether the last response announced that the origin keeps the connection.
    announced: bool,
    calls: u64,
    /// How long the connection had been idle before this call.
    rested: Duration,
    /// Whether the head of this call's response has arrived.
    answered: bool,
    /// The connection's origin, while it carries a call, or may.
    home: Option<Arc<Origin>>,
    /// The place of the call in its scope.
    ticket: Option<Ticket>,
    _permit: OwnedSemaphorePermit,
}

/// A call without a response.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) error: CallError,
    pub(crate) progress: Progress,
}

/// A response whose head has arrived.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) response: Response<Http1Body>,
    /// The head as it was received.
    pub(crate) written: Bytes,
    /// The beginning of the body that shares the head's memory.
    pub(crate) behind: Bytes,
}

impl Http1 {
    pub(crate) fn new(connected: Connected, permit: OwnedSemaphorePermit) -> Box<Self> {
        let now = Instant::now();
        Box::new(Self {
            stream: connected.stream,
            input: BytesMut::new(),
            room: ROOM,
            outgoing: WriteBuffer::default(),
            unflushed: false,
            upload: None,
            encoder: Encoder::None,
            body: Decoder::over(),
            sent: 0,
            received: 0,
            keeps: true,
            persist: false,
            used: now,
            birth: connected.birth,
            secured: connected.secured,
            born: now,
            kept_for: None,
            announced: false,
            calls: 0,
            rested: Duration::ZERO,
            answered: false,
            home: None,
            ticket: None,
            _permit: permit,
        })
    }

    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }

    /// Returns the outcome of TLS, if it is recorded.
    pub(crate) fn secured(&self) -> Option<&Arc<Secured>> {
        self.secured.as_ref()
    }

    /// Returns the head that [`Http1::put`] has queued.
    pub(crate) fn head(&self) -> &[u8] {
        self.outgoing.head()
    }

    pub(crate) fn born(&self) -> Instant {
        self.born
    }

    /// Returns the value of the origin's Keep-Alive.
    pub(crate) fn kept_for(&self) -> Option<Duration> {
        self.kept_for
    }

    /// Returns whether the connection has carried a call before.
    pub(crate) fn kept(&self) -> bool {
        self.calls > 0
    }

    /// Returns the same during a call.
    fn kept_before(&self) -> bool {
        self.calls > 1
    }

    /// From now on, dropping the connection notifies its origin.
    pub(crate) fn leave(&mut self, home: Arc<Origin>) {
        self.home = Some(home);
    }

    /// The connection's origin, while the connection is in use.
    pub(crate) fn home(&self) -> Option<Arc<Origin>> {
        self.home.clone()
    }

    /// Keeps the call's place in its scope until the connection returns to its origin.
    pub(crate) fn hold(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }

    /// Marks the connection as back at its origin. Returns the call's place in its scope.
    pub(crate) fn come_home(&mut self, now: Instant) -> Option<Ticket> {
        self.used = now;
        self.outgoing.shrink();
        if self.input.capacity() > ROOM {
            self.input = BytesMut::new();
        }
        self.home = None;
        self.ticket.take()
    }

    /// Returns how many calls it has carried, including the current one.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns whether the origin's last response announced that it keeps the connection.
    pub(crate) fn announced(&self) -> bool {
        self.announced
    }

    /// Returns its state between calls, as far as the reactor knows.
    pub(crate) fn look(&mut self) -> Condition {
        self.condition(false)
    }

    /// Returns its state between calls, as far as the kernel knows. `repeatable`: the call may be repeated, so the
    /// kernel is not asked right after a response.
    pub(crate) fn probe(&mut self, now: Instant, repeatable: bool) -> Condition {
        self.rested = now.saturating_duration_since(self.used);
        self.condition(!(repeatable && self.rested < FRESH))
    }

    fn condition(&mut self, probe: bool) -> Condition {
        if !self.ready() {
            return Condition::Spent;
        }
        let mut bytes = [0; 16];
        match self.stream.overhear(probe, &mut bytes) {
            Poll::Pending => Condition::Open,
            Poll::Ready(Ok(0) | Err(_)) => Condition::Closed,
            Poll::Ready(Ok(count)) => unasked(bytes.get(..count).unwrap_or_default()),
        }
    }

    /// Returns whether no call is running and the connection is kept.
    fn ready(&self) -> bool {
        self.keeps && self.body.is_over() && self.all_sent() && self.input.is_empty()
    }

    fn all_sent(&self) -> bool {
        self.upload.is_none() && self.outgoing.is_empty() && !self.unflushed
    }

    /// Queues the head of a request, which [`Http1::exchange`] sends. On an error nothing was queued.
    pub(crate) fn put(
        &mut self,
        request: &request::Head,
        key: &Key,
        upload: &Upload,
    ) -> Result<(), CallError> {
        let put = request.put_http1(key, upload, self.persist, self.outgoing.buffer());
        self.encoder = put.inspect_err(|_refused| self.outgoing.clear())?;
        self.keeps &= !request.signs_in();
        Ok(())
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn exchange(
        mut self: Box<Self>,
        method: &Method,
        upload: Upload,
        watch: Option<&Arc<Watch>>,
        interim: &mut (dyn FnMut(Interim<'_>) + Send),
    ) -> Result<Begun, Broken> {
        self.calls += 1;
        self.answered = false;
        (self.sent, self.received) = (0, 0);
        self.upload = (!self.encoder.is_empty()).then_some(upload);

        let (mut reader, mut heads) = (ResponseReader::new(HEAD), 0_u32);
        let head = std::future::poll_fn(|cx| {
            loop {
                if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                    return Poll::Ready(Err(error));
                }
                let head = match ready!(self.poll_head(cx, &mut reader)) {
                    Ok(head) => head,
                    Err(lost) => return Poll::Ready(Err(self.without_head(lost, heads))),
                };
                heads += 1;
                if head.status == StatusCode::SWITCHING_PROTOCOLS || !head.status.is_informational()
                {
                    return Poll::Ready(Ok(head));
                }
                if head.status == StatusCode::CONTINUE
                    && let Some(watch) = watch
                {
                    watch.open();
                }
                interim((head.status, &head.headers, Some(&head.written)));
            }
        });
        match head.await {
            Ok(head) => self.answered(head, method, watch),
            Err(error) => {
                let progress = match (self.sent, self.received) {
                    (0, _) => Progress::Unwritten,
                    (_, 0) => Progress::Written,
                    _ => Progress::Answered,
                };
                if self.kept_before()
                    && progress != Progress::Answered
                    && matches!(error.reason, Reason::Empty | Reason::Reset)
                    && let Some(home) = &self.home
                {
                    home.closed_under_call(self.calls - 1, self.rested);
                }
                Err(Broken { error, progress })
            }
        }
    }

    fn answered(
        mut self: Box<Self>,
        head: ResponseHead,
        method: &Method,
        watch: Option<&Arc<Watch>>,
    ) -> Result<Begun, Broken> {
        let weird = |message: &str| {
            Err(Broken { error: CallError::weird(message), progress: Progress::Answered })
        };
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return weird("The origin switched to another protocol, unasked");
        }
        if head.is_framed_twice() {
            return weird("The answer has both Transfer-Encoding and Content-Length");
        }
        self.body = match head.framing(method) {
            Ok(framing) => Decoder::new(framing),
            Err(why) => return weird(&format!("Weird server reply: {why}")),
        };
        self.answered = true;
        self.keeps &= head.keep_alive;
        self.persist = head.version == Version::HTTP_10;
        self.kept_for = kept_for(&head.headers);
        self.announced = head.announces_keep_alive || self.kept_for.is_some();
        let under_way = watch.is_some_and(|watch| {
            watch.answered(head.status);
            watch.under_way()
        });
        let failed = head.status.as_u16() >= 400;
        let mut response = Response::new(Http1Body::new(self, failed, under_way));
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        if let Some(reason) = head.reason.and_then(|reason| ReasonPhrase::try_from(reason).ok()) {
            response.extensions_mut().insert(reason);
        }
        Ok(Begun { response, written: head.written, behind: head.behind })
    }

    fn without_head(&self, lost: Lost, heads: u32) -> CallError {
        let begins = self.input.get(..self.input.len().min(5)).unwrap_or_default();
        let babble = heads == 0 && !b"HTTP/".starts_with(begins);
        match lost {
            Lost::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                CallError::broken(&error)
            }
            _ if babble => CallError::no_http(),
            // Nothing but empty lines.
            Lost::Malformed(BadHead::NoAnswer) if heads == 0 => CallError::no_http(),
            Lost::Malformed(why) => CallError::weird(format!("Weird server reply: {why}")),
            _ if self.received > 0 => CallError::failed(
                Reason::Reset,
                code::RECEIVE,
                "Recv failure: the connection was closed in the middle of the head",
            ),
            _ => CallError::empty(),
        }
    }

    /// Returns the connection to its origin.
    fn put_back(self: Box<Self>) {
        if let Some(home) = self.home.clone() {
            home.put_back(self);
        }
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        home.lost();
        // Bytes behind a whole answer would have been taken for the next call's.
        let behind = self.answered && self.keeps && self.body.is_over() && !self.input.is_empty();
        if behind && unasked(&self.input) == Condition::Unasked {
            home.unasked();
        }
    }
}
