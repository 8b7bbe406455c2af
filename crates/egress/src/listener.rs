//! The broker's listeners: how other processes ask for calls. docs/internals/egress.md describes what goes over the sockets.

mod control;
mod declined;
mod fields;
mod files;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod http;
mod prepare;
mod refusal;
mod shortage;
mod socket;
mod target;
mod trace;
mod wire;

pub use self::declined::ListenerReport;
pub use self::http::{HttpListener, ListenerOptions, ListenerWatch};
pub use self::socket::SocketError;
