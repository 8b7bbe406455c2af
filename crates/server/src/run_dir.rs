//! The private folder of one running server: its control socket, the broker's, and a folder for each generation.
//!
//! Invariants
//! - Only our own user can look into it (mode 0700; files 0600). Where PHP is another user, it can pass through (0711) to what is for it: folders
//!   and files of its group.
//! - A folder that we made is gone when we are; one that was configured stays.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::user::PhpUser;

/// A socket's file that this process has made; taken away on drop, unless another one has put its own in its place.
#[derive(Debug)]
pub(crate) struct Made {
    path: PathBuf,
    inode: u64,
}

impl Made {
    /// What is there now.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        let inode = std::fs::symlink_metadata(&path)?.ino();
        Ok(Self { path, inode })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| there.ino() == self.inode) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// How the names of folders begin that servers make for themselves.
pub(crate) const SERVERS: &str = "hearth-";

/// Lets others pass through a folder of ours: they come to what is theirs in it if they know its name, and cannot look around.
pub(crate) fn let_pass(folder: &Path) -> io::Result<()> {
    const PASS: u32 = 0o011;
    let mode = std::fs::metadata(folder)?.permissions().mode();
    if mode & PASS == PASS {
        return Ok(());
    }
    std::fs::set_permissions(folder, Permissions::from_mode(mode | PASS))
}

/// The folder, removed on drop when it is ours.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    ours: bool,
}

impl RunDir {
    /// Takes the configured folder (made if it is not there), or makes a new one below `temporary`.
    pub(crate) fn new(configured: Option<&Path>, temporary: &Path) -> io::Result<Self> {
        if let Some(path) = configured {
            DirBuilder::new().mode(0o700).recursive(true).create(path)?;
            return Ok(Self { path: path.to_owned(), ours: false });
        }
        // The process id keeps servers apart; a leftover of a killed one, or somebody's trap, is stepped around: `create` on
        // a name that exists fails.
        let pid = std::process::id();
        for attempt in 0..100 {
            let path = temporary.join(format!("{SERVERS}{pid}-{attempt}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, ours: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{SERVERS}{pid}-* in {}", temporary.display()),
        ))
    }

    /// Lets PHP's users come to what is for them. None: PHP is our own user.
    pub(crate) fn for_php(self, users: &[PhpUser]) -> io::Result<Self> {
        if !users.is_empty() {
            let_pass(&self.path)?;
        }
        Ok(self)
    }

    /// A folder in it that is ours, also where it is not. One that was left behind under this name is replaced.
    pub(crate) fn inside(&self, name: &str) -> io::Result<Self> {
        let path = self.path.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, ours: true })
    }

    /// Where it is, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A socket in it that only our own user and root can connect to. One of this name that is there is replaced, in one step.
    pub(crate) fn listen(&self, name: &str) -> io::Result<(UnixListener, Made)> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}.{}", std::process::id()));
        make_room(&new)?;
        let listener = UnixListener::bind(&new)?;
        let mut made = Made::at(new)?;
        // Who comes is looked at in any case.
        std::fs::set_permissions(made.path(), Permissions::from_mode(0o600))?;
        std::fs::rename(made.path(), &path)?;
        made.path = path;
        Ok((listener, made))
    }

    /// Writes a file into it, readable by our user only, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        make_room(&path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
    }
}

/// Takes a file away that is perhaps there.
fn make_room(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "run folder not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_our_user_may_look_into_it_and_it_goes_when_we_go() {
        let temporary = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(None, temporary.path()).unwrap();
        let script = run_dir.write("worker.php", "<?php").unwrap();
        let folder = script.parent().unwrap().to_owned();
        assert_eq!((mode(&folder), mode(&script)), (0o700, 0o600));
        drop(run_dir);
        assert!(!folder.exists());
    }

    #[test]
    fn a_configured_folder_stays_and_its_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/hearth");
        for text in ["old", "new"] {
            let run_dir = RunDir::new(Some(&path), folder.path()).unwrap();
            run_dir.write("worker.php", text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path.join("worker.php")).unwrap(), "new");
    }

    #[test]
    fn folders_in_it_are_new_and_go_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("1/left behind")).unwrap();
        let run_dir = RunDir::new(Some(folder.path()), folder.path()).unwrap();
        let inside = run_dir.inside("1").unwrap();
        assert_eq!(std::fs::read_dir(inside.path()).unwrap().count(), 0);
        assert_eq!(mode(inside.path()), 0o700);
        drop(inside);
        assert!(folder.path().is_dir() && !folder.path().join("1").exists());
    }

    #[tokio::test]
    async fn a_socket_is_replaced_and_taken_away_only_by_who_has_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(Some(folder.path()), folder.path()).unwrap();
        let (_old, made_first) = run_dir.listen("a.sock").unwrap();
        let (_new, made_last) = run_dir.listen("a.sock").unwrap();
        let path = folder.path().join("a.sock");
        assert_eq!(mode(&path), 0o600);
        drop(made_first);
        assert!(path.exists(), "it is the other one's");
        drop(made_last);
        assert!(!path.exists());
    }

    #[test]
    fn a_name_that_is_taken_is_stepped_around() {
        let temporary = tempfile::tempdir().unwrap();
        let first = RunDir::new(None, temporary.path()).unwrap();
        let second = RunDir::new(None, temporary.path()).unwrap();
        assert_ne!(first.path, second.path);
    }
}
