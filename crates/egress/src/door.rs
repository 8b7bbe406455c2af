//! The broker's doors: how other processes ask for calls. docs/internals/egress.md describes what goes over the sockets.

mod control;
mod declined;
mod fields;
mod files;
mod frame;
mod head;
mod http;
mod prepare;
mod refusal;
mod socket;
mod target;
mod wire;

pub use self::declined::DoorReport;
pub use self::http::{DoorOptions, DoorWatch, HttpDoor};
pub use self::socket::SocketError;
