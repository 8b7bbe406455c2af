//! The engine through its public face, towards origins that do what a script says.

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
