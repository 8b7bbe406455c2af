//! RFC 6455 and RFC 7692 (permessage-deflate) as a server speaks them, without sockets: bytes in, messages out.
//!
//! Invariants
//! - Every MUST of RFC 6455 that concerns what a client sends is held to: what breaks it is a [`Violation`] with the code to close with.
//! - A message is refused by its announced length, before memory is taken for it; a compressed one while it grows.
//! - A message that lies whole in the input is decoded where it lies. Between messages a [`Decoder`] holds no memory.
//! - Nothing depends on how the input is cut.
//! - Neither side keeps a compression context from one message to the next: that is what lets all sockets share one compressed frame.

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
pub use frame::{close_frame, pong_frame};
pub use upgrade::{BadUpgrade, Upgrade};

#[cfg(test)]
mod tests;
