//! What the registry hands to event loops: one delivery per loop, however many subscribers it has.

use std::fmt;
use std::sync::Arc;

use crate::app::App;
use crate::encoded::Encoded;
use crate::socket_id::SocketId;

/// A channel while it lives; never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// An application on this node, for as long as the process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AppNumber(pub(crate) u32);

/// How many deliveries a channel had so far: the first one has offset 1. Not the offset in a history, which counts the application's events alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(pub u64);

/// Where a socket sits on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seat {
    /// The event loop that owns it.
    pub event_loop: u16,
    /// Its place there.
    pub slot: u32,
    /// Goes up each time the place is taken, so that what is meant for one who left reaches nobody.
    pub generation: u32,
}

/// For one event loop.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// To those of its sockets that subscribed to the channel before `offset`.
    Channel {
        /// Which channel.
        channel: ChannelId,
        /// The event's.
        offset: Offset,
        /// What they get.
        message: Encoded,
        /// But not this one: it is the event's author.
        except: Option<SocketId>,
    },
    /// To single sockets.
    Seats {
        /// Which. Those that are not there any more are passed over.
        seats: Vec<Seat>,
        /// What they get.
        message: Encoded,
    },
    /// To all sockets of an application: it is another one now, or none.
    App {
        /// Whose sockets.
        id: Arc<str>,
        /// As it is from now on; none: there is no such application any more.
        app: Option<Arc<App>>,
    },
    /// To be closed, after what is queued for it.
    Close {
        /// Which.
        seat: Seat,
        /// The protocol's close code.
        code: u16,
        /// In words, for people.
        reason: &'static str,
    },
}

/// The inbox of an event loop.
pub trait Outlet: fmt::Debug + Send + Sync {
    /// Puts a delivery of an application there and wakes the loop. Never waits.
    fn put(&self, app: AppNumber, delivery: Delivery) -> Result<(), Full>;
}

/// The inbox holds as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event loop's inbox is full")]
pub struct Full;
