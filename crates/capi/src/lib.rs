//! libhearth: the C ABI over the egress engine. include/hearth.h is its face, docs/internals/client.md says how it works.
//!
//! Knows nothing of PHP, workers, listeners and configuration files.
//!
//! Invariants
//! - No panic crosses the boundary.
//! - What C gets it owns, borrows for the length of a callback, or gives away: each function says which of the three.

#[cfg(panic = "abort")]
compile_error!("a panic must be caught at the boundary: build with panic = unwind");

mod abi;

mod engine;
mod request;
mod response;
mod runtime;
mod settings;

mod in_flight;
mod io;
mod local_file;
mod run;

mod smtp;

mod cookies;
mod debug;
mod digest;
mod download;
mod gate;
mod peer;
mod prepare;
mod progress;
mod redirect;
mod retry;
mod target;
mod unlock;
mod upload;
mod verb;

mod callbacks;
mod calls;
mod error;
mod stats;
mod sys;

#[cfg(test)]
mod faults;
