//! Listening sockets: accept connections, detect their protocol, and own their tasks.
//!
//! Invariants
//! - A failing accept (out of descriptors) is logged, counted and retried after a pause; it neither spins nor ends
//!   the listener.
//! - Every connection's task is owned by its listener and ends with it.
//! - At the connection limit nothing is accepted: further clients wait in the kernel's queue, and connections that
//!   wait for their clients are closed.
//! - Descriptors reserved for the server are used by at most one connection of each listener.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use channels::hub::{ForwardedConnection, Stream};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::LazyConfigAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::application::Application;
use crate::connections::{Client, Open};
use crate::files::is_out_of_descriptors;
use crate::front::Shared;
use crate::metrics::ClientLimit;
use crate::options::{Address, Listen};
use crate::phase::PhaseCell;
use crate::realtime::IntoStream;
use crate::respond::Connection;
use crate::timed_io::TimedIo;
use crate::tls;
use crate::{http1, http2, proxy_protocol};

/// Pause after a failed accept: long enough not to spin, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a socket that another listener accepted waits for a place.
const ROOM: Duration = Duration::from_secs(1);

/// Length of the kernel's accept queue.
const QUEUE: i32 = 1024;

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The address of a peer on a unix socket, because PHP needs one.
const UNIX_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A listening address of a front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A TCP address with its port.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The listener uses TLS.
        tls: bool,
    },
    /// A unix socket.
    Unix {
        /// Path of the socket.
        path: PathBuf,
        /// The listener uses TLS.
        tls: bool,
    },
}

impl fmt::Display for Bound {
    /// Writes a URL, for example `http://127.0.0.1:8080`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = |tls: &bool| if *tls { "https" } else { "http" };
        match self {
            Self::Tcp { address, tls } => write!(f, "{}://{address}", scheme(tls)),
            Self::Unix { path, tls } => write!(f, "{}+unix:{}", scheme(tls), path.display()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket bound before the front.
#[derive(Debug)]
pub enum Given {
    /// A TCP socket.
    Tcp(std::net::TcpListener),
    /// A unix socket.
    Unix {
        /// The socket.
        listener: std::os::unix::net::UnixListener,
        /// The front owns the socket file and removes it at its end.
        takes_file_away: bool,
    },
}

impl Given {
    /// Binds an address before the front is created, for a process that will lose the permission to bind. The front
    /// uses the socket if it is configured to listen there.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        bind_tcp(address).map(Self::Tcp)
    }

    /// Returns the listening address; `None` for a unix socket without a file.
    pub fn address(&self) -> io::Result<Option<Address>> {
        Ok(match self {
            Self::Tcp(listener) => Some(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix { listener, .. } => {
                let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
                path.map(Address::Unix)
            }
        })
    }

    /// Removes the socket with this address from the given ones. Port 0 matches any port.
    fn take(given: &mut Vec<Self>, wanted: SocketAddr) -> Option<std::net::TcpListener> {
        let is_wanted = |given: &mut Self| match given {
            Self::Tcp(listener) => listener.local_addr().is_ok_and(|address| {
                address.ip() == wanted.ip()
                    && (wanted.port() == 0 || address.port() == wanted.port())
            }),
            Self::Unix { .. } => false,
        };
        match given.extract_if(.., is_wanted).next() {
            Some(Self::Tcp(listener)) => Some(listener),
            _ => None,
        }
    }

    /// Removes the unix socket with this path from the given ones.
    fn take_unix(
        given: &mut Vec<Self>,
        wanted: &Path,
    ) -> Option<(std::os::unix::net::UnixListener, bool)> {
        let is_wanted = |given: &mut Self| match given {
            Self::Unix { listener, .. } => {
                listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(wanted))
            }
            Self::Tcp(_) => false,
        };
        match given.extract_if(.., is_wanted).next() {
            Some(Self::Unix { listener, takes_file_away }) => Some((listener, takes_file_away)),
            _ => None,
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    bound: Bound,
    tls: bool,
    /// The socket file is removed with the front.
    takes_file_away: bool,
    redirect: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

enum Accepted {
    Tcp(tokio::net::TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

impl AsRawFd for Accepted {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream, _) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Listener {
    /// Binds an address, or uses a given socket; a name may have several addresses.
    pub(crate) async fn bind(listen: &Listen, given: &mut Vec<Given>) -> io::Result<Vec<Self>> {
        let Listen { tls, redirect, .. } = *listen;
        match &listen.address {
            Address::Tcp(name) => {
                let mut bound = Vec::new();
                for address in tokio::net::lookup_host(name.as_str()).await? {
                    let listener = match Given::take(given, address) {
                        Some(listener) => listener,
                        None => bind_tcp(address)?,
                    };
                    listener.set_nonblocking(true)?;
                    let socket = TcpListener::from_std(listener)?;
                    let address = socket.local_addr()?;
                    bound.push(Self {
                        socket: Socket::Tcp(socket),
                        bound: Bound::Tcp { address, tls },
                        tls,
                        takes_file_away: false,
                        redirect,
                    });
                }
                if bound.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
                }
                Ok(bound)
            }
            Address::Unix(path) => {
                let (socket, takes_file_away) = match Given::take_unix(given, path) {
                    Some((listener, takes_file_away)) => {
                        listener.set_nonblocking(true)?;
                        (UnixListener::from_std(listener)?, takes_file_away)
                    }
                    None => (bind_unix(path).await?, true),
                };
                let bound = Bound::Unix { path: path.clone(), tls };
                Ok(vec![Self {
                    socket: Socket::Unix(socket),
                    bound,
                    tls,
                    redirect,
                    takes_file_away,
                }])
            }
        }
    }

    pub(crate) fn bound(&self) -> Bound {
        self.bound.clone()
    }

    /// Duplicates the socket, for another process to accept from.
    pub(crate) fn share(&self) -> io::Result<Given> {
        Ok(match &self.socket {
            Socket::Tcp(socket) => Given::Tcp(socket.as_fd().try_clone_to_owned()?.into()),
            Socket::Unix(socket) => Given::Unix {
                listener: socket.as_fd().try_clone_to_owned()?.into(),
                takes_file_away: self.takes_file_away,
            },
        })
    }

    /// Returns the port, if the listener uses TLS.
    pub(crate) fn https_port(&self) -> Option<u16> {
        match self.bound {
            Bound::Tcp { address, tls: true } => Some(address.port()),
            _ => None,
        }
    }

    /// Accepts until `end`, then waits for the connections to end, which `drain` asks them to.
    pub(crate) async fn accept<A: Application>(
        self,
        front: Arc<Shared<A>>,
        end: CancellationToken,
        drain: CancellationToken,
    ) {
        let mut connections = JoinSet::new();
        let mut failing = false;
        // The last connection used a descriptor reserved for the server.
        let mut scarce = false;
        loop {
            let slot = async {
                if scarce {
                    front.connections.descriptor(&self.socket, || self.has_waiting()).await;
                }
                front.connections.slot(|| self.has_waiting()).await
            };
            let slot = tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                slot = slot => slot,
            };
            let accepted = tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.next() => accepted,
            };
            let accepted = match accepted {
                Ok(accepted) => {
                    failing = false;
                    accepted
                }
                Err(error) => {
                    front.metrics.accept_errors.increment(1);
                    if is_of_one_client(&error) {
                        continue;
                    }
                    if !failing {
                        tracing::error!(error = %error, listener = %self.bound, "accept fails");
                    }
                    failing = true;
                    if is_out_of_descriptors(&error) {
                        front.connections.make_room();
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            scarce = !front.connections.may_have(accepted.as_raw_fd());
            let drain = drain.child_token();
            let client = match &accepted {
                // The balancer's own address does not identify the client.
                Accepted::Tcp(..) if front.proxy_protocol => Client::UNKNOWN,
                Accepted::Tcp(_, peer) => Client::at(peer.ip(), front.trusts(peer.ip())),
                Accepted::Unix(_) => Client::UNKNOWN,
            };
            let Ok(open) = front.connections.open(slot, client, drain.clone()) else { continue };
            let front = Arc::clone(&front);
            let (tls, redirect) = (self.tls, self.redirect);
            connections.spawn(async move {
                match accepted {
                    Accepted::Tcp(stream, peer) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(error = %error, "no TCP_NODELAY");
                        }
                        let Ok(local) = stream.local_addr() else { return };
                        let trusted = front.trusts(peer.ip());
                        let ends = Ends { peer, local, trusted, redirect };
                        let span = tracing::debug_span!("connection", network.peer.address = %peer);
                        let connect = connect(&front, stream, ends, tls, &open, drain);
                        Box::pin(connect).instrument(span).await;
                    }
                    Accepted::Unix(stream) => {
                        let ends = Ends { redirect, ..Ends::UNIX };
                        let span =
                            tracing::debug_span!("connection", network.peer.address = "unix");
                        let connect = connect(&front, stream, ends, tls, &open, drain);
                        Box::pin(connect).instrument(span).await;
                    }
                }
            });
        }
        let Self { socket, bound, takes_file_away, .. } = self;
        drop(socket);
        if let Bound::Unix { path, .. } = bound
            && takes_file_away
            && !front.succeeded.is_cancelled()
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::debug!(error = %error, "socket file stays");
        }
        while connections.join_next().await.is_some() {}
    }

    /// Returns whether a client waits to be accepted.
    fn has_waiting(&self) -> bool {
        let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
        rustix::event::poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    async fn next(&self) -> io::Result<Accepted> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok(Accepted::Tcp(stream, peer))
            }
            Socket::Unix(socket) => Ok(Accepted::Unix(socket.accept().await?.0)),
        }
    }
}

/// Serves the sockets that the hub hands over, until `drain`; then waits for them to end.
pub(crate) async fn receive<A: Application>(
    mut forwarded_connections: mpsc::Receiver<ForwardedConnection>,
    front: Arc<Shared<A>>,
    drain: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let forwarded = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            forwarded = forwarded_connections.recv() => forwarded,
        };
        let Some(ForwardedConnection { stream, read, secure }) = forwarded else { break };
        // The limit applies to all connections. This socket is open already, so it only waits until idle ones are
        // closed.
        let slot = front.connections.slot(|| true);
        let Ok(slot) = tokio::time::timeout(ROOM, slot).await else { continue };
        let client = match &stream {
            Stream::Tcp(stream) => stream
                .peer_addr()
                .map_or(Client::UNKNOWN, |peer| Client::at(peer.ip(), front.trusts(peer.ip()))),
            Stream::Unix(_) => Client::UNKNOWN,
        };
        let drain = drain.child_token();
        let Ok(open) = front.connections.open(slot, client, drain.clone()) else { continue };
        let front = Arc::clone(&front);
        connections.spawn(async move {
            let read = BytesMut::from(read.as_slice());
            let outcome = match stream {
                Stream::Tcp(stream) => welcome(&front, stream, read, secure, &open, drain).await,
                Stream::Unix(stream) => match tokio::net::UnixStream::from_std(stream) {
                    Ok(stream) => {
                        let ends = Ends::UNIX;
                        Box::pin(choose(&front, stream, read, ends, secure, &open, drain)).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "socket lost on its way from its event loop");
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

async fn welcome<A: Application>(
    front: &Arc<Shared<A>>,
    stream: std::net::TcpStream,
    read: BytesMut,
    secure: bool,
    open: &Open,
    drain: CancellationToken,
) -> io::Result<()> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let trusted = front.trusts(peer.ip());
    let ends = Ends { peer, local, trusted, redirect: false };
    Box::pin(choose(front, stream, read, ends, secure, open, drain)).await;
    Ok(())
}

/// Returns whether the error concerns only the client being accepted (accept(2)).
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn bind_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    // std sets SO_REUSEADDR.
    let listener = std::net::TcpListener::bind(address)?;
    rustix::net::listen(&listener, QUEUE)?;
    Ok(listener)
}

/// Binds a socket file. A file left by a process that has ended is replaced.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if tokio::net::UnixStream::connect(path).await.is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        outcome => outcome,
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    peer: SocketAddr,
    local: SocketAddr,
    trusted: bool,
    redirect: bool,
}

impl Ends {
    /// The ends of a unix socket: any peer there is a trusted proxy on this machine.
    const UNIX: Self = Self { peer: UNIX_PEER, local: UNIX_PEER, trusted: true, redirect: false };
}

/// Detects the protocol of an accepted socket and serves it.
async fn connect<
    A: Application,
    S: AsyncRead + AsyncWrite + IntoStream + Unpin + Send + 'static,
>(
    front: &Arc<Shared<A>>,
    mut stream: S,
    mut ends: Ends,
    tls: bool,
    open: &Open,
    drain: CancellationToken,
) {
    let mut peeked = BytesMut::new();
    if front.proxy_protocol {
        let header = proxy_protocol::read(&mut stream, &mut peeked);
        let header = tokio::select! {
            biased;
            header = tokio::time::timeout(front.patience.header, header) => header,
            () = drain.cancelled() => return,
        };
        match header {
            Ok(Ok(told)) => {
                if let Some((peer, local)) = told {
                    ends.peer = peer;
                    ends.local = local;
                    // The balancer does not check the client's header fields, so trust depends on the stated peer.
                    ends.trusted = front.trusts(peer.ip());
                    if open.is_of(Client::at(peer.ip(), ends.trusted)).is_err() {
                        return;
                    }
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %error, "no PROXY protocol header");
                return;
            }
            Err(_) => return front.metrics.limited(ClientLimit::SlowHead),
        }
    }
    if !tls {
        return choose(front, stream, peeked, ends, false, open, drain).await;
    }
    let Some(certificates) = &front.tls else { return };
    // A client that sends plain HTTP to a TLS port gets an explanation.
    let greeting = async {
        if peeked.is_empty() {
            stream.read_buf(&mut peeked).await?;
        }
        Ok::<_, io::Error>(())
    };
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(front.handshake_timeout, greeting) => first,
        () = drain.cancelled() => return,
    };
    if !matches!(first, Ok(Ok(()))) || peeked.is_empty() {
        return;
    }
    if looks_like_http(&peeked) {
        const ANSWER: &[u8] =
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
            Connection: close\r\n\r\nThis port speaks HTTPS: use an https:// address.\n";
        let refusal = async {
            stream.write_all(ANSWER).await?;
            stream.shutdown().await
        };
        if !matches!(tokio::time::timeout(front.handshake_timeout, refusal).await, Ok(Ok(()))) {
            tracing::debug!("client of a TLS port did not take the refusal");
        }
        return;
    }
    let stream = Replay { peeked: peeked.freeze(), stream };
    let accept = async {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = certificates.config_for(&start.client_hello());
        start.into_stream(config).await
    };
    let accepted = tokio::select! {
        biased;
        accepted = tokio::time::timeout(front.handshake_timeout, accept) => accepted,
        () = drain.cancelled() => return,
    };
    match accepted {
        Ok(Ok(stream)) => {
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => {
                    speak_http2(front, stream, Bytes::new(), ends, true, open, drain).await;
                }
                // The handshake itself was the challenge's answer.
                Some(tls::ACME) => {}
                _ => speak_http1(front, stream, Bytes::new(), ends, true, open, drain).await,
            }
        }
        Ok(Err(error)) => tracing::debug!(error = %error, "TLS handshake failed"),
        Err(_) => {
            front.metrics.limited(ClientLimit::SlowHandshake);
            tracing::debug!("TLS handshake took too long");
        }
    }
}

/// Serves HTTP/1.1, or HTTP/2 by prior knowledge.
async fn choose<A: Application, S: AsyncRead + AsyncWrite + IntoStream + Unpin + Send + 'static>(
    front: &Arc<Shared<A>>,
    mut stream: S,
    mut peeked: BytesMut,
    ends: Ends,
    tls: bool,
    open: &Open,
    drain: CancellationToken,
) {
    let preface = async {
        while peeked.len() < PREFACE.len() && PREFACE.starts_with(&peeked) {
            if stream.read_buf(&mut peeked).await? == 0 {
                break;
            }
        }
        Ok::<_, io::Error>(peeked.starts_with(PREFACE))
    };
    let outcome = tokio::select! {
        biased;
        outcome = tokio::time::timeout(front.patience.header, preface) => outcome,
        () = drain.cancelled() => return,
    };
    match outcome {
        Ok(Ok(true)) => speak_http2(front, stream, peeked.freeze(), ends, tls, open, drain).await,
        Ok(Ok(false)) if peeked.is_empty() => {}
        Ok(Ok(false)) => speak_http1(front, stream, peeked.freeze(), ends, tls, open, drain).await,
        Ok(Err(error)) => tracing::debug!(error = %error, "connection broke off"),
        Err(_) => tracing::debug!("client sent nothing"),
    }
}

fn looks_like_http(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_uppercase)
}

async fn speak_http1<
    A: Application,
    S: AsyncRead + AsyncWrite + IntoStream + Unpin + Send + 'static,
>(
    front: &Arc<Shared<A>>,
    stream: S,
    peeked: Bytes,
    ends: Ends,
    tls: bool,
    open: &Open,
    drain: CancellationToken,
) {
    let phase = Arc::clone(&open.phase);
    let timed_io = timed_io(front, stream, peeked, &phase);
    let connection = connection(ends, tls, Some(Arc::clone(&phase)));
    http1::serve(front, connection, timed_io, phase, drain).await;
}

async fn speak_http2<A: Application, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    front: &Arc<Shared<A>>,
    stream: S,
    peeked: Bytes,
    ends: Ends,
    tls: bool,
    open: &Open,
    drain: CancellationToken,
) {
    let phase = Arc::clone(&open.phase);
    // HTTP/2 has its own time-outs.
    let timed_io = timed_io(front, stream, peeked, &phase).untimed();
    http2::serve(front, connection(ends, tls, None), timed_io, phase, drain).await;
}

fn timed_io<A, S>(
    front: &Shared<A>,
    stream: S,
    peeked: Bytes,
    phase: &Arc<PhaseCell>,
) -> TimedIo<S> {
    TimedIo::new(stream, peeked, Arc::clone(phase), front.patience, Arc::clone(&front.metrics))
}

fn connection(ends: Ends, tls: bool, phase: Option<Arc<PhaseCell>>) -> Connection {
    Connection {
        peer: ends.peer,
        local: ends.local,
        tls,
        trusted: ends.trusted,
        redirect: ends.redirect,
        phase,
        host: OnceLock::new(),
        grant: Mutex::new(None),
    }
}

/// A stream whose first bytes have already been read.
pub(crate) struct Replay<S> {
    pub(crate) peeked: Bytes,
    pub(crate) stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if self.peeked.is_empty() {
            return std::pin::Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.peeked.len().min(buffer.remaining());
        buffer.put_slice(&self.peeked.split_to(length));
        std::task::Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replay<S> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
