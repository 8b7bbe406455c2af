//! Connections for other protocols than HTTP: the same path (look-up, deny-list, proxies, TLS), with the caller's own protocol on top.
//!
//! Invariants
//! - An HTTP proxy is asked for a tunnel, also without TLS.
//! - The TLS handshake offers no HTTP version.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::stream::Layer;
use crate::{CallError, Engine, Key};

/// A connection of the caller's own. It counts among the engine's until it is dropped.
#[derive(Debug)]
pub struct Dialed {
    layer: Layer,
    /// The times of its opening.
    pub birth: DialTiming,
    _permit: OwnedSemaphorePermit,
}

/// When each step was done, counted from the call of [`Engine::dial`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DialTiming {
    /// The name was resolved.
    pub resolved: Duration,
    /// The connection was established.
    pub connected: Duration,
    /// The TLS handshake was done, if TLS is used from the start.
    pub secured: Duration,
    /// The peer's address.
    pub address: Option<SocketAddr>,
}

impl Engine {
    /// Connects as `key` says, with TLS from the start or without, within a time limit. The key's scheme and HTTP versions are ignored.
    ///
    /// # Cancel safety
    /// Dropping the future closes everything. A look-up continues for the next caller.
    pub async fn dial(&self, key: &Key, tls: bool, limit: Duration) -> Result<Dialed, CallError> {
        let resolving = AtomicBool::new(false);
        let begin = Instant::now();
        let dial = async {
            let permit = self.permit().await;
            let reached = self.ways().reach(key, true, &resolving).await?;
            let connected = Instant::now();
            let mut birth = DialTiming {
                resolved: reached.resolved - begin,
                connected: connected - begin,
                secured: Duration::ZERO,
                address: reached.address,
            };
            let layer = if tls {
                let tls = self.ways().handshake(reached.socket, key, None).await?;
                birth.secured = begin.elapsed();
                Layer::Tls(Box::new(tls))
            } else {
                Layer::Plain(reached.socket)
            };
            Ok(Dialed { layer, birth, _permit: permit })
        };
        match tokio::time::timeout(limit, dial).await {
            Ok(result) => result,
            Err(_late) => Err(CallError::late(begin.elapsed(), resolving.load(Relaxed))),
        }
    }

    /// Starts TLS on a plain connection, within a time limit.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn secure(
        &self,
        dialed: Dialed,
        key: &Key,
        limit: Duration,
    ) -> Result<Dialed, CallError> {
        let begin = Instant::now();
        let Dialed { layer, birth, _permit: permit } = dialed;
        let Layer::Plain(socket) = layer else {
            return Err(CallError::unsupported("There is TLS already"));
        };
        match tokio::time::timeout(limit, self.ways().handshake(socket, key, None)).await {
            Ok(tls) => Ok(Dialed { layer: Layer::Tls(Box::new(tls?)), birth, _permit: permit }),
            Err(_late) => Err(CallError::late(begin.elapsed(), false)),
        }
    }
}

impl Dialed {
    /// Returns whether TLS is used.
    pub fn is_secure(&self) -> bool {
        matches!(self.layer, Layer::Tls(_))
    }

    /// The local address, for TCP.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.layer {
            Layer::Plain(socket) => socket.local_address(),
            Layer::Tls(tls) => tls.get_ref().0.local_address(),
        }
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().layer.poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().layer.writer().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().layer.writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().layer.writer().poll_shutdown(cx)
    }
}
