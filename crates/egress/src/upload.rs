//! The body of a call while it is sent: held back until it is wanted, and replayed for another attempt if possible.
//!
//! Invariants
//! - At most [`KEPT`] bytes of a body are kept for another attempt; they are shared, not copied.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::CallBody;

/// How long a body with `Expect: 100-continue` waits for the origin's response (RFC 9110, 10.1.1; libcurl's default).
const EXPECTANT: Duration = Duration::from_secs(1);
/// The bytes of a body that are kept while it is sent.
const KEPT: usize = 64 << 10;

const HELD: u8 = 0;
const OPEN: u8 = 1;
const SHUT: u8 = 2;

/// The state of a body that another task sends.
#[derive(Debug)]
pub(crate) struct Watch {
    gate: AtomicU8,
    begun: AtomicBool,
    broken: AtomicBool,
    over: AtomicBool,
    back: Mutex<Option<Whole>>,
}

impl Watch {
    /// Takes the body back, once no task sends it any more. `None`: part of it is lost.
    pub(crate) fn take(&self) -> Option<Whole> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns whether the body's source was read.
    pub(crate) fn begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Returns whether the body's source has failed.
    pub(crate) fn broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Returns whether more of the body is to be sent.
    pub(crate) fn under_way(&self) -> bool {
        !self.over.load(Relaxed) && self.gate.load(Relaxed) != SHUT
    }

    /// Lets the body be sent: the origin requested it (100).
    pub(crate) fn open(&self) {
        let _was = self.gate.compare_exchange(HELD, OPEN, Relaxed, Relaxed);
    }

    /// Handles a response that arrived before the body was sent. After an error status the body is not sent; otherwise
    /// it is, as in libcurl.
    pub(crate) fn answered(&self, status: StatusCode) {
        if status.is_client_error() || status.is_server_error() {
            let _was = self.gate.compare_exchange(HELD, SHUT, Relaxed, Relaxed);
        } else {
            self.open();
        }
    }
}

/// A body from its start: the part that was sent without success, and the rest.
#[derive(Debug)]
pub(crate) struct Whole {
    sent: VecDeque<Bytes>,
    rest: CallBody,
}

impl From<CallBody> for Whole {
    fn from(rest: CallBody) -> Self {
        Self { sent: VecDeque::new(), rest }
    }
}

impl Whole {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.sent.pop_front() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.sent.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let sent = self.sent.iter().map(|data| data.len() as u64).sum::<u64>();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + sent);
        }
        hint.set_lower(rest.lower() + sent);
        hint
    }
}

/// A body that is being sent. After it is dropped, its [`Watch`] returns it, unless too much of it is lost.
#[derive(Debug)]
pub(crate) enum Upload {
    /// The request has no body.
    Empty,
    /// The request has a body.
    Body(Sending),
}

#[derive(Debug)]
pub(crate) struct Sending {
    /// `None`: it was given back.
    body: Option<Whole>,
    /// The bytes that were sent; `None`: too many to be kept.
    kept: Option<VecDeque<Bytes>>,
    kept_bytes: usize,
    watch: Arc<Watch>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    /// Creates the body and its [`Watch`]. `expectant`: the request has `Expect: 100-continue`.
    pub(crate) fn new(body: Whole, expectant: bool) -> (Self, Arc<Watch>) {
        let watch = Arc::new(Watch {
            gate: AtomicU8::new(if expectant { HELD } else { OPEN }),
            begun: AtomicBool::new(!body.sent.is_empty()),
            broken: AtomicBool::new(false),
            over: AtomicBool::new(false),
            back: Mutex::default(),
        });
        let patience = expectant.then(|| Box::pin(tokio::time::sleep(EXPECTANT)));
        let sending = Sending {
            body: Some(body),
            kept: Some(VecDeque::new()),
            kept_bytes: 0,
            watch: Arc::clone(&watch),
            patience,
        };
        (Self::Body(sending), watch)
    }
}

impl Sending {
    /// Waits until the body may be sent.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.watch.gate.load(Relaxed) {
            OPEN => Poll::Ready(()),
            SHUT => Poll::Pending,
            _ => match &mut self.patience {
                Some(patience) => patience.as_mut().poll(cx).map(|()| self.watch.open()),
                None => Poll::Ready(()),
            },
        }
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(data) = frame.data_ref() else {
            // Trailers would be the second ones.
            self.kept = None;
            return;
        };
        self.kept_bytes += data.len();
        match &mut self.kept {
            Some(kept) if self.kept_bytes <= KEPT => kept.push_back(data.clone()),
            _ => self.kept = None,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Self::Body(sending) = self.get_mut() else { return Poll::Ready(None) };
        if sending.poll_gate(cx).is_pending() {
            return Poll::Pending;
        }
        let Some(body) = &mut sending.body else { return Poll::Ready(None) };
        let polled = body.poll_frame(cx);
        match &polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => sending.keep(frame),
            Poll::Ready(Some(Err(_))) => sending.watch.broken.store(true, Relaxed),
            Poll::Ready(None) => {}
        }
        sending.watch.begun.store(true, Relaxed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Body(sending) => sending.body.as_ref().is_none_or(Whole::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Body(sending) => sending.body.as_ref().map(Whole::size_hint).unwrap_or_default(),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.watch.over.store(true, Relaxed);
        let (Some(mut body), Some(mut sent)) = (self.body.take(), self.kept.take()) else { return };
        if self.watch.broken() {
            return;
        }
        sent.append(&mut body.sent);
        body.sent = sent;
        *self.watch.back.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn body(bytes: impl Into<Bytes>) -> Whole {
        Whole::from(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
    }

    #[tokio::test]
    async fn a_small_body_can_be_replayed() {
        let (upload, watch) = Upload::new(body("body"), false);
        assert!(watch.under_way());
        drop(upload);
        assert!(!watch.begun() && !watch.under_way());
        let (mut upload, watch) = Upload::new(watch.take().expect("it is whole"), false);
        assert!(upload.frame().await.is_some());
        assert!(watch.begun());
        drop(upload);
        let (upload, watch) = Upload::new(watch.take().expect("it is whole"), false);
        assert_eq!((upload.size_hint().exact(), watch.begun()), (Some(4), true));
        assert_eq!(upload.collect().await.expect("it does not fail").to_bytes(), "body");
        assert_eq!(watch.take().expect("it is whole").size_hint().exact(), Some(4));
    }

    #[tokio::test]
    async fn a_large_body_is_not_kept_once_started() {
        let (upload, watch) = Upload::new(body(vec![0; KEPT + 1]), false);
        drop(upload);
        let (mut upload, watch) = Upload::new(watch.take().expect("it is whole"), false);
        assert!(upload.frame().await.is_some());
        drop(upload);
        assert!(watch.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_expectant_body_waits_for_100_or_a_second() {
        let (mut upload, watch) = Upload::new(body("body"), true);
        let early = tokio::time::timeout(Duration::from_millis(999), upload.frame());
        assert!(early.await.is_err());
        watch.open();
        assert!(upload.frame().await.is_some());

        let (mut upload, _watch) = Upload::new(body("body"), true);
        assert!(tokio::time::timeout(Duration::from_millis(1001), upload.frame()).await.is_ok());

        let (mut upload, watch) = Upload::new(body("body"), true);
        watch.answered(StatusCode::EXPECTATION_FAILED);
        assert!(!watch.under_way());
        assert!(tokio::time::timeout(Duration::from_mins(1), upload.frame()).await.is_err());
        assert!(!watch.begun());
    }
}
