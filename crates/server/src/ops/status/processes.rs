//! Supervised commands in `/status`.

use serde::Serialize;

/// A process of `[processes]`, with all of its instances.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub name: String,
    pub application: String,
    pub command: String,
    /// The line of cron by which it is started.
    pub cron: Option<String>,
    /// The time of the next run, in RFC 3339.
    pub next_run: Option<String>,
    /// How many are to run; 1 with `cron`.
    pub count: usize,
    pub instances: Vec<Instance>,
    /// Starts after an instance had ended by itself.
    pub restarts: u64,
    /// Runs that `cron` has started.
    pub runs: u64,
    /// Runs that were left out because the one before still went on.
    pub overlaps: u64,
    /// Instances that had to be killed, as they did not end in time.
    pub killed: u64,
    pub last_exit: Option<Exit>,
    /// Why it cannot be started, if so.
    pub cannot_start: Option<String>,
    /// Whether instances end soon after their start, again and again.
    pub fails: bool,
    pub stop_timeout_seconds: u64,
}

/// One instance that runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Instance {
    /// The instance's number, from 1 to `count`.
    pub number: usize,
    pub pid: u32,
    /// The generation of the application that it runs.
    pub generation: u64,
    pub seconds: u64,
    /// Whether the instance was asked to end.
    pub stopping: bool,
}

/// The end of an instance.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Exit {
    /// `exit code 1`, or `signal 9`.
    pub how: String,
    /// The exit code; 128 and the number of the signal if one has ended it, as in shells.
    pub code: i32,
    /// Seconds since 1970.
    pub at: f64,
}
