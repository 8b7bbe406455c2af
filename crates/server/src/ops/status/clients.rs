//! Clients' connections in `/status`: which addresses have most of them, and which limits on clients applied.

use std::collections::BTreeMap;

use front_http::ClientLimit;
use serde::Serialize;

/// A part of `/status`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Status {
    /// Connections that are open, and how many there may be.
    pub connections: usize,
    pub limit: usize,
    /// Connections with a request under way.
    pub busy: usize,
    /// Connections between two requests.
    pub idle: usize,
    /// Connections that have not yet received a complete request head.
    pub unfinished: usize,
    /// Connections with a client that currently does not read its response.
    pub not_reading: usize,
    /// Addresses with a connection.
    pub addresses: usize,
    /// Connections that one of them may have while places are short.
    pub share: usize,
    /// The addresses with most connections.
    pub most: Vec<Most>,
    /// The last that was refused one, in the last five minutes.
    pub refused: Option<String>,
    /// The number of times that limits on clients applied since the start.
    pub limited: BTreeMap<&'static str, u64>,
}

/// An address with many connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Most {
    /// The address, of IPv6 its network.
    pub address: String,
    pub connections: usize,
}

/// Returns the name of a limit on the dashboard.
pub(crate) fn describe(limit: &str) -> &str {
    let known = ClientLimit::ALL.into_iter().find(|known| known.name() == limit);
    match known {
        Some(ClientLimit::SlowHead) => "request heads too slow",
        Some(ClientLimit::SlowHandshake) => "TLS handshakes too slow",
        Some(ClientLimit::SlowBody) => "request bodies too slow",
        Some(ClientLimit::SlowReading) => "answers not taken",
        Some(ClientLimit::Idle) => "idle connections closed for others",
        Some(ClientLimit::Share) => "connections above a share refused",
        Some(ClientLimit::Descriptors) => "files not sent for lack of descriptors",
        Some(ClientLimit::Resets) => "HTTP/3 connections closed for too many requests given up",
        Some(ClientLimit::Rate) => "requests above a rate",
        _ => limit,
    }
}
