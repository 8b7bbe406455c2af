//! One application: its keys, what its clients may do, and how much.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What only the application and its servers know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps it.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// For signing.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// An application whose clients come here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// In the HTTP API's paths.
    pub id: Arc<str>,
    /// In clients' addresses.
    pub key: Arc<str>,
    /// Signs subscriptions, calls and webhooks.
    pub secret: Secret,
    /// What clients may do.
    pub rights: Rights,
    /// How much.
    pub limits: Limits,
    /// What is kept for clients that come back.
    pub history: Option<History>,
}

/// What an application's clients may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Connect at all; otherwise 4003.
    pub enabled: bool,
    /// Send `client-` events.
    pub client_events: bool,
    /// Hear `pusher_internal:subscription_count` on channels without members.
    pub subscription_count: bool,
    /// Be told of users who come and go (`watchlist`).
    pub watchlist: bool,
    /// Connect without TLS; otherwise 4000.
    pub plain: bool,
    /// Hosts of pages that may connect, `*` standing for any part; empty: all (otherwise 4009).
    pub origins: Vec<Arc<str>>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            enabled: true,
            client_events: true,
            subscription_count: false,
            watchlist: true,
            plain: true,
            origins: Vec::new(),
        }
    }
}

/// How much an application's clients may do. Defaults are Pusher's where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sockets at a time; one more gets 4004.
    pub connections: Option<usize>,
    /// Channels one socket may be subscribed to.
    pub subscriptions: usize,
    /// Public ones among them. Whoever finds the page may subscribe to those, under any name, and each costs memory.
    pub public_subscriptions: usize,
    /// Subscriptions of a socket per second, once it has left a channel and subscribed anew to as many as it may have.
    pub subscription_rate: u32,
    /// Characters of a channel's name.
    pub channel_name: usize,
    /// Characters of an event's name.
    pub event_name: usize,
    /// Bytes of an event's data.
    pub data: usize,
    /// Channels one call may publish to.
    pub channels_per_event: usize,
    /// Events of one batch.
    pub batch: usize,
    /// Members of a presence channel.
    pub members: usize,
    /// Characters of a user's id.
    pub user_id: usize,
    /// Bytes of what a member tells of itself.
    pub user_info: usize,
    /// Users one user may watch.
    pub watchlist: usize,
    /// Client events of one socket per second; more are refused with 4301.
    pub client_events: u32,
    /// Events of one channel per second from all sides; none: unlimited.
    pub channel_events: Option<u32>,
    /// Bytes of one message of a client.
    pub message: usize,
    /// Bytes that may wait for one socket; one more closes it.
    pub queue_bytes: usize,
    /// Messages that may wait for one socket.
    pub queue_messages: usize,
    /// How long a socket may be silent before it is asked.
    pub activity_timeout: Duration,
    /// How long it may then take to answer. A client that is behind in reading has longer, as long as it acknowledges new data.
    pub pong_timeout: Duration,
    /// How long a cache channel keeps its last event.
    pub cache: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: None,
            subscriptions: 1000,
            public_subscriptions: 100,
            subscription_rate: 20,
            channel_name: 164,
            event_name: 200,
            data: 10 * 1024,
            channels_per_event: 100,
            batch: 10,
            members: 100,
            user_id: 128,
            user_info: 1024,
            watchlist: 100,
            client_events: 10,
            channel_events: None,
            message: 32 * 1024,
            queue_bytes: 1024 * 1024,
            queue_messages: 10_000,
            activity_timeout: Duration::from_secs(30),
            pong_timeout: Duration::from_secs(30),
            cache: Duration::from_mins(30),
        }
    }
}

/// What is kept for clients that come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Events of each channel.
    pub events: usize,
    /// For how long.
    pub age: Duration,
    /// Only channels whose name begins so; empty: all.
    pub channels: Vec<Arc<str>>,
}
