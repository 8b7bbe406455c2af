//! Tests the Lambda front through its public API: real sockets, and scripted peers.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bootstrap;
mod emulator;
