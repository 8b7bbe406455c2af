//! Realtime channels: clients' sockets that outlive requests, in the Pusher protocol, version 7. docs/internals/realtime.md is the
//! specification.
//!
//! Knows nothing of PHP, of configuration files and of HTTP routing.
//!
//! Invariants
//! - A slow socket holds up neither a publisher nor another socket: its queue is bounded, and a full one closes it.
//! - One event is encoded once, whoever gets it.
//! - All subscribers of a channel see its events in one order, each once.
//! - Nothing a client sends can end the process, or hold memory without bound.

mod app;
mod moment;
mod name;
mod socket_id;

pub mod websocket;

mod delivery;
mod encoded;

pub use app::{App, History, Limits, Rights, Secret};
pub use delivery::{ChannelId, Delivery, Full, Offset, Outlet, Seat};
pub use encoded::Encoded;
pub use moment::{Moment, UnixTime};
pub use name::{Access, ChannelName, InvalidName};
pub use socket_id::SocketId;

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
