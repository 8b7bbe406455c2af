//! The broker's listeners, through which other processes request calls. The protocols are in docs/internals/egress.md.

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
