//! Reasons why a client gets no session.

use std::io;
use std::time::Duration;

/// The error for the client, in its protocol. It contains no password and no byte of a login.
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
    /// The server is unreachable.
    #[error("cannot connect to {address}: {cause}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The error.
        cause: io::Error,
    },
    /// The server's certificate is not trusted, or it rejects ours, or does not support TLS.
    #[error("no encrypted connection to {address}: {why}")]
    Tls {
        /// Host and port.
        address: String,
        /// Explanation.
        why: String,
    },
    /// The server rejects the login. Its whole response is kept, because a client of this protocol understands it.
    #[error("the server refuses the login: {message}")]
    Login {
        /// The server's message.
        message: String,
        /// The packet.
        answer: Vec<u8>,
    },
    /// The server requires an unsupported login method.
    #[error("{0}")]
    Unsupported(String),
    /// The server or the client violated the protocol.
    #[error("{address} does not speak the protocol: {what}")]
    Protocol {
        /// Host and port.
        address: String,
        /// The violation.
        what: &'static str,
    },
    /// The password file cannot be read.
    #[error("cannot read the password's file: {0}")]
    Password(io::Error),
}
