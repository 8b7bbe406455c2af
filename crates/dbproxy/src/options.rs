//! What a connector is told.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `MySQL`, `MariaDB` and what speaks as they do.
    MySql,
    /// `PostgreSQL`.
    Postgres,
    /// Redis, Valkey.
    Redis,
}

/// How a server has to prove who it is: libpq's `sslmode`, without the modes that go on in the clear when the server would rather not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// `disable`: no encryption.
    Disable,
    /// `require`: encrypted, to whomever.
    Require,
    /// `verify-ca`: an authority that is believed has signed the certificate.
    Authority,
    /// `verify-full`: and it is the server's name that stands in it.
    Full,
}

/// One connector.
#[derive(Clone, Debug)]
pub struct Options {
    /// For logs and messages.
    pub name: String,
    /// Where PHP connects. Only our own user may, and the client's.
    pub socket: PathBuf,
    /// The user that PHP runs as, where that is not ours: its number, and that of a group of its own and ours. Others of the group are turned
    /// away.
    pub client: Option<(u32, u32)>,
    /// What is spoken, both ways.
    pub protocol: Protocol,
    /// The server's name or address; it stands in the certificate, too.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// How the server proves who it is.
    pub verify: Verify,
    /// The authorities that are believed, a PEM file. Unused without verification.
    pub authorities: Option<PathBuf>,
    /// Our own certificate and its key, PEM files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Who logs in. Of Redis there may be nobody: then clients say `AUTH` themselves.
    pub login: Option<Login>,
    /// Sessions at the server, used and idle.
    pub sessions: NonZeroUsize,
    /// How long a client waits for one.
    pub wait: Duration,
    /// How long connecting, encrypting and logging in may take together.
    pub connect: Duration,
    /// How long the server may take to prove that a session is as new.
    pub reset: Duration,
    /// How long a session stays that nobody uses.
    pub idle: Duration,
    /// How long a session is used; `None`: without end.
    pub age: Option<Duration>,
}

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Login {
    /// The server's user; of Redis it may be empty, for the one that every server has.
    pub user: String,
    /// The user's password.
    pub password: Password,
    /// Where clients go that name no database.
    pub database: Option<String>,
}

/// Where a password is.
#[derive(Clone, Debug)]
pub enum Password {
    /// There is none.
    None,
    /// Here.
    Given(Secret),
    /// In a file, that is read again for each login: one that was changed is there when the server wants it.
    File(PathBuf),
}

impl Password {
    /// Reads it; a line's end at its end does not belong to it.
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

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
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
