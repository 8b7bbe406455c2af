//! A caller's connection below hyper. It injects parts that hyper's server cannot send: interim responses, field names
//! in the origin's case, unannounced trailers, and an end that follows everything before it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use ::http1::{Spelling, head_end, put_all, put_status_line};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::UnixStream;

use super::fields;
use super::frame::heads;
use crate::{AnswerBody, CallError};

/// The most bytes of interim answers that wait; further ones are dropped. They are only hints.
const INTERIM: usize = 64 << 10;
/// How hyper ends a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Injected parts, shared by the connection, the call and the answer's body, which all run on one task.
#[derive(Debug, Default)]
pub(crate) struct Injected(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Interim responses to write at the next boundary.
    interim: BytesMut,
    /// Whether the response has started: interim responses may only precede it.
    answered: bool,
    /// The origin's head: hyper's names get its spelling.
    spelled: Option<Bytes>,
    /// Trailers, as bytes, for the end of the chunked body.
    trailers: Option<Bytes>,
    /// How often everything was flushed.
    flushed: u64,
    /// The task that waits for a flush.
    waits: Option<Waker>,
}

impl Injected {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an interim response.
    pub(crate) fn interim(&self, status: StatusCode, headers: &HeaderMap, written: Option<&[u8]>) {
        let mut state = self.lock();
        if state.answered || !status.is_informational() || state.interim.len() > INTERIM {
            return;
        }
        let out = &mut state.interim;
        if let Some(written) = written.filter(|head| !has_bare_lf(head)) {
            out.unsplit(heads::answer(status, headers, Some(written), false));
            return;
        }
        put_status_line(out, status.as_str(), status.canonical_reason().unwrap_or("Interim"));
        put_all(out, &fields::of_answer(headers.clone()));
        out.put_slice(b"\r\n");
    }

    /// Sets the spelling of the response's field names.
    pub(crate) fn spell(&self, written: Bytes) {
        self.lock().spelled = Some(written);
    }

    /// The response starts: nothing may precede it any more.
    pub(crate) fn answered(&self) {
        self.lock().answered = true;
    }
}

/// Clients may be stricter than origins.
fn has_bare_lf(head: &[u8]) -> bool {
    head.split_inclusive(|byte| *byte == b'\n').any(|line| !line.ends_with(b"\r\n"))
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Shared with [`left`].
    stream: Arc<UnixStream>,
    /// Bytes that were already read: the head.
    prefix: Bytes,
    injected: Arc<Injected>,
    /// Injected bytes, to be written before anything else.
    ahead: BytesMut,
    /// hyper's bytes of the response's head until it is complete; then they are written before the held ones.
    head: BytesMut,
    /// hyper's bytes that are held back since the trailers are known.
    held: BytesMut,
    /// Whether hyper has written bytes that it has not flushed.
    midway: bool,
}

impl Wire {
    /// Creates the connection. `prefix`: the bytes that were already read.
    pub(crate) fn new(stream: Arc<UnixStream>, prefix: Bytes, injected: Arc<Injected>) -> Self {
        let (ahead, head, held) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
        Self { stream, prefix, injected, ahead, head, held, midway: false }
    }

    /// Writes the bytes that must go first.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.midway && self.ahead.is_empty() {
            let mut state = self.injected.lock();
            if !state.interim.is_empty() {
                self.ahead = std::mem::take(&mut state.interim);
            }
        }
        poll_all(&self.stream, &mut self.ahead, cx)
    }

    /// Takes hyper's bytes while they belong to the response's head. `None`: the head has passed.
    fn take_head(&mut self, slices: &[IoSlice<'_>]) -> Option<usize> {
        let spelled = self.injected.lock().spelled.clone()?;
        let before = self.head.len();
        for slice in slices {
            self.head.put_slice(slice);
        }
        let taken = self.head.len() - before;
        if let Some(end) = answer_end(&self.head) {
            spell(&mut self.head, end, &spelled);
            let mut state = self.injected.lock();
            state.spelled = None;
            // Of a body that has ended with it the end is held back.
            if state.trailers.is_some() {
                drop(state);
                self.held = self.head.split_off(end);
            }
        }
        Some(taken)
    }

    /// Writes the response's head, once it is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.head.is_empty() || self.injected.lock().spelled.is_some() {
            return Poll::Ready(Ok(()));
        }
        poll_all(&self.stream, &mut self.head, cx)
    }

    /// Returns whether hyper's bytes are held back from now on.
    fn holds(&self) -> bool {
        !self.held.is_empty() || self.injected.lock().trailers.is_some()
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper ends the body in the turn in which it learns of the end, and flushes after that: the end is in here.
        let trailers = self.injected.lock().trailers.take();
        if let Some(trailers) = trailers {
            if self.held.ends_with(LAST_CHUNK) {
                self.held.truncate(self.held.len() - 2);
                self.held.put_slice(&trailers);
                self.held.put_slice(b"\r\n");
            } else {
                debug_assert!(false, "a chunked body was flushed without its end");
            }
        }
        poll_all(&self.stream, &mut self.held, cx)
    }
}

/// Returns the end of the response's head, after interim ones (hyper's 100).
fn answer_end(bytes: &[u8]) -> Option<usize> {
    let mut begin = 0;
    loop {
        let rest = bytes.get(begin..)?;
        let end = head_end(rest, 0)?;
        begin += end;
        if !rest.starts_with(b"HTTP/1.1 1") {
            return Some(begin);
        }
    }
}

/// Gives the names in hyper's head the origin's spelling, which has the same length.
fn spell(bytes: &mut [u8], end: usize, written: &[u8]) {
    let mut spelling = Spelling::of(written);
    let mut last = Vec::new();
    let mut at = 0;
    while let Some(line) = bytes.get_mut(at..end).filter(|line| !line.is_empty()) {
        at += line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |end| end + 1);
        let length = line.iter().position(|byte| matches!(byte, b':' | b'\r')).unwrap_or_default();
        let Some(name) = line.get_mut(..length) else { return };
        let Ok(text) = str::from_utf8(name) else { continue };
        if let Some(spelled) = spelling.next(text, last == text.as_bytes()) {
            last = text.as_bytes().to_vec();
            name.copy_from_slice(spelled);
        } else {
            last.clear();
        }
    }
}

/// Returns when the caller has disconnected or closed its sending side, even while nothing is read, which hyper does
/// not notice.
pub(crate) async fn left(stream: &UnixStream) {
    // It wakes for the other end's close, and for urgent data, which callers do not send.
    if stream.ready(Interest::PRIORITY).await.is_ok_and(Ready::is_read_closed) {
        return;
    }
    // After urgent data this check stops; reading still detects the end.
    std::future::pending::<()>().await;
}

fn poll_all(
    stream: &UnixStream,
    bytes: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !bytes.is_empty() {
        let written = ready!(poll_write(stream, &[IoSlice::new(bytes)], cx))?;
        bytes.advance(written);
    }
    Poll::Ready(Ok(()))
}

fn poll_write(
    stream: &UnixStream,
    slices: &[IoSlice<'_>],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_write_vectored(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.has_remaining() {
            let length = self.prefix.len().min(buffer.remaining());
            buffer.put_slice(&self.prefix.split_to(length));
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_head(cx))?;
        ready!(this.poll_ahead(cx))?;
        this.midway = true;
        if let Some(taken) = this.take_head(slices) {
            // Its rest is written before the next data.
            if let Poll::Ready(Err(error)) = this.poll_head(cx) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(taken));
        }
        if this.holds() {
            // At most what hyper has in its buffer: the body has ended.
            let before = this.held.len();
            for slice in slices {
                this.held.put_slice(slice);
            }
            return Poll::Ready(Ok(this.held.len() - before));
        }
        poll_write(&this.stream, slices, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_head(cx))?;
        if !this.held.is_empty() {
            ready!(this.poll_held(cx))?;
        }
        this.midway = false;
        ready!(this.poll_ahead(cx))?;
        let mut state = this.injected.lock();
        state.flushed += 1;
        if let Some(waker) = state.waits.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        // As tokio's own does: it never blocks.
        Poll::Ready(Ok(rustix::net::shutdown(&self.stream, Shutdown::Write)?))
    }
}

/// The body of a response on its way to the caller.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: OutgoingBody,
    injected: Arc<Injected>,
    /// Whether there is no length: trailers may follow.
    chunked: bool,
    /// The error that ended the body, and the number of flushes at that time.
    broken: Option<(u64, CallError)>,
}

#[derive(Debug)]
enum OutgoingBody {
    /// A body of the broker.
    Whole(Option<Bytes>),
    /// A body of the origin.
    Answer(AnswerBody),
}

impl Outgoing {
    /// Wraps the origin's body.
    pub(crate) fn answer(body: AnswerBody, injected: Arc<Injected>, chunked: bool) -> Self {
        Self { body: OutgoingBody::Answer(body), injected, chunked, broken: None }
    }

    /// Wraps a body of the broker.
    pub(crate) fn whole(bytes: Bytes, injected: Arc<Injected>) -> Self {
        Self { body: OutgoingBody::Whole(Some(bytes)), injected, chunked: false, broken: None }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        let this = &mut *self;
        if let Some((before, error)) = &this.broken {
            // hyper drops what it has not written when a body breaks off; the caller is to have all that came.
            let mut state = this.injected.lock();
            if state.flushed > *before {
                return Poll::Ready(Some(Err(error.clone())));
            }
            state.waits = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let body = match &mut this.body {
            OutgoingBody::Whole(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            OutgoingBody::Answer(body) => body,
        };
        match ready!(Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_trailers() {
                Ok(trailers) => {
                    if this.chunked {
                        let mut bytes = BytesMut::new();
                        put_all(&mut bytes, &fields::of_trailers(trailers));
                        this.injected.lock().trailers = Some(bytes.freeze());
                    }
                    Poll::Ready(None)
                }
                Err(data) => Poll::Ready(Some(Ok(data))),
            },
            Some(Err(error)) => {
                let mut state = this.injected.lock();
                state.waits = Some(cx.waker().clone());
                this.broken = Some((state.flushed, error));
                // Not before a flush: there may be nothing to write that would cause one.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            OutgoingBody::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            OutgoingBody::Answer(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            OutgoingBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            // hyper would make a length of it, and a body with a length has no trailers.
            OutgoingBody::Answer(_) if self.chunked => SizeHint::default(),
            OutgoingBody::Answer(body) => body.size_hint(),
        }
    }
}
