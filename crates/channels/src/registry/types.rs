//! Arguments and results of the registry: subscriptions, events, and the state of a channel.

use std::sync::Arc;

use crate::cache::CacheReport;
use crate::delivery::{ChannelId, Offset};
use crate::encoded::Encoded;
use crate::history::{Position, Room};
use crate::name::ChannelName;
use crate::presence::Member;
use crate::socket_id::SocketId;

/// A permitted subscription of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Subscription<'a> {
    /// Name of the channel.
    pub channel: &'a ChannelName,
    /// Event loop of the socket.
    pub event_loop: u16,
    /// The member, on a presence channel; `None` on all others.
    pub member: Option<&'a Arc<Member>>,
    /// Position at which the previous connection broke.
    pub resume: Option<Resume>,
}

/// A client's position in a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The client has received everything up to this position.
    pub position: Position,
    /// The client's previous socket, whose own events are not new to it.
    pub socket: Option<SocketId>,
    /// The room for the missed events.
    pub room: Room,
}

/// The result of a subscription.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Id of the channel while it has subscribers.
    pub channel: ChannelId,
    /// Name of the channel, shared by all subscribers.
    pub name: ChannelName,
    /// Only deliveries with a higher offset are for the new subscriber.
    pub after: Offset,
    /// Members of a presence channel including the new one: the value of `presence` in `subscription_succeeded`.
    pub roster: Option<Arc<str>>,
    /// Current position, on a channel with history.
    pub position: Option<Position>,
    /// The subscriber has the channel's events up to this position of the shared log already, although this node has
    /// not applied them yet; 0 for none. Before this node has read the log once, it is beyond all positions.
    pub ahead: u64,
    /// Missed events; `None` if they are not all kept or do not fit the room, or if no position was given.
    pub missed: Option<Vec<Encoded>>,
    /// Last event of a cache channel, if it has one.
    pub cached: Option<Encoded>,
}

/// Reasons why a subscription is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeRefused {
    /// The presence channel has the maximum number of members.
    #[error("the channel has {limit} members, which is as many as it may have")]
    TooManyMembers {
        /// The maximum.
        limit: usize,
    },
}

/// An event to publish.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// Name of the channel.
    pub channel: &'a ChannelName,
    /// Name of the event.
    pub event: &'a str,
    /// Data as JSON, sent to clients unchanged. The HTTP API and PHP pass a string, so this is a string with its
    /// quotes.
    pub data: &'a str,
    /// Author of the event.
    pub author: Author<'a>,
}

/// The author of an event.
#[derive(Clone, Copy, Debug)]
pub enum Author<'a> {
    /// The application.
    Server {
        /// A socket that does not receive the event.
        except: Option<SocketId>,
    },
    /// A client, which does not receive its own event.
    Client {
        /// Id of the socket.
        socket: SocketId,
        /// Id of the member, on a presence channel.
        user_id: Option<&'a Arc<str>>,
    },
}

/// Reasons why an event is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishRefused {
    /// The channel has exceeded its rate limit.
    #[error("the channel has more than {limit} events per second, which is as many as it may have")]
    TooOften {
        /// The limit in events per second.
        limit: u32,
    },
    /// The broker that stores the channel's history cannot be reached.
    #[error("the events of this channel cannot be stored at the moment")]
    NotStored,
    /// The broker that stores the channel's history takes no event of this size.
    #[error("the event is larger than the broker takes")]
    TooLarge,
}

/// State of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// Name of the channel.
    pub name: ChannelName,
    /// Number of subscribed sockets.
    pub subscription_count: usize,
    /// Number of members, on a presence channel.
    pub user_count: Option<usize>,
    /// The last event of a cache channel; always `None` in a list of channels.
    pub cache: Option<CacheReport>,
}

impl ChannelReport {
    /// Returns whether the channel has subscribers.
    pub fn is_occupied(&self) -> bool {
        self.subscription_count > 0
    }
}
