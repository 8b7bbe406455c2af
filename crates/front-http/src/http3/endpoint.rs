//! The UDP side of a listener with HTTP/3: accepts QUIC connections, within the places that all connections share.
//!
//! Invariants
//! - Nothing is read before the front serves.
//! - While many handshakes are unfinished, a client has to show that it receives what is sent to its address (Retry)
//!   before anything is kept for it. Clients with forged addresses therefore take a bounded number of places.
//! - No request is accepted from early data: it could be repeated by others.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig};
use rustls_pki_types::CertificateDer;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::budget::{Budgets, Unproven};
use super::ids::{Ids, Process};
use super::socket::{Relay, Socket};
use crate::application::Application;
use crate::connections::{Client, Open};
use crate::front::Shared;
use crate::listener::Given;
use crate::metrics::ClientLimit;
use crate::multiplexed::GOODBYE;
use crate::options::Options;
use crate::pace::{CONNECTION_WINDOW, STREAM_WINDOW};
use crate::respond::Connection;
use crate::tls::{Certificates, VerifiedClient};

/// Most bytes of answers on one connection that its client has not acknowledged.
const SEND_WINDOW: u64 = 2 << 20;
/// Streams beside requests: control, and two of QPACK; others are ignored.
const OTHER_STREAMS: u32 = 8;
/// How often a client with a running request is shown that the server is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a client waits for a place; an idle connection takes a second to make room.
const ROOM: Duration = Duration::from_secs(3);
/// Clients that wait to be accepted; more are refused.
const WAITING: usize = 256;
/// Bytes that clients may send before they are accepted.
const WAITING_BYTES: u64 = 1 << 20;
/// Handshakes of clients that have not shown their address: at most this fraction of all places (its inverse).
const UNPROVEN_PART: usize = 64;
const LEAST_UNPROVEN: usize = 16;

/// A UDP socket for QUIC, with the way to the process that has read it until now.
#[derive(Debug)]
pub struct GivenQuic {
    /// The socket.
    pub socket: UdpSocket,
    /// Leads to the mailbox of the process before, with the processes whose packets it takes. `None`: there is none.
    pub relay: Option<(UnixDatagram, Vec<u32>)>,
}

/// A socket that does not listen yet.
#[derive(Debug)]
pub(crate) struct QuicListener {
    socket: UdpSocket,
    address: SocketAddr,
    process: Process,
    mailbox: UnixDatagram,
    /// Leads to the mailbox.
    relay: UnixDatagram,
    predecessor: Option<Relay>,
}

/// Settings of all connections.
pub(crate) fn transport(options: &Options) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(options.max_concurrent_streams.into())
        .max_concurrent_uni_streams(OTHER_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IdleTimeout::try_from(options.write_timeout).ok())
        .keep_alive_interval(Some(KEEP_ALIVE.min(options.write_timeout / 4)));
    Arc::new(transport)
}

impl QuicListener {
    /// Binds the address, or takes the socket that is bound there already.
    pub(crate) fn bind(address: SocketAddr, given: &mut Vec<Given>) -> io::Result<Self> {
        let taken = Given::take_quic(given, address);
        let (socket, relay) = match taken {
            Some(GivenQuic { socket, relay }) => (socket, relay),
            None => (UdpSocket::bind(address)?, None),
        };
        socket.set_nonblocking(true)?;
        let (mailbox, to_mailbox) = UnixDatagram::pair()?;
        let predecessor = relay.map(|(socket, processes)| Relay {
            socket,
            processes: processes.into_iter().map(Process).collect(),
        });
        let process = Process::new();
        Ok(Self { socket, address, process, mailbox, relay: to_mailbox, predecessor })
    }

    /// Duplicates the socket for a process that takes over.
    pub(crate) fn share(&self) -> io::Result<Given> {
        let before = self.predecessor.iter().flat_map(|relay| &relay.processes);
        let processes = std::iter::once(&self.process).chain(before);
        let processes = processes.map(|Process(number)| *number).collect();
        Ok(Given::Quic(GivenQuic {
            socket: self.socket.try_clone()?,
            relay: Some((self.relay.try_clone()?, processes)),
        }))
    }

    /// Accepts until `end`, then waits for the connections to end, which `drain` asks them to.
    pub(crate) async fn accept<A: Application>(
        self,
        front: Arc<Shared<A>>,
        end: CancellationToken,
        drain: CancellationToken,
    ) {
        let address = self.address;
        let unproven = Arc::new(Budgets::default());
        let endpoint = match self.endpoint(&front, &unproven) {
            Ok(endpoint) => endpoint,
            Err(error) => return tracing::error!(%error, %address, "no HTTP/3"),
        };
        let most_unproven = (front.connections.limit() / UNPROVEN_PART).max(LEAST_UNPROVEN);
        let mut connections = JoinSet::new();
        loop {
            let incoming = tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                incoming = endpoint.accept() => incoming,
            };
            let Some(incoming) = incoming else { break };
            let proven = incoming.remote_address_validated();
            if !proven && unproven.unproven() >= most_unproven {
                front.metrics.quic_retries.increment(1);
                // It fails only for a client that has shown its address.
                drop(incoming.retry());
                continue;
            }
            let slot = tokio::select! {
                biased;
                () = end.cancelled() => break,
                slot = timeout(ROOM, front.connections.slot(|| true)) => slot,
            };
            let peer = incoming.remote_address();
            let client = Client::at(peer.ip(), front.trusts(peer.ip()));
            let drain = drain.child_token();
            let open =
                slot.ok().and_then(|slot| front.connections.open(slot, client, drain.clone()).ok());
            let Some(open) = open else {
                front.metrics.quic_refused.increment(1);
                incoming.refuse();
                continue;
            };
            // Before it is accepted: an answer may be sent at once.
            let handshake = (!proven).then(|| unproven.begin(peer));
            let connecting = match incoming.accept() {
                Ok(connecting) => connecting,
                Err(error) => {
                    tracing::debug!(%error, "QUIC connection not accepted");
                    continue;
                }
            };
            let front = Arc::clone(&front);
            let span = tracing::debug_span!("connection", network.peer.address = %peer);
            let serve = connect(front, connecting, handshake, address, open, drain);
            connections.spawn(serve.instrument(span));
        }
        while connections.join_next().await.is_some() {}
        endpoint.close(0_u32.into(), b"");
        // What is left are goodbyes on their way.
        let _all_said = timeout(GOODBYE, endpoint.wait_idle()).await.is_ok();
    }

    fn endpoint<A>(self, front: &Shared<A>, unproven: &Arc<Budgets>) -> io::Result<Endpoint> {
        let Some(certificates) = &front.tls else {
            return Err(io::Error::other("there is no certificate"));
        };
        let tls = QuicServerConfig::try_from(certificates.quic())
            .map_err(|error: NoInitialCipherSuite| io::Error::other(error))?;
        let mut server = ServerConfig::with_crypto(Arc::new(tls));
        server
            .transport_config(Arc::clone(&front.transport))
            .max_incoming(WAITING)
            .incoming_buffer_size(16 << 10)
            .incoming_buffer_size_total(WAITING_BYTES);
        let process = self.process;
        let mut endpoint = EndpointConfig::default();
        endpoint.cid_generator(move || Box::new(Ids(process)));
        let socket = Socket::new(
            self.socket,
            process,
            self.mailbox,
            self.predecessor,
            front.succeeded.clone(),
            Arc::clone(&front.metrics),
            Arc::clone(unproven),
        )?;
        Endpoint::new_with_abstract_socket(
            endpoint,
            Some(server),
            Arc::new(socket),
            Arc::new(TokioRuntime),
        )
    }
}

/// Returns the client of a connection, if clients are asked for certificates.
fn client_of(tls: &Certificates, quic: &quinn::Connection) -> Option<VerifiedClient> {
    let identity = quic.peer_identity();
    let chain = identity.as_ref().and_then(|chain| chain.downcast_ref::<Vec<CertificateDer<'_>>>());
    tls.client(chain.map(Vec::as_slice))
}

/// Completes a handshake and serves the connection.
async fn connect<A: Application>(
    front: Arc<Shared<A>>,
    connecting: quinn::Connecting,
    unproven: Option<Unproven>,
    bound: SocketAddr,
    open: Open,
    drain: CancellationToken,
) {
    let connected = tokio::select! {
        biased;
        connected = timeout(front.handshake_timeout, connecting) => connected,
        () = drain.cancelled() => return,
    };
    let quic = match connected {
        Ok(Ok(quic)) => quic,
        failed => {
            match failed {
                Err(_) => {
                    front.metrics.limited(ClientLimit::SlowHandshake);
                    tracing::debug!("QUIC handshake took too long");
                }
                Ok(failed) => tracing::debug!(error = ?failed.err(), "QUIC handshake failed"),
            }
            // The packet that closes it has to keep to the budget, too.
            drop(open);
            tokio::select! {
                () = sleep(GOODBYE) => {}
                () = drain.cancelled() => {}
            }
            return;
        }
    };
    drop(unproven);
    let peer = quic.remote_address();
    let client = front.tls.as_ref().and_then(|tls| client_of(tls, &quic));
    let local = quic.local_ip().unwrap_or_else(|| bound.ip());
    let connection = Connection {
        peer,
        local: SocketAddr::new(local, bound.port()),
        tls: true,
        trusted: front.trusts(peer.ip()),
        redirect: false,
        phase: None,
        host: OnceLock::new(),
        client,
        grant: Mutex::new(None),
    };
    let phase = Arc::clone(&open.phase);
    Box::pin(super::serve(&front, connection, quic, phase, drain)).await;
}
