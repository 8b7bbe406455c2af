//! RFC 6455 and RFC 7692 (permessage-deflate) for a server, without sockets: takes bytes, returns messages.
//!
//! Invariants
//! - Every MUST of RFC 6455 about client frames is enforced: a violation is a [`Violation`] with the code to close
//!   with.
//! - A message that is too large is rejected by its announced length, before memory is allocated; a compressed one
//!   while it grows.
//! - A message that is complete in the input is decoded in place. Between messages a [`Decoder`] holds no memory.
//! - The result does not depend on how the input is split.
//! - Neither side keeps a compression context between messages, so all sockets can share one compressed frame.

mod close;
mod decoder;
mod deflate;
mod frame;
mod mask;
mod upgrade;

pub use close::{CloseCode, InvalidCloseCode};
pub use decoder::{Decoder, Message, Rules, Step, Violation};
pub use deflate::{Deflater, Inflater};
pub(crate) use frame::data;
pub use frame::{close_frame, message_frame, ping_frame, pong_frame};
pub use upgrade::{BadUpgrade, Upgrade};

#[cfg(test)]
mod tests;
