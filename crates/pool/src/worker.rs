//! The server's side of one worker process: its socket, its buffers, its shared counters.
//!
//! Invariants
//! - Frames are returned in the order they were sent; log lines and events are handled separately and never reach a
//!   caller.
//! - A worker's buffer grows only to the frame being received: at most `wire::MAX_PAYLOAD` and a header; or to four
//!   pieces of a long response body ([`long_buffers`]). A zygote's buffer also holds what it sends while it is
//!   written to: a response for each frame, and its log lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tracing::debug;
use unix_stream::Stream;
use wire::{FromWorker, Malformed, Sender};

use crate::info::WorkerInfo;
use crate::shared_counters::SharedCounters;
use crate::{Reason, ResponseBody, events, long_buffers, output};

const READ_AHEAD: usize = 16 * 1024;
/// Number of header fields that a front adds to a response: reserving them is cheaper than growing the map.
const FRONTS_OWN: usize = 6;

/// An event from a worker or zygote.
#[derive(Debug)]
pub(crate) enum Event {
    Hello { version: u16, pid: u32, php_version: String },
    Ready,
    Inform(StatusCode, HeaderMap),
    Head(Head),
    Body(Bytes),
    End { ready: bool, busy: bool, failed: bool, took: Option<Duration> },
    Spawned { slot: u32, pid: u32 },
    Exited { pid: u32, status: u32, processor_time: Duration },
    Failed { slot: u32, errno: u32 },
    Stack { pid: u32, stack: String, why: String },
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The reason phrase if it is not the standard one.
    pub(crate) reason: Option<Bytes>,
}

impl Head {
    /// Returns the response with this head.
    pub(crate) fn with(self, body: ResponseBody) -> Response<ResponseBody> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(Reason(reason));
        }
        response
    }
}

/// The reason why no more events arrive.
#[derive(Debug)]
pub(crate) enum Gone {
    /// The process closed its socket, most likely by exiting.
    Closed,
    /// The worker sent an invalid frame.
    Malformed(Malformed),
}

impl From<Malformed> for Gone {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Reads frames from a socket.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    sender: Sender,
    /// The response has a piece of full length. Until the first one arrives: the response before had one.
    is_long: bool,
    /// The response has had one.
    has_long: bool,
    /// The buffer is one of `long_buffers`.
    borrowed: bool,
}

impl FrameReader {
    pub(crate) fn new(sender: Sender) -> Self {
        Self { buffer: BytesMut::new(), sender, is_long: false, has_long: false, borrowed: false }
    }

    /// Returns the next complete event in the buffer, without reading from the socket.
    pub(crate) fn buffered(&mut self, info: &WorkerInfo) -> Result<Option<Event>, Malformed> {
        loop {
            let Some(header) = wire::peek(&self.buffer, self.sender)? else { return Ok(None) };
            if header.length == wire::MAX_BODY {
                // Others follow.
                (self.is_long, self.has_long) = (true, true);
            }
            if self.buffer.len() < header.frame_len() {
                self.make_room(header.frame_len());
                return Ok(None);
            }
            let frame = self.buffer.split_to(header.frame_len()).freeze();
            let payload = frame.slice(wire::HEADER_LEN..);
            let event = match FromWorker::decode(header, &payload)? {
                FromWorker::Hello { version, pid, php_version } => Event::Hello {
                    version,
                    pid,
                    php_version: String::from_utf8_lossy(php_version).into_owned(),
                },
                FromWorker::Ready => Event::Ready,
                FromWorker::Inform(head) => {
                    let head = build_head(&head, &payload)?;
                    Event::Inform(head.status, head.headers)
                }
                FromWorker::Head(head) => Event::Head(build_head(&head, &payload)?),
                FromWorker::Body(_) => Event::Body(payload),
                FromWorker::End { ready, busy, failed, took } => {
                    // With BUSY it goes on.
                    let took = (!busy).then(|| Duration::from_nanos(took));
                    Event::End { ready, busy, failed, took }
                }
                FromWorker::Spawned { slot, pid } => Event::Spawned { slot, pid },
                FromWorker::Exited { pid, status, processor_time } => {
                    let processor_time = Duration::from_micros(processor_time);
                    Event::Exited { pid, status, processor_time }
                }
                FromWorker::Failed { slot, errno } => Event::Failed { slot, errno },
                FromWorker::Stack { pid, stack, why } => {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    Event::Stack { pid, stack: text(stack), why: text(why) }
                }
                FromWorker::Publish(publication) => {
                    events::publish(info, &publication);
                    continue;
                }
                FromWorker::Purge(tags) => {
                    events::purge(info, tags);
                    continue;
                }
                FromWorker::Files(files) => {
                    if let Some((boot_files, script)) = &info.boot_files {
                        boot_files.report(script.as_deref(), files);
                    }
                    continue;
                }
                FromWorker::Log(line) => {
                    output::log_frame(info, &line);
                    continue;
                }
            };
            return Ok(Some(event));
        }
    }

    /// Makes room for a frame of this length at the start of the buffer.
    fn make_room(&mut self, frame_len: usize) {
        if self.buffer.capacity() >= frame_len {
            return;
        }
        let is_long = self.is_long && frame_len <= wire::HEADER_LEN + wire::MAX_BODY;
        if !is_long && !self.borrowed {
            return self.buffer.reserve(frame_len - self.buffer.len());
        }
        let mut buffer =
            if is_long { long_buffers::take() } else { BytesMut::with_capacity(frame_len) };
        buffer.extend_from_slice(&self.buffer);
        self.replace(buffer, is_long);
    }

    fn replace(&mut self, buffer: BytesMut, borrowed: bool) {
        let before = std::mem::replace(&mut self.buffer, buffer);
        if std::mem::replace(&mut self.borrowed, borrowed) {
            long_buffers::give_back(before);
        }
    }

    /// Gives the buffer of a long response back. Called between two responses.
    fn shrink(&mut self) {
        self.is_long = std::mem::take(&mut self.has_long);
        if self.borrowed && self.buffer.is_empty() {
            self.replace(BytesMut::new(), false);
        }
    }

    /// Returns the next event. Cancel safe: received bytes stay in the buffer.
    pub(crate) fn poll_next(
        &mut self,
        stream: &Stream,
        info: &WorkerInfo,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Event, Gone>> {
        loop {
            if let Some(event) = self.buffered(info)? {
                return Poll::Ready(Ok(event));
            }
            if matches!(ready!(self.poll_read(stream, cx)), Ok(0) | Err(_)) {
                info.set_read_out();
                return Poll::Ready(Err(Gone::Closed));
            }
        }
    }

    /// Reads more bytes into the buffer, without parsing them. Returns zero at the end. Cancel safe.
    pub(crate) fn poll_read(
        &mut self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let spare = self.buffer.capacity() - self.buffer.len();
        if self.is_long && self.buffer.is_empty() {
            self.make_room(wire::HEADER_LEN + wire::MAX_BODY);
        } else if spare == 0 || (self.buffer.len() < wire::HEADER_LEN && spare < READ_AHEAD / 4) {
            // Otherwise there is room for the frame that is being received.
            self.make_room(self.buffer.len() + READ_AHEAD);
        }
        stream.poll_read(&mut self.buffer, cx)
    }
}

/// Converts a response head to `http` types; values share the frame's memory. Fields that HTTP does not allow are
/// dropped.
fn build_head(head: &wire::ResponseHead<'_>, payload: &Bytes) -> Result<Head, Malformed> {
    let status = StatusCode::from_u16(head.status)
        .map_err(|_out_of_range| Malformed::Payload("status out of range"))?;
    let mut headers = HeaderMap::with_capacity(head.pairs.size_hint().0 + FRONTS_OWN);
    for (name, value) in head.pairs.clone() {
        let value_bytes = payload.slice_ref(value);
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_maybe_shared(value_bytes))
        {
            headers.append(name, value);
        } else {
            debug!(name = %String::from_utf8_lossy(name), "response header left out");
        }
    }
    let reason = (!head.reason.is_empty()).then(|| payload.slice_ref(head.reason));
    Ok(Head { status, headers, reason })
}

/// The part of a worker that other tasks use to write requests ahead, while an exchange owns its socket.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) info: Arc<WorkerInfo>,
    counters: Arc<SharedCounters>,
    /// Number of REQUEST frames of which at least one byte was written.
    sent: AtomicU64,
    /// The current request is written completely, so that another one may follow it.
    open: AtomicBool,
}

impl Port {
    /// Returns the number of the last request written.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Records that the first bytes of request `number` were written.
    pub(crate) fn set_sent(&self, number: u64) {
        self.sent.store(number, Ordering::Relaxed);
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Returns the number for a request that is about to be written, as a whole, behind those that the worker has.
    /// `None` if that is not possible.
    pub(crate) fn offer(&self) -> Option<u64> {
        let number = self.sent() + 1;
        self.counters.offer(number).then(|| {
            self.set_sent(number);
            number
        })
    }

    /// Tells the worker whether requests take long, so that it chooses its scheduling policy.
    pub(crate) fn set_long(&self, are_long: bool) {
        self.counters.set_long(are_long);
    }

    /// Takes back a request that was written ahead. Returns `false` if the worker has begun it.
    pub(crate) fn withdraw(&self, number: u64) -> bool {
        self.counters.withdraw(number)
    }

    /// Tells the worker that the client of a request that it has begun is gone. Returns `false` if that is not
    /// possible.
    pub(crate) fn abort(&self, number: u64) -> bool {
        self.counters.abort(number)
    }

    /// Returns whether the worker has begun a request.
    pub(crate) fn has_begun(&self, number: u64) -> bool {
        self.counters.has_begun(number)
    }
}

/// A worker's socket, owned by at most one exchange at a time.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) info: Arc<WorkerInfo>,
    pub(crate) stream: Stream,
    pub(crate) reader: FrameReader,
    pub(crate) port: Arc<Port>,
    /// The worker reads the next request at once; otherwise it cleans up first.
    pub(crate) ready: bool,
    /// How long its last request has taken, if the worker was free when it said so.
    pub(crate) took: Option<Duration>,
    /// Bytes to write to the worker; kept to reuse the memory.
    pub(crate) outgoing: Vec<u8>,
    /// Number of bytes at the beginning of `outgoing` that belong to earlier requests, which were withdrawn.
    pub(crate) earlier: usize,
}

impl Worker {
    pub(crate) fn new(
        info: Arc<WorkerInfo>,
        stream: Stream,
        counters: Arc<SharedCounters>,
    ) -> Self {
        let port = Port {
            info: Arc::clone(&info),
            counters,
            sent: AtomicU64::new(0),
            open: AtomicBool::new(false),
        };
        Self {
            info,
            stream,
            reader: FrameReader::new(Sender::Worker),
            port: Arc::new(port),
            ready: false,
            took: None,
            outgoing: Vec::new(),
            earlier: 0,
        }
    }

    /// Frees buffer memory that an unusually large request needed.
    pub(crate) fn shrink_buffers(&mut self) {
        const KEPT: usize = 64 * 1024;
        if self.outgoing.capacity() > KEPT {
            self.outgoing = Vec::new();
        }
        self.reader.shrink();
    }

    pub(crate) fn buffered(&mut self) -> Result<Option<Event>, Malformed> {
        self.reader.buffered(&self.info)
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Gone>> {
        self.reader.poll_next(&self.stream, &self.info, cx)
    }

    /// Returns the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Event, Gone> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}
