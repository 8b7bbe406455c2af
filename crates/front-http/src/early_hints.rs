//! 1xx responses over HTTP/1.1, which hyper's server cannot send. They are injected into the byte stream between two
//! messages.
//!
//! hyper flushes its buffer before it waits for the application, and it calls `poll_flush` on the stream only with an
//! empty buffer. A flush after a request was received is therefore a message boundary, until the next write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, StatusCode, header};
use http1::{put_field, put_status_line};
use pool::HintSender;

/// Maximum number of waiting bytes; further hints are dropped.
const MAX_WAITING: usize = 64 << 10;

/// The hints of one connection that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct HintQueue {
    /// The application is still working on its final response.
    open: AtomicBool,
    /// The stream is at a message boundary.
    boundary: AtomicBool,
    /// Hints are waiting; this flag saves the lock in the common case.
    waiting: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: BytesMut,
    /// A part of the waiting bytes is written, so the rest must follow.
    begun: bool,
}

impl HintQueue {
    /// Returns the sender for the application.
    pub(crate) fn sender(self: &Arc<Self>) -> HintSender {
        let queue = Arc::clone(self);
        HintSender(Arc::new(move |status, headers| queue.push(status, headers)))
    }

    /// Opens the queue when a request was received.
    pub(crate) fn begin(&self) {
        self.open.store(true, Ordering::Relaxed);
        self.boundary.store(false, Ordering::Relaxed);
    }

    /// Closes the queue when the final response is about to be written. Hints that found no boundary are dropped,
    /// because they are optional.
    pub(crate) fn finish(&self) {
        self.open.store(false, Ordering::Relaxed);
        if self.waiting.load(Ordering::Relaxed) && !self.boundary.load(Ordering::Relaxed) {
            let mut queue = self.lock();
            if !queue.begun {
                queue.bytes.clear();
                self.waiting.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Marks a message boundary: everything written so far is flushed.
    pub(crate) fn boundary(&self) {
        self.boundary.store(true, Ordering::Relaxed);
    }

    /// Marks that bytes of a message were written.
    pub(crate) fn mid_message(&self) {
        self.boundary.store(false, Ordering::Relaxed);
    }

    /// Returns the bytes to write now. The caller must report the result with [`Self::written`].
    pub(crate) fn next(&self) -> Option<Bytes> {
        if !self.waiting.load(Ordering::Relaxed) {
            return None;
        }
        let mut queue = self.lock();
        if queue.bytes.is_empty() || !(queue.begun || self.boundary.load(Ordering::Relaxed)) {
            return None;
        }
        Some(queue.bytes.split().freeze())
    }

    /// Reports that `count` of `bytes` were written.
    pub(crate) fn written(&self, mut bytes: Bytes, count: usize) {
        let mut queue = self.lock();
        queue.begun = count > 0 || queue.begun;
        bytes.advance(count);
        if bytes.has_remaining() {
            let later = std::mem::take(&mut queue.bytes);
            queue.bytes.put(bytes);
            queue.bytes.put(later);
        }
        if queue.bytes.is_empty() {
            queue.begun = false;
            self.waiting.store(false, Ordering::Relaxed);
        }
    }

    fn push(&self, status: StatusCode, headers: &HeaderMap) {
        if !self.open.load(Ordering::Relaxed) || !may_hint(status) {
            return;
        }
        let mut queue = self.lock();
        if queue.bytes.len() < MAX_WAITING {
            write_head(&mut queue.bytes, status, headers);
            self.waiting.store(true, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the application may send this status. 101 would end HTTP on the connection, and 100 is sent by the
/// front.
pub(crate) fn may_hint(status: StatusCode) -> bool {
    status.is_informational() && status.as_u16() > 101
}

/// Returns whether a field is meaningful in a 1xx response and does not frame a body.
pub(crate) fn belongs_in_hint(name: &HeaderName) -> bool {
    !(*name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::CONTENT_LENGTH
        || *name == header::UPGRADE
        || name == "keep-alive")
}

fn write_head(out: &mut BytesMut, status: StatusCode, headers: &HeaderMap) {
    put_status_line(out, status.as_str(), status.canonical_reason().unwrap_or("Information"));
    for (name, value) in headers.iter().filter(|(name, _)| belongs_in_hint(name)) {
        put_field(out, name, value);
    }
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(queue: &Arc<HintQueue>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::LINK, "</a.css>; rel=preload".parse().unwrap());
        (queue.sender().0)(StatusCode::EARLY_HINTS, &headers);
    }

    #[test]
    fn a_hint_waits_for_the_previous_answer_to_be_flushed() {
        let queue = Arc::new(HintQueue::default());
        queue.begin();
        hint(&queue);
        assert_eq!(queue.next(), None);
        queue.boundary();
        assert_eq!(
            queue.next().unwrap(),
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n"
        );
    }

    #[test]
    fn a_hint_without_a_boundary_is_dropped() {
        let queue = Arc::new(HintQueue::default());
        queue.begin();
        hint(&queue);
        queue.finish();
        queue.boundary();
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn a_started_hint_is_finished_first() {
        let queue = Arc::new(HintQueue::default());
        queue.begin();
        queue.boundary();
        hint(&queue);
        let bytes = queue.next().unwrap();
        queue.written(bytes.clone(), 10);
        queue.finish();
        assert_eq!(queue.next().unwrap(), bytes.slice(10..));
    }

    #[test]
    fn a_hint_after_the_final_answer_is_dropped() {
        let queue = Arc::new(HintQueue::default());
        queue.begin();
        queue.boundary();
        queue.finish();
        hint(&queue);
        assert_eq!(queue.next(), None);
    }
}
