//! Who PHP is where it is somebody else than the server: as whom its processes run, and what of the server's own files they may use.
//!
//! Invariants
//! - PHP has nothing of the server's: neither its user nor its groups nor a capability, and nothing that it starts gains any (`no_new_privs`).
//! - Files for PHP stay the server's: PHP's group may use them, nobody else may.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::sys;

/// Somebody, as the system numbers him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// His number.
    pub user: u32,
    /// The group of what he makes.
    pub group: u32,
    /// All that he is in, that one among them.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Has `command` start its program as him. The server needs `CAP_SETUID` and `CAP_SETGID` for it, and `CAP_KILL` to end what it has started.
    pub fn put_on(&self, command: &mut Command) {
        sys::become_other(command, self);
    }

    /// Lets his group use a file or folder of ours, with `mode`. Our process has to be in that group, or root.
    pub fn share(&self, path: &Path, mode: u32) -> io::Result<()> {
        chown(path, None, Some(self.group))?;
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    }
}
