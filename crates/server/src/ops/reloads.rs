//! The queue of requests for a reload, and the outcomes of reloads.
//!
//! Invariants
//! - At most [`ASKS`] requests wait; one more is refused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;
use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::{Reloads, Status};
use crate::ops::subsystem::Subsystem;

/// The most requests that may wait for a reload; all of them get the outcome of one.
const ASKS: usize = 128;

/// The queue between commands that ask for a reload and the task that reloads.
#[derive(Debug)]
pub(crate) struct ReloadQueue {
    asks: mpsc::Sender<Ask>,
    asked: Mutex<Option<mpsc::Receiver<Ask>>>,
    /// This command cannot reload.
    no_reloads: AtomicBool,
    outcomes: Mutex<Reloads>,
}

/// A new generation has taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// The number of the new generation.
    pub generation: u64,
    /// The line that explains what runs.
    pub explanation: String,
    /// The time from the beginning of the reload to the switch.
    pub milliseconds: u64,
    /// Settings that were changed and need a restart.
    pub restart_for: Vec<String>,
}

/// A request for a reload.
#[derive(Debug)]
pub(crate) struct Ask {
    /// The origin of the request, for the log.
    pub why: String,
    /// The channel for the outcome.
    pub answer: Option<oneshot::Sender<Result<Reloaded, Failure>>>,
}

impl Default for ReloadQueue {
    fn default() -> Self {
        let (asks, asked) = mpsc::channel(ASKS);
        let (no_reloads, outcomes) = (AtomicBool::new(false), Mutex::default());
        Self { asks, asked: Mutex::new(Some(asked)), no_reloads, outcomes }
    }
}

impl ReloadQueue {
    /// Asks for a reload. Returns false when no task takes requests, or when the queue is full.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }

    /// Returns the receiver of requests, with those that have come already, the first time it is called.
    pub(crate) fn asked(&self) -> Option<mpsc::Receiver<Ask>> {
        self.asked.lock().expect("no holder panics").take()
    }

    /// Marks this command as one that reloads nothing.
    pub(crate) fn switch_off(&self) {
        self.no_reloads.store(true, Ordering::Release);
    }

    /// Returns whether requests are taken, now or once the boot has ended.
    pub(crate) fn is_on(&self) -> bool {
        !self.no_reloads.load(Ordering::Acquire)
    }

    /// Changes the outcomes of reloads.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Reloads)) {
        change(&mut self.outcomes.lock().expect("no holder panics"));
    }
}

impl Subsystem for ReloadQueue {
    fn status(&self, status: &mut Status) {
        status.reloads = self.outcomes.lock().expect("no holder panics").clone();
    }

    fn metrics(&self) {
        if !self.is_on() {
            return;
        }
        let reloads = self.outcomes.lock().expect("no holder panics").clone();
        for (outcome, count) in [("done", reloads.done), ("failed", reloads.failed)] {
            metrics_table! { &[("outcome", outcome.to_owned())];
                counter "hearth_reloads_total" = count, "Reloads by outcome: done, failed";
            }
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        problems_of(status, problems);
    }
}

/// Adds the problem of a reload that has failed.
pub(crate) fn problems_of(status: &Status, problems: &mut Problems) {
    if let Some(why) = &status.reloads.last_failure {
        let text = format!("The last reload failed, the old release continues: {why}.");
        problems.add(Level::Warning, text);
    }
}
