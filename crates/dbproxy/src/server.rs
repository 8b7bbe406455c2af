//! The way to the server: TCP, and TLS over it.

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

/// How long a connection is silent before the kernel asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long what was sent may stay without a word that it has arrived. Long: a server that waits for a lock may take nothing meanwhile.
const SILENCE: Duration = Duration::from_mins(2);

/// Where the server is, and how it proves that it is the one.
#[derive(Debug)]
pub(crate) struct Server {
    pub host: String,
    pub port: u16,
    pub verify: Verify,
    pub trust: Arc<Trust>,
}

impl Server {
    /// Host and port, for messages.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// A TCP connection, as yet in the clear.
    pub(crate) async fn connect(&self) -> Result<TcpStream, Refused> {
        let unreachable = |cause| Refused::Unreachable { address: self.address(), cause };
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
        // Only a help: sessions are asked before they are lent, too.
        let socket = SockRef::from(&stream);
        let kept_alive = socket.set_tcp_keepalive(&keepalive);
        if let Err(error) = kept_alive.and_then(|()| socket.set_tcp_user_timeout(Some(SILENCE))) {
            tracing::debug!(%error, "no keepalive");
        }
        Ok(stream)
    }

    /// Encrypts it, where that is wished.
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

    /// The server speaks no TLS.
    pub(crate) fn no_tls(&self) -> Refused {
        Refused::Tls { address: self.address(), why: "the server offers none".to_owned() }
    }

    /// What it said is not the protocol.
    pub(crate) fn strange(&self, what: &'static str) -> Refused {
        Refused::Protocol { address: self.address(), what }
    }

    /// It hung up, or did not answer.
    pub(crate) fn lost(&self, cause: std::io::Error) -> Refused {
        // In TLS 1.3 a refused certificate of ours is only heard of after the handshake.
        let tls =
            cause.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
        if tls {
            return Refused::Tls { address: self.address(), why: explain(&cause, &self.host) };
        }
        Refused::Unreachable { address: self.address(), cause }
    }
}
