//! Deliveries from the registry to event loops: one per loop, however many subscribers it has.

use std::fmt;
use std::sync::Arc;

use crate::app::App;
use crate::encoded::Encoded;
use crate::socket_id::SocketId;

/// Id of a channel while it exists; ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// Number of an application on this node, valid for the life of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AppNumber(pub(crate) u32);

/// Number of deliveries of a channel; the first one has offset 1. It differs from the offset in a history, which
/// counts only the application's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(pub u64);

/// Address of a socket on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seat {
    /// Number of the event loop that owns the socket.
    pub event_loop: u16,
    /// Slot of the socket in the event loop.
    pub slot: u32,
    /// Increases each time the slot is reused, so that a delivery for a closed socket does not reach its successor.
    pub generation: u32,
}

/// The position of a delivery that tells subscribers that missed events are not available: positions start again.
pub const RESTARTED: u64 = u64::MAX;

/// The position of a delivery that tells subscribers that this node has read the shared log for the first time. The
/// events read so far may be older than the subscriptions, so they were kept but not delivered.
pub const LOADED: u64 = u64::MAX - 1;

/// A subscriber that is ahead to here gets no event of the shared log until [`LOADED`], which is for such subscribers
/// only, or [`RESTARTED`].
pub(crate) const UNTIL_LOADED: u64 = u64::MAX - 2;

/// Returns whether a subscriber skips the delivery at this position, because it is `ahead` of it.
pub(crate) fn skips(position: u64, ahead: u64) -> bool {
    match position {
        0 | RESTARTED => false,
        LOADED => ahead != UNTIL_LOADED,
        _ => position <= ahead,
    }
}

/// Returns whether a delivery with this position is one of those that tell subscribers a new position.
pub(crate) fn starts_positions(position: u64) -> bool {
    position >= LOADED
}

/// A delivery for one event loop.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A message for the loop's sockets that subscribed to the channel before `offset`.
    Channel {
        /// Id of the channel.
        channel: ChannelId,
        /// Offset of this delivery.
        offset: Offset,
        /// The encoded message.
        message: Encoded,
        /// Position in [the shared log](crate::shared_log); 0 for what is not in it; [`RESTARTED`] and [`LOADED`].
        position: u64,
        /// The socket that published the event, or that the application excluded; it does not receive the message.
        except: Option<SocketId>,
    },
    /// A message for single sockets.
    Seats {
        /// Recipients. Closed sockets are skipped.
        seats: Vec<Seat>,
        /// The encoded message.
        message: Encoded,
    },
    /// A change for all sockets of an application: it was replaced or removed.
    App {
        /// Id of the application.
        id: Arc<str>,
        /// The new application; `None` if it was removed.
        app: Option<Arc<App>>,
    },
    /// Closes a socket after its queue is sent.
    Close {
        /// Address of the socket.
        seat: Seat,
        /// Close code of the Pusher protocol.
        code: u16,
        /// Reason as text.
        reason: &'static str,
    },
}

/// The inbox of an event loop.
pub trait Outlet: fmt::Debug + Send + Sync {
    /// Adds a delivery of an application and wakes the loop. Never waits.
    fn put(&self, app: AppNumber, delivery: Delivery) -> Result<(), Full>;

    /// Returns whether the loop takes old events, even if no client needs them: those of the shared log that this node
    /// reads before [`LOADED`].
    fn takes_old(&self) -> bool {
        false
    }
}

/// The error returned when the inbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event loop's inbox is full")]
pub struct Full;
