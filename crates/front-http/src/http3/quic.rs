//! quinn's connections and streams as h3 wants them. `h3-quinn` does the same, but shows neither whether a client has
//! given a stream up nor whether it has received an answer, and lets a client fill memory (see `filter`).
//!
//! Invariants
//! - Bytes of bodies that h3 has and the application has not taken are at most [`AHEAD`] and a packet.
//! - Once `refusing` is set no request is accepted: each is rejected in a way that lets the client repeat it.
//! - A stream whose answer has begun is reset, not ended, unless all of it was written.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    self, ConnectionErrorIncoming as Lost, StreamErrorIncoming as Ended, StreamId, WriteBuf,
};
use quinn::{ConnectionError, ReadError, StoppedError, VarInt, WriteError};
use tokio::task::coop::poll_proceed;

use super::filter::{Excess, Filter};

/// Most bytes of one body that wait in h3 for the application.
const AHEAD: u64 = 64 << 10;
/// Longest frame on a control stream.
const CONTROL_FRAME: u64 = 4 << 10;

/// Ready when the client has stopped reading a stream (`Some`), has received all of it (`None`), or is gone.
pub(super) type Stopped =
    Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send + Sync>>;

/// State that the request's task shares with the stream that h3 has.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Bytes of the body that the application has taken.
    pub(super) taken: AtomicU64,
    /// An answer has begun: a stream that ends now is incomplete.
    pub(super) answering: AtomicBool,
}

/// A stream that h3 has just accepted.
pub(super) struct Arrival {
    pub(super) stopped: Stopped,
    pub(super) progress: Progress,
    pub(super) link: Arc<Link>,
}

/// Shows whether a client still takes what it is sent.
///
/// quinn does not tell how much of one stream a client has acknowledged. The number of STREAM frames that were sent on
/// the whole connection stands for it: congestion control sends no new ones when the client acknowledges nothing. Two
/// errors are accepted. Retransmissions count, but they back off exponentially, and QUIC's idle time-out ends a
/// connection from which nothing comes. Frames of other streams count, but what waits for acknowledgement is bounded by
/// the send window of the connection, and no worker waits for it.
pub(super) struct Progress(quinn::Connection);

impl Progress {
    /// Returns a number that grows while the client takes data.
    pub(super) fn frames(&self) -> u64 {
        self.0.stats().frame_tx.stream
    }
}

/// State that the connection's task shares with the connection that h3 has.
#[derive(Default)]
pub(super) struct Admission {
    arrival: Mutex<Option<Arrival>>,
    refusing: AtomicBool,
}

impl Admission {
    /// Returns the stream that h3 accepted last, once.
    pub(super) fn arrival(&self) -> Option<Arrival> {
        self.arrival.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Rejects all further requests.
    pub(super) fn refuse(&self) {
        self.refusing.store(true, Ordering::Relaxed);
    }
}

type Accepting<S> = Pin<Box<dyn Future<Output = Result<S, ConnectionError>> + Send + Sync>>;
type Both = (quinn::SendStream, quinn::RecvStream);

/// A connection for h3.
pub(super) struct Connection {
    quic: quinn::Connection,
    requests: Accepting<Both>,
    others: Accepting<quinn::RecvStream>,
    opener: Opener,
    admission: Arc<Admission>,
    /// Longest frame of a request that is no part of its body.
    limit: u64,
}

impl Connection {
    pub(super) fn new(quic: quinn::Connection, limit: u64) -> (Self, Arc<Admission>) {
        let admission = Arc::new(Admission::default());
        let connection = Self {
            requests: next_request(&quic),
            others: next_other(&quic),
            opener: Opener { quic: quic.clone(), opening: None },
            admission: Arc::clone(&admission),
            quic,
            limit,
        };
        (connection, admission)
    }
}

fn next_request(quic: &quinn::Connection) -> Accepting<Both> {
    let quic = quic.clone();
    Box::pin(async move { quic.accept_bi().await })
}

fn next_other(quic: &quinn::Connection) -> Accepting<quinn::RecvStream> {
    let quic = quic.clone();
    Box::pin(async move { quic.accept_uni().await })
}

impl quic::Connection<Bytes> for Connection {
    type RecvStream = Receive;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Receive, Lost>> {
        let stream = ready!(self.others.as_mut().poll(cx)).map_err(lost)?;
        self.others = next_other(&self.quic);
        Poll::Ready(Ok(Receive {
            stream,
            filter: Filter::of_unidirectional(CONTROL_FRAME),
            link: Arc::default(),
            passed: 0,
        }))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, Lost>> {
        loop {
            let (mut send, mut receive) = ready!(self.requests.as_mut().poll(cx)).map_err(lost)?;
            self.requests = next_request(&self.quic);
            if self.admission.refusing.load(Ordering::Relaxed) {
                let rejected = number(Code::H3_REQUEST_REJECTED);
                // Both fail only if the client has given the stream up.
                drop(receive.stop(rejected));
                drop(send.reset(rejected));
                continue;
            }
            let link = Arc::<Link>::default();
            let arrival = Arrival {
                stopped: Box::pin(send.stopped()),
                progress: Progress(self.quic.clone()),
                link: Arc::clone(&link),
            };
            *self.admission.arrival.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrival);
            return Poll::Ready(Ok(Request {
                send: Sending { stream: send, writing: None, link: Arc::clone(&link), over: false },
                receive: Receive {
                    stream: receive,
                    filter: Filter::of_request(self.limit),
                    link,
                    passed: 0,
                },
            }));
        }
    }

    fn opener(&self) -> Opener {
        Opener { quic: self.quic.clone(), opening: None }
    }
}

impl quic::OpenStreams<Bytes> for Connection {
    type BidiStream = Request;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, Ended>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, Ended>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.opener.close(code, reason);
    }
}

/// Opens the server's own streams.
pub(super) struct Opener {
    quic: quinn::Connection,
    opening: Option<Accepting<quinn::SendStream>>,
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = Request;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Request, Ended>> {
        // A server opens none (RFC 9114, section 6.1).
        let connection_error = Lost::InternalError("a server opens no requests".to_owned());
        Poll::Ready(Err(Ended::ConnectionErrorIncoming { connection_error }))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, Ended>> {
        let opening = self.opening.get_or_insert_with(|| {
            let quic = self.quic.clone();
            Box::pin(async move { quic.open_uni().await })
        });
        let opened = ready!(opening.as_mut().poll(cx));
        self.opening = None;
        let stream = opened.map_err(connection_lost)?;
        Poll::Ready(Ok(Sending { stream, writing: None, link: Arc::default(), over: false }))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.quic.close(number(code), reason);
    }
}

/// Both directions of a request.
pub(super) struct Request {
    send: Sending,
    receive: Receive,
}

impl quic::BidiStream<Bytes> for Request {
    type SendStream = Sending;
    type RecvStream = Receive;

    fn split(self) -> (Sending, Receive) {
        (self.send, self.receive)
    }
}

impl quic::RecvStream for Request {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Ended>> {
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.receive.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}

impl quic::SendStream<Bytes> for Request {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), Ended> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

/// The receiving half of a request's stream.
#[derive(Debug)]
pub(crate) struct Receive {
    stream: quinn::RecvStream,
    filter: Filter,
    link: Arc<Link>,
    /// Bytes of the body that h3 got.
    passed: u64,
}

impl quic::RecvStream for Receive {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Ended>> {
        loop {
            // h3 has more to decode, and asks again after that. It is therefore not to be woken.
            if self.passed.saturating_sub(self.link.taken.load(Ordering::Relaxed)) > AHEAD {
                return Poll::Pending;
            }
            let chunk = pin!(self.stream.read_chunk(usize::MAX, true)).poll(cx);
            let Some(chunk) = ready!(chunk).map_err(not_read)? else {
                return Poll::Ready(Ok(None));
            };
            match self.filter.pass(chunk.bytes) {
                Ok(passed) => {
                    self.passed += passed.body;
                    if !passed.bytes.is_empty() {
                        return Poll::Ready(Ok(Some(passed.bytes)));
                    }
                }
                Err(excess) => return Poll::Ready(Err(self.exceeded(excess))),
            }
            // A client may send such frames as fast as they are dropped: other tasks get their turn.
            ready!(poll_proceed(cx)).made_progress();
        }
    }

    fn stop_sending(&mut self, code: u64) {
        // It fails only if nothing more comes anyway.
        drop(self.stream.stop(VarInt::from_u64(code).unwrap_or(VarInt::MAX)));
    }

    fn recv_id(&self) -> StreamId {
        u64::from(self.stream.id()).try_into().expect("a number of QUIC")
    }
}

impl Receive {
    fn exceeded(&mut self, excess: Excess) -> Ended {
        tracing::debug!(error = %excess, "client sends too much beside its requests");
        drop(self.stream.stop(number(Code::H3_EXCESSIVE_LOAD)));
        Ended::Unknown(Box::new(excess))
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        // The rest is not needed, and nothing is wrong with it (RFC 9114, section 4.1.1).
        drop(self.stream.stop(number(Code::H3_NO_ERROR)));
    }
}

/// The sending half of a request's stream.
pub(super) struct Sending {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
    link: Arc<Link>,
    /// Whether the stream was ended or reset.
    over: bool,
}

impl quic::SendStream<Bytes> for Sending {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        while let Some(data) = &mut self.writing {
            if !data.has_remaining() {
                self.writing = None;
                break;
            }
            let written = Pin::new(&mut self.stream).poll_write(cx, data.chunk());
            data.advance(ready!(written).map_err(not_written)?);
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), Ended> {
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        self.over = true;
        Poll::Ready(self.stream.finish().map_err(|error| Ended::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        self.over = true;
        // It fails only if it is over.
        drop(self.stream.reset(VarInt::from_u64(code).unwrap_or(VarInt::MAX)));
    }

    fn send_id(&self) -> StreamId {
        u64::from(self.stream.id()).try_into().expect("a number of QUIC")
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // quinn would end the stream, as if the answer were complete.
        if !self.over && self.link.answering.load(Ordering::Relaxed) {
            drop(self.stream.reset(number(Code::H3_INTERNAL_ERROR)));
        }
    }
}

pub(super) fn number(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

fn lost(error: ConnectionError) -> Lost {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            Lost::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => Lost::Timeout,
        error => Lost::Undefined(Arc::new(error)),
    }
}

fn connection_lost(error: ConnectionError) -> Ended {
    Ended::ConnectionErrorIncoming { connection_error: lost(error) }
}

fn not_read(error: ReadError) -> Ended {
    match error {
        ReadError::Reset(code) => Ended::StreamTerminated { error_code: code.into_inner() },
        ReadError::ConnectionLost(error) => connection_lost(error),
        error => Ended::Unknown(Box::new(error)),
    }
}

fn not_written(error: WriteError) -> Ended {
    match error {
        WriteError::Stopped(code) => Ended::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => connection_lost(error),
        error => Ended::Unknown(Box::new(error)),
    }
}
