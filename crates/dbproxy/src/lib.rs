//! The connector: PHP speaks a database's plain protocol to a unix socket, and the connector speaks TLS to the server.
//!
//! Invariants
//! - A server session has one client at a time, and passes to the next one only after it has proved that it is as new: the answers to a
//!   reset, whole, with a number at their end that nobody could know.
//! - There are never more sessions than the limit; who finds none free waits in line, for so long and no longer, and is then refused in the
//!   protocol's own words.
//! - Nothing goes to a server whose certificate does not convince, and no password into an error, a log or a `Debug`.
//! - Knows nothing of PHP, workers and configuration files.

mod capacity;
mod connector;
mod error;
mod mysql;
mod options;
mod packets;
mod postgres;
mod proof;
mod protocol;
mod redis;
mod relay;
mod report;
mod server;
mod sessions;
mod tls;

pub use self::connector::{BindError, Connector, TryError, Watch};
pub use self::error::Refused;
pub use self::options::{Login, Options, Password, Protocol, Secret, Verify};
pub use self::report::Report;
pub use self::tls::{Trust, TrustError};
