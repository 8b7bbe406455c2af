//! The database proxy: PHP uses a database's plain protocol on a unix socket (a connector), and the proxy uses TLS to
//! the server.
//!
//! Invariants
//! - A server session has one client at a time. It passes to the next one only after a proof that it is reset: the
//!   complete responses to a reset, ending with a random number.
//! - There are never more sessions than the limit. A client without a free one waits for a limited time, and is then
//!   rejected with an error of its protocol.
//! - Nothing is sent to a server whose certificate is not trusted, and no password is in an error, a log or a
//!   `Debug`.
//! - The crate does not depend on PHP, workers or configuration files.

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
