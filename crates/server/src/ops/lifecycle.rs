//! The life of a server's process: starting, ready, draining, ended.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ops::log;
use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::Status;
use crate::ops::subsystem::Subsystem;

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// The phase of this process, and the tokens by which it ends.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    started: Instant,
    phase: AtomicU8,
    ending: Ending,
}

/// The tokens of the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Cancelled when the server drains: it finishes running requests and accepts no new ones.
    pub drain: CancellationToken,
    /// Cancelled when the server ends without waiting.
    pub at_once: CancellationToken,
}

impl Ending {
    /// A signal has come: the first one asks for an end in order, the second one does not wait.
    pub(crate) fn one_more(&self) {
        if self.drain.is_cancelled() {
            self.at_once.cancel();
        } else {
            self.drain.cancel();
        }
    }

    /// Ends without waiting.
    pub(crate) fn at_once(&self) {
        self.drain.cancel();
        self.at_once.cancel();
    }
}

impl Lifecycle {
    /// Returns the lifecycle of a process that starts now.
    pub(crate) fn starting() -> Self {
        let (started, phase) = (Instant::now(), AtomicU8::new(STARTING));
        Self { started, phase, ending: Ending::default() }
    }

    /// Returns the tokens by which the process is asked to end.
    pub(crate) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Marks the server as ready: it answers requests.
    pub(crate) fn ready(&self) {
        self.phase.store(READY, Ordering::Release);
    }

    /// Marks the server as draining: it takes no new requests.
    pub(crate) fn draining(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// Returns `starting`, `ready` or `draining`.
    pub(crate) fn phase(&self) -> &'static str {
        match self.phase.load(Ordering::Acquire) {
            STARTING => "starting",
            READY => "ready",
            _ => "draining",
        }
    }
}

impl Subsystem for Lifecycle {
    fn status(&self, status: &mut Status) {
        status.state = self.phase();
        status.uptime_seconds = self.started.elapsed().as_secs();
    }

    fn metrics(&self) {
        metrics_table! { &[];
            gauge "hearth_uptime_seconds" = self.started.elapsed().as_secs_f64(), "Seconds since the server started";
            counter "hearth_log_lost_total" = log::lost(), "Lines of the log that were lost because what reads stderr was too slow";
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        problems_of(status, problems);
    }
}

/// Adds the problem of a server that is not ready.
pub(crate) fn problems_of(status: &Status, problems: &mut Problems) {
    match status.state {
        "starting" => {
            problems.add(Level::Warning, "The server starts: it answers nothing yet.");
        }
        "draining" => {
            problems.add(Level::Warning, "The server ends: it takes no new requests.");
        }
        _ => {}
    }
}
