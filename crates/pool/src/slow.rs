//! Slow requests: detected while they run, each once, with their PHP stack.
//!
//! Invariants
//! - A request is reported once, however long it continues.
//! - Neither its query nor its header fields nor its arguments are reported.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tracing::warn;

use crate::Model;
use crate::info::WorkerInfo;
use crate::status::unix_seconds;

/// A slow request.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRequest {
    /// Name of the application, if it was set ([`crate::PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Time of detection, in seconds since 1970.
    pub at: f64,
    /// Id of the request.
    pub id: String,
    /// HTTP method.
    pub method: String,
    /// Truncated path without the query.
    pub path: String,
    /// Execution model.
    pub model: &'static str,
    /// Process id of the worker.
    pub pid: u32,
    /// How long it had been running when it was detected, in seconds.
    pub seconds: f64,
    /// The PHP stack at that time, the innermost function first.
    pub stack: Vec<String>,
    /// Why there is no stack, or only a part of it.
    pub why: Option<String>,
}

impl SlowRequest {
    /// Returns the request of a worker if it has been running for `limit` and was not reported. `now` is on the clock
    /// of `busy_since`.
    pub(crate) fn of(info: &WorkerInfo, model: Model, now: u64, limit: Duration) -> Option<Self> {
        let since = info.busy_since.load(Ordering::Relaxed);
        let ran = Duration::from_millis(now.saturating_sub(since));
        if since == 0 || ran < limit || info.reported_slow.swap(since, Ordering::Relaxed) == since {
            return None;
        }
        let current = info.current()?;
        Some(Self {
            application: None,
            at: unix_seconds(),
            id: current.id.0.to_string(),
            method: current.method.to_string(),
            path: current.path(),
            model: model.name(),
            pid: info.pid(),
            seconds: ran.as_secs_f64(),
            stack: Vec::new(),
            why: None,
        })
    }

    /// Logs the request.
    pub(crate) fn log(&self) {
        let stack = self.stack.join(" < ");
        let why = self.why.as_deref();
        warn!(
            worker.pid = self.pid,
            request.id = &*self.id,
            http.request.method = &*self.method,
            url.path = &*self.path,
            model = self.model,
            seconds = self.seconds,
            stack,
            why,
            "slow request"
        );
    }
}

/// Slow requests whose stack was requested from the zygote: at most one for each worker.
#[derive(Debug, Default)]
pub(crate) struct Traced(HashMap<u32, (Arc<WorkerInfo>, u64, SlowRequest)>);

impl Traced {
    /// Stores a request until its stack arrives.
    pub(crate) fn wait(&mut self, info: &Arc<WorkerInfo>, slow: SlowRequest) {
        let since = info.busy_since.load(Ordering::Relaxed);
        self.0.insert(slow.pid, (Arc::clone(info), since, slow));
    }

    /// Handles the zygote's reply; returns the request to report.
    pub(crate) fn answered(&mut self, pid: u32, stack: &str, why: &str) -> Option<SlowRequest> {
        let (info, since, mut slow) = self.0.remove(&pid)?;
        if info.busy_since.load(Ordering::Relaxed) == since {
            slow.stack = stack.lines().map(str::to_owned).collect();
            slow.why = Some(why.to_owned()).filter(|why| !why.is_empty());
        } else {
            // The stack may belong to another request.
            slow.why = Some("it had ended by then".to_owned());
        }
        Some(slow)
    }

    /// Returns all stored requests, because there will be no replies.
    pub(crate) fn give_up(&mut self, why: &str) -> impl Iterator<Item = SlowRequest> {
        let all = std::mem::take(&mut self.0).into_values();
        all.map(move |(.., slow)| SlowRequest { why: Some(why.to_owned()), ..slow })
    }
}
