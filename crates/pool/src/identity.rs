//! The user that PHP runs as, if it is another one than the server's: its processes, and its access to the server's
//! files.
//!
//! Invariants
//! - PHP has none of the server's rights: neither its user nor its groups nor a capability, and no program that it
//!   starts gains any (`no_new_privs`).
//! - Files for PHP belong to the server: PHP's group may use them, all others may not.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::sys;

/// A system user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Numeric user id.
    pub user: u32,
    /// Primary group, which owns the files it creates.
    pub group: u32,
    /// All groups, including the primary one.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Makes `command` start its program as this user. The server needs `CAP_SETUID` and `CAP_SETGID` for it, and
    /// `CAP_KILL` to end what it has started.
    pub fn put_on(&self, command: &mut Command) {
        sys::run_as(command, self);
    }

    /// Gives this group access with `mode` to one of the server's files or folders. The server must be in that group,
    /// or root.
    pub fn share(&self, path: &Path, mode: u32) -> io::Result<()> {
        chown(path, None, Some(self.group))?;
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    }
}
