//! Other nodes: what this one tells them, and what it hears from them.
//!
//! Each node alone knows its own sockets, and tells the others how many hear a channel, which members it brings, which users are online. What it tells
//! are states, not steps: hearing one twice changes nothing. Every node adds up what it heard, so that each can answer for all.
//!
//! Invariants
//! - What was heard from a node is not told again: nothing goes in circles.
//! - Whether something is so does not depend on which node is asked, once all have heard the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::name::ChannelName;
use crate::presence::Member;
use crate::registry::Publication;

/// Another node, while its process lives: one that is started anew is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Where news are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which node.
    pub node: NodeId,
    /// Goes up each time the node tells everything from the beginning: then what is left of the round before is forgotten.
    pub round: u32,
}

/// Something that nodes tell each other.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// An event was published there: to be said here too. The only news that must not be heard twice.
    Published(&'a Publication<'a>),
    /// A cache channel has this last event, for so long already.
    Last {
        /// Which channel.
        channel: &'a ChannelName,
        /// The message as subscribers get it: JSON.
        message: &'a str,
        /// Since it was published.
        age: Duration,
    },
    /// So many sockets there hear a channel.
    Subscribers {
        /// Which channel.
        channel: &'a ChannelName,
        /// How many; nobody: 0.
        count: u32,
    },
    /// A user is a member of a presence channel with sockets there.
    Member {
        /// Which channel.
        channel: &'a ChannelName,
        /// Who.
        member: &'a Arc<Member>,
    },
    /// A user is none any more with sockets there.
    NoMember {
        /// Which channel.
        channel: &'a ChannelName,
        /// Who.
        user_id: &'a str,
    },
    /// A user is signed in with sockets there.
    Online {
        /// Who.
        user_id: &'a Arc<str>,
    },
    /// A user is signed in with no socket there any more.
    Offline {
        /// Who.
        user_id: &'a Arc<str>,
    },
    /// All connections of a user are to be ended.
    Terminated {
        /// Who.
        user_id: &'a str,
    },
}

/// The way to other nodes. Without one there are none.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Tells all others. Called in the order in which things happen to a channel or user, while its shard is locked: it keeps what it needs, never waits, and
    /// calls nothing of ours. What must go over the wire for one channel may be left out when newer news of the same kind take its place.
    fn tell(&self, app: &Arc<App>, news: &News<'_>);

    /// Is it for this node to report to its observer what happens to a channel? Of all nodes that live one must say so, or webhooks are sent twice, or not at
    /// all: the node that comes first in a ranking of all by a hash of node and channel, for example. Called as [`Peers::tell`] is.
    fn reports(&self, app: &App, channel: &str) -> bool;
}

#[cfg(test)]
mod tests;
