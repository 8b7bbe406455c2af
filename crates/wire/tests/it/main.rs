//! The crate through its public face: the vectors that C passes too, and what no vector lists.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod any_bytes;
mod vectors;
