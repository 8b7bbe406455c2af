//! Whether the other end of a connection was heard of since something was asked: the way there may have gone without a word.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::stream::Stream;

/// Who has waited for less is no witness: an answer may take as long to come from far away.
const WITNESS: Duration = Duration::from_millis(500);

/// What is known of the other end.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// So often something came.
    heard: AtomicU64,
    suspected: AtomicBool,
    suspicion: Notify,
}

impl Silence {
    /// Somebody asks, and waits until what this returns is dropped.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { silence: self, heard: self.heard.load(Relaxed), since: Instant::now() }
    }

    /// Somebody has waited in vain, and nothing came since.
    pub(crate) fn suspected(&self) -> bool {
        self.suspected.load(Relaxed)
    }

    /// Returns when there is a suspicion.
    pub(crate) async fn suspicion(&self) {
        self.suspicion.notified().await;
    }

    /// It has answered.
    pub(crate) fn lives(&self) {
        self.suspected.store(false, Relaxed);
    }
}

/// Somebody who has asked.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    silence: &'a Silence,
    heard: u64,
    since: Instant,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let silence = self.silence;
        if silence.heard.load(Relaxed) == self.heard && self.since.elapsed() >= WITNESS {
            silence.suspected.store(true, Relaxed);
            silence.suspicion.notify_one();
        }
    }
}

/// A stream that tells when something comes.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) stream: Stream,
    pub(crate) silence: Arc<Silence>,
}

impl AsyncRead for Heard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        this.silence.heard.fetch_add(1, Relaxed);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
