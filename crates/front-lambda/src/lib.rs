//! The Lambda front: polls the Runtime API for events, converts each to a request for the pool, and posts the
//! response.
//!
//! This crate does not depend on processes, PHP, configuration files or the HTTP front.
//!
//! Invariants
//! - Each invocation gets exactly one response or error.
//! - The next event is requested only when the worker of the last one can accept it. With several lanes (Managed Instances) it may
//!   have to wait while workers still work behind their answers.

mod event;
mod runtime;

pub mod emulator;

/// Entry points of fuzz targets.
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
