//! Requests that take long: noticed while they run, each once, with the place where PHP's code is.
//!
//! Invariants
//! - A request is told once, however long it goes on.
//! - No word of its query, its fields or its arguments is told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tracing::warn;

use crate::Model;
use crate::info::WorkerInfo;
use crate::status::unix_seconds;

/// A request that took long.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRequest {
    /// Whose it is, where somebody has said it ([`crate::PoolStatus::of`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// When that was noticed, in seconds since 1970.
    pub at: f64,
    /// The request's id.
    pub id: String,
    /// Its method.
    pub method: String,
    /// Its path, cut; not its query.
    pub path: String,
    /// The model.
    pub model: &'static str,
    /// The worker's process id.
    pub pid: u32,
    /// How long it had been running when it was noticed, in seconds.
    pub seconds: f64,
    /// PHP's functions under way then, the innermost first.
    pub stack: Vec<String>,
    /// Why there is no stack, or not all of it.
    pub why: Option<String>,
}

impl SlowRequest {
    /// The request of a worker, when it has been running for `limit` and has not been told. `now`: on the clock of `busy_since`.
    pub(crate) fn of(info: &WorkerInfo, model: Model, now: u64, limit: Duration) -> Option<Self> {
        let since = info.busy_since.load(Ordering::Relaxed);
        let ran = Duration::from_millis(now.saturating_sub(since));
        if since == 0 || ran < limit || info.told_slow.swap(since, Ordering::Relaxed) == since {
            return None;
        }
        let asked = info.asked()?;
        Some(Self {
            application: None,
            at: unix_seconds(),
            id: asked.id.0.to_string(),
            method: asked.method.to_string(),
            path: asked.path(),
            model: model.name(),
            pid: info.pid(),
            seconds: ran.as_secs_f64(),
            stack: Vec::new(),
            why: None,
        })
    }

    /// Says it, to whoever reads the log.
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

/// Slow requests whose stack the zygote was asked for: at most one for each worker.
#[derive(Debug, Default)]
pub(crate) struct Traced(HashMap<u32, (Arc<WorkerInfo>, u64, SlowRequest)>);

impl Traced {
    /// Keeps it until the answer comes.
    pub(crate) fn wait(&mut self, info: &Arc<WorkerInfo>, slow: SlowRequest) {
        let since = info.busy_since.load(Ordering::Relaxed);
        self.0.insert(slow.pid, (Arc::clone(info), since, slow));
    }

    /// The zygote's answer: what is to be told.
    pub(crate) fn answered(&mut self, pid: u32, stack: &str, why: &str) -> Option<SlowRequest> {
        let (info, since, mut slow) = self.0.remove(&pid)?;
        if info.busy_since.load(Ordering::Relaxed) == since {
            slow.stack = stack.lines().map(str::to_owned).collect();
            slow.why = Some(why.to_owned()).filter(|why| !why.is_empty());
        } else {
            // What was seen may be another request's.
            slow.why = Some("it had ended by then".to_owned());
        }
        Some(slow)
    }

    /// There will be no answers.
    pub(crate) fn give_up(&mut self, why: &str) -> impl Iterator<Item = SlowRequest> {
        let all = std::mem::take(&mut self.0).into_values();
        all.map(move |(.., slow)| SlowRequest { why: Some(why.to_owned()), ..slow })
    }
}
