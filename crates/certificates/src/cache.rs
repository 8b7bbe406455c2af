//! The folder in which accounts and certificates are stored. Several servers may share it.
//!
//! Invariants
//! - The folder is accessible only by its owner (0700), and so is every file (0600).
//! - A file is complete or missing: it is written under another name, synced, and renamed.
//! - A server that contacts an authority holds the lock, which the kernel releases with its process.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::Issued;

/// The cache of one directory URL and one set of names.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    certificate: String,
}

/// The lock for contacting the authority.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Cache {
    /// Opens the cache and creates its folder if necessary.
    pub(crate) fn open(folder: &Path, directory: &str, domains: &[String]) -> io::Result<Self> {
        let name = format!("{}-{}", label(host_of(directory)), digest(directory));
        let folder = folder.join(name);
        DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        let mut sorted = domains.to_vec();
        sorted.sort();
        let first = domains.first().map(String::as_str).unwrap_or_default();
        let certificate = format!("{}-{}.pem", label(first), digest(&sorted.join(",")));
        Ok(Self { folder, certificate })
    }

    /// Returns the account's credentials, if there are any.
    pub(crate) fn account(&self) -> io::Result<Option<String>> {
        read(&self.folder.join("account.json"))
    }

    pub(crate) fn keep_account(&self, credentials: &str) -> io::Result<()> {
        self.write("account.json", credentials)
    }

    pub(crate) fn forget_account(&self) -> io::Result<()> {
        match std::fs::remove_file(self.folder.join("account.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the certificate, if there is one, without validating it.
    pub(crate) fn certificate(&self) -> io::Result<Option<Issued>> {
        let Some(text) = read(&self.path())? else { return Ok(None) };
        // Key and chain are in one file, the key first, so they always belong together.
        let Some(at) = text.find("-----BEGIN CERTIFICATE-----") else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it holds no certificate"));
        };
        let (key, chain) = text.split_at(at);
        Ok(Some(Issued { chain: chain.to_owned(), key: key.to_owned() }))
    }

    pub(crate) fn keep_certificate(&self, issued: &Issued) -> io::Result<()> {
        let key = issued.key.trim_end();
        self.write(&self.certificate, &format!("{key}\n{}", issued.chain))
    }

    /// Returns the path of the certificate.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.certificate)
    }

    /// Takes the lock; `None` if another process holds it.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.folder.join("lock");
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        write(&self.folder.join(name), text)
    }
}

/// Waits until no other process works in `folder`.
pub(crate) fn lock_folder(folder: &Path) -> io::Result<Lock> {
    let path = folder.join("lock");
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
    Ok(Lock { _file: file })
}

/// Writes a file, or leaves the old one in place.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    // Left by a killed process with the same id.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        drop(std::fs::remove_file(&new));
    }
    written
}

pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

/// Replaces the characters of a name that are not allowed in file names.
fn label(name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    let name: String = name.chars().map(|letter| if fits(letter) { letter } else { '_' }).collect();
    name.trim_start_matches('.').chars().take(64).collect()
}

/// Returns eight bytes of SHA-256, which distinguish names that look the same.
fn digest(text: &str) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(8).fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a String cannot fail");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn cache(folder: &Path) -> Cache {
        let domains = ["b.example".to_owned(), "a.example".to_owned()];
        Cache::open(&folder.join("new/cache"), "https://ca.example:14000/dir", &domains).unwrap()
    }

    #[test]
    fn cached_files_are_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        assert_eq!(cache.certificate().unwrap(), None);
        let issued = Issued {
            chain: "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n".into(),
            key: "-----BEGIN PRIVATE KEY-----\n…\n-----END PRIVATE KEY-----\n".into(),
        };
        for _ in 0..2 {
            cache.keep_certificate(&issued).unwrap();
            assert_eq!(cache.certificate().unwrap().as_ref(), Some(&issued));
        }
        cache.keep_account("{}").unwrap();
        assert_eq!(cache.account().unwrap().as_deref(), Some("{}"));
        cache.forget_account().unwrap();
        cache.forget_account().unwrap();
        assert_eq!(cache.account().unwrap(), None);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&cache.path()), 0o600);
        for folder in [&cache.folder, cache.folder.parent().unwrap()] {
            assert_eq!(mode(folder), 0o700);
        }
        let names: Vec<_> = std::fs::read_dir(&cache.folder).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing is left behind: {names:?}");
    }

    #[test]
    fn invalid_cached_certificates_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        std::fs::write(cache.path(), "half").unwrap();
        assert_eq!(cache.certificate().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let other = |directory: &str, domains: &[&str]| {
            let domains: Vec<String> = domains.iter().map(|name| (*name).to_owned()).collect();
            Cache::open(&folder.path().join("new/cache"), directory, &domains).unwrap().path()
        };
        let directory = "https://ca.example:14000/dir";
        assert_eq!(other(directory, &["b.example", "a.example"]), cache.path());
        assert_ne!(other(directory, &["b.example"]), cache.path());
        assert_ne!(
            other("https://ca.example:14000/other", &["b.example", "a.example"]),
            cache.path()
        );
        assert!(other("x", &["../../../x"]).starts_with(folder.path().join("new/cache")));
    }

    #[test]
    fn only_one_process_holds_the_order_lock() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        let lock = cache.lock().unwrap();
        assert!(lock.is_some());
        assert!(cache.lock().unwrap().is_none());
        drop(lock);
        assert!(cache.lock().unwrap().is_some());
    }
}
