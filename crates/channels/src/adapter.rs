//! Connects the channels of several nodes through a broker: Redis, Valkey or NATS.
//!
//! ```text
//! channels ─ Nodes ─ Outbox: one order, cut into packets ─ broker ─ Cluster of each other node: live nodes, missing updates ─ channels
//! ```
//!
//! Every node publishes the state of its own sockets to all others; `nodes` defines that state. A broker's
//! publish/subscribe may lose messages, so each packet is numbered. The receiver detects a gap at the latest with the
//! next beat, and asks the sender to publish its whole state again.
//!
//! Invariants
//! - A packet is applied at most once, even if the broker delivers it several times.
//! - A node that is silent for [`Options::patience`] is removed together with its state. If it comes back, it counts
//!   as a new node.
//! - Without the broker a node keeps serving its own sockets. It keeps the state of other nodes for
//!   [`Options::blind`].
//! - Exactly one of the ready nodes reports the events of a channel, once all nodes know each other.
//! - No code here waits under a lock. Outgoing bytes are bounded by [`Options::waiting`]; a record that does not fit
//!   causes a gap, which the other nodes detect.
//!
//! Events of channels with history go through the broker's log ([`LogLink`]): stored, in one order, and read by every
//! node. On other channels an event published while a node or its connection to the broker is down is not delivered
//! later, and events that two nodes publish at the same time may arrive in either order.
//!
//! `packet`, `outbox` and `cluster` use neither sockets nor clocks; `run` moves the bytes, and `redis` and `nats`
//! connect to brokers.

mod cluster;
mod log;
pub mod nats;
mod outbox;
mod packet;
pub mod redis;
mod run;
mod shared;

use std::time::Duration;

pub use cluster::{Cluster, Report};
pub use log::{LogEvent, LogLink, LogOptions};
pub use outbox::Outbox;
pub use run::{Broker, BrokerEvent, Joined, start};

/// Timing and size limits of the connection between nodes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interval between the beats of a node.
    pub beat: Duration,
    /// A node that is silent for this long counts as gone.
    pub patience: Duration,
    /// How long the state of other nodes stays valid while the broker is unreachable.
    pub blind: Duration,
    /// How long a new node listens to the others before it becomes ready. It must exceed [`Options::beat`].
    pub join: Duration,
    /// Maximum number of outgoing bytes that may wait in this process.
    pub waiting: usize,
    /// Approximate size of one packet in bytes. Brokers have limits (NATS: 1 MiB).
    pub packet: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(1),
            patience: Duration::from_secs(5),
            blind: Duration::from_secs(30),
            join: Duration::from_millis(1500),
            waiting: 64 * 1024 * 1024,
            packet: 128 * 1024,
        }
    }
}

#[cfg(test)]
mod tests;
