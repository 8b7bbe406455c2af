//! One accepted socket: its PROXY protocol header, TLS, and which HTTP it speaks.
//!
//! Invariants
//! - Until the protocol is known, each step has a time limit.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::{Bytes, BytesMut};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::replay::Replay;
use crate::application::Application;
use crate::connections::{Client, Open};
use crate::front::Shared;
use crate::metrics::ClientLimit;
use crate::phase::PhaseCell;
use crate::realtime::IntoStream;
use crate::respond::Connection;
use crate::timed_io::{TimedIo, discard_input};
use crate::tls::{self, VerifiedClient};
use crate::websocket::session::Running;
use crate::{http1, http2, proxy_protocol};

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The address of a peer on a unix socket, because PHP needs one.
const UNIX_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Both ends of a connection.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) trusted: bool,
    pub(super) redirect: bool,
    /// The client that was asked for a certificate.
    pub(super) client: Option<VerifiedClient>,
}

impl Ends {
    /// The ends of a unix socket: any peer there is a trusted proxy on this machine.
    pub(super) const UNIX: Self =
        Self { peer: UNIX_PEER, local: UNIX_PEER, trusted: true, redirect: false, client: None };
}

/// Detects the protocol of an accepted socket and serves HTTP on it. Returns what serves it further, if it became a
/// WebSocket of the application.
pub(super) async fn connect<
    A: Application,
    S: AsyncRead + AsyncWrite + IntoStream + Unpin + Send + 'static,
>(
    front: &Arc<Shared<A>>,
    mut stream: S,
    mut ends: Ends,
    tls: bool,
    open: &Open,
    drain: CancellationToken,
) -> Option<Running> {
    let mut peeked = BytesMut::new();
    if front.proxy_protocol {
        let header = proxy_protocol::read(&mut stream, &mut peeked);
        let header = tokio::select! {
            biased;
            header = tokio::time::timeout(front.patience.header, header) => header,
            () = drain.cancelled() => return None,
        };
        match header {
            Ok(Ok(told)) => {
                if let Some((peer, local)) = told {
                    ends.peer = peer;
                    ends.local = local;
                    // The balancer does not check the client's header fields, so trust depends on the stated peer.
                    ends.trusted = front.trusts(peer.ip());
                    if open.is_of(Client::at(peer.ip(), ends.trusted)).is_err() {
                        return None;
                    }
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %error, "no PROXY protocol header");
                return None;
            }
            Err(_) => {
                front.metrics.limited(ClientLimit::SlowHead);
                return None;
            }
        }
    }
    if !tls {
        return choose(front, stream, peeked, ends, false, open, drain).await;
    }
    let stream = Box::pin(handshake(front, stream, peeked, &drain)).await?;
    let session = stream.get_ref().1;
    ends.client = front.tls.as_ref()?.client(session.peer_certificates());
    // Boxed, so that a connection without TLS has no room for it.
    match session.alpn_protocol() {
        Some(b"h2") => {
            Box::pin(speak_http2(front, stream, Bytes::new(), ends, true, open, drain)).await;
            None
        }
        // The handshake itself was the challenge's answer.
        Some(tls::ACME) => None,
        _ => Box::pin(speak_http1(front, stream, Bytes::new(), ends, true, open, drain)).await,
    }
}

/// Performs the TLS handshake. Returns `None` if the client took too long, sent plain HTTP or failed.
async fn handshake<A: Application, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    front: &Shared<A>,
    mut stream: S,
    mut peeked: BytesMut,
    drain: &CancellationToken,
) -> Option<TlsStream<Replay<S>>> {
    let certificates = front.tls.as_ref()?;
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
        () = drain.cancelled() => return None,
    };
    if !matches!(first, Ok(Ok(()))) || peeked.is_empty() {
        return None;
    }
    if looks_like_http(&peeked) {
        const ANSWER: &[u8] =
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
            Connection: close\r\n\r\nThis port speaks HTTPS: use an https:// address.\n";
        let refusal = async {
            stream.write_all(ANSWER).await?;
            stream.shutdown().await
        };
        if matches!(tokio::time::timeout(front.handshake_timeout, refusal).await, Ok(Ok(()))) {
            // Most of the request is unread.
            Box::pin(discard_input(&mut stream, drain)).await;
        } else {
            tracing::debug!("client of a TLS port did not take the refusal");
        }
        return None;
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
        () = drain.cancelled() => return None,
    };
    match accepted {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            front.metrics.limited(ClientLimit::SlowHandshake);
            tracing::debug!("TLS handshake took too long");
            None
        }
    }
}

/// Serves HTTP/1.1, or HTTP/2 by prior knowledge.
pub(super) async fn choose<
    A: Application,
    S: AsyncRead + AsyncWrite + IntoStream + Unpin + Send + 'static,
>(
    front: &Arc<Shared<A>>,
    mut stream: S,
    mut peeked: BytesMut,
    ends: Ends,
    tls: bool,
    open: &Open,
    drain: CancellationToken,
) -> Option<Running> {
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
        () = drain.cancelled() => return None,
    };
    match outcome {
        Ok(Ok(true)) => {
            Box::pin(speak_http2(front, stream, peeked.freeze(), ends, tls, open, drain)).await;
        }
        Ok(Ok(false)) if peeked.is_empty() => {}
        Ok(Ok(false)) => {
            return speak_http1(front, stream, peeked.freeze(), ends, tls, open, drain).await;
        }
        Ok(Err(error)) => tracing::debug!(error = %error, "connection broke off"),
        Err(_) => tracing::debug!("client sent nothing"),
    }
    None
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
) -> Option<Running> {
    let phase = Arc::clone(&open.phase);
    let timed_io = timed_io(front, stream, peeked, &phase);
    let connection = connection(ends, tls, Some(Arc::clone(&phase)));
    http1::serve(front, connection, timed_io, phase, drain).await
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
        client: ends.client,
        grant: Mutex::new(None),
    }
}
