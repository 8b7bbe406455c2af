//! What happens to channels, for those who want to know: webhooks, the console.

use std::fmt;
use std::sync::Arc;

use crate::app::App;
use crate::socket_id::SocketId;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening<'a> {
    /// A channel got its first subscriber.
    Occupied {
        /// Which.
        channel: &'a Arc<str>,
    },
    /// A channel lost its last subscriber.
    Vacated {
        /// Which.
        channel: &'a Arc<str>,
    },
    /// A user came to a presence channel, with the first of its sockets.
    MemberAdded {
        /// Which.
        channel: &'a Arc<str>,
        /// Who.
        user_id: &'a Arc<str>,
    },
    /// A user left a presence channel, with the last of its sockets.
    MemberRemoved {
        /// Which.
        channel: &'a Arc<str>,
        /// Who.
        user_id: &'a Arc<str>,
    },
    /// A channel without members has another number of subscribers.
    SubscriptionCount {
        /// Which.
        channel: &'a Arc<str>,
        /// How many.
        count: usize,
    },
    /// Somebody came to a cache channel that had nothing for it.
    CacheMiss {
        /// Which.
        channel: &'a Arc<str>,
    },
    /// A client said something to others.
    ClientEvent {
        /// On which channel.
        channel: &'a Arc<str>,
        /// `client-` and more.
        event: &'a str,
        /// JSON, as the client sent it.
        data: &'a str,
        /// Which client.
        socket: SocketId,
        /// Which member, on a presence channel.
        user_id: Option<&'a Arc<str>>,
    },
}

/// Who wants to know what happens.
///
/// It is told in the order in which things happen to a channel, and for that while the channel's shard is locked: it takes what it wants to keep, never
/// waits, and never calls the registry.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Something happened.
    fn happened(&self, app: &Arc<App>, happening: &Happening<'_>);
}

/// Wants to know nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn happened(&self, _: &Arc<App>, _: &Happening<'_>) {}
}
