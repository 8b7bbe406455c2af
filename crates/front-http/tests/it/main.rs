//! Tests the front through its public API: real sockets, with an application of the tests in PHP's place.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers are outside of #[test] functions"
)]

mod support;

mod access_log;
mod answers;
mod cache;
mod compression;
mod connections;
mod files;
mod hostile;
mod http1;
mod http2;
mod http3;
mod http3_attacks;
mod http3_upgrade;
mod limits;
mod proxies;
mod request_buffering;
mod shutdown;
mod slow_readers;
mod tls;
mod websockets;
