//! The engine through its public API, with origins that follow a script.

mod calls;
mod connections;
mod faults;
mod frames;
mod http2;
mod opening;
mod proxies;
mod reuse;
mod scopes;
mod support;
mod tls;
