//! The engine's options. The defaults are those of docs/internals/egress.md.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::deny::Network;

/// How the engine keeps connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most HTTP/1.1 connections to one origin.
    pub http1_connections: usize,
    /// The most HTTP/2 connections to one origin. There is one until streams queue or a burst meets a cold one.
    pub http2_connections: usize,
    /// The most connections to all origins together.
    pub connections: usize,
    /// The most calls that wait for one origin. Further ones are declined at once.
    pub waiting: usize,
    /// How long a connection without calls is kept: HTTP/1.1, and HTTP/2 beyond an origin's first.
    pub idle: Duration,
    /// How long a connection is used. Its successor is opened before it is closed.
    pub age: Duration,
    /// After this time without calls the congestion window is assumed to be reset (RFC 5681, 4.1).
    pub cold: Duration,
    /// How often an HTTP/2 connection is pinged.
    pub ping: Duration,
    /// The time limit for the answer to a ping.
    pub pong: Duration,
    /// How long the addresses of a name are cached. `getaddrinfo` does not return the zone's TTL.
    pub dns: Duration,
    /// The most concurrent look-ups, each in a thread of the runtime.
    pub lookups: usize,
    /// How long a look-up waits for such a thread before its callers are declined. None: as long as they wait.
    pub lookup_patience: Option<Duration>,
    /// The PEM file of trusted authorities; none: the system's.
    pub ca: Option<PathBuf>,
    /// Networks that are denied.
    pub deny: Vec<Network>,
    /// Sockets of this machine that are denied, by every address that reaches them. An unspecified address stands for all of the machine's.
    pub deny_sockets: Vec<SocketAddr>,
    /// Whether the outcome of TLS is recorded for each connection, the peer's certificates included: some 4 KB.
    pub peers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            http1_connections: 20,
            http2_connections: 12,
            connections: 4096,
            waiting: 4096,
            idle: Duration::from_mins(1),
            age: Duration::from_mins(5),
            cold: Duration::from_millis(500),
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(10),
            dns: Duration::from_secs(30),
            lookups: 64,
            lookup_patience: None,
            ca: None,
            deny: Network::link_local(),
            deny_sockets: Vec::new(),
            peers: false,
        }
    }
}
