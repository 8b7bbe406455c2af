//! Why a client gets no session.

use std::io;
use std::time::Duration;

/// What the client is told, in its protocol's words. No password and no byte of a login is in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// All sessions are in use.
    #[error(
        "none of the {sessions} sessions became free within {waited:?} (`sessions` and `wait` of the connector)"
    )]
    Busy {
        /// The limit.
        sessions: usize,
        /// How long the client has waited.
        waited: Duration,
    },
    /// Nobody answers there.
    #[error("cannot connect to {address}: {cause}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// The server has a certificate that does not convince, or does not like ours, or knows no TLS.
    #[error("no encrypted connection to {address}: {why}")]
    Tls {
        /// Host and port.
        address: String,
        /// In words.
        why: String,
    },
    /// The server does not let us in. Its own answer, whole: a client of this protocol understands it.
    #[error("the server refuses the login: {message}")]
    Login {
        /// What the server says.
        message: String,
        /// The packet.
        answer: Vec<u8>,
    },
    /// The server wants a login that we do not know.
    #[error("{0}")]
    Unsupported(String),
    /// What the server or the client says is not the protocol.
    #[error("{address} does not speak the protocol: {what}")]
    Protocol {
        /// Host and port.
        address: String,
        /// What was wrong.
        what: &'static str,
    },
    /// The password's file cannot be read.
    #[error("cannot read the password's file: {0}")]
    Password(io::Error),
}
