//! Tests the crate through its public API: the vectors that C passes too, and random input.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod any_bytes;
mod vectors;
