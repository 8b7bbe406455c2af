//! What the engine is told at start. The defaults are those of docs/internals/egress.md.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::deny::Network;

/// How the engine keeps connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// HTTP/1.1 connections to one origin, at most.
    pub http1_connections: usize,
    /// HTTP/2 connections to one origin, at most. There is one, until streams queue or a burst meets a cold one.
    pub http2_connections: usize,
    /// Connections to all origins together, at most.
    pub connections: usize,
    /// Calls that wait for one origin, at most. More are declined at once.
    pub waiting: usize,
    /// How long a connection without calls is kept: HTTP/1.1, and HTTP/2 beyond an origin's first.
    pub idle: Duration,
    /// How long a connection is used. Its successor is opened before it goes.
    pub age: Duration,
    /// After this time without calls a connection's congestion window is taken to be back at its beginning (RFC 5681, 4.1).
    pub cold: Duration,
    /// How often an HTTP/2 connection is asked whether it lives.
    pub ping: Duration,
    /// How long an answer to that may take.
    pub pong: Duration,
    /// How long the addresses of a name are believed. `getaddrinfo` does not tell what the zone wants.
    pub dns: Duration,
    /// Names that are looked up at a time, each in a thread of the runtime's.
    pub lookups: usize,
    /// How long a look-up waits for such a thread; then its callers are declined. None: as long as they do.
    pub lookup_patience: Option<Duration>,
    /// The PEM file of the authorities that are believed; none: the system's.
    pub ca: Option<PathBuf>,
    /// Networks that are never called.
    pub deny: Vec<Network>,
    /// Sockets of this machine that are never called, by whatever address leads to them. An unspecified address stands for all of the machine's.
    pub deny_sockets: Vec<SocketAddr>,
    /// What TLS has come to is kept with each connection, the peer's certificates included: some 4 KB.
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
