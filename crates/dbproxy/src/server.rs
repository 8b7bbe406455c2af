//! Connects to the server: TCP, and TLS over it.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::tls::{Trust, explain};
use crate::{Refused, Verify};

/// A connection to the server, encrypted or not.
pub(crate) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Idle time after which the kernel probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long sent data may stay unacknowledged. It is long, because a server that waits for a lock may not read.
const SILENCE: Duration = Duration::from_mins(2);

/// Address of the server and its verification.
#[derive(Debug)]
pub(crate) struct Server {
    pub host: String,
    pub port: u16,
    pub verify: Verify,
    pub trust: Arc<Trust>,
}

impl Server {
    /// Returns host and port, for messages.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Opens a TCP connection without encryption.
    pub(crate) async fn connect(&self) -> Result<TcpStream, Refused> {
        let unreachable = |cause| Refused::Unreachable { address: self.address(), cause };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
        // Best effort: sessions are also probed before they are reused.
        let socket = SockRef::from(&stream);
        let kept_alive = socket.set_tcp_keepalive(&keepalive);
        if let Err(error) = kept_alive.and_then(|()| socket.set_tcp_user_timeout(Some(SILENCE))) {
            tracing::debug!(%error, "no keepalive");
        }
        Ok(stream)
    }

    /// Encrypts the connection, if configured.
    pub(crate) async fn encrypt(&self, stream: TcpStream) -> Result<Stream, Refused> {
        let Some(config) = self.trust.config() else { return Ok(Either::Left(stream)) };
        let refused = |why| Refused::Tls { address: self.address(), why };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_malformed| refused("its name cannot stand in a certificate".to_owned()))?;
        let stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|error| refused(explain(&error, &self.host)))?;
        Ok(Either::Right(Box::new(stream)))
    }

    /// Returns the error for a server without TLS.
    pub(crate) fn no_tls(&self) -> Refused {
        Refused::Tls { address: self.address(), why: "the server offers none".to_owned() }
    }

    /// Returns the error for a protocol violation.
    pub(crate) fn strange(&self, what: &'static str) -> Refused {
        Refused::Protocol { address: self.address(), what }
    }

    /// Returns the error for a closed connection or a missing response.
    pub(crate) fn lost(&self, cause: std::io::Error) -> Refused {
        // In TLS 1.3 a rejected client certificate is reported only after the handshake.
        let tls =
            cause.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
        if tls {
            return Refused::Tls { address: self.address(), why: explain(&cause, &self.host) };
        }
        Refused::Unreachable { address: self.address(), cause }
    }
}
