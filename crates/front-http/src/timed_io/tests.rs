use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use super::*;

/// A TLS stream whose client has sent one byte and does not read.
#[derive(Default)]
struct Unread {
    byte_sent: bool,
    flushes: bool,
}

impl AsyncRead for Unread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.byte_sent, true) {
            return Poll::Pending;
        }
        buffer.put_slice(b"G");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Unread {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.flushes { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_the_next_request_wake_no_task_that_cannot_flush() {
    let phase = Arc::new(PhaseCell::new(Phase::First));
    let limit = Duration::from_mins(1);
    let patience = Patience { header: limit, keep_alive: limit, write: limit };
    let metrics = Arc::new(FrontMetrics::register());
    let timed_io =
        TimedIo::new(Unread::default(), Bytes::new(), Arc::clone(&phase), patience, metrics);
    let mut timed_io = timed_io.with_hints(Arc::default());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut cx = Context::from_waker(&waker);
    let mut flush = |flushes| {
        timed_io.stream.flushes = flushes;
        let flushed = Pin::new(&mut timed_io).poll_flush(&mut cx).is_ready();
        (flushed, wakes.0.swap(0, Ordering::Relaxed))
    };
    phase.busy();
    assert_eq!(flush(false), (false, 1), "the byte has just arrived");
    phase.answered();
    for _ in 0..3 {
        assert_eq!(flush(false), (false, 0));
    }
    assert_eq!(flush(true), (true, 1), "hyper can read now");
}
