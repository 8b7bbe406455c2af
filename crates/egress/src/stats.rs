//! Statistics of one origin, for metrics. Numbers only grow, unless their comment says otherwise.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::origin::Noted;
use crate::{Answer, CallError, Fate, Reason, Scheme};

/// The statistics of one origin: of all keys with the same scheme, host and port.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OriginStats {
    /// Requested calls.
    pub calls: u64,
    /// Calls over a reused connection.
    pub reused: u64,
    /// Opened connections.
    pub connects: u64,
    /// TLS handshakes.
    pub handshakes: u64,
    /// TLS handshakes that calls did without.
    pub handshakes_saved: u64,
    /// Repeated calls (docs/internals/egress.md, "Never twice").
    pub repeated: u64,
    /// Kept HTTP/1.1 connections that the origin closed, while idle or under a call that it did not answer.
    pub closed: u64,
    /// Calls that did not use a kept HTTP/1.1 connection, because the origin might have closed it and they must not be sent twice.
    pub passed_over: u64,
    /// HTTP/1.1 connections closed because the origin sent bytes that belong to no request.
    pub unasked: u64,
    /// Calls that wait now.
    pub waiting: usize,
    /// Connections that are open now.
    pub connections: usize,
    /// Calls without a response, by outcome and reason.
    #[serde(skip)]
    pub unanswered: Vec<(Fate, Reason, u64)>,
}

/// Adds up origins; `unanswered` stays unchanged.
impl AddAssign for OriginStats {
    fn add_assign(&mut self, other: Self) {
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

/// One origin and its statistics.
#[derive(Clone, Debug)]
pub struct OriginReport {
    /// The scheme.
    pub scheme: Scheme,
    /// The name or address.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The statistics.
    pub stats: OriginStats,
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: AtomicU64,
    reused: AtomicU64,
    connects: AtomicU64,
    handshakes: AtomicU64,
    handshakes_saved: AtomicU64,
    repeated: AtomicU64,
    closed: AtomicU64,
    passed_over: AtomicU64,
    unasked: AtomicU64,
    unanswered: Mutex<Vec<(Fate, Reason, u64)>>,
}

impl Counters {
    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Counts a call that has ended.
    pub(crate) fn ended(&self, result: &Result<Answer, CallError>, scheme: Scheme) {
        match result {
            Ok(answer) => self.answered(answer.timing.reused, scheme),
            Err(error) => self.unanswered(error.fate, error.reason),
        }
    }

    fn answered(&self, reused: bool, scheme: Scheme) {
        if reused {
            self.reused.fetch_add(1, Relaxed);
            if scheme == Scheme::Https {
                self.handshakes_saved.fetch_add(1, Relaxed);
            }
        }
    }

    pub(crate) fn unanswered(&self, fate: Fate, reason: Reason) {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        match unanswered.iter_mut().find(|(f, r, _)| (*f, *r) == (fate, reason)) {
            Some((_, _, count)) => *count += 1,
            None => unanswered.push((fate, reason, 1)),
        }
    }

    pub(crate) fn connected(&self, secured: bool) {
        self.connects.fetch_add(1, Relaxed);
        if secured {
            self.handshakes.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn repeated(&self) {
        self.repeated.fetch_add(1, Relaxed);
    }

    pub(crate) fn passed_over(&self) {
        self.passed_over.fetch_add(1, Relaxed);
    }

    pub(crate) fn noted(&self, noted: Noted) {
        self.closed.fetch_add(noted.closed, Relaxed);
        self.unasked.fetch_add(noted.unasked, Relaxed);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    pub(crate) fn stats(&self, connections: usize, waiting: usize) -> OriginStats {
        OriginStats {
            calls: self.calls.load(Relaxed),
            reused: self.reused.load(Relaxed),
            connects: self.connects.load(Relaxed),
            handshakes: self.handshakes.load(Relaxed),
            handshakes_saved: self.handshakes_saved.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            closed: self.closed.load(Relaxed),
            passed_over: self.passed_over.load(Relaxed),
            unasked: self.unasked.load(Relaxed),
            waiting,
            connections,
            unanswered: self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
