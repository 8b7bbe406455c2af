//! The byte stream below HTTP: a socket, with TLS or without.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// The most bytes that are read at once below TLS.
const ROOM: usize = 64 << 10;

thread_local! {
    /// One buffer for all sockets of a thread: idle ones need no memory.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; ROOM]);
}

/// Calls a function with the thread's buffer, of [`ROOM`] bytes.
pub(crate) fn with_buffer<T>(use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    BUFFER.with_borrow_mut(use_it)
}

/// A socket that can report its end as soon as the kernel knows it.
#[derive(Debug)]
pub(crate) struct Socket {
    wire: Wire,
    /// Whether reading asks the kernel although the reactor reports nothing: the reactor may be behind.
    probe: bool,
    /// Whether one system call reads for several reads: rustls asks for 4 KB each time, a quarter of a record.
    reads_ahead: bool,
    /// Bytes that were read ahead.
    ahead: Bytes,
}

#[derive(Debug)]
enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A tunnel through a proxy over TLS.
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
        Self::over(Wire::Tcp(tcp))
    }

    pub(crate) fn unix(unix: UnixStream) -> Self {
        Self::over(Wire::Unix(unix))
    }

    pub(crate) fn proxied(tls: TlsStream<TcpStream>) -> Self {
        Self::over(Wire::Proxied(Box::new(tls)))
    }

    fn over(wire: Wire) -> Self {
        Self { wire, probe: false, reads_ahead: false, ahead: Bytes::new() }
    }

    /// Reads ahead from now on.
    pub(crate) fn below_tls(mut self) -> Self {
        self.reads_ahead = true;
        self
    }

    /// Reads as much as there is, and keeps what `buf` has no room for.
    fn poll_read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with_buffer(|buffer| {
            let mut all = ReadBuf::new(buffer);
            ready!(self.wire.stream().poll_read(cx, &mut all))?;
            let (now, later) = all.filled().split_at(all.filled().len().min(buf.remaining()));
            buf.put_slice(now);
            self.ahead = Bytes::copy_from_slice(later);
            Poll::Ready(Ok(()))
        })
    }

    /// Returns the local address of a TCP socket.
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
        if this.ahead.has_remaining() {
            let length = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let polled = match &mut this.wire {
            _ if this.reads_ahead => this.poll_read_ahead(cx, buf),
            Wire::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            other => other.stream().poll_read(cx, buf),
        };
        match polled {
            // The waker is in place; the reactor may be behind, or the task out of budget.
            Poll::Pending if this.probe => {
                let room = buf.initialize_unfilled();
                let read = match &this.wire {
                    Wire::Tcp(tcp) => rustix::net::recv(tcp, room, RecvFlags::DONTWAIT),
                    Wire::Unix(unix) => rustix::net::recv(unix, room, RecvFlags::DONTWAIT),
                    // Bytes in the kernel are of no use without TLS.
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

/// The stream below HTTP.
///
/// An origin that answers early closes while the body is still being sent. Writing then fails before the response was
/// read, and the response is what counts. So a write that the peer no longer accepts waits for ever, and reading
/// reports the end.
#[derive(Debug)]
pub(crate) struct Stream {
    layer: Layer,
    deaf: bool,
}

/// A socket with or without TLS.
#[derive(Debug)]
pub(crate) enum Layer {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    pub(crate) fn plain(socket: Socket) -> Self {
        Self { layer: Layer::Plain(socket), deaf: false }
    }

    pub(crate) fn tls(tls: TlsStream<Socket>) -> Self {
        Self { layer: Layer::Tls(Box::new(tls)), deaf: false }
    }

    /// Reads unsolicited bytes and returns their number; 0 if the peer has closed, pending if nothing has arrived.
    /// `probe`: the kernel is asked, not only the reactor.
    pub(crate) fn overhear(&mut self, probe: bool, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut bytes = ReadBuf::new(bytes);
        let mut cx = Context::from_waker(Waker::noop());
        self.socket().probe = probe;
        // With TLS something may come that is no data: tickets.
        let polled = Pin::new(&mut *self).poll_read(&mut cx, &mut bytes);
        self.socket().probe = false;
        polled.map_ok(|()| bytes.filled().len())
    }

    fn socket(&mut self) -> &mut Socket {
        match &mut self.layer {
            Layer::Plain(socket) => socket,
            Layer::Tls(tls) => tls.get_mut().0,
        }
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
}

impl Layer {
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, buf),
        }
    }

    pub(crate) fn writer(&mut self) -> Pin<&mut dyn AsyncWrite> {
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
        self.get_mut().layer.poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().unless_deaf(|layer| layer.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().unless_deaf(|layer| layer.poll_write_vectored(cx, bufs))
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
