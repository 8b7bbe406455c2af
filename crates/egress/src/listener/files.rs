//! PEM files that callers name, cached until they change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::refusal::Refusal;
use crate::stamp::Stamp;

/// The largest file; Debian's bundle of authorities has 220 KB.
const LARGEST: u64 = 4 << 20;
/// The most cached files. Above it all are forgotten.
const REMEMBERED: usize = 64;

/// The cache, by path.
type Known = HashMap<PathBuf, (Stamp, Arc<[u8]>)>;

/// The cached files.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<Known>);

impl Files {
    /// Returns the content of a file.
    pub(crate) async fn read(&self, path: &Path) -> Result<Arc<[u8]>, Refusal> {
        let unreadable = |error: &std::io::Error| {
            Refusal::control(format!("cannot read {}: {error}", path.display()))
        };
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
        if !metadata.is_file() || metadata.len() > LARGEST {
            return Err(Refusal::control(format!("{} is no PEM file", path.display())));
        }
        let stamp = Stamp::new(&metadata);
        if let Some((known, content)) = self.lock().get(path)
            && *known == stamp
        {
            return Ok(Arc::clone(content));
        }
        let content: Arc<[u8]> =
            tokio::fs::read(path).await.map_err(|error| unreadable(&error))?.into();
        let mut files = self.lock();
        // Equal content has the same address, so that keys compare quickly: concurrent calls may all have read the
        // file.
        let content = match files.get(path) {
            Some((_, known)) if *known == content => Arc::clone(known),
            _ => content,
        };
        if files.len() >= REMEMBERED {
            files.clear();
        }
        files.insert(path.to_owned(), (stamp, Arc::clone(&content)));
        Ok(content)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_once_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let files = Files::default();
        std::fs::write(&path, "one").unwrap();
        let first = files.read(&path).await.unwrap();
        assert!(Arc::ptr_eq(&first, &files.read(&path).await.unwrap()));
        std::fs::write(&path, "other").unwrap();
        assert_eq!(&*files.read(&path).await.unwrap(), b"other");
    }

    #[tokio::test]
    async fn calls_at_the_same_time_share_one_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, "one").unwrap();
        let files = Files::default();
        let (one, other) = tokio::join!(files.read(&path), files.read(&path));
        assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
    }

    #[tokio::test]
    async fn a_path_that_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::default();
        for path in [folder.path().to_owned(), folder.path().join("none"), "/dev/zero".into()] {
            assert_eq!(files.read(&path).await.unwrap_err().word, "control");
        }
    }
}
