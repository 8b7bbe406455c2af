//! Tests of the whole product: the program `hearth`, the worker program and real PHP.
#![expect(
    clippy::disallowed_types,
    reason = "real processes run in real time; std's Instant needs no runtime"
)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod databases;
mod egress;
mod extensions;
mod front;
mod hearth;
mod isolation;
mod lambda;
mod models;
mod operations;
mod realtime;
mod websockets;
