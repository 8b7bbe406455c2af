//! Attempts to boot an application that did not boot, as operators see them.

use std::sync::Mutex;

use tokio::time::Instant;

use crate::ops::format::counted;
use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::{BootRetriesStatus, Status};
use crate::ops::subsystem::Subsystem;

/// The counters since the start of the server, and the next attempt.
#[derive(Debug, Default)]
pub(crate) struct BootRetries(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    succeeded: u64,
    failed: u64,
    last_failure: Option<String>,
    next: Option<Instant>,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The application boots, and has taken over.
    Succeeded,
    /// The application does not boot, for this reason.
    Failed(String),
}

impl BootRetries {
    /// Counts an attempt.
    pub(crate) fn count(&self, outcome: Outcome) {
        let mut counters = self.0.lock().expect("no holder panics");
        match outcome {
            Outcome::Succeeded => {
                counters.succeeded += 1;
                counters.last_failure = None;
            }
            Outcome::Failed(reason) => {
                counters.failed += 1;
                counters.last_failure = Some(reason);
            }
        }
    }

    /// Sets the time of the next attempt.
    pub(crate) fn next(&self, at: Option<Instant>) {
        self.0.lock().expect("no holder panics").next = at;
    }
}

impl Subsystem for BootRetries {
    fn status(&self, status: &mut Status) {
        let counters = self.0.lock().expect("no holder panics");
        let wait = |at: Instant| at.saturating_duration_since(Instant::now()).as_secs();
        status.boot_retries = BootRetriesStatus {
            succeeded: counters.succeeded,
            failed: counters.failed,
            last_failure: counters.last_failure.clone(),
            next_in_seconds: counters.next.map(wait),
        };
    }

    fn metrics(&self) {
        let (succeeded, failed) = {
            let counters = self.0.lock().expect("no holder panics");
            (counters.succeeded, counters.failed)
        };
        for (outcome, count) in [("succeeded", succeeded), ("failed", failed)] {
            metrics_table! { &[("outcome", outcome.to_owned())];
                counter "hearth_boot_retries_total" = count, "Further attempts to boot an application that did not boot, by outcome: succeeded, failed";
            }
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        let retries = &status.boot_retries;
        let Some(seconds) = retries.next_in_seconds else { return };
        let failed = match (retries.failed, &retries.last_failure) {
            (failed, Some(last)) => {
                format!(" {} failed; the last: {last}.", counted(failed, "attempt"))
            }
            _ => String::new(),
        };
        let text = format!(
            "The server is degraded: the application did not boot, and is booted again in {seconds} s.{failed}"
        );
        problems.add(Level::Warning, text);
    }
}
