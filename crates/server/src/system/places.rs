//! Sockets that both servers have under the same name: the successor makes its own beside, and puts them into their places when it takes over.
//!
//! Invariants
//! - A name is never missing: the new socket replaces the old one in one step (rename(2)).
//! - A file that another process has put there since is not removed.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::system::run_dir::Made;

/// Returns where a successor creates a socket that will be at `place`: in a separate folder beside it, under the same
/// name.
pub(crate) fn beside(place: &Path) -> PathBuf {
    let folder = place.parent().unwrap_or_else(|| Path::new("/"));
    folder.join(std::process::id().to_string()).join(place.file_name().unwrap_or_default())
}

/// Names that were put into their places, with where they were made; removed on drop if they are still ours.
#[derive(Debug, Default)]
pub(crate) struct Published(Vec<(Made, PathBuf)>);

impl Published {
    /// Gives the file at `beside` the name `place` as well.
    pub(crate) fn put(&mut self, beside: &Path, place: &Path) -> io::Result<()> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let new = place.with_file_name(name);
        std::fs::hard_link(beside, &new)?;
        if let Err(error) = std::fs::rename(&new, place) {
            drop(std::fs::remove_file(&new));
            return Err(error);
        }
        self.0.push((Made::at(place.to_owned())?, beside.to_owned()));
        Ok(())
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        for (made, beside) in self.0.drain(..) {
            drop(made);
            // Its maker has removed it by now; the folder is left.
            if let Some(folder) = beside.parent() {
                drop(std::fs::remove_dir(folder));
            }
        }
    }
}

/// Files of sockets that were handed over and that no process listens on.
#[derive(Debug, Default)]
pub(crate) struct StaleSockets(Vec<(PathBuf, u64)>);

impl StaleSockets {
    /// Records the files as they are now.
    pub(crate) fn of(files: impl Iterator<Item = PathBuf>) -> Self {
        let with_inode = |file: PathBuf| Some((inode(&file)?, file));
        Self(files.filter_map(with_inode).map(|(inode, file)| (file, inode)).collect())
    }

    /// Takes them away, as far as they are still the same.
    pub(crate) fn remove(self) {
        for (file, before) in self.0 {
            if inode(&file) == Some(before)
                && let Err(error) = std::fs::remove_file(&file)
            {
                tracing::warn!(file = %file.display(), %error, "a socket's file stays");
            }
        }
    }
}

fn inode(file: &Path) -> Option<u64> {
    std::fs::symlink_metadata(file).ok().map(|there| there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_name_is_replaced_and_removed_only_while_owned() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a.sock");
        std::fs::write(&place, "old").unwrap();
        let new = beside(&place);
        assert_eq!(new.file_name(), place.file_name());
        std::fs::create_dir(new.parent().unwrap()).unwrap();
        std::fs::write(&new, "new").unwrap();
        let mut published = Published::default();
        published.put(&new, &place).unwrap();
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "new");
        std::fs::remove_file(&new).unwrap();
        drop(published);
        assert!(!place.exists() && !new.parent().unwrap().exists());

        std::fs::create_dir(new.parent().unwrap()).unwrap();
        std::fs::write(&new, "ours").unwrap();
        let mut published = Published::default();
        published.put(&new, &place).unwrap();
        std::fs::remove_file(&place).unwrap();
        std::fs::write(folder.path().join("other"), "the next one's").unwrap();
        std::fs::rename(folder.path().join("other"), &place).unwrap();
        drop(published);
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "the next one's");
    }
}
