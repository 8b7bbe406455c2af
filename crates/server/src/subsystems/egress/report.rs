//! The egress broker as operators see it: its part of `/status`, and its metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use egress::{ListenerReport, OriginReport, OriginStats, Scheme};

use super::Watch;
use crate::ops::metric::metrics_table;
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
        let mut origins: Vec<Origin> = self.engine.report().into_iter().map(origin_of).collect();
        origins.sort_by_key(|origin| std::cmp::Reverse(origin.stats.calls));
        if origins.len() > ORIGINS {
            let mut others = Origin { url: "others".to_owned(), stats: OriginStats::default() };
            origins.drain(ORIGINS..).for_each(|origin| others.stats += origin.stats);
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

fn origin_of(report: OriginReport) -> Origin {
    Origin { url: url(report.scheme, &report.host, report.port), stats: report.stats }
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

    #[expect(clippy::cast_precision_loss, reason = "a ratio is a float")]
    fn metrics(&self) {
        let status = self.part();
        metrics_table! { &[];
            gauge "hearth_egress_callers" = status.callers, "Outgoing calls under way through the broker";
        }
        for (fate, unanswered) in [("declined", &status.declined), ("failed", &status.failed)] {
            for Unanswered { reason, calls } in unanswered {
                metrics_table! { &[("fate", fate.to_owned()), ("reason", (*reason).to_owned())];
                    counter "hearth_egress_unanswered_total" = *calls, "Outgoing calls without an answer, by fate (declined: the caller makes it directly; failed) and reason";
                }
            }
        }
        for Origin { url, stats } in status.origins {
            let reuse_ratio = stats.reused as f64 / stats.calls.max(1) as f64;
            metrics_table! { &[("origin", url)];
                counter "hearth_egress_calls_total" = stats.calls, "Outgoing calls, by origin";
                counter "hearth_egress_reused_total" = stats.reused, "Outgoing calls over a connection that was there, by origin";
                gauge "hearth_egress_reuse_ratio" = reuse_ratio, "Share of an origin's calls that went over a connection that was there";
                counter "hearth_egress_connects_total" = stats.connects, "Connections made, by origin";
                counter "hearth_egress_handshakes_total" = stats.handshakes, "TLS handshakes, by origin";
                counter "hearth_egress_handshakes_saved_total" = stats.handshakes_saved, "TLS handshakes that calls did without, by origin";
                counter "hearth_egress_repeated_total" = stats.repeated, "Calls made again because the first attempt had not been processed, by origin";
                counter "hearth_egress_closed_total" = stats.closed, "Kept HTTP/1.1 connections that the origin closed, while idle or under a call, by origin";
                counter "hearth_egress_passed_over_total" = stats.passed_over, "Calls that must not be sent twice and used no kept connection, because the origin might have closed it, by origin";
                counter "hearth_egress_unasked_total" = stats.unasked, "HTTP/1.1 connections closed because the origin sent what no request had asked for, by origin";
                gauge "hearth_egress_waiting" = stats.waiting, "Calls that wait for a connection, by origin";
                gauge "hearth_egress_connections" = stats.connections, "Open outgoing connections, by origin";
            }
        }
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
