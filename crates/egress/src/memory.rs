//! Origins remembered for the next start, in a text file with one origin a line.
//!
//! Invariants
//! - No secret is ever written: keys with certificates, credentials or any other option are left out.
//! - Lines that do not parse are skipped: a file of an older version costs handshakes, never a start.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::{HttpVersions, IpFamily, Key, Scheme, TlsVersion, Trust};

/// The most remembered origins.
const REMEMBERED: usize = 64;
/// The longest file that is read.
const LONGEST: u64 = 64 << 10;

impl Key {
    /// The key of an origin without further options.
    pub fn plain(uid: u32, scheme: Scheme, host: impl Into<Arc<str>>, port: u16) -> Self {
        Self {
            uid,
            scheme,
            host: host.into(),
            port,
            connect_to: None,
            unix: None,
            public: false,
            interface: None,
            family: IpFamily::Both,
            trust: Trust::System,
            pins: Arc::new([]),
            certificate: None,
            tls_min: TlsVersion::V1_2,
            tls_max: TlsVersion::V1_3,
            ciphers: None,
            http: HttpVersions::Negotiate,
            proxy: None,
        }
    }
}

/// Returns whether the key has no options beyond its origin.
pub(crate) fn plain(key: &Key) -> bool {
    *key == Key::plain(key.uid, key.scheme, Arc::clone(&key.host), key.port)
}

/// Writes the first of these keys to a file, replacing it. Blocks for a moment.
pub fn remember(file: &Path, keys: &[Key]) -> io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let mut text = Vec::new();
    for key in keys.iter().filter(|key| plain(key)).take(REMEMBERED) {
        writeln!(text, "{} {} {} {}", key.uid, key.scheme.word(), key.host, key.port)?;
    }
    // One user's origins are not disclosed to another.
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let written =
        open.and_then(|mut open| open.write_all(&text)).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        // This must not fill a full disk further. The previous file stays.
        drop(fs::remove_file(&new));
    }
    written
}

/// Reads what [`remember`] wrote. A missing file is an empty list. Blocks for a moment.
pub fn recall(file: &Path) -> io::Result<Vec<Key>> {
    let text = match fs::metadata(file) {
        Ok(facts) if facts.len() > LONGEST => return Ok(Vec::new()),
        Ok(_) => fs::read(file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(parsed).take(REMEMBERED).collect())
}

fn parsed(line: &str) -> Option<Key> {
    let mut words = line.split(' ');
    let uid = words.next()?.parse().ok()?;
    let scheme = Scheme::named(words.next()?)?;
    let host = words.next().filter(|host| !host.is_empty())?;
    let port = words.next()?.parse().ok()?;
    words.next().is_none().then(|| Key::plain(uid, scheme, host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_origins_are_restored_without_secrets() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("origins");
        assert!(recall(&file).expect("no file is no error").is_empty());

        let first = Key::plain(1000, Scheme::Https, "api.test", 443);
        let second = Key::plain(0, Scheme::Http, "::1", 8080);
        let secret = Key { trust: Trust::Anyone, ..Key::plain(0, Scheme::Https, "s.test", 443) };
        remember(&file, &[first.clone(), secret, second.clone()]).expect("written");
        assert_eq!(
            fs::read_to_string(&file).expect("text"),
            "1000 https api.test 443\n0 http ::1 8080\n"
        );
        assert_eq!(recall(&file).expect("read"), [first.clone(), second]);

        remember(&file, std::slice::from_ref(&first)).expect("written");
        assert_eq!(recall(&file).expect("read"), [first]);
    }

    #[test]
    fn a_full_disk_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("origins");
        let key = Key::plain(0, Scheme::Https, "api.test", 443);
        remember(&file, std::slice::from_ref(&key)).expect("written");
        // Stands in for a full disk.
        std::os::unix::fs::symlink("/dev/full", dir.path().join("origins.new")).expect("a link");
        remember(&file, std::slice::from_ref(&key)).expect_err("no room");
        assert_eq!(recall(&file).expect("read"), [key]);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn invalid_lines_are_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("origins");
        fs::write(&file, "\n0 ftp a 1\n0 http a 99999\nx http a 1\n0 http  1\n0 http a 1 more\n\u{fffd}\n0 http a 1\n")
            .expect("written");
        assert_eq!(recall(&file).expect("read"), [Key::plain(0, Scheme::Http, "a", 1)]);
    }
}
