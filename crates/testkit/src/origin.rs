//! A scripted origin on real loopback sockets. It records every request and connection.
//!
//! Invariants
//! - A request is recorded as soon as its head was read, even if it is never answered. Each record is a request that was sent once.
//! - Dropping the [`Origin`] closes all its connections.

mod http1;
mod http2;
mod record;
mod routes;
mod script;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustls::server::WebPkiClientVerifier;
use rustls::{ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Certificate, certificates};
use record::Record;
pub use record::{Connection, Handshake, Seen};
pub use routes::routes;
pub use script::{After, Body, Fields, Greeting, Reply, Step, Turn, pattern};

/// Maximum number of body bytes that are recorded; further bytes are only counted.
const KEPT: usize = 64 << 10;

/// Chooses the action for each request.
type Script = Arc<dyn Fn(&Seen) -> Turn + Send + Sync>;
/// Chooses the action for each connection, counted from 0.
type Greet = Arc<dyn Fn(usize) -> Greeting + Send + Sync>;

/// The settings of an origin.
#[derive(Clone)]
pub struct Setup {
    script: Script,
    greet: Greet,
    tls: Option<Tls>,
    streams: u32,
    address: SocketAddr,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("tls", &self.tls).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct Tls {
    certificate: Certificate,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    client_authority: Option<Certificate>,
}

impl Setup {
    /// Sets the function that chooses the action for each request from its head.
    #[must_use]
    pub fn script(self, script: impl Fn(&Seen) -> Turn + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), ..self }
    }

    /// Sends these responses in order, over all clients; the last one is repeated.
    #[must_use]
    pub fn answers(self, turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.into_iter().collect();
        self.script(move |seen| {
            let turn = turns.get(seen.number).or_else(|| turns.last());
            turn.cloned().unwrap_or_else(|| Reply::text("").into())
        })
    }

    /// Sets the function that chooses the action for each connection, counted from 0.
    #[must_use]
    pub fn greet(self, greet: impl Fn(usize) -> Greeting + Send + Sync + 'static) -> Self {
        Self { greet: Arc::new(greet), ..self }
    }

    /// Uses TLS with this certificate, with HTTP/2 and HTTP/1.1 by ALPN.
    #[must_use]
    pub fn tls(self, certificate: &Certificate) -> Self {
        let tls = Tls {
            certificate: certificate.clone(),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            versions: rustls::ALL_VERSIONS.to_vec(),
            client_authority: None,
        };
        Self { tls: Some(tls), ..self }
    }

    /// Sets the ALPN protocols. An empty list: a server without ALPN.
    #[must_use]
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.tls_mut().alpn = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Allows TLS 1.2 only.
    #[must_use]
    pub fn tls12(mut self) -> Self {
        self.tls_mut().versions = vec![&rustls::version::TLS12];
        self
    }

    /// Accepts only clients with a certificate of this authority.
    #[must_use]
    pub fn client_authority(mut self, authority: &Certificate) -> Self {
        self.tls_mut().client_authority = Some(authority.clone());
        self
    }

    /// Sets how many HTTP/2 streams a connection accepts at a time. Further ones are refused.
    #[must_use]
    pub fn streams(self, streams: u32) -> Self {
        Self { streams, ..self }
    }

    /// Listens on this address instead of a free port of 127.0.0.1.
    #[must_use]
    pub fn listen(self, address: SocketAddr) -> Self {
        Self { address, ..self }
    }

    fn tls_mut(&mut self) -> &mut Tls {
        self.tls.as_mut().expect("`tls` comes first")
    }

    /// Starts the origin in a separate thread.
    pub fn start(self) -> Origin {
        let listener = std::net::TcpListener::bind(self.address)
            .unwrap_or_else(|error| panic!("cannot listen on {}: {error}", self.address));
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let address = listener.local_addr().expect("a listener has an address");
        let acceptor = self.tls.as_ref().map(acceptor);
        let secure = acceptor.is_some();
        let (end, ended) = watch::channel(Phase::default());
        let shared = Arc::new(Shared {
            script: self.script,
            greet: self.greet,
            streams: self.streams,
            acceptor,
            record: Mutex::default(),
            phase: ended,
        });
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime starts");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it is non-blocking");
                accept(listener, serving).await;
            });
        });
        Origin { address, secure, shared, end, thread: Some(thread) }
    }
}

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    secure: bool,
    shared: Arc<Shared>,
    end: watch::Sender<Phase>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Commands to the connections.
#[derive(Clone, Copy, Debug, Default)]
struct Phase {
    over: bool,
    /// The number of requests to close idle connections.
    closings: usize,
}

impl Origin {
    /// Plain HTTP; requests are answered with themselves as JSON. The methods of [`Setup`] change the rest.
    pub fn setup() -> Setup {
        Setup {
            script: Arc::new(|_| Reply::facts().into()),
            greet: Arc::new(|_| Greeting::Serve),
            streams: 256,
            tls: None,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// Plain HTTP with this script.
    pub fn plain(script: impl Fn(&Seen) -> Turn + Send + Sync + 'static) -> Self {
        Self::setup().script(script).start()
    }

    /// HTTPS with this script and the tests' certificate for `localhost`; HTTP/2 and HTTP/1.1.
    pub fn tls(script: impl Fn(&Seen) -> Turn + Send + Sync + 'static) -> Self {
        Self::setup().tls(&certificates().origin).script(script).start()
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns `http://127.0.0.1:PORT` or `https://localhost:PORT` with a path.
    pub fn url(&self, path: &str) -> String {
        if self.secure {
            format!("https://localhost:{}{path}", self.port())
        } else {
            format!("http://{}{path}", self.address)
        }
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.record().requests.clone()
    }

    /// Returns all connections so far.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.record().connections.clone()
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.shared.record().connections.iter().filter(|connection| connection.open).count()
    }

    /// Closes idle kept connections (HTTP/1.1) without notice.
    pub fn close_idle(&self) {
        self.end.send_modify(|phase| phase.closings += 1);
    }

    /// Blocks until a signal ends the process. For the program.
    pub fn serve_forever(mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.end.send_modify(|phase| phase.over = true);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Shared {
    script: Script,
    greet: Greet,
    streams: u32,
    acceptor: Option<TlsAcceptor>,
    record: Mutex<Record>,
    phase: watch::Receiver<Phase>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request, which assigns its number, and returns the script's action for it.
    fn saw(&self, mut seen: Seen) -> (usize, Turn) {
        let number = {
            let mut record = self.record();
            seen.number = record.requests.len();
            if let Some(connection) = record.connections.get_mut(seen.connection) {
                connection.requests += 1;
            }
            record.requests.push(seen.clone());
            seen.number
        };
        (number, (self.script)(&seen))
    }

    fn update(&self, number: usize, update: impl FnOnce(&mut Seen)) {
        update(&mut self.record().requests[number]);
    }

    fn body(&self, number: usize, bytes: &[u8]) {
        self.update(number, |seen| {
            seen.length += bytes.len() as u64;
            let room = KEPT.saturating_sub(seen.body.len()).min(bytes.len());
            seen.body.extend_from_slice(&bytes[..room]);
        });
    }
}

/// The way in which a connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Close,
    Reset,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut phase = shared.phase.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = phase.wait_for(|phase| phase.over) => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let number = {
                    let mut record = shared.record();
                    record.connections.push(Connection { open: true, ..Connection::default() });
                    record.connections.len() - 1
                };
                let shared = Arc::clone(&shared);
                connections.spawn(async move { serve(stream, number, &shared).await });
            }
        }
    }
}

async fn serve(stream: TcpStream, number: usize, shared: &Arc<Shared>) {
    drop(stream.set_nodelay(true));
    let socket: Option<OwnedFd> = stream.as_fd().try_clone_to_owned().ok();
    let end = greeted(stream, number, shared).await;
    if end == End::Reset
        && let Some(socket) = &socket
    {
        // Closing the last descriptor of the socket sends RST.
        set_socket_linger(socket, Some(Duration::ZERO)).expect("a socket takes the option");
    }
    drop(socket);
    shared.record().connections[number].open = false;
}

async fn greeted(mut stream: TcpStream, number: usize, shared: &Arc<Shared>) -> End {
    let greeting = (shared.greet)(number);
    match &greeting {
        Greeting::Serve | Greeting::GoAwayUnprocessed => {}
        Greeting::Close => return End::Close,
        Greeting::Reset => return End::Reset,
        Greeting::Silence => {
            hold(&mut stream).await;
            return End::Close;
        }
        Greeting::Rubbish(bytes) => {
            drop(stream.write_all(bytes).await);
            drop(stream.shutdown().await);
            hold(&mut stream).await;
            return End::Close;
        }
    }
    let refuse = greeting == Greeting::GoAwayUnprocessed;
    let Some(acceptor) = &shared.acceptor else {
        // Prior knowledge: no HTTP/1.1 request begins like the HTTP/2 preface.
        let mut first = [0; 3];
        let http2 = matches!(stream.peek(&mut first).await, Ok(1..)) && first[0] == b'P' && {
            while matches!(stream.peek(&mut first).await, Ok(1..3)) {
                tokio::task::yield_now().await;
            }
            &first == b"PRI"
        };
        return if http2 {
            http2::serve(stream, number, shared, refuse).await
        } else {
            http1::serve(stream, number, shared).await
        };
    };
    let Ok(stream) = acceptor.accept(stream).await else { return End::Close };
    let (_, session) = stream.get_ref();
    let alpn = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    let http2 = alpn.as_deref() == Some("h2");
    shared.record().connections[number].tls = Some(Handshake {
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2".into(),
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3".into(),
            other => format!("{other:?}"),
        },
        alpn,
        server_name: session.server_name().map(str::to_owned),
        resumed: session.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        client_certificate: session.peer_certificates().is_some_and(|chain| !chain.is_empty()),
    });
    if http2 {
        http2::serve(stream, number, shared, refuse).await
    } else {
        http1::serve(stream, number, shared).await
    }
}

/// Waits until the client closes, and discards its data.
async fn hold<S: tokio::io::AsyncRead + Unpin>(stream: &mut S) {
    let mut bytes = [0; 4096];
    while matches!(stream.read(&mut bytes).await, Ok(1..)) {}
}

fn acceptor(tls: &Tls) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&tls.versions)
        .expect("ring has suites for them");
    let builder = match &tls.client_authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for certificate in chain(authority) {
                roots.add(certificate).expect("our own authority is one");
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("it has an authority"))
        }
    };
    let key = PrivateKeyDer::from_pem_slice(tls.certificate.key.as_bytes()).expect("it is a key");
    let mut config = builder.with_single_cert(chain(&tls.certificate), key).expect("the key fits");
    config.alpn_protocols.clone_from(&tls.alpn);
    TlsAcceptor::from(Arc::new(config))
}

fn chain(certificate: &Certificate) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(certificate.chain.as_bytes())
        .collect::<Result<_, _>>()
        .expect("it is PEM")
}

#[cfg(test)]
mod tests;
