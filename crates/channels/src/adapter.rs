//! Other nodes, over a broker that all of them can reach: Redis, Valkey or NATS.
//!
//! ```text
//! channels ─ Peers ─ Way: one order, cut into packets ─ broker ─ Cluster of each other node: which nodes live, what is missing ─ channels
//! ```
//!
//! Every node tells all others what it knows of its own sockets; `peers` says what that is. A broker's publish/subscribe may lose messages, so each
//! packet has a number: a gap is seen, at the latest by the next beat, and the node is asked to tell everything from the beginning.
//!
//! Invariants
//! - No packet is taken twice, whatever the broker repeats.
//! - A node that is not heard for [`Options::patience`] is gone, and everything it told with it. If it comes back, it is as a new one.
//! - Without the broker a node goes on serving its own sockets; what it knew of others stays for [`Options::blind`].
//! - Of the nodes that are ready exactly one reports what happens to a channel, once all have heard of each other.
//! - Nobody here waits under a lock: what is to be told is bounded by [`Options::waiting`], and what does not fit is a gap, which others see.
//!
//! What it does not do: events published while a node or its way to the broker is away do not reach it later; two nodes that publish to one channel
//! at once may be heard in either order, each node's own events in theirs; offsets for resuming are each node's own.
//!
//! `packet`, `way` and `cluster` know neither sockets nor clocks; `run` moves the bytes, `redis` and `nats` are ways to brokers.

mod cluster;
mod packet;
mod run;
mod way;

use std::time::Duration;

pub use cluster::{Cluster, Report};
pub use run::{Broker, BrokerEvent, Joined, start};
pub use way::Way;

/// How nodes keep in touch.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often a node says that it is there.
    pub beat: Duration,
    /// How long one may be silent before it counts as gone.
    pub patience: Duration,
    /// How long what others told is believed while the broker cannot be reached.
    pub blind: Duration,
    /// How long a new node listens for others before it takes its part. Longer than a beat.
    pub join: Duration,
    /// Bytes to be told that may wait here.
    pub waiting: usize,
    /// Bytes of one packet, about: brokers have limits (NATS: 1 MiB).
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
