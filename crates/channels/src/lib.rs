//! Realtime channels: long-lived client connections in the Pusher protocol, version 7. docs/internals/realtime.md is
//! the specification.
//!
//! This crate does not depend on PHP, configuration files or HTTP routing.
//!
//! Invariants
//! - A slow socket delays neither a publisher nor another socket: its queue is bounded, and a full one closes the
//!   connection.
//! - An event is encoded once, however many sockets receive it.
//! - All subscribers of a channel receive its events in one order, each once.
//! - No client input can end the process or hold memory without bound.

mod app;
mod apps;
mod hash;
mod moment;
mod name;
mod rate;
mod socket_id;
mod statistics;
mod stream_id;

pub mod auth;
pub mod json;

pub mod websocket;

mod close;
mod delivery;
mod encoded;
mod hello;
mod message;
mod nodes;
mod observer;

mod cache;
mod channels;
mod history;
mod presence;
mod registry;
mod session;
mod shared_log;
mod users;

pub mod hub;

#[cfg(test)]
mod testing;

pub mod adapter;
pub mod api;
pub mod lookup;
pub mod mercure;
pub mod webhook;

pub use app::{App, History, Limits, Rights, Secret};
pub use apps::{Answer, Answered, AppRef, Apps, FixedApps, Found, Unavailable};
pub use cache::CacheReport;
pub use channels::{Channels, Records};
pub use close::Close;
pub use delivery::{AppNumber, ChannelId, Delivery, Full, LOADED, Offset, Outlet, RESTARTED, Seat};
pub use encoded::Encoded;
pub use hello::{Hello, Target};
pub use history::{Position, Room};
pub use moment::{Moment, UnixTime};
pub use name::{Access, ChannelName, InvalidName};
pub use nodes::{ClusterUpdate, LogWriter, NodeId, Nodes, Origin};
pub use observer::{ChannelEvent, NoObserver, Observer};
pub use presence::Member;
pub use registry::{
    Author, ChannelReport, EVENT_LOOPS, Joined, Publication, PublishRefused, Registry, Resume,
    SubscribeRefused, Subscription,
};
pub use session::{Join, Out, Session};
pub use shared_log::Ticket;
pub use socket_id::{InvalidSocketId, SocketId};
pub use statistics::{Counters, Number, Statistics};

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
