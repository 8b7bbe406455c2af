//! The private folder of one running server: its control socket, the broker's, and a folder for each generation.
//!
//! Invariants
//! - Only our own user can look into it (mode 0700; files 0600). Where PHP is another user, it can pass through (0711) to what is for it: folders
//!   and files of its group.
//! - A configured folder is the server's own user's or root's, and only its owner can write into it: the commands' socket lies there.
//! - The name of a folder that we made cannot be guessed before it is there.
//! - A folder that we made is gone when we are; one that was configured stays.
//! - While it is used it is locked, shared: systemd-tmpfiles, which removes old files below `/tmp`, leaves a locked folder and all in it alone
//!   (tmpfiles.d(5), "Age"). A worker script of a server that has run for weeks is old.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use tokio::net::UnixListener;

use crate::system::users::PhpUser;

/// A socket's file that this process has made; taken away on drop, unless another one has put its own in its place.
#[derive(Debug)]
pub(crate) struct Made {
    path: PathBuf,
    inode: u64,
}

impl Made {
    /// Records the current file.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        let inode = std::fs::symlink_metadata(&path)?.ino();
        Ok(Self { path, inode })
    }

    /// Returns its path.
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

/// The prefix of the folders that servers make for themselves.
pub(crate) const SERVERS: &str = "hearth-";

/// Lets other users pass through a folder of ours: they reach their own files in it by name, and cannot list it.
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
    /// The open folder with its lock; none for a folder in another one that is locked.
    _lock: Option<File>,
}

impl RunDir {
    /// Takes the configured folder (made if it is not there), or makes a new one below `temporary`.
    pub(crate) fn new(configured: Option<&Path>, temporary: &Path) -> io::Result<Self> {
        if let Some(path) = configured {
            DirBuilder::new().mode(0o700).recursive(true).create(path)?;
            only_writer(path, geteuid().as_raw())?;
            return Ok(Self { path: path.to_owned(), ours: false, _lock: locked(path) });
        }
        // Commands find the server by the process id. The rest is random: another user can neither make the folder first nor take every name.
        let pid = std::process::id();
        for _ in 0..100 {
            let path = temporary.join(format!("{SERVERS}{pid}-{:08x}", getrandom::u32()?));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock = locked(&path);
                    return Ok(Self { path, ours: true, _lock: lock });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{SERVERS}{pid}-* in {}", temporary.display()),
        ))
    }

    /// Lets PHP's users reach their files. Without users PHP runs as our own.
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
        Ok(Self { path, ours: true, _lock: None })
    }

    /// Returns its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a socket in it that only the server's user and root can connect to. An existing one of this name is
    /// replaced in one step.
    pub(crate) fn listen(&self, name: &str) -> io::Result<(UnixListener, Made)> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}.{}", std::process::id()));
        make_room(&new)?;
        let listener = UnixListener::bind(&new)?;
        let mut made = Made::at(new)?;
        // Peers are checked in any case.
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

/// Locks a folder against its cleaning. A successor has the same lock beside its predecessor. Not every file system has locks, and a server runs
/// without, too.
fn locked(folder: &Path) -> Option<File> {
    let lock = || {
        let open = File::open(folder)?;
        flock(&open, FlockOperation::NonBlockingLockShared)?;
        Ok(open)
    };
    let locked: io::Result<File> = lock();
    if let Err(error) = &locked {
        tracing::debug!(folder = %folder.display(), %error, "run folder not locked");
    }
    locked.ok()
}

/// Fails unless only `user` and root can write into a folder: another user could replace its sockets and files.
pub(crate) fn only_writer(folder: &Path, user: u32) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    let target = std::fs::metadata(folder)?;
    // A link, too: whose it is decides where it leads.
    for owner in [std::fs::symlink_metadata(folder)?.uid(), target.uid()] {
        if owner != user && owner != 0 {
            let why = format!("it belongs to user {owner}, and the server is user {user}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    let mode = target.mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 {
        let why = format!("its mode is {mode:o}: other users can write into it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
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
    fn the_run_folder_is_private_and_removed_at_exit() {
        let temporary = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(None, temporary.path()).unwrap();
        let script = run_dir.write("worker.php", "<?php").unwrap();
        let folder = script.parent().unwrap().to_owned();
        assert_eq!((mode(&folder), mode(&script)), (0o700, 0o600));
        drop(run_dir);
        assert!(!folder.exists());
    }

    #[test]
    fn the_run_folder_is_locked_against_its_cleaning() {
        // As systemd-tmpfiles asks before it looks into a folder (dir_cleanup(), src/tmpfiles/tmpfiles.c).
        let may_be_cleaned = |folder: &Path| {
            let open = File::open(folder).unwrap();
            flock(&open, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        let temporary = tempfile::tempdir().unwrap();
        let made = RunDir::new(None, temporary.path()).unwrap();
        assert!(!may_be_cleaned(made.path()));
        assert!(may_be_cleaned(temporary.path()), "only our own folder is locked");
        let configured = temporary.path().join("run");
        let server = RunDir::new(Some(&configured), temporary.path()).unwrap();
        let successor = RunDir::new(Some(&configured), temporary.path()).unwrap();
        drop(server);
        assert!(!may_be_cleaned(&configured), "the successor uses it");
        drop(successor);
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
    fn subfolders_are_new_and_removed_separately() {
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
    async fn a_socket_is_replaced_and_removed_only_by_its_creator() {
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
    fn run_folder_names_cannot_be_guessed() {
        let temporary = tempfile::tempdir().unwrap();
        let of_pid = format!("{SERVERS}{}-", std::process::id());
        let folders: Vec<RunDir> =
            (0..3).map(|_| RunDir::new(None, temporary.path()).unwrap()).collect();
        let name = |folder: &RunDir| {
            let name = folder.path.file_name().unwrap().to_str().unwrap();
            name.strip_prefix(&of_pid).expect("commands find it by the process id").to_owned()
        };
        let names: std::collections::BTreeSet<String> = folders.iter().map(name).collect();
        assert_eq!(names.len(), folders.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() == 8), "{names:?}");
    }

    #[test]
    fn a_run_folder_writable_by_others_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        std::fs::create_dir(&path).unwrap();
        for (mode, may_be) in [
            (0o700, true),
            (0o755, true),
            (0o711, true),
            (0o777, false),
            (0o1777, false),
            (0o770, false),
            (0o702, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let made = RunDir::new(Some(&path), folder.path());
            assert_eq!(made.is_ok(), may_be, "{mode:o}: {made:?}");
            if let Err(error) = made {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                assert!(error.to_string().contains(&format!("{mode:o}")), "{error}");
            }
        }
    }

    #[test]
    fn a_run_folder_must_belong_to_the_user_or_root() {
        let folder = tempfile::tempdir().unwrap();
        let ours = geteuid().as_raw();
        only_writer(folder.path(), ours).unwrap();
        only_writer(Path::new("/"), ours).unwrap();
        let error = only_writer(folder.path(), ours + 1);
        if ours == 0 {
            error.unwrap();
            let other = Some(65_534);
            std::os::unix::fs::chown(folder.path(), other, other).unwrap();
            let error = RunDir::new(Some(folder.path()), folder.path()).unwrap_err();
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
            // Where a link leads is a matter of its owner.
            let (target, link) = (tempfile::tempdir().unwrap(), folder.path().join("link"));
            std::os::unix::fs::symlink(target.path(), &link).unwrap();
            only_writer(&link, ours).unwrap();
            std::os::unix::fs::lchown(&link, other, other).unwrap();
            only_writer(&link, ours).unwrap_err();
        } else {
            let error = error.unwrap_err();
            assert!(error.to_string().contains(&format!("belongs to user {ours}")), "{error}");
        }
    }
}
