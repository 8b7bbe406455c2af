//! Tests the hub through its public API with real sockets, clients and time.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers are outside of #[test] functions"
)]

mod adoption;
mod changes;
mod closing;
mod conversation;
mod crowds;
mod kit;
mod slow;
mod streams;
