//! Reading from an HTTP/2 connection in turns with the tasks of its streams.
//!
//! The connection's task reads as long as there is something. Where many answers arrive together it would read all of them before the first piece is
//! passed on, if the runtime has one thread: callers would get everything late and at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads in a row after which other tasks get their turn.
const ROW: u32 = 8;

/// A stream whose reader yields after [`ROW`] reads.
#[derive(Debug)]
pub(crate) struct Paced<T> {
    inner: T,
    row: u32,
}

impl<T> Paced<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, row: 0 }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Paced<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.row == ROW {
            this.row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        this.row = if polled.is_ready() { this.row + 1 } else { 0 };
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paced<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn other_tasks_get_their_turn_while_there_is_always_something_to_read() {
        let turns = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counting.fetch_add(1, Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut endless = Paced::new(tokio::io::repeat(1));
        let mut read = [0; 1];
        for _ in 0..10 * ROW {
            endless.read_exact(&mut read).await.unwrap();
        }
        assert!(turns.load(Relaxed) >= 9, "{turns:?}");
        other.abort();
    }
}
