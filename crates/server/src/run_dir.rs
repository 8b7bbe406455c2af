//! The private folder of one running server: its control socket, the broker's, and a folder for each generation.
//!
//! Invariants
//! - Only our own user can look into it (mode 0700; files 0600).
//! - A folder that we made is gone when we are; one that was configured stays.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the names of folders begin that servers make for themselves.
pub(crate) const SERVERS: &str = "hearth-";

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

    /// Writes a file into it, readable by our user only, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(path)
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
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn a_name_that_is_taken_is_stepped_around() {
        let temporary = tempfile::tempdir().unwrap();
        let first = RunDir::new(None, temporary.path()).unwrap();
        let second = RunDir::new(None, temporary.path()).unwrap();
        assert_ne!(first.path, second.path);
    }
}
