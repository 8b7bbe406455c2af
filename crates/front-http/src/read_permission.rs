//! The read permission check for files, if PHP runs as another user than the server: a link created by PHP cannot
//! expose a file that PHP could not read.
//!
//! Invariants
//! - The check uses the opened file: owner, group and mode, and the folders above it if it is outside the document
//!   root (`path_resolution(7)`).
//! - Access control lists (acl(5)) are ignored: what only an ACL allows is not sent.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const READ: u32 = 0o4;
const ENTER: u32 = 0o1;

/// A user that must be able to read a file for it to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPermission {
    /// Numeric user id.
    pub user: u32,
    /// All groups of the user.
    pub groups: Vec<u32>,
}

impl ReadPermission {
    fn may(&self, what: &Metadata, bit: u32) -> bool {
        let mode = what.mode();
        let granted = if what.uid() == self.user {
            mode >> 6
        } else if self.groups.contains(&what.gid()) {
            mode >> 3
        } else {
            mode
        };
        granted & bit != 0
    }
}

/// Checks whether the user may read a file.
#[derive(Clone, Debug)]
pub(crate) struct AccessCheck {
    read_permission: ReadPermission,
    root: PathBuf,
}

impl AccessCheck {
    /// Creates the check; `None` allows whatever the server may read.
    pub(crate) fn new(
        read_permission: Option<&ReadPermission>,
        document_root: &Path,
    ) -> Option<Self> {
        let root = document_root.canonicalize().unwrap_or_else(|_cause| document_root.to_owned());
        Some(Self { read_permission: read_permission?.clone(), root })
    }

    /// Returns whether the user could have opened `file`. Folders above the document root are not checked, because
    /// access to the document root is assumed.
    pub(crate) fn allows(&self, file: &File, metadata: &Metadata) -> bool {
        let Self { read_permission, root } = self;
        if !read_permission.may(metadata, READ) {
            return false;
        }
        // The current name of the file, whichever path led to it.
        let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else {
            return false;
        };
        let mut above = path.ancestors().skip(1);
        path.starts_with(root)
            || above.all(|folder| {
                std::fs::symlink_metadata(folder)
                    .is_ok_and(|folder| read_permission.may(&folder, ENTER))
            })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_unreadable_by_phps_user_are_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let set = |name: &str, mode| {
            set_permissions(path.join(name), Permissions::from_mode(mode)).unwrap();
        };
        for name in ["public", "private", "open"] {
            std::fs::create_dir(path.join(name)).unwrap();
            std::fs::write(path.join(name).join("file"), name).unwrap();
            set(&format!("{name}/file"), 0o644);
            set(name, 0o755);
        }
        set("private", 0o700);
        set("", 0o755);
        for target in ["private", "open"] {
            symlink(path.join(target).join("file"), path.join("public").join(target)).unwrap();
        }
        let own = std::fs::metadata(&path).unwrap();
        let stranger = ReadPermission { user: own.uid() + 1, groups: vec![own.gid() + 1] };
        let member = ReadPermission { user: own.uid() + 1, groups: vec![own.gid()] };
        let owner = ReadPermission { user: own.uid(), groups: Vec::new() };
        let may = |read_permission: &ReadPermission, name: &str| {
            let file = File::open(path.join("public").join(name)).unwrap();
            let metadata = file.metadata().unwrap();
            let access_check =
                AccessCheck::new(Some(read_permission), &path.join("public")).unwrap();
            access_check.allows(&file, &metadata)
        };
        for (name, for_strangers) in [("file", true), ("open", true), ("private", false)] {
            assert_eq!(may(&stranger, name), for_strangers, "{name}");
            assert_eq!(may(&member, name), for_strangers, "{name}");
            assert!(may(&owner, name), "{name}");
        }
        set("private", 0o710);
        assert!(may(&member, "private") && !may(&stranger, "private"));
        for name in ["public", "open", "private"] {
            set(&format!("{name}/file"), 0o640);
        }
        for name in ["file", "open", "private"] {
            assert!(may(&member, name) && !may(&stranger, name), "{name}");
        }
        // The owner's mode bits apply to the owner, whatever others may do.
        set("public/file", 0o044);
        if own.uid() != 0 {
            return;
        }
        assert!(!may(&owner, "file") && may(&stranger, "file"));
    }
}
