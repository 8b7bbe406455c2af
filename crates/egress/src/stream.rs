//! The byte stream below HTTP: a socket, with TLS or without, that counts what goes over it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
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
    /// Heads are still to come in this call.
    awaits_head: AtomicBool,
    heads: Mutex<Heads>,
}

/// The most bytes of heads that are kept as they came: hyper's own limit.
const HEADS: usize = 400 << 10;

/// The heads of an answer as the origin wrote them, interim ones first.
#[derive(Debug, Default)]
struct Heads {
    whole: VecDeque<Bytes>,
    begun: BytesMut,
    /// So much of `begun` was looked at.
    seen: usize,
}

impl Heads {
    /// False: there are no more to come.
    fn take_in(&mut self, bytes: &[u8]) -> bool {
        let kept: usize = self.whole.iter().map(Bytes::len).sum();
        if kept + self.begun.len() + bytes.len() > HEADS + (64 << 10) {
            *self = Self::default();
            return false;
        }
        self.begun.extend_from_slice(bytes);
        loop {
            if self.seen == 0 {
                let blank = self.begun.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
                let blank = blank.count();
                let _empty_lines_before_it = self.begun.split_to(blank);
            }
            let Some(end) = head_end(&self.begun, self.seen) else {
                self.seen = self.begun.len();
                return true;
            };
            let head = self.begun.split_to(end).freeze();
            self.seen = 0;
            let interim = status(&head).is_some_and(|status| (100..200).contains(&status));
            self.whole.push_back(head);
            if !interim {
                self.begun = BytesMut::new();
                return false;
            }
        }
    }
}

/// Behind the empty line; lines may end in a bare LF (RFC 9112, 2.2).
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    (from..bytes.len()).find_map(|at| match (bytes.get(at)?, bytes.get(..at)?) {
        (b'\n', [.., b'\n'] | [.., b'\n', b'\r']) => Some(at + 1),
        _ => None,
    })
}

/// The status that a head begins with.
pub(crate) fn status(head: &[u8]) -> Option<u16> {
    let digits = head.get(8..)?.strip_prefix(b" ")?.first_chunk::<3>()?;
    str::from_utf8(digits).ok()?.parse().ok()
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
        *self.heads() = Heads::default();
        self.awaits_head.store(true, Relaxed);
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next head of this call as the origin wrote it.
    pub(crate) fn next_head(&self) -> Option<Bytes> {
        self.heads().whole.pop_front()
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
        if self.awaits_head.load(Relaxed) && !bytes.is_empty() && !self.heads().take_in(bytes) {
            self.awaits_head.store(false, Relaxed);
        }
        if self.greeting.load(Relaxed) == 0 && !bytes.is_empty() {
            let compared = bytes.len().min(5);
            let http = bytes.get(..compared) == b"HTTP/".get(..compared);
            self.greeting.store(if http { 1 } else { 2 }, Relaxed);
        }
    }
}

/// A socket whose end is noticed as soon as the kernel knows it, when asked to.
#[derive(Debug)]
pub(crate) struct Socket {
    wire: Wire,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A tunnel through a proxy that is spoken to over TLS.
    Proxied(Box<TlsStream<TcpStream>>),
}

impl Wire {
    fn stream(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp) as Pin<&mut TcpStream>,
            Self::Unix(unix) => Pin::new(unix) as Pin<&mut UnixStream>,
            Self::Proxied(tls) => Pin::new(tls.as_mut()) as Pin<&mut TlsStream<TcpStream>>,
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite {}
impl<T: AsyncRead + AsyncWrite> Duplex for T {}

impl Socket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { wire: Wire::Tcp(tcp), traffic: Arc::default() }
    }

    pub(crate) fn unix(unix: UnixStream) -> Self {
        Self { wire: Wire::Unix(unix), traffic: Arc::default() }
    }

    pub(crate) fn proxied(tls: TlsStream<TcpStream>) -> Self {
        Self { wire: Wire::Proxied(Box::new(tls)), traffic: Arc::default() }
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// This end, where it is one of TCP.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.wire {
            Wire::Tcp(tcp) => tcp.local_addr().ok(),
            Wire::Proxied(tls) => tls.get_ref().0.local_addr().ok(),
            Wire::Unix(_) => None,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = match &mut this.wire {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            other => other.stream().poll_read(cx, buf),
        };
        match polled {
            // The waker is in place; the reactor may be behind, or the task out of budget.
            Poll::Pending if this.traffic.probe.load(Relaxed) => {
                let room = buf.initialize_unfilled();
                let read = match &this.wire {
                    Wire::Tcp(tcp) => rustix::net::recv(tcp, room, RecvFlags::DONTWAIT),
                    Wire::Unix(unix) => rustix::net::recv(unix, room, RecvFlags::DONTWAIT),
                    // What the kernel has is no use without TLS.
                    Wire::Proxied(_) => Err(rustix::io::Errno::AGAIN),
                };
                match read {
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
        self.get_mut().wire.stream().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().wire {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            other => other.stream().poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self.wire, Wire::Proxied(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().wire.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().wire.stream().poll_shutdown(cx)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_kept_as_they_were_written_however_they_come() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLINK: </a>\r\n\r\n";
        let last = "HTTP/1.0 200 Fine\nx-ODD:  1\nX-odd: 2\n\n";
        let bytes = format!("\r\n{interim}{last}body\n\nHTTP/1.1 404 no\r\n\r\n");
        for step in [1, 2, 3, 7, 1000] {
            let traffic = Traffic::default();
            traffic.begin();
            for piece in bytes.as_bytes().chunks(step) {
                traffic.came(piece);
            }
            assert_eq!(traffic.next_head().as_deref(), Some(interim.as_bytes()), "{step}");
            assert_eq!(traffic.next_head().as_deref(), Some(last.as_bytes()), "{step}");
            assert_eq!(traffic.next_head(), None, "{step}");
        }
    }

    #[test]
    fn heads_without_end_are_not_kept() {
        let traffic = Traffic::default();
        traffic.begin();
        traffic.came(b"HTTP/1.1 200 OK\r\n");
        for _ in 0..1000 {
            traffic.came(&[b'x'; 1000]);
        }
        assert!(traffic.heads().begun.is_empty() && !traffic.awaits_head.load(Relaxed));
    }
}
