//! Moves the bytes of a call: writes the request, and reads the head and the body of its response.
//!
//! Invariants
//! - Bytes are read only when the parser needs more, and written only as they fit.
//! - A read that ends or fails marks the connection: it is not kept.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http1::{BadChunk, BadHead, Piece, ResponseHead, ResponseReader};
use http_body::Body as _;
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::{HEAD, Http1};
use crate::CallError;

/// The bytes that are read at once; doubled as long as reads fill them.
pub(super) const ROOM: usize = 8 << 10;
/// The most bytes that are read at once.
const MOST_ROOM: usize = 256 << 10;

/// Why no head was received.
pub(super) enum Lost {
    /// The bytes are no head.
    Malformed(BadHead),
    /// The connection has ended.
    End,
    Io(io::Error),
}

/// Why a body is incomplete.
pub(super) enum Cut {
    /// The body's chunks are malformed.
    Malformed,
    /// The connection ended within it.
    End,
    Io(io::Error),
}

impl Http1 {
    /// Writes the request. Ready when all of it was written, or when the call has failed.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        loop {
            let asks = self.poll_upload(cx)?;
            if self.outgoing.is_empty() {
                if self.unflushed {
                    ready!(Pin::new(&mut self.stream).poll_flush(cx))
                        .map_err(|error| CallError::broken(&error))?;
                    self.unflushed = false;
                }
                return if asks { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
            let slices = self.outgoing.slices();
            let stream = Pin::new(&mut self.stream);
            let written = match slices {
                // The kernel takes one piece for less than a list of them.
                [only, piece, end] if piece.is_empty() && end.is_empty() => {
                    stream.poll_write(cx, &only)
                }
                _ => stream.poll_write_vectored(cx, &slices),
            };
            match ready!(written) {
                Ok(0) => {
                    return Poll::Ready(Err(CallError::broken(&io::ErrorKind::WriteZero.into())));
                }
                Ok(count) => {
                    self.outgoing.advance(count);
                    self.sent += count as u64;
                    self.unflushed = true;
                }
                Err(error) => return Poll::Ready(Err(CallError::broken(&error))),
            }
        }
    }

    /// Takes from the body as much as fits. Returns true if more follows.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, CallError> {
        while let Some(upload) = &mut self.upload {
            if !self.outgoing.has_room() {
                return Ok(true);
            }
            let over = match Pin::new(upload).poll_frame(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(frame))) => self.encoder.put(frame, &mut self.outgoing),
                Poll::Ready(Some(Err(_))) => return Err(CallError::abandoned()),
                Poll::Ready(None) => self.encoder.finish(None, &mut self.outgoing).map(|()| true),
            };
            if over.map_err(|_short| CallError::abandoned())? {
                self.upload = None;
            }
        }
        Ok(false)
    }

    /// Returns the head of the next response, interim ones included.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut ResponseReader,
    ) -> Poll<Result<ResponseHead, Lost>> {
        loop {
            // Interim answers and empty lines: without an end to them the call would have none.
            let before = self.received.saturating_sub(self.input.len() as u64);
            if before > HEAD.bytes as u64 {
                return Poll::Ready(Err(Lost::Malformed(BadHead::NoAnswer)));
            }
            if !self.input.is_empty() {
                match reader.read(&mut self.input) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => {}
                    Err(why) => return Poll::Ready(Err(Lost::Malformed(why))),
                }
            }
            match ready!(self.poll_more(cx)) {
                Ok(0) => return Poll::Ready(Err(Lost::End)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Lost::Io(error))),
            }
        }
    }

    /// Reads more bytes. 0: the connection has ended.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(self.room);
        let filled = self.input.capacity() - self.input.len();
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input));
        match &read {
            Ok(0) | Err(_) => self.keeps = false,
            Ok(count) => {
                self.received += *count as u64;
                if *count == filled {
                    self.room = (self.room * 2).min(MOST_ROOM);
                }
            }
        }
        Poll::Ready(read)
    }

    /// Returns the next piece of the response's body.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cut>> {
        loop {
            match self.body.take(&mut self.input) {
                Ok(Piece::More) => {}
                Ok(piece) => return Poll::Ready(Ok(piece)),
                Err(BadChunk) => return Poll::Ready(Err(Cut::Malformed)),
            }
            match ready!(self.poll_more(cx)) {
                Ok(0) if self.body.end() => return Poll::Ready(Ok(Piece::End)),
                Ok(0) => return Poll::Ready(Err(Cut::End)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Cut::Io(error))),
            }
        }
    }
}
