//! Results of one run: durations, deliveries, losses, and their reasons.
//!
//! Invariants
//! - Nothing that failed is left out: a connection ends up opened or in `failures`, a delivery received or missing.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// One minute in microseconds: longer times are counted as that.
const LONGEST: u64 = 60_000_000;

/// Durations in microseconds, three digits exact.
#[derive(Debug, Clone)]
pub(crate) struct Durations(Histogram<u64>);

impl Durations {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds that the crate allows"))
    }

    /// Adds a time in nanoseconds between two readings of the clock; a negative one counts as 0.
    pub(crate) fn record(&mut self, from: u64, to: u64) {
        self.0.saturating_record((to.saturating_sub(from) / 1000).clamp(1, LONGEST));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Milliseconds; `null` when nothing was recorded.
    pub(crate) fn milliseconds(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        // Rounds to three digits: more would be false precision.
        let ms = |microseconds: f64| (microseconds.round()) / 1000.0;
        let at = |quantile: f64| {
            ms(u32::try_from(self.0.value_at_quantile(quantile)).map_or(f64::INFINITY, f64::from))
        };
        json!({
            "count": self.0.len(), "avg": ms(self.0.mean()), "min": at(0.0), "p50": at(0.5), "p90": at(0.9),
            "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": at(1.0),
        })
    }
}

/// All that one thread has seen.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Times from `connect()` until TCP answered, until 101, until `connection_established`, and until the subscription
    /// was confirmed.
    pub(crate) connected: Durations,
    pub(crate) upgraded: Durations,
    pub(crate) established: Durations,
    pub(crate) subscribed: Durations,
    /// Times from the stamp in a message to the `read` that returned it.
    pub(crate) latency: Durations,
    /// How late an open-loop sender was, which is the generator's fault and not the server's.
    pub(crate) lateness: Durations,
    pub(crate) delivered: u64,
    /// Deliveries that clients found which had never read until the end.
    pub(crate) kept_for_slow: u64,
    /// Bytes and calls of `read`: how far the server has put messages together.
    pub(crate) bytes: u64,
    pub(crate) reads: u64,
    /// Messages that came after a later one of the same sender, or twice.
    pub(crate) out_of_order: u64,
    /// Messages skipped over: lost, unless they come later out of order.
    pub(crate) skipped: u64,
    /// Why connections were not opened, by name.
    pub(crate) failures: BTreeMap<String, u64>,
    /// Connections that ended after they had been opened, by name.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// `pusher:error` by its code, and answers to published events that were not 200.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) fragmented: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let none = Durations::new;
        Self {
            connected: none(),
            upgraded: none(),
            established: none(),
            subscribed: none(),
            latency: none(),
            lateness: none(),
            delivered: 0,
            kept_for_slow: 0,
            bytes: 0,
            reads: 0,
            out_of_order: 0,
            skipped: 0,
            failures: BTreeMap::new(),
            dropped: BTreeMap::new(),
            errors: BTreeMap::new(),
            fragmented: 0,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.connected.add(&other.connected);
        self.upgraded.add(&other.upgraded);
        self.established.add(&other.established);
        self.subscribed.add(&other.subscribed);
        self.latency.add(&other.latency);
        self.lateness.add(&other.lateness);
        self.delivered += other.delivered;
        self.kept_for_slow += other.kept_for_slow;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.out_of_order += other.out_of_order;
        self.skipped += other.skipped;
        self.fragmented += other.fragmented;
        for (mine, theirs) in [
            (&mut self.failures, &other.failures),
            (&mut self.dropped, &other.dropped),
            (&mut self.errors, &other.errors),
        ] {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The part of a report that every mode has.
    pub(crate) fn opening(&self) -> Value {
        json!({
            "subscribed": self.subscribed.count(),
            "failed": self.failed(),
            "failures": self.failures,
            "dropped": self.dropped,
            "errors": self.errors,
            "connect_ms": self.connected.milliseconds(),
            "upgrade_ms": self.upgraded.milliseconds(),
            "established_ms": self.established.milliseconds(),
            "subscribed_ms": self.subscribed.milliseconds(),
        })
    }
}

/// Counts one more under `name`.
pub(crate) fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else {
        counts.insert(name.to_owned(), 1);
    }
}

/// Converts for ratios: exact up to 2^53, which no run reaches.
#[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let mut durations = Durations::new();
        for millisecond in 1..=100 {
            durations.record(5, 5 + millisecond * 1_000_000);
        }

        let report = durations.milliseconds();

        assert_eq!(report["count"], 100);
        let near = |name: &str, wanted: f64| {
            let got = report[name].as_f64().unwrap();
            assert!((got - wanted).abs() <= wanted / 1000.0, "{name}: {got}");
        };
        near("min", 1.0);
        near("p50", 50.0);
        near("p95", 95.0);
        near("max", 100.0);
        near("avg", 50.5);
    }

    #[test]
    fn a_duration_out_of_bounds_is_counted_at_the_bound() {
        let mut durations = Durations::new();
        durations.record(10, 5);
        durations.record(0, u64::MAX);

        let report = durations.milliseconds();

        assert_eq!(report["count"], 2);
        assert_eq!(report["min"], 0.001);
        assert!(report["max"].as_f64().unwrap() >= 60_000.0);
    }

    #[test]
    fn nothing_recorded_is_null_and_not_zero() {
        assert_eq!(Durations::new().milliseconds(), Value::Null);
    }

    #[test]
    fn two_threads_make_one_report() {
        let (mut one, mut other) = (Tally::new(), Tally::new());
        one.latency.record(0, 1_000_000);
        one.delivered = 1;
        count(&mut one.failures, "refused");
        other.latency.record(0, 3_000_000);
        other.delivered = 2;
        count(&mut other.failures, "refused");
        count(&mut other.failures, "timeout");

        one.add(&other);

        assert_eq!(one.latency.count(), 2);
        assert_eq!(one.delivered, 3);
        assert_eq!(one.failed(), 3);
        assert_eq!(one.failures["refused"], 2);
    }
}
