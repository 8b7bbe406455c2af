//! Connects nodes through Redis or Valkey: a single server, Sentinel, or a cluster.
//!
//! Uses `PUBLISH` on one subject. Any node of a Redis cluster forwards it to all others, so one reachable node is
//! enough. One connection subscribes and another publishes. This node receives its own packets as well; silence for
//! [`SILENCE`] therefore means that a connection is dead even if it is not closed.
//!
//! Invariants
//! - Packets that wait for a busy node are bounded by [`QUEUE`] and [`WAITING`]. Further ones are dropped: the node
//!   detects the gap in their numbers, and requests the state of their sender.

mod log;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use ::redis::aio::{MultiplexedConnection, PubSub};
use ::redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use ::redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError, TlsCertificates, pipe,
};
use bytes::Bytes;
use futures_util::future::OptionFuture;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, warn};

use super::run::{Broker, BrokerEvent};
pub use log::log;

/// A connection without a packet for this long is dead, because nodes publish every second
/// ([`super::Options::beat`]).
const SILENCE: Duration = Duration::from_secs(3);

/// Timeout for connecting, and for each reply.
const ANSWER: Duration = Duration::from_secs(2);

/// Shortest and longest pause between connection attempts; each pause doubles the previous one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// Capacity of the packet queue between node and connection, in each direction.
pub(super) const QUEUE: usize = 256;

/// Maximum number of bytes of received packets that wait for a place in the queue.
const WAITING: usize = 32 * 1024 * 1024;

/// Largest pipeline, in packets and approximate bytes. All replies of a pipeline share one timeout of [`ANSWER`]. The
/// size therefore starts at one packet, doubles when the replies arrive within [`BRISK`], and halves otherwise.
const PIPELINE: (usize, usize) = (64, 256 * 1024);
const BRISK: Duration = Duration::from_millis(500);

/// Connection settings for Redis.
#[derive(Clone)]
pub struct Options {
    /// Servers as `redis://[user:password@]host[:port]`, or `rediss://` for TLS: one plain server, some nodes of a
    /// cluster, or all sentinels.
    pub servers: Vec<String>,
    /// The service behind sentinels, if `servers` lists sentinels.
    pub sentinel: Option<Sentinel>,
    /// Channel that nodes publish and subscribe to. It is the same for all nodes of a cluster.
    pub subject: String,
    /// PEM certificate authorities for TLS, used instead of the system's.
    pub authorities: Option<Vec<u8>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses may contain passwords.
        let servers = self.servers.len();
        f.debug_struct("Options")
            .field("servers", &servers)
            .field("sentinel", &self.sentinel)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// A service that sentinels monitor.
#[derive(Clone, Debug)]
pub struct Sentinel {
    /// Name of the service.
    pub service: String,
    /// User for Redis itself; credentials in the sentinels' addresses are for the sentinels.
    pub user: Option<String>,
    /// Password for Redis itself.
    pub password: Option<crate::Secret>,
    /// Redis itself uses TLS.
    pub tls: bool,
}

/// Reasons why the settings for Redis are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The list of servers is empty.
    #[error("the list of servers is empty")]
    NoServer,
    /// A server address or a certificate authority is invalid.
    #[error("a server address or a certificate authority is invalid")]
    Address(#[source] RedisError),
}

/// The Redis broker; see the module documentation.
#[derive(Debug)]
pub struct Redis {
    /// Queue of outgoing packets, until [`Broker::finish`].
    packets: Option<mpsc::Sender<Bytes>>,
    /// A packet was returned because the queue was full.
    refused: bool,
    events: mpsc::Receiver<BrokerEvent>,
    /// The connection task; it is aborted on drop.
    task: JoinSet<()>,
}

impl Redis {
    /// Starts to connect. Must be called within a tokio runtime.
    pub fn new(options: &Options) -> Result<Self, InvalidOptions> {
        let source = Source::new(options)?;
        let (packets, to_send) = mpsc::channel(QUEUE);
        let (heard, events) = mpsc::channel(QUEUE);
        let mut task = JoinSet::new();
        task.spawn(keep_connected(source, options.subject.clone(), to_send, heard));
        Ok(Self { packets: Some(packets), refused: false, events, task })
    }
}

impl Broker for Redis {
    fn send(&mut self, packet: Bytes) -> Result<(), Bytes> {
        match self.packets.as_ref().map(|packets| packets.try_send(packet)) {
            Some(Err(TrySendError::Full(packet))) => {
                self.refused = true;
                Err(packet)
            }
            // The task lives as long as this value.
            Some(Ok(()) | Err(TrySendError::Closed(_))) | None => Ok(()),
        }
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = BrokerEvent> + Send + '_>> {
        Box::pin(async {
            let refused = self.packets.as_ref().filter(|_| self.refused);
            let room = OptionFuture::from(refused.map(mpsc::Sender::reserve));
            tokio::select! {
                event = self.events.recv() => event.expect("the task lives as long as this"),
                Some(_) = room => {
                    self.refused = false;
                    BrokerEvent::Writable
                }
            }
        })
    }

    fn finish(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.packets = None;
        Box::pin(async {
            self.events.close();
            while self.task.join_next().await.is_some() {}
        })
    }
}

/// The source of server addresses.
enum Source {
    Servers { clients: Vec<Client>, next: usize },
    Sentinels(Box<SentinelClient>),
}

impl Source {
    fn new(options: &Options) -> Result<Self, InvalidOptions> {
        if options.servers.is_empty() {
            return Err(InvalidOptions::NoServer);
        }
        let invalid = InvalidOptions::Address;
        let authorities =
            || TlsCertificates { client_tls: None, root_cert: options.authorities.clone() };
        let Some(sentinel) = &options.sentinel else {
            let client = |server: &String| {
                let info = server.as_str().into_connection_info()?;
                let secure = matches!(info.addr(), ::redis::ConnectionAddr::TcpTls { .. });
                if secure && options.authorities.is_some() {
                    Client::build_with_tls(info, authorities())
                } else {
                    Client::open(info)
                }
            };
            let clients =
                options.servers.iter().map(client).collect::<Result<_, _>>().map_err(invalid)?;
            return Ok(Self::Servers { clients, next: 0 });
        };
        let infos = options.servers.iter().map(|server| server.as_str().into_connection_info());
        let infos = infos.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        let addresses: Vec<_> = infos.iter().map(|info| info.addr().clone()).collect();
        let secure = matches!(addresses.first(), Some(::redis::ConnectionAddr::TcpTls { .. }));
        let mut builder =
            SentinelClientBuilder::new(addresses, &sentinel.service, SentinelServerType::Master)
                .map_err(invalid)?;
        if let Some(info) = infos.first() {
            if let Some(user) = info.redis_settings().username() {
                builder = builder.set_client_to_sentinel_username(user);
            }
            if let Some(password) = info.redis_settings().password() {
                builder = builder.set_client_to_sentinel_password(password);
            }
        }
        if let Some(user) = &sentinel.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &sentinel.password {
            builder = builder.set_client_to_redis_password(password.expose());
        }
        if sentinel.tls {
            builder = builder.set_client_to_redis_tls_mode(::redis::TlsMode::Secure);
        }
        if options.authorities.is_some() {
            if sentinel.tls {
                builder = builder.set_client_to_redis_certificates(authorities());
            }
            if secure {
                builder = builder.set_client_to_sentinel_certificates(authorities());
            }
        }
        Ok(Self::Sentinels(Box::new(builder.build().map_err(invalid)?)))
    }

    /// Returns a client for the next server in turn, or for the master that the sentinels name.
    async fn client(&mut self) -> Result<Client, RedisError> {
        match self {
            Self::Servers { clients, next } => {
                let client = clients[*next % clients.len()].clone();
                *next += 1;
                Ok(client)
            }
            Self::Sentinels(sentinels) => sentinels.async_get_client().await,
        }
    }
}

/// Connects, moves packets until the connection ends, and reconnects. Outgoing packets are dropped while there is no
/// connection.
async fn keep_connected(
    mut source: Source,
    subject: String,
    mut packets: mpsc::Receiver<Bytes>,
    events: mpsc::Sender<BrokerEvent>,
) {
    let mut pause = PAUSES.0;
    let mut reason = String::new();
    loop {
        let attempt = tokio::select! {
            attempt = timeout(2 * ANSWER, connect(&mut source, &subject)) => attempt,
            () = drop_all(&mut packets) => return,
        };
        match attempt {
            Ok(Ok((subscriber, speaks))) => {
                pause = PAUSES.0;
                reason.clear();
                if events.send(BrokerEvent::Connected).await.is_err() {
                    return;
                }
                let why = exchange(subscriber, speaks, &subject, &mut packets, &events).await;
                warn!(reason = why, "the connection to Redis ended");
                if events.send(BrokerEvent::Disconnected).await.is_err() {
                    return;
                }
            }
            Ok(Err(failure)) => log_once(&mut reason, failure.to_string()),
            Err(_) => log_once(&mut reason, String::from("no answer in time")),
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = drop_all(&mut packets) => return,
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Logs why there is no connection, once per reason.
fn log_once(before: &mut String, reason: String) {
    if *before != reason {
        warn!(reason, "cannot connect to Redis; retrying");
        *before = reason;
    }
}

/// Drops packets until the sender is closed.
async fn drop_all(packets: &mut mpsc::Receiver<Bytes>) {
    while packets.recv().await.is_some() {}
}

async fn connect(
    source: &mut Source,
    subject: &str,
) -> Result<(PubSub, MultiplexedConnection), RedisError> {
    let client = source.client().await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let speaks = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut subscriber = client.get_async_pubsub().await?;
    subscriber.subscribe(subject).await?;
    Ok((subscriber, speaks))
}

/// Moves packets in both directions and returns the reason why the connection ended.
async fn exchange(
    subscriber: PubSub,
    mut speaks: MultiplexedConnection,
    subject: &str,
    packets: &mut mpsc::Receiver<Bytes>,
    events: &mpsc::Sender<BrokerEvent>,
) -> &'static str {
    let (_subscribed, stream) = subscriber.split();
    let received = stream.map(|message| Bytes::copy_from_slice(message.get_payload_bytes()));
    let receive = receive(received, events);
    let speak = async {
        let mut most = 1;
        while let Some(packet) = packets.recv().await {
            let (mut together, mut bytes) = (pipe(), 0);
            let mut next = Some(packet);
            while let Some(packet) = next {
                together.publish(subject, &*packet).ignore();
                bytes += packet.len();
                let more = together.len() < most && bytes < PIPELINE.1;
                next = if more { packets.try_recv().ok() } else { None };
            }
            let began = Instant::now();
            if let Err(failure) = together.exec_async(&mut speaks).await {
                debug!(reason = %failure, "packets were rejected");
                return "a packet was rejected";
            }
            most = if began.elapsed() < BRISK { most * 2 } else { most / 2 };
            most = most.clamp(1, PIPELINE.0);
        }
        "the node ends"
    };
    tokio::select! {
        why = receive => why,
        why = speak => why,
    }
}

/// Moves received packets to the node and returns the reason why no more arrive. It reads also while the node is busy,
/// because the connection stores unread packets without a bound.
async fn receive(
    stream: impl Stream<Item = Bytes>,
    events: &mpsc::Sender<BrokerEvent>,
) -> &'static str {
    let mut stream = pin!(stream);
    let mut waiting = VecDeque::new();
    let (mut bytes, mut drops) = (0, false);
    let mut heard = Instant::now();
    let reason = loop {
        tokio::select! {
            biased;
            // The receiver is closed while the node stops; the last packets must still be sent.
            Ok(place) = events.reserve(), if !waiting.is_empty() => {
                if let Some(packet) = waiting.pop_front() {
                    bytes -= Bytes::len(&packet);
                    place.send(BrokerEvent::Packet(packet));
                }
                drops &= !waiting.is_empty();
            }
            received = timeout_at(heard + SILENCE, stream.next()) => {
                let packet = match received {
                    Ok(Some(packet)) => packet,
                    Ok(None) => break "closed by the server",
                    Err(_) => break "nothing was heard",
                };
                heard = Instant::now();
                if bytes + packet.len() <= WAITING {
                    bytes += packet.len();
                    waiting.push_back(packet);
                } else if !drops {
                    drops = true;
                    warn!("packets of other nodes are dropped: this node is too slow");
                }
            }
        }
    };
    for packet in waiting {
        if events.send(BrokerEvent::Packet(packet)).await.is_err() {
            break;
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn packets_for_a_busy_node_are_bounded_and_the_oldest_arrive_in_order() {
        const PACKETS: usize = 100;
        const SIZE: usize = 1024 * 1024;
        let bytes = Bytes::from(vec![0; SIZE + PACKETS]);
        let (sent, (sender, mut receiver)) = (Cell::new(0), mpsc::channel(1));
        let packets = (0..PACKETS).map(|number| {
            sent.set(number + 1);
            bytes.slice(..SIZE + number)
        });
        let packets = stream::iter(packets);
        let receives = async move { receive(packets, &sender).await };
        let busy = async {
            while sent.get() < PACKETS {
                tokio::task::yield_now().await;
            }
            let mut lengths = Vec::new();
            while let Some(BrokerEvent::Packet(packet)) = receiver.recv().await {
                lengths.push(packet.len());
            }
            lengths
        };
        let (reason, lengths) = tokio::join!(receives, busy);
        assert_eq!(reason, "closed by the server");
        // One in the queue, and as many whole ones as fit beside it.
        let expected: Vec<_> = (0..WAITING / SIZE).map(|number| SIZE + number).collect();
        assert_eq!(lengths, expected);
    }
}
