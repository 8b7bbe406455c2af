//! The egress broker as operators see it: its part of `/status`, and its metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use egress::{ListenerReport, OriginReport, Scheme};

use super::Watch;
use crate::ops::status;
use crate::ops::status::egress::{Origin, Status, Unanswered};
use crate::ops::subsystem::Subsystem;

/// Origins with metrics of their own, the most called ones; the others are one. Their names come from callers.
const ORIGINS: usize = 100;

impl Watch {
    /// Returns the broker's part of `/status`.
    fn part(&self) -> Status {
        let listeners: Vec<ListenerReport> =
            self.entrances.iter().map(|entrance| entrance.watch.report()).collect();
        let unanswered = |fate| {
            let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
            let all = listeners.iter().flat_map(|listener| &listener.unanswered);
            for (_, reason, calls) in all.filter(|(is, ..)| *is == fate) {
                *sums.entry(reason).or_default() += calls;
            }
            sums.into_iter().map(|(reason, calls)| Unanswered { reason, calls }).collect()
        };
        let mut origins: Vec<Origin> = self.engine.report().into_iter().map(Origin::of).collect();
        origins.sort_by_key(|origin| std::cmp::Reverse(origin.calls));
        if origins.len() > ORIGINS {
            let mut others = Origin { url: "others".to_owned(), ..Origin::default() };
            origins.drain(ORIGINS..).for_each(|origin| others.add(&origin));
            origins.push(others);
        }
        Status {
            socket: self.socket().to_owned(),
            callers: listeners.iter().map(|listener| listener.callers).sum(),
            calls: listeners.iter().map(|listener| listener.calls).sum(),
            declined: unanswered(egress::Fate::Declined),
            failed: unanswered(egress::Fate::Failed),
            origins,
        }
    }
}

impl Origin {
    fn of(report: OriginReport) -> Self {
        let stats = report.stats;
        Self {
            url: url(report.scheme, &report.host, report.port),
            calls: stats.calls,
            reused: stats.reused,
            connects: stats.connects,
            handshakes: stats.handshakes,
            handshakes_saved: stats.handshakes_saved,
            repeated: stats.repeated,
            closed: stats.closed,
            passed_over: stats.passed_over,
            unasked: stats.unasked,
            waiting: stats.waiting,
            connections: stats.connections,
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.reused += other.reused;
        self.connects += other.connects;
        self.handshakes += other.handshakes;
        self.handshakes_saved += other.handshakes_saved;
        self.repeated += other.repeated;
        self.closed += other.closed;
        self.passed_over += other.passed_over;
        self.unasked += other.unasked;
        self.waiting += other.waiting;
        self.connections += other.connections;
    }
}

fn url(scheme: Scheme, host: &str, port: u16) -> String {
    let mut url = format!("{}://", scheme.word());
    let host_written =
        if host.contains(':') { write!(url, "[{host}]") } else { write!(url, "{host}") };
    let port_written = if port == scheme.default_port() { Ok(()) } else { write!(url, ":{port}") };
    host_written.and(port_written).expect("a String takes all");
    url
}

impl Subsystem for Watch {
    fn status(&self, status: &mut status::Status) {
        status.egress = Some(self.part());
    }

    fn metrics(&self) {
        describe_metrics();
        set_metrics(self);
    }
}

/// The broker's metrics, described.
fn describe_metrics() {
    metrics::describe_gauge!(
        "hearth_egress_callers",
        "Outgoing calls under way through the broker"
    );
    metrics::describe_counter!("hearth_egress_calls_total", "Outgoing calls, by origin");
    metrics::describe_counter!(
        "hearth_egress_reused_total",
        "Outgoing calls over a connection that was there, by origin"
    );
    metrics::describe_gauge!(
        "hearth_egress_reuse_ratio",
        "Share of an origin's calls that went over a connection that was there"
    );
    metrics::describe_counter!("hearth_egress_connects_total", "Connections made, by origin");
    metrics::describe_counter!("hearth_egress_handshakes_total", "TLS handshakes, by origin");
    metrics::describe_counter!(
        "hearth_egress_handshakes_saved_total",
        "TLS handshakes that calls did without, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_repeated_total",
        "Calls made again because the first attempt had not been processed, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_closed_total",
        "Kept HTTP/1.1 connections that the origin closed, while idle or under a call, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_passed_over_total",
        "Calls that must not be sent twice and used no kept connection, because the origin might have closed it, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_unasked_total",
        "HTTP/1.1 connections closed because the origin sent what no request had asked for, by origin"
    );
    metrics::describe_gauge!(
        "hearth_egress_waiting",
        "Calls that wait for a connection, by origin"
    );
    metrics::describe_gauge!("hearth_egress_connections", "Open outgoing connections, by origin");
    metrics::describe_counter!(
        "hearth_egress_unanswered_total",
        "Outgoing calls without an answer, by fate (declined: the caller makes it directly; failed) and reason"
    );
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
/// Copies the numbers at the moment of the scrape.
fn set_metrics(watch: &Watch) {
    let status = watch.part();
    metrics::gauge!("hearth_egress_callers").set(status.callers as f64);
    for (fate, unanswered) in [("declined", &status.declined), ("failed", &status.failed)] {
        for Unanswered { reason, calls } in unanswered {
            metrics::counter!("hearth_egress_unanswered_total", "fate" => fate, "reason" => *reason)
                .absolute(*calls);
        }
    }
    for origin in status.origins {
        let name = origin.url;
        let counter = |metric: &'static str, value| {
            metrics::counter!(metric, "origin" => name.clone()).absolute(value);
        };
        counter("hearth_egress_calls_total", origin.calls);
        counter("hearth_egress_reused_total", origin.reused);
        counter("hearth_egress_connects_total", origin.connects);
        counter("hearth_egress_handshakes_total", origin.handshakes);
        counter("hearth_egress_handshakes_saved_total", origin.handshakes_saved);
        counter("hearth_egress_repeated_total", origin.repeated);
        counter("hearth_egress_closed_total", origin.closed);
        counter("hearth_egress_passed_over_total", origin.passed_over);
        counter("hearth_egress_unasked_total", origin.unasked);
        let gauge = |metric: &'static str, value| {
            metrics::gauge!(metric, "origin" => name.clone()).set(value);
        };
        let ratio =
            if origin.calls == 0 { 0.0 } else { origin.reused as f64 / origin.calls as f64 };
        gauge("hearth_egress_reuse_ratio", ratio);
        gauge("hearth_egress_waiting", origin.waiting as f64);
        gauge("hearth_egress_connections", origin.connections as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_in_urls() {
        assert_eq!(url(Scheme::Https, "a.test", 443), "https://a.test");
        assert_eq!(url(Scheme::Http, "::1", 8080), "http://[::1]:8080");
    }
}
