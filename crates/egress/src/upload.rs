//! The body of a call on its way out: held back until it is wanted, and had back when it was not begun.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::CallBody;

/// How long a body with `Expect: 100-continue` waits for the origin's word (RFC 9110, 10.1.1; libcurl's default).
const EXPECTANT: Duration = Duration::from_secs(1);

const HELD: u8 = 0;
const OPEN: u8 = 1;
const SHUT: u8 = 2;

/// What is known about a body that somebody else sends.
#[derive(Debug)]
pub(crate) struct Watch {
    gate: AtomicU8,
    begun: AtomicBool,
    broken: AtomicBool,
    back: Mutex<Option<CallBody>>,
}

impl Watch {
    /// The body, once nobody sends it any more; `None`: some of it is gone.
    pub(crate) fn take(&self) -> Option<CallBody> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whoever gives the body has broken off.
    pub(crate) fn broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// The origin wants it (100).
    pub(crate) fn open(&self) {
        let _was = self.gate.compare_exchange(HELD, OPEN, Relaxed, Relaxed);
    }

    /// The origin has answered without it: what was held back stays here.
    pub(crate) fn shut(&self) {
        let _was = self.gate.compare_exchange(HELD, SHUT, Relaxed, Relaxed);
    }
}

/// A body that is being sent. Dropped before it was begun, it can be had from its [`Watch`] again.
#[derive(Debug)]
pub(crate) enum Upload {
    /// There is none.
    Empty,
    /// There is one.
    Body(Sending),
}

#[derive(Debug)]
pub(crate) struct Sending {
    body: Option<CallBody>,
    watch: Arc<Watch>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    /// `expectant`: with `Expect: 100-continue`.
    pub(crate) fn new(body: CallBody, expectant: bool) -> (Self, Arc<Watch>) {
        let watch = Arc::new(Watch {
            gate: AtomicU8::new(if expectant { HELD } else { OPEN }),
            begun: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            back: Mutex::default(),
        });
        let patience = expectant.then(|| Box::pin(tokio::time::sleep(EXPECTANT)));
        let sending = Sending { body: Some(body), watch: Arc::clone(&watch), patience };
        (Self::Body(sending), watch)
    }
}

impl Sending {
    /// Whether the body may go now.
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
        let polled = Pin::new(body).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => {
                sending.watch.begun.store(true, Relaxed);
                sending.watch.broken.store(true, Relaxed);
            }
            Poll::Ready(_) => sending.watch.begun.store(true, Relaxed),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Body(sending) => sending.body.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Body(sending) => sending.body.as_ref().map(Body::size_hint).unwrap_or_default(),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.watch.begun.load(Relaxed) {
            *self.watch.back.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn body() -> CallBody {
        Full::new(Bytes::from_static(b"body")).map_err(|never| match never {}).boxed_unsync()
    }

    #[tokio::test]
    async fn a_body_that_was_not_begun_can_be_had_again() {
        let (upload, watch) = Upload::new(body(), false);
        drop(upload);
        let (upload, watch) = Upload::new(watch.take().expect("it is whole"), false);
        assert_eq!(upload.collect().await.expect("it does not fail").to_bytes(), "body");
        assert!(watch.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_expectant_body_waits_for_the_word_or_a_second() {
        let (mut upload, watch) = Upload::new(body(), true);
        let early = tokio::time::timeout(Duration::from_millis(999), upload.frame());
        assert!(early.await.is_err());
        watch.open();
        assert!(upload.frame().await.is_some());

        let (mut upload, _watch) = Upload::new(body(), true);
        assert!(tokio::time::timeout(Duration::from_millis(1001), upload.frame()).await.is_ok());

        let (mut upload, watch) = Upload::new(body(), true);
        watch.shut();
        assert!(tokio::time::timeout(Duration::from_mins(1), upload.frame()).await.is_err());
        drop(upload);
        assert!(watch.take().is_some());
    }
}
