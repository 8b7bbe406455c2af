//! Defines one application: its keys, the permissions of its clients, and its limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A secret that only the application and its servers know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps the secret.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the secret, for signing.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// An application whose clients connect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// Identifies the application in paths of the HTTP API.
    pub id: Arc<str>,
    /// Identifies the application in the address of a client.
    pub key: Arc<str>,
    /// Signs subscriptions, API requests and webhooks.
    pub secret: Secret,
    /// Permissions of clients.
    pub rights: Rights,
    /// Limits of clients.
    pub limits: Limits,
    /// Events kept for clients that reconnect.
    pub history: Option<History>,
}

/// Permissions of an application's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Allows connections; otherwise they are closed with 4003.
    pub enabled: bool,
    /// Allows `client-` events.
    pub client_events: bool,
    /// Sends `pusher_internal:subscription_count` on channels without members.
    pub subscription_count: bool,
    /// Sends events about the users on a `watchlist` that come online or go offline.
    pub watchlist: bool,
    /// Allows connections without TLS; otherwise they are closed with 4000.
    pub plain: bool,
    /// Hosts of pages that may connect, with `*` for any part; empty allows all. Other origins are closed with 4009.
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

/// Limits of an application's clients. Defaults are Pusher's where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections; further ones are closed with 4004.
    pub connections: Option<usize>,
    /// Maximum number of channels that one connection may be subscribed to.
    pub subscriptions: usize,
    /// Maximum number of public channels among them. Any visitor of the page may subscribe to any public name, and
    /// each channel costs memory.
    pub public_subscriptions: usize,
    /// Subscriptions per second of a connection, once it has left a channel and used up its allowance of
    /// `subscriptions`.
    pub subscription_rate: u32,
    /// Maximum length of a channel name in characters.
    pub channel_name: usize,
    /// Maximum length of an event name in characters.
    pub event_name: usize,
    /// Maximum size of an event's data in bytes.
    pub data: usize,
    /// Maximum number of channels of one publish request.
    pub channels_per_event: usize,
    /// Maximum number of events of one batch.
    pub batch: usize,
    /// Maximum number of members of a presence channel.
    pub members: usize,
    /// Maximum length of a user id in characters.
    pub user_id: usize,
    /// Maximum size of a member's `user_info` in bytes.
    pub user_info: usize,
    /// Maximum number of users on a watchlist.
    pub watchlist: usize,
    /// Client events per second of one connection; more are rejected with 4301.
    pub client_events: u32,
    /// Events per second of one channel from all authors; `None` for no limit.
    pub channel_events: Option<u32>,
    /// Maximum size of one client message in bytes.
    pub message: usize,
    /// Maximum number of bytes that may wait for one connection; beyond it the connection is closed.
    pub queue_bytes: usize,
    /// Maximum number of messages that may wait for one connection.
    pub queue_messages: usize,
    /// How long a connection may be silent before the server sends a ping.
    pub activity_timeout: Duration,
    /// How long the client may take to answer a ping. A client that reads slowly has longer, as long as it
    /// acknowledges new data.
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

/// Event history kept for clients that reconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Maximum number of events kept per channel.
    pub events: usize,
    /// How long an event is kept.
    pub age: Duration,
    /// Prefixes of the channels that have a history; empty means all channels.
    pub channels: Vec<Arc<str>>,
}
