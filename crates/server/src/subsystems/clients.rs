//! Clients' connections as they are shown: who has most of them, and which limits on clients applied.
//!
//! Invariants
//! - Addresses are in `/status` and on the dashboard, never in labels of metrics: there would be no end of them.

use std::collections::BTreeMap;
use std::time::Duration;

use front_http::{ClientLimit, Connections};
use serde::Serialize;

use crate::ops::dashboard::Level;

/// A refusal longer ago is no problem of now.
const RECENT: Duration = Duration::from_mins(5);

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
    /// Connections whose request has not come, or not all of its head.
    pub unfinished: usize,
    /// Connections whose client does not take its answer at this moment.
    pub not_reading: usize,
    /// Addresses with a connection.
    pub addresses: usize,
    /// Connections that one of them may have while places are short.
    pub share: usize,
    /// Those with most connections.
    pub most: Vec<Most>,
    /// The last that was refused one, in the last five minutes.
    pub refused: Option<String>,
    /// How often limits on clients applied since the start.
    pub limited: BTreeMap<&'static str, u64>,
}

/// An address with many connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Most {
    /// The address, of IPv6 its network.
    pub address: String,
    pub connections: usize,
}

impl Status {
    pub(crate) fn of(connections: &Connections) -> Self {
        let report = connections.report();
        let recent = |(address, ago)| (ago < RECENT).then_some(address);
        let most = report.most.into_iter();
        Self {
            connections: report.open,
            limit: report.limit,
            busy: report.busy,
            idle: report.idle,
            unfinished: report.unfinished,
            not_reading: report.not_reading,
            addresses: report.clients,
            share: report.share,
            most: most.map(|(address, connections)| Most { address, connections }).collect(),
            refused: report.refused.and_then(recent),
            limited: report
                .limited
                .into_iter()
                .map(|(limit, times)| (limit.name(), times))
                .collect(),
        }
    }

    /// What an operator should know of them.
    pub(crate) fn problems(&self, add: &mut impl FnMut(Level, String)) {
        let Self { connections, limit, share, .. } = self;
        if connections >= limit {
            let text = format!(
                "All {limit} places for connections are taken (`http.connection_limit`, limit of open files): further clients wait."
            );
            add(Level::Warning, text);
        }
        if let Some(address) = &self.refused {
            let text = format!(
                "Connections of {address} were refused: it has more than its share of {share} while places are short. \
                 If it is a proxy, name it in `http.trusted_proxies`."
            );
            add(Level::Warning, text);
        }
    }
}

/// How a limit is called on the dashboard.
pub(crate) fn describe(limit: &str) -> &str {
    let known = ClientLimit::ALL.into_iter().find(|known| known.name() == limit);
    match known {
        Some(ClientLimit::SlowHead) => "request heads too slow",
        Some(ClientLimit::SlowHandshake) => "TLS handshakes too slow",
        Some(ClientLimit::SlowBody) => "request bodies too slow",
        Some(ClientLimit::SlowReading) => "answers not taken",
        Some(ClientLimit::Idle) => "idle connections closed for others",
        Some(ClientLimit::Share) => "connections above a share refused",
        Some(ClientLimit::Descriptors) => "files not sent for want of descriptors",
        _ => limit,
    }
}

pub(crate) fn describe_metrics() {
    metrics::describe_gauge!(
        "hearth_connections_by_state",
        "Connections of clients: busy (a request is under way), idle (between two), unfinished (a request has not come, or not all of its head)"
    );
    metrics::describe_gauge!(
        "hearth_connections_limit",
        "Connections of clients that there may be"
    );
    metrics::describe_gauge!(
        "hearth_connections_not_reading",
        "Connections whose client does not take its answer at this moment"
    );
    metrics::describe_gauge!(
        "hearth_client_addresses",
        "Addresses of clients with a connection; an IPv6 /64 is one"
    );
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
pub(crate) fn set_metrics(connections: &Connections) {
    let status = Status::of(connections);
    let states = [("busy", status.busy), ("idle", status.idle), ("unfinished", status.unfinished)];
    for (state, count) in states {
        metrics::gauge!("hearth_connections_by_state", "state" => state).set(count as f64);
    }
    metrics::gauge!("hearth_connections_limit").set(status.limit as f64);
    metrics::gauge!("hearth_connections_not_reading").set(status.not_reading as f64);
    metrics::gauge!("hearth_client_addresses").set(status.addresses as f64);
}
