//! Channel events for webhooks and the console.

use std::fmt;
use std::sync::Arc;

use crate::app::App;
use crate::socket_id::SocketId;

/// An event in the life of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelEvent<'a> {
    /// A channel got its first subscriber.
    Occupied {
        /// Name of the channel.
        channel: &'a Arc<str>,
    },
    /// A channel lost its last subscriber.
    Vacated {
        /// Name of the channel.
        channel: &'a Arc<str>,
    },
    /// A user joined a presence channel with its first socket.
    MemberAdded {
        /// Name of the channel.
        channel: &'a Arc<str>,
        /// Id of the user.
        user_id: &'a Arc<str>,
    },
    /// A user left a presence channel with its last socket.
    MemberRemoved {
        /// Name of the channel.
        channel: &'a Arc<str>,
        /// Id of the user.
        user_id: &'a Arc<str>,
    },
    /// The number of subscribers of a channel without members changed.
    SubscriptionCount {
        /// Name of the channel.
        channel: &'a Arc<str>,
        /// Number of subscribers.
        count: usize,
    },
    /// A client subscribed to a cache channel that has no cached event.
    CacheMiss {
        /// Name of the channel.
        channel: &'a Arc<str>,
    },
    /// A client published an event.
    ClientEvent {
        /// Name of the channel.
        channel: &'a Arc<str>,
        /// Name of the event, which starts with `client-`.
        event: &'a str,
        /// Data: JSON as the client sent it.
        data: &'a str,
        /// Id of the client's socket.
        socket: SocketId,
        /// Id of the member, on a presence channel.
        user_id: Option<&'a Arc<str>>,
    },
}

/// A receiver of channel events.
///
/// Events of a channel arrive in order, because the channel's shard is locked during the call. An observer therefore
/// copies what it needs, never waits, and never calls the registry.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Receives one event.
    fn observe(&self, app: &Arc<App>, event: &ChannelEvent<'_>);
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _: &Arc<App>, _: &ChannelEvent<'_>) {}
}
