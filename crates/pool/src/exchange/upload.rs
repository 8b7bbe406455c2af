//! Writes one request to its worker: the REQUEST frame, then the frames of its body as the client sends them.
//!
//! Invariants
//! - A frame that was started is completed, whatever becomes of the client.
//! - Nothing is taken from the body before what was taken is in the worker's socket.

use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tracing::debug;

use super::BoxError;
use crate::source::Source;
use crate::worker::Worker;

/// The part of the request still to be written.
#[derive(Default)]
pub(super) struct Upload {
    /// Number of bytes of `worker.outgoing` that are written.
    pub(super) written: usize,
    /// At least one byte of the request was written.
    pub(super) sent: bool,
    /// All of it was written before the worker's previous answer had ended.
    pub(super) written_ahead: bool,
    /// Data that follow `worker.outgoing`.
    pub(super) data: Bytes,
    /// The rest of a piece that was too large for one frame.
    pub(super) rest: Bytes,
    /// The body; `None` if there is none, or no more of it is needed. Boxed, because most requests have none.
    pub(super) source: Option<Box<Source>>,
    /// The body's last frame, or ABORT, is neither in `worker.outgoing` nor written.
    pub(super) open: bool,
    /// No request may follow this one: the worker's socket accepts no more, or its client takes a long answer.
    pub(super) alone: bool,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("written", &self.written)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Upload {
    /// Cancels the rest of the body: the started frame is completed, then ABORT ends the body.
    pub(super) fn cancel(&mut self) {
        self.source = None;
        self.rest = Bytes::new();
    }

    /// Releases the buffered body, because the worker has started the request.
    pub(super) fn release_body(&mut self) {
        if !self.open {
            self.source = None;
        } else if let Some(source) = &mut self.source {
            source.release();
        }
    }

    pub(super) fn is_flushed(&self, worker: &Worker) -> bool {
        self.written == worker.outgoing.len() && self.data.is_empty()
    }

    pub(super) fn poll(
        &mut self,
        worker: &mut Worker,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BoxError>> {
        // A body that is already available is sent together with the head.
        if !self.sent
            && worker.ready
            && self.data.is_empty()
            && self.open
            && let Poll::Ready(Err(error)) = self.poll_piece(worker, cx)
        {
            return Poll::Ready(Err(error));
        }
        loop {
            while !self.is_flushed(worker) {
                let Worker { stream, outgoing, .. } = worker;
                let head = outgoing.get(self.written..).unwrap_or_default();
                let written = if self.data.is_empty() {
                    ready!(stream.poll_write(head, cx))
                } else {
                    let both = [IoSlice::new(head), IoSlice::new(&self.data)];
                    ready!(stream.poll_write_vectored(&both, cx))
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
                        self.open = false;
                        self.alone = true;
                        self.written = outgoing.len();
                        self.data = Bytes::new();
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            if !self.open {
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
                self.open = false;
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
            self.open = false;
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
