//! The byte stream below HTTP: a socket, with TLS or without, that counts what goes over it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// What has gone over a connection. Shared with whoever holds the connection, for the stream itself belongs to hyper.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes that were taken for sending. TLS may still hold them back: they count as sent.
    sent: AtomicU64,
    /// Bytes that came.
    received: AtomicU64,
    /// How the answer begins: 0 nothing came, 1 as HTTP does, 2 otherwise.
    greeting: AtomicU8,
    /// The socket itself is asked, not only what the reactor knows about it.
    probe: AtomicBool,
}

impl Traffic {
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// A call begins: forget how the last answer began.
    pub(crate) fn begin(&self) {
        self.greeting.store(0, Relaxed);
    }

    /// Something came that is no HTTP.
    pub(crate) fn babble(&self) -> bool {
        self.greeting.load(Relaxed) == 2
    }

    /// While true, reading asks the kernel when the reactor knows of nothing: it may not have looked yet.
    pub(crate) fn probe(&self, probe: bool) {
        self.probe.store(probe, Relaxed);
    }

    fn came(&self, bytes: &[u8]) {
        self.received.fetch_add(bytes.len() as u64, Relaxed);
        if self.greeting.load(Relaxed) == 0 && !bytes.is_empty() {
            let compared = bytes.len().min(5);
            let http = bytes.get(..compared) == b"HTTP/".get(..compared);
            self.greeting.store(if http { 1 } else { 2 }, Relaxed);
        }
    }
}

/// A TCP socket whose end is noticed as soon as the kernel knows it, when asked to.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpStream,
    traffic: Arc<Traffic>,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, traffic: Arc::default() }
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.tcp).poll_read(cx, buf) {
            // The waker is in place; the reactor may be behind, or the task out of budget.
            Poll::Pending if this.traffic.probe.load(Relaxed) => {
                let room = buf.initialize_unfilled();
                match rustix::net::recv(&this.tcp, room, RecvFlags::DONTWAIT) {
                    Ok((_, read)) => {
                        buf.advance(read);
                        Poll::Ready(Ok(()))
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error.into())),
                }
            }
            other => other,
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

/// What HTTP is spoken over.
///
/// An origin that answers early closes while the body is still being sent. Then writing fails before its answer was read, and
/// the answer is what counts: so a write that the other end no longer takes waits for ever, and reading tells how it ends.
#[derive(Debug)]
pub(crate) struct Stream {
    layer: Layer,
    traffic: Arc<Traffic>,
    deaf: bool,
}

#[derive(Debug)]
enum Layer {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    pub(crate) fn plain(socket: Socket) -> Self {
        Self { traffic: socket.traffic(), layer: Layer::Plain(socket), deaf: false }
    }

    pub(crate) fn tls(tls: TlsStream<Socket>) -> Self {
        Self { traffic: tls.get_ref().0.traffic(), layer: Layer::Tls(Box::new(tls)), deaf: false }
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    fn unless_deaf<T>(
        &mut self,
        with: impl FnOnce(Pin<&mut dyn AsyncWrite>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.deaf {
            return Poll::Pending;
        }
        match with(self.layer.writer()) {
            Poll::Ready(Err(error))
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                self.deaf = true;
                Poll::Pending
            }
            other => other,
        }
    }

    fn write(
        &mut self,
        with: impl FnOnce(Pin<&mut dyn AsyncWrite>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let wrote = ready!(self.unless_deaf(with))?;
        self.traffic.sent.fetch_add(wrote as u64, Relaxed);
        Poll::Ready(Ok(wrote))
    }
}

impl Layer {
    fn writer(&mut self) -> Pin<&mut dyn AsyncWrite> {
        match self {
            Self::Plain(socket) => Pin::new(socket) as Pin<&mut Socket>,
            Self::Tls(tls) => Pin::new(tls.as_mut()) as Pin<&mut TlsStream<Socket>>,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(match &mut this.layer {
            Layer::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Layer::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        })?;
        this.traffic.came(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(|layer| layer.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(|layer| layer.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.layer {
            Layer::Plain(socket) => socket.is_write_vectored(),
            Layer::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().unless_deaf(|layer| layer.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().layer.writer().poll_shutdown(cx)
    }
}
