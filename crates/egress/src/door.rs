//! The broker's doors: how other processes ask for calls. docs/internals/egress.md describes what goes over the sockets.

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

pub use self::declined::DoorReport;
pub use self::http::{DoorOptions, DoorWatch, HttpDoor};
pub use self::socket::SocketError;
