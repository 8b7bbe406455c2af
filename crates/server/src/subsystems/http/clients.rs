//! Clients' connections as operators see them: the addresses with most of them, and the limits that applied.
//!
//! Invariants
//! - Addresses are in `/status` and on the dashboard, never in labels of metrics: there would be no end of them.

use std::time::Duration;

use front_http::Connections;

use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::clients::{Most, Status};

/// A refusal longer ago is no problem of now.
const RECENT: Duration = Duration::from_mins(5);

pub(super) fn set_metrics(connections: &Connections) {
    let status = status_of(connections);
    let states = [("busy", status.busy), ("idle", status.idle), ("unfinished", status.unfinished)];
    for (state, count) in states {
        metrics_table! { &[("state", state.to_owned())];
            gauge "hearth_connections_by_state" = count, "Connections of clients: busy (a request is under way), idle (between two), unfinished (a request has not come, or not all of its head)";
        }
    }
    metrics_table! { &[];
        gauge "hearth_connections_limit" = status.limit, "Connections of clients that there may be";
        gauge "hearth_connections_not_reading" = status.not_reading, "Connections whose client does not take its answer at this moment";
        gauge "hearth_client_addresses" = status.addresses, "Addresses of clients with a connection; an IPv6 /64 is one";
    }
}

pub(super) fn status_of(connections: &Connections) -> Status {
    let report = connections.report();
    let recent = |(address, ago)| (ago < RECENT).then_some(address);
    let most = report.most.into_iter();
    Status {
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
        limited: report.limited.into_iter().map(|(limit, times)| (limit.name(), times)).collect(),
    }
}

/// Adds the problems of clients' connections.
pub(super) fn problems_of(status: &Status, problems: &mut Problems) {
    let Status { connections, limit, share, .. } = status;
    if connections >= limit {
        let text = format!(
            "All {limit} places for connections are taken (`http.connection_limit`, limit of open files): further clients wait."
        );
        problems.add(Level::Warning, text);
    }
    if let Some(address) = &status.refused {
        let text = format!(
            "Connections of {address} were refused: it has more than its share of {share} while places are short. \
             If it is a proxy, name it in `http.trusted_proxies`."
        );
        problems.add(Level::Warning, text);
    }
}
