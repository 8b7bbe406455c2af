//! Settings of a connector.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The database protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `MySQL`, `MariaDB` and compatible servers.
    MySql,
    /// `PostgreSQL`.
    Postgres,
    /// Redis, Valkey.
    Redis,
}

/// Verification of the server: libpq's `sslmode`, without the modes that fall back to no encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// `disable`: no encryption.
    Disable,
    /// `require`: encryption without verification.
    Require,
    /// `verify-ca`: a trusted authority has signed the certificate.
    Authority,
    /// `verify-full`: the certificate also contains the server's name.
    Full,
}

/// Settings of one connector.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name for logs and messages.
    pub name: String,
    /// Path of the socket for PHP. Only the server's own user and the client's may connect.
    pub socket: PathBuf,
    /// The user that PHP runs as, if it is another one: its id, and that of a group shared with the server. Other
    /// members of the group are rejected.
    pub client: Option<(u32, u32)>,
    /// Protocol on both sides.
    pub protocol: Protocol,
    /// Name or address of the server, which is also the name in the certificate.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// How the server's certificate is verified.
    pub verify: Verify,
    /// PEM file of trusted authorities. Unused without verification.
    pub authorities: Option<PathBuf>,
    /// Client certificate and its key, PEM files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Login at the server. It may be missing for Redis: then clients send `AUTH` themselves.
    pub login: Option<Login>,
    /// Maximum number of sessions at the server, used and idle.
    pub sessions: NonZeroUsize,
    /// How long a client waits for a session.
    pub wait: Duration,
    /// How long connecting, TLS and logging in may take together.
    pub connect: Duration,
    /// How long the server may take to prove a reset.
    pub reset: Duration,
    /// How long an unused session stays open.
    pub idle: Duration,
    /// Maximum age of a session; `None` for no limit.
    pub age: Option<Duration>,
}

/// A login at the server.
#[derive(Clone, Debug)]
pub struct Login {
    /// User at the server; for Redis it may be empty, which means the default user.
    pub user: String,
    /// Password of the user.
    pub password: Password,
    /// Database of clients that name none.
    pub database: Option<String>,
}

/// The source of a password.
#[derive(Clone, Debug)]
pub enum Password {
    /// No password.
    None,
    /// A given password.
    Given(Secret),
    /// A file that is read for each login, so that a changed password takes effect.
    File(PathBuf),
}

impl Password {
    /// Reads the password; a line end at its end is removed.
    pub(crate) fn read(&self) -> std::io::Result<Secret> {
        match self {
            Self::None => Ok(Secret::new("")),
            Self::Given(secret) => Ok(secret.clone()),
            Self::File(path) => read(path),
        }
    }
}

fn read(path: &Path) -> std::io::Result<Secret> {
    let text = std::fs::read_to_string(path)?;
    Ok(Secret::new(text.trim_end_matches(['\n', '\r'])))
}

/// A text that is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
