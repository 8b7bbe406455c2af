//! The updates that nodes exchange.
//!
//! Each node is the only source of the state of its own sockets. It publishes how many are subscribed to a channel,
//! which members they bring, and which users are online. Updates are states, not steps, so applying one twice changes
//! nothing. Every node combines the states of all nodes and can answer for the cluster.
//!
//! Invariants
//! - A received update is never published again, so none circulates.
//! - All nodes give the same answers once they have received the same updates.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::moment::Moment;
use crate::name::ChannelName;
use crate::presence::Member;
use crate::registry::Publication;
use crate::shared_log::Ticket;

/// Id of a node's process. A restarted process is a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Origin of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The node.
    pub node: NodeId,
    /// Number of the round. It increases each time the node publishes its whole state; older state is then removed.
    pub round: u32,
}

/// An update that nodes exchange.
#[derive(Clone, Copy, Debug)]
pub enum ClusterUpdate<'a> {
    /// An event was published on the origin and must be published here too. This is the only update that must not be
    /// applied twice.
    Published(&'a Publication<'a>),
    /// The last event of a cache channel.
    Last {
        /// Name of the channel.
        channel: &'a ChannelName,
        /// The message as subscribers receive it: JSON, without an offset, because each node may have its own.
        message: &'a str,
        /// Time since it was published.
        age: Duration,
    },
    /// Number of the origin's sockets that are subscribed to a channel.
    Subscribers {
        /// Name of the channel.
        channel: &'a ChannelName,
        /// Number of sockets; 0 for none.
        count: u32,
    },
    /// A user is a member of a presence channel through sockets of the origin.
    Member {
        /// Name of the channel.
        channel: &'a ChannelName,
        /// The member.
        member: &'a Arc<Member>,
    },
    /// A user is not a member through sockets of the origin any more.
    NoMember {
        /// Name of the channel.
        channel: &'a ChannelName,
        /// Id of the user.
        user_id: &'a str,
    },
    /// A user is signed in on a socket of the origin.
    Online {
        /// Id of the user.
        user_id: &'a Arc<str>,
    },
    /// A user is not signed in on any socket of the origin any more.
    Offline {
        /// Id of the user.
        user_id: &'a Arc<str>,
    },
    /// All connections of a user must be closed.
    Terminated {
        /// Id of the user.
        user_id: &'a str,
    },
}

/// The connection to other nodes. Without it this node is alone.
pub trait Nodes: fmt::Debug + Send + Sync {
    /// Publishes an update to all other nodes.
    ///
    /// Called in the order in which a channel or user changes, while its shard is locked. The implementation copies
    /// what it needs, never waits, and never calls the registry. It may drop an update of one channel that a newer
    /// one of the same kind replaces.
    fn publish(&self, app: &Arc<App>, update: &ClusterUpdate<'_>);

    /// Returns whether this node reports the events of a channel to its observer.
    ///
    /// Exactly one live node must return `true`; otherwise webhooks are sent twice or not at all. A ranking of all
    /// nodes by a hash of node and channel satisfies this. Called under the same lock as [`Nodes::publish`].
    fn reports(&self, app: &App, channel: &str) -> bool;

    /// Returns whether this node is one of those of which one reports. One that has just started is not.
    fn may_report(&self) -> bool;

    /// Returns the log of the events of channels with history; `None` if each node has its own history.
    fn log(&self) -> Option<&dyn LogWriter> {
        None
    }

    /// Stops the use of the log, because the broker has none.
    fn leave_log(&self) {}
}

/// Adds events to the log that all nodes share. Every node applies the log's events in the log's order, the author's
/// node too.
pub trait LogWriter: fmt::Debug + Send + Sync {
    /// Returns whether an event may be added now. Otherwise the broker is away, and events are rejected.
    fn is_open(&self, now: Moment) -> bool;

    /// Returns whether the broker takes an event of this size.
    fn fits(&self, app: &App, publication: &Publication<'_>) -> bool;

    /// Adds an event. Called in the order in which a channel's events are published here, while its shard is locked.
    /// The implementation copies what it needs, never waits, and never calls the registry.
    fn append(&self, app: &Arc<App>, publication: &Publication<'_>) -> Ticket;

    /// Adds an entry without events. Its ticket is ready when this node has read the entry, and so has applied everything
    /// that any node had stored before the call.
    fn catch_up(&self) -> Ticket;
}

#[cfg(test)]
mod tests;
