//! Connects nodes through NATS, one server or a cluster. The client reconnects and resubscribes by itself.

mod append;
mod log;
mod stream;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::run::{Broker, BrokerEvent};
pub use log::log;

/// Interval of pings. Two unanswered pings close the connection after 2 to 3 s.
const PING: Duration = Duration::from_secs(1);

/// Timeout for connecting, including the TLS handshake.
const CONNECT: Duration = Duration::from_secs(2);

/// Longest pause between two connection attempts.
const PAUSE: Duration = Duration::from_secs(3);

/// Capacity of the queue of connection state changes. More than a few mean that the receiver has stopped reading.
const CHANGES: usize = 16;

/// Capacity of the queue of incoming messages. Beyond it the client drops messages, and the cluster detects the gap.
const HEARD: usize = 65_536;

/// Connection settings for NATS.
#[derive(Clone)]
pub struct Options {
    /// Servers as `nats://[user:password@]host[:port]`, or with a token in place of user and password; `tls://` for
    /// TLS. Some servers of a cluster are enough, because the others are discovered.
    pub servers: Vec<String>,
    /// Subject that nodes publish and subscribe to. It is the same for all nodes of a cluster and contains no blanks,
    /// `*` or `>`.
    pub subject: String,
    /// PEM file with certificate authorities for TLS, used in addition to the system's.
    pub authorities: Option<PathBuf>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses may contain passwords.
        let servers = self.servers.len();
        f.debug_struct("Options")
            .field("servers", &servers)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// Reasons why the settings for NATS are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The list of servers is empty.
    #[error("the list of servers is empty")]
    NoServer,
    /// A server address is invalid.
    #[error("a server address is invalid")]
    Address(#[source] std::io::Error),
    /// NATS rejects the subject.
    #[error("the subject is invalid")]
    Subject(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The client cannot start to connect.
    #[error("cannot start to connect")]
    Connect(#[source] async_nats::ConnectError),
}

/// The NATS broker; see the module documentation.
#[derive(Debug)]
pub struct Nats {
    client: Client,
    subscriber: Subscriber,
    subject: String,
    changes: mpsc::Receiver<BrokerEvent>,
    /// A packet that the client had no room for yet.
    pending: Option<Bytes>,
}

impl Nats {
    /// Starts to connect, without waiting for the server.
    pub async fn new(options: &Options) -> Result<Self, InvalidOptions> {
        if options.servers.is_empty() {
            return Err(InvalidOptions::NoServer);
        }
        let servers = options.servers.iter().map(|server| server.parse());
        let servers =
            servers.collect::<Result<Vec<ServerAddr>, _>>().map_err(InvalidOptions::Address)?;
        let (events, changes) = mpsc::channel(CHANGES);
        let mut connect = ConnectOptions::new()
            .name("hearth")
            .no_echo()
            .retry_on_initial_connect()
            .connection_timeout(CONNECT)
            .ping_interval(PING)
            .subscription_capacity(HEARD)
            .reconnect_delay_callback(|attempts| {
                let doubled = Duration::from_millis(50)
                    * 2_u32.saturating_pow(u32::try_from(attempts.min(10)).unwrap_or(10));
                doubled.min(PAUSE)
            })
            .event_callback(move |event| {
                let events = events.clone();
                async move {
                    let change = match event {
                        Event::Connected => BrokerEvent::Connected,
                        Event::Disconnected | Event::Closed => BrokerEvent::Disconnected,
                        other => {
                            warn!(event = %other, "NATS");
                            return;
                        }
                    };
                    // The receiver is closed while the node stops.
                    let _unheard = events.send(change).await;
                }
            });
        // The client reads credentials from its options only.
        let with_user =
            servers.iter().find_map(|server| Some((server.username()?, server.password()?)));
        if let Some((user, password)) = with_user {
            connect = connect.user_and_password(user.to_owned(), password.to_owned());
        }
        let alone = |server: &ServerAddr| {
            server.username().filter(|_| server.password().is_none()).map(str::to_owned)
        };
        if let Some(token) = servers.iter().find_map(alone) {
            connect = connect.token(token);
        }
        if let Some(authorities) = &options.authorities {
            connect = connect.add_root_certificates(authorities.clone());
        }
        let client = connect.connect(servers).await.map_err(InvalidOptions::Connect)?;
        let subscriber = client.subscribe(options.subject.clone()).await;
        let subscriber = subscriber.map_err(|error| InvalidOptions::Subject(Box::new(error)))?;
        Ok(Self { client, subscriber, subject: options.subject.clone(), changes, pending: None })
    }
}

impl Broker for Nats {
    fn send(&mut self, packet: Bytes) -> Result<(), Bytes> {
        if self.pending.is_some() {
            return Err(packet);
        }
        self.pending = Some(packet);
        let _pending = publish(&self.client, &self.subject, &mut self.pending).now_or_never();
        Ok(())
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = BrokerEvent> + Send + '_>> {
        Box::pin(async {
            let waits = self.pending.is_some();
            let room = publish(&self.client, &self.subject, &mut self.pending);
            let moved = async {
                tokio::select! {
                    () = room, if waits => BrokerEvent::Writable,
                    Some(message) = self.subscriber.next() => BrokerEvent::Packet(message.payload),
                    else => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(change) = self.changes.recv() => change,
                event = moved => event,
            }
        })
    }

    fn finish(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            publish(&self.client, &self.subject, &mut self.pending).await;
            if let Err(failure) = self.client.flush().await {
                debug!(reason = %failure, "the last packets may not have been sent");
            }
        })
    }
}

/// Passes the pending packet to the client. If the future is dropped, the packet stays pending.
async fn publish(client: &Client, subject: &str, pending: &mut Option<Bytes>) {
    let Some(packet) = pending else { return };
    if let Err(failure) = client.publish(subject.to_owned(), packet.clone()).await {
        debug!(reason = %failure, "a packet was rejected");
    }
    *pending = None;
}
