//! Reasons why a pool does not start, and why a request gets no response from PHP.

use std::time::Duration;

/// Reasons why a pool does not start. The server prints the error and exits with 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The worker program cannot be started.
    #[error("cannot start {program}")]
    Program {
        /// Path of `hearth-worker-8.x`.
        program: String,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The zygote ended before it sent HELLO; `output` is the end of its output.
    #[error("{program} ended while PHP started: {output}")]
    Zygote {
        /// Path of `hearth-worker-8.x`.
        program: String,
        /// The last lines of its stderr.
        output: String,
    },
    /// The worker script ended before it accepted a request, or no worker became ready in time; `output` is the end of
    /// the program's output.
    #[error("the application did not boot: {output}")]
    Boot {
        /// The last log lines of the worker.
        output: String,
    },
    /// The application boots, but its process cannot be forked (for example, because a thread is running). Models
    /// that boot in each worker or for each request can run it.
    #[error("the booted application cannot be forked: {why}")]
    Unfit {
        /// The zygote's explanation.
        why: String,
    },
    /// The application boots and can be forked, but no worker could take its snapshot. [`crate::Model::Fork`] can run
    /// it.
    #[error("no snapshot of the booted application can be taken: {why}")]
    NoSnapshot {
        /// The worker's explanation.
        why: String,
    },
    /// The application boots, but the system refused every fork of it until the time limit for its boot.
    #[error("no worker could be forked within {limit:?}")]
    Fork {
        /// [`crate::Options::boot_timeout`].
        limit: Duration,
        /// The system's last error.
        #[source]
        cause: std::io::Error,
    },
    /// PHP cannot be confined as [`crate::Options::sandbox`] requires.
    #[error("cannot confine PHP")]
    Sandbox(#[from] crate::SandboxError),
    /// PHP runs as another user, and /proc hides its processes, so neither their memory nor their end can be
    /// observed.
    #[error("process {pid} of PHP's is not to be seen in /proc")]
    Hidden {
        /// Process id.
        pid: u32,
    },
    /// The system refused a socket, a pipe or a directory.
    #[error("cannot set up the pool")]
    System(#[from] std::io::Error),
}

/// Reasons why a request got no response from PHP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The backlog is full, or no worker became free in time. Front: 503 and Retry-After.
    #[error("no worker became free within {waited:?}")]
    Overloaded {
        /// How long the request waited; zero if the backlog was full.
        waited: Duration,
    },
    /// The pool is draining and accepts no new requests. Front: 503 and `Connection: close`.
    #[error("the server is shutting down")]
    Draining,
    /// The worker died before it responded. Front: 502.
    #[error("worker {pid} died: {how}")]
    WorkerDied {
        /// Process id.
        pid: u32,
        /// `signal 11`, `exit status 255`, `sent a malformed frame: …`.
        how: String,
    },
    /// The request time limit passed; the worker was killed. Front: 504.
    #[error("no answer within {limit:?}")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The request head does not fit a frame. Front: 431.
    #[error("the request head is too large for PHP")]
    HeadTooLarge,
    /// The request body could not be read from the client. Front: the status of its own body error (400, 408, 413).
    #[error("the request body could not be read")]
    RequestBody(#[source] Box<dyn std::error::Error + Send + Sync>),
}
