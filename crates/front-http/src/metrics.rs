//! The front's metrics: handles are looked up once and kept, because a look-up by name is too slow for each request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, StatusCode};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, gauge, histogram,
};
use tokio::time::Instant;

use crate::protocol::{PROTOCOLS, Protocol};
use crate::traffic::Traffic;

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A limit for clients that are slow, or use more than their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientLimit {
    /// A request head did not arrive in time.
    SlowHead,
    /// A TLS handshake was not complete in time.
    SlowHandshake,
    /// A request body paused for too long.
    SlowBody,
    /// The client read nothing of its response for too long.
    SlowReading,
    /// The connection was idle, and its place was needed for another.
    Idle,
    /// The connection was above the share of its client's address while places were scarce.
    Share,
    /// A file was not sent because its descriptor was needed for the server.
    Descriptors,
    /// An HTTP/3 client gave up too many requests.
    Resets,
    /// The client asked too often.
    Rate,
    /// The client sent too many wrong passwords.
    Passwords,
}

impl ClientLimit {
    /// All limits, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::SlowHead,
        Self::SlowHandshake,
        Self::SlowBody,
        Self::SlowReading,
        Self::Idle,
        Self::Share,
        Self::Descriptors,
        Self::Resets,
        Self::Rate,
        Self::Passwords,
    ];

    /// Returns the name used as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlowHead => "slow_head",
            Self::SlowHandshake => "slow_handshake",
            Self::SlowBody => "slow_body",
            Self::SlowReading => "slow_reading",
            Self::Idle => "idle",
            Self::Share => "share",
            Self::Descriptors => "descriptors",
            Self::Resets => "resets",
            Self::Rate => "rate",
            Self::Passwords => "passwords",
        }
    }
}

/// How often one limit applied.
#[derive(Debug)]
struct Limited {
    counter: Counter,
    so_far: AtomicU64,
}

/// Handles of the front's metrics.
#[derive(Debug)]
pub(crate) struct FrontMetrics {
    requests: [[OnceLock<Counter>; CLASSES.len()]; METHODS.len()],
    duration: Histogram,
    /// Traffic of the last minutes, for people.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) connections: Gauge,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    /// Lines of the access log dropped because its queue was full.
    pub(crate) log_dropped: Counter,
    pub(crate) accept_errors: Counter,
    /// QUIC clients that had to show their address first.
    pub(crate) quic_retries: Counter,
    /// QUIC clients for which there was no place.
    pub(crate) quic_refused: Counter,
    /// QUIC packets passed on to the process before this one.
    pub(crate) quic_relayed: Counter,
    protocols: [OnceLock<Counter>; PROTOCOLS],
    limited: [Limited; ClientLimit::ALL.len()],
    pub(crate) answers_in_files: Counter,
    pub(crate) stalled_answers: Gauge,
    pub(crate) stalled_answers_cut: Counter,
}

impl FrontMetrics {
    /// Registers the metrics with the recorder installed by now.
    pub(crate) fn register() -> Self {
        describe_counter!(
            "hearth_requests_total",
            "Requests answered, by method and class of status; 499 (in 4xx) is a client that left"
        );
        describe_gauge!("hearth_connections", "Connections of clients that are open");
        describe_counter!("hearth_received_bytes_total", "Bytes read from clients");
        describe_counter!("hearth_sent_bytes_total", "Bytes written to clients");
        describe_counter!(
            "hearth_access_log_dropped_total",
            "Lines of the access log that were dropped because it could not be written as fast"
        );
        describe_counter!("hearth_accept_errors_total", "Connections that could not be accepted");
        describe_counter!(
            "hearth_protocol_requests_total",
            "Requests answered, by version of HTTP: 1.0, 1.1, 2 or 3"
        );
        describe_counter!(
            "hearth_quic_retries_total",
            "QUIC clients that had to show first that their address is theirs, because many handshakes were unfinished"
        );
        describe_counter!(
            "hearth_quic_refused_total",
            "QUIC connections that were refused, because there was no place"
        );
        describe_counter!(
            "hearth_quic_relayed_packets_total",
            "QUIC packets passed on to the previous process after an upgrade"
        );
        describe_counter!(
            "hearth_client_limits_total",
            "Times that a limit on clients applied: slow_head, slow_handshake, slow_body, slow_reading, idle (closed for another), share, descriptors, resets (too many requests given up over HTTP/3), rate (http.rate_limits), passwords (too many wrong ones)"
        );
        describe_counter!(
            "hearth_answers_in_files_total",
            "Answers of which a part waited for its client in a temporary file"
        );
        describe_gauge!(
            "hearth_stalled_answers",
            "Answers that hold a worker although their client has read nothing for 3 seconds"
        );
        describe_counter!(
            "hearth_stalled_answers_cut_total",
            "Stalled answers that were cut because their client held too many workers"
        );
        Self {
            requests: Default::default(),
            duration: histogram!("hearth_request_duration_seconds"),
            traffic: Arc::new(Traffic::new()),
            connections: gauge!("hearth_connections"),
            bytes_in: counter!("hearth_received_bytes_total"),
            bytes_out: counter!("hearth_sent_bytes_total"),
            log_dropped: counter!("hearth_access_log_dropped_total"),
            accept_errors: counter!("hearth_accept_errors_total"),
            quic_retries: counter!("hearth_quic_retries_total"),
            quic_refused: counter!("hearth_quic_refused_total"),
            quic_relayed: counter!("hearth_quic_relayed_packets_total"),
            protocols: Default::default(),
            limited: ClientLimit::ALL.map(|limit| Limited {
                counter: counter!("hearth_client_limits_total", "limit" => limit.name()),
                so_far: AtomicU64::new(0),
            }),
            answers_in_files: counter!("hearth_answers_in_files_total"),
            stalled_answers: gauge!("hearth_stalled_answers"),
            stalled_answers_cut: counter!("hearth_stalled_answers_cut_total"),
        }
    }

    /// Counts a client to which a limit applied.
    pub(crate) fn limited(&self, limit: ClientLimit) {
        let Limited { counter, so_far } = &self.limited[limit as usize];
        counter.increment(1);
        so_far.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often each limit has applied.
    pub(crate) fn limited_so_far(&self) -> Vec<(ClientLimit, u64)> {
        let count =
            |limit: ClientLimit| self.limited[limit as usize].so_far.load(Ordering::Relaxed);
        ClientLimit::ALL.into_iter().map(|limit| (limit, count(limit))).collect()
    }

    /// Counts one request of a version of HTTP.
    pub(crate) fn spoke(&self, protocol: Protocol) {
        let counter = self.protocols[protocol as usize].get_or_init(
            || counter!("hearth_protocol_requests_total", "version" => protocol.number()),
        );
        counter.increment(1);
    }

    /// Counts one request that took `duration` and was answered `now`.
    pub(crate) fn request(
        &self,
        method: &Method,
        status: StatusCode,
        duration: Duration,
        now: Instant,
    ) {
        let method = match *method {
            Method::GET => 0,
            Method::HEAD => 1,
            Method::POST => 2,
            Method::PUT => 3,
            Method::PATCH => 4,
            Method::DELETE => 5,
            Method::OPTIONS => 6,
            _ => 7,
        };
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        self.requests[method][class]
            .get_or_init(|| {
                counter!("hearth_requests_total", "method" => METHODS[method], "code" => CLASSES[class])
            })
            .increment(1);
        self.duration.record(duration.as_secs_f64());
        self.traffic.record(status, duration, now);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_class() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = metrics::with_local_recorder(&recorder, || {
            let metrics = FrontMetrics::register();
            let (took, now) = (Duration::from_millis(2), Instant::now());
            metrics.request(&Method::GET, StatusCode::OK, took, now);
            metrics.request(&Method::GET, StatusCode::PARTIAL_CONTENT, took, now);
            metrics.request(&Method::POST, StatusCode::BAD_GATEWAY, took, now);
            metrics.request(
                &Method::from_bytes(b"PURGE").unwrap(),
                StatusCode::NOT_FOUND,
                took,
                now,
            );
            metrics
        });
        metrics.connections.increment(3.0);
        let text = recorder.handle().render();
        for line in [
            "hearth_requests_total{method=\"GET\",code=\"2xx\"} 2",
            "hearth_requests_total{method=\"POST\",code=\"5xx\"} 1",
            "hearth_requests_total{method=\"other\",code=\"4xx\"} 1",
            "hearth_request_duration_seconds_count 4",
            "hearth_connections 3",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
