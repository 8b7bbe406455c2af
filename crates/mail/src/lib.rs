//! Mail: composes messages (RFC 5322, MIME), and is an SMTP client (RFC 5321 and its extensions).
//!
//! It knows nothing of sockets, TLS, names or C: a session uses any stream, and returns it when TLS must start.
//!
//! Invariants
//! - A caller's data cannot break out of their place: no CR, LF or NUL reaches a command or a field's line.
//! - A recipient in Bcc is in the envelope and nowhere in the message.
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
