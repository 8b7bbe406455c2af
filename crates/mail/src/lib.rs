//! Mail: messages as they are written (RFC 5322, MIME), and SMTP as a client speaks it (RFC 5321 and its extensions).
//!
//! Knows nothing of sockets, TLS, names and C: a session speaks over any stream, and hands it back where TLS is to begin.
//!
//! Invariants
//! - What a caller gives cannot break out of its place: no CR, LF or NUL reaches a command or a field's line.
//! - A recipient in Bcc stands in the envelope and nowhere in the message.
//! - On the wire each line ends with CR LF, and a CR or LF stands nowhere else: a message has one end, its own.
//! - The final dot is announced before its first byte can go out: from then on the outcome is unknown until the reply has come.

mod address;
mod draft;

mod compose;
mod encode;
mod message;
mod raw;

mod capabilities;
mod reply;

mod auth;
#[cfg(any(test, fuzzing))]
mod checks;
mod session;
mod trouble;

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::checks::server;
}

pub use address::{Address, Flaw};
pub use auth::{Credentials, Secret};
pub use capabilities::Capabilities;
pub use draft::{Content, Draft, Kind, Part, Place, Recipient, Sender};
pub use message::{Message, Reader};
pub use reply::Reply;
pub use session::{Dsn, Envelope, Session, Times, Upgraded, Witness};
pub use trouble::{Phase, Trouble};
