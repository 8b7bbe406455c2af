//! The Lambda front: asks the Runtime API for events, turns each into a request for the pool, and posts the answer.
//!
//! Knows nothing of processes, of PHP, of configuration files and of the HTTP front.
//!
//! Invariants
//! - Each invocation gets exactly one answer: a response, or an error.
//! - The next event is asked for only when the worker of the last one can take it.

mod event;
mod runtime;

pub mod emulator;

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::event::fuzzing::event;
}

pub use event::Shape;
pub use runtime::{
    Failed, Options, Report, Runtime, Target, report_init_error, report_restore_error,
    wait_for_restore,
};
