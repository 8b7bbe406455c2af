//! A caller's connection: frames in, bytes out, and the body of a call that arrives beside its response.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use crate::stream::with_buffer;
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use unix_stream::Stream;
use wire::{CallBody, FromCaller, HEADER_LEN, Header, Kind, Malformed, OPENING, Sender};

/// The bytes that are read at once.
const ROOM: usize = 8 << 10;
/// The size of the buffer that stays between two calls.
const KEPT: usize = 4 << 10;
/// The most bytes of interim answers that wait; further ones are dropped. They are only hints.
const LATER: usize = 64 << 10;

/// Why a connection, or its call, ends.
#[derive(Debug)]
pub(super) enum Gone {
    /// The caller has closed it.
    Left,
    /// The caller violated the protocol.
    Malformed(Malformed),
    /// The caller aborted the call.
    Aborted,
}

/// A requested call.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) control: Bytes,
    pub(super) head: Bytes,
    pub(super) coming: CallBody,
    /// The body, if it is complete.
    pub(super) body: Bytes,
}

/// The connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    input: Mutex<Input>,
    later: Mutex<Later>,
}

#[derive(Debug)]
struct Input {
    buffer: BytesMut,
    /// The number of the current call.
    call: u64,
    /// Whether the body is still to be read, which only [`Upload`] does.
    uploading: bool,
    /// Whether ABORT has arrived.
    aborted: bool,
}

/// Frames to be written.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) frames: Vec<u8>,
    written: usize,
}

impl Out {
    /// Returns whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Removes all frames. A small buffer stays for the next call.
    pub(super) fn clear(&mut self) {
        self.written = 0;
        self.frames.clear();
        self.frames.shrink_to(KEPT);
    }
}

/// Frames for the next boundary between frames.
#[derive(Debug, Default)]
struct Later {
    frames: Vec<u8>,
    /// The waker of the task that writes.
    waker: Option<Waker>,
}

impl Input {
    /// Reads more bytes. The end of the stream is an error.
    fn poll_more(&mut self, stream: &Stream, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        // More room than data, so that a short read means that no more data are available.
        let room = match wire::peek(&self.buffer, Sender::Caller) {
            Ok(Some(header)) => header.frame_len().saturating_sub(self.buffer.len()) + 1,
            _ => 0,
        };
        let read = if room > ROOM {
            self.buffer.reserve(room);
            ready!(stream.poll_read(&mut self.buffer, cx))
        } else {
            ready!(with_buffer(|bytes| {
                let bytes = bytes.get_mut(..ROOM).unwrap_or_default();
                let read = ready!(stream.poll_read_slice(bytes, cx))?;
                self.buffer.extend_from_slice(bytes.get(..read).unwrap_or_default());
                Poll::Ready(Ok::<_, io::Error>(read))
            }))
        };
        Poll::Ready(match read {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(Gone::Left),
        })
    }

    /// Returns the next frame, if it is complete.
    fn frame(&mut self) -> Result<Option<(Header, Bytes)>, Gone> {
        let Some(header) = wire::peek(&self.buffer, Sender::Caller).map_err(Gone::Malformed)?
        else {
            return Ok(None);
        };
        if self.buffer.len() < header.frame_len() {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(header.frame_len()).freeze();
        frame.advance(HEADER_LEN);
        Ok(Some((header, frame)))
    }

    fn poll_frame(
        &mut self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Header, Bytes), Gone>> {
        loop {
            if let Some(frame) = self.frame()? {
                return Poll::Ready(Ok(frame));
            }
            ready!(self.poll_more(stream, cx))?;
        }
    }
}

/// The error of a frame that is not allowed at this point.
fn unexpected(header: Header) -> Gone {
    Gone::Malformed(Malformed::Type(header.kind as u8))
}

impl Link {
    /// Creates the connection. `read`: the bytes that were already read.
    pub(super) fn new(stream: Stream, read: BytesMut) -> Self {
        let input = Input { buffer: read, call: 0, uploading: false, aborted: false };
        Self { stream, input: Mutex::new(input), later: Mutex::default() }
    }

    fn input(&self) -> MutexGuard<'_, Input> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the socket, for observers.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    fn waiting(&self) -> MutexGuard<'_, Later> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn frame(&self) -> Result<(Header, Bytes), Gone> {
        std::future::poll_fn(|cx| self.input().poll_frame(&self.stream, cx)).await
    }

    /// Reads how a caller begins; returns the token.
    pub(super) async fn opening(&self) -> Result<Bytes, Gone> {
        std::future::poll_fn(|cx| {
            let mut input = self.input();
            while input.buffer.len() < OPENING.len() {
                ready!(input.poll_more(&self.stream, cx))?;
            }
            Poll::Ready(Ok::<_, Gone>(()))
        })
        .await?;
        let begin = self.input().buffer.split_to(OPENING.len());
        if begin[..] != OPENING[..] {
            return Err(Gone::Malformed(Malformed::Payload("another version or protocol")));
        }
        match self.frame().await? {
            (Header { kind: Kind::Open, .. }, token) => Ok(token),
            (header, _) => Err(unexpected(header)),
        }
    }

    /// Reads the next call, with everything that its caller sends unasked.
    ///
    /// # Cancel safety
    /// No part of a call is lost.
    pub(super) async fn asked(&self) -> Result<Asked, Gone> {
        let (header, payload) = loop {
            let (header, payload) = self.frame().await?;
            match header.kind {
                Kind::Call => break (header, payload),
                // Of the call before, which was over sooner.
                Kind::Body | Kind::Abort => {}
                _ => return Err(unexpected(header)),
            }
        };
        let decoded = FromCaller::decode(header, &payload).map_err(Gone::Malformed)?;
        let FromCaller::Call { control, head, body: coming } = decoded else {
            return Err(unexpected(header));
        };
        let (control, head) = (payload.slice_ref(control), payload.slice_ref(head));
        let mut body = Bytes::new();
        if coming == CallBody::Whole {
            let (header, data) = self.frame().await?;
            if header.kind != Kind::Body || header.flags != Kind::LAST {
                return Err(unexpected(header));
            }
            body = data;
        }
        let mut input = self.input();
        input.call += 1;
        input.aborted = false;
        input.uploading = coming == CallBody::Asked;
        Ok(Asked { control, head, coming, body })
    }

    /// Discards what still arrives of the call.
    pub(super) fn end_call(&self) {
        let mut input = self.input();
        input.call += 1;
        input.uploading = false;
        drop(input);
        self.waiting().frames.clear();
    }

    /// Returns whether ABORT has arrived.
    pub(super) fn was_given_up(&self) -> bool {
        self.input().aborted
    }

    /// Queues a frame for the next boundary between frames.
    pub(super) fn later(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut later = self.waiting();
        if later.frames.len() < LATER {
            write(&mut later.frames);
        }
        if let Some(waker) = later.waker.take() {
            waker.wake();
        }
    }

    /// Takes the queued frames.
    pub(super) fn take_later(&self, out: &mut Vec<u8>) {
        let mut later = self.waiting();
        out.extend_from_slice(&later.frames);
        later.frames.clear();
    }

    /// Writes queued frames and watches the caller during a call. Ready when the caller has disconnected or aborted.
    pub(super) fn poll_beside(&self, cx: &mut Context<'_>) -> Poll<Gone> {
        loop {
            let mut later = self.waiting();
            if !later.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                later.waker = Some(cx.waker().clone());
            }
            if later.frames.is_empty() {
                break;
            }
            // They are small, and nothing else is being written: the socket takes them whole but for a caller that does not read.
            let written = self.stream.poll_write(&later.frames, cx);
            match written {
                Poll::Ready(Ok(count)) => {
                    later.frames.drain(..count);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Gone::Left),
                Poll::Pending => break,
            }
        }
        self.poll_left(cx)
    }

    /// Ready when the caller has disconnected or aborted.
    pub(super) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<Gone> {
        let mut input = self.input();
        if input.aborted {
            return Poll::Ready(Gone::Aborted);
        }
        if input.uploading {
            return Poll::Pending;
        }
        match ready!(input.poll_frame(&self.stream, cx)) {
            Ok((Header { kind: Kind::Abort, .. }, _)) => {
                input.aborted = true;
                Poll::Ready(Gone::Aborted)
            }
            Ok((header, _)) => Poll::Ready(unexpected(header)),
            Err(gone) => Poll::Ready(gone),
        }
    }

    /// Writes as much as the socket takes.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, out: &mut Out) -> Poll<Result<(), Gone>> {
        let left = out.frames.get(out.written..).unwrap_or_default();
        match ready!(self.stream.poll_write(left, cx)) {
            Ok(count) => {
                out.written += count;
                if out.written == out.frames.len() {
                    out.frames.clear();
                    out.written = 0;
                }
                Poll::Ready(Ok(()))
            }
            Err(_) => Poll::Ready(Err(Gone::Left)),
        }
    }

    /// Writes everything.
    pub(super) async fn write(&self, out: &mut Out) -> Result<(), Gone> {
        std::future::poll_fn(|cx| {
            while !out.is_empty() {
                ready!(self.poll_write(cx, out))?;
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

/// The body of a call whose caller sends it on request.
#[derive(Debug)]
pub(super) struct Upload {
    link: Arc<Link>,
    call: u64,
    length: Option<u64>,
    came: u64,
    asked: bool,
    ended: bool,
}

impl Upload {
    /// Creates the body of the current call.
    pub(super) fn new(link: Arc<Link>, length: Option<u64>) -> Self {
        let call = link.input().call;
        Self { link, call, length, came: 0, asked: false, ended: false }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        if !self.asked {
            self.asked = true;
            self.link.later(wire::send::want);
        }
        let mut input = self.link.input();
        if input.call != self.call || input.aborted {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match ready!(input.poll_frame(&self.link.stream, cx)) {
            Ok((Header { kind: Kind::Body, flags, .. }, data)) => {
                self.came += data.len() as u64;
                self.ended = flags == Kind::LAST;
                input.uploading = !self.ended;
                let wrong = match self.length {
                    Some(length) if self.ended => self.came != length,
                    Some(length) => self.came > length,
                    None => false,
                };
                if wrong {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                Poll::Ready(Ok((!data.is_empty()).then_some(data)))
            }
            Ok((Header { kind: Kind::Abort, .. }, _)) => {
                input.aborted = true;
                drop(input);
                // Wakes the task that writes the response.
                self.link.later(|_frames| {});
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            Ok(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            Err(_) => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            return match ready!(self.poll_piece(cx)) {
                Ok(Some(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(None) if self.ended => Poll::Ready(None),
                // Empty pieces are skipped.
                Ok(None) => continue,
                Err(error) => Poll::Ready(Some(Err(error))),
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.length == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(length) => SizeHint::with_exact(length.saturating_sub(self.came)),
            None => SizeHint::new(),
        }
    }
}
