//! The files that requests write: the application's folder and PHP's session files, listed after each request.
//!
//! Invariants
//! - Nothing is written. Links are not followed, and ignored folders are not entered.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::compare::Parts;

/// Names that are ignored everywhere: libraries and version control, which requests do not write.
pub(super) const IGNORED: &[&str] = &[".git", "node_modules", "vendor"];
/// The most bytes of one file that are compared.
const MOST: u64 = 256 << 10;

/// The identity of a file's content as far as the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The watched folders as they were at the last look.
#[derive(Debug)]
pub(super) struct Watched {
    folder: PathBuf,
    sessions: PathBuf,
    ignored: Vec<String>,
    listing: BTreeMap<PathBuf, Stamp>,
}

impl Watched {
    /// Looks at the folders for the first time.
    pub(super) fn new(folder: &Path, sessions: &Path, ignored: &[String]) -> Self {
        let ignored = IGNORED.iter().map(|name| (*name).to_owned()).chain(ignored.iter().cloned());
        let mut watched = Self {
            folder: folder.to_owned(),
            sessions: sessions.to_owned(),
            ignored: ignored.collect(),
            listing: BTreeMap::new(),
        };
        watched.look();
        watched
    }

    /// Looks again, and forgets what was written since the last look.
    pub(super) fn look(&mut self) {
        self.listing = self.list();
    }

    /// Returns the number of watched files.
    pub(super) fn count(&self) -> usize {
        self.listing.len()
    }

    /// Adds what was written since the last look to the parts of an answer: names of files, and what they contain or gained.
    pub(super) fn add_changes(&mut self, parts: &mut Parts) {
        let new = self.list();
        for (path, stamp) in &new {
            let old = self.listing.get(path);
            if old == Some(stamp) {
                continue;
            }
            // A file that has grown was mostly appended to.
            let start = old
                .filter(|old| old.inode == stamp.inode && old.size < stamp.size)
                .map_or(0, |old| old.size);
            self.add(parts, path, &content(path, start).unwrap_or_default());
        }
        for path in self.listing.keys().filter(|path| !new.contains_key(*path)) {
            let name = self.name(path);
            parts.insert(format!("{name} (removed)"), Bytes::new());
        }
        self.listing = new;
    }

    fn add(&self, parts: &mut Parts, path: &Path, content: &[u8]) {
        // Several files may have one name without its random parts.
        let all = parts.entry(self.name(path)).or_default();
        *all = [&all[..], content].concat().into();
    }

    /// Returns the name of a file's part: `session NAME` or `file NAME`, with `*` for what is random in it.
    fn name(&self, path: &Path) -> String {
        let (relative, own) = match path.strip_prefix(&self.sessions) {
            Ok(relative) => (relative, true),
            Err(_) => (path.strip_prefix(&self.folder).unwrap_or(path), false),
        };
        let is_session = own || relative.iter().any(|part| part.eq_ignore_ascii_case("sessions"));
        let kind = if is_session { "session" } else { "file" };
        format!("{kind} {}", without_random(&relative.to_string_lossy()))
    }

    fn list(&self) -> BTreeMap<PathBuf, Stamp> {
        let mut listing = BTreeMap::new();
        let mut folders = vec![self.folder.clone(), self.sessions.clone()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let path = entry.path();
                if self.is_ignored(&path) {
                    continue;
                }
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file() {
                    listing.insert(path, stamp(&metadata));
                }
            }
        }
        listing
    }

    fn is_ignored(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let relative = path.strip_prefix(&self.folder).unwrap_or(path).to_string_lossy();
        self.ignored.iter().any(|pattern| {
            let pattern = pattern.trim_matches('/');
            matches(pattern, &relative) || (!pattern.contains('/') && matches(pattern, &name))
        })
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    Stamp {
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn content(path: &Path, start: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut content = Vec::new();
    file.take(MOST).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    true
}

/// Replaces words of a path that look random: eight letters and digits or more with a digit among them, or twenty letters.
fn without_random(path: &str) -> String {
    let mut name = String::new();
    let mut word = String::new();
    let random = |word: &str| {
        word.len() >= 20 || (word.len() >= 8 && word.bytes().any(|byte| byte.is_ascii_digit()))
    };
    let flush = |word: &mut String, name: &mut String| {
        name.push_str(if random(word) { "*" } else { word });
        word.clear();
    };
    for letter in path.chars() {
        if letter.is_ascii_alphanumeric() {
            word.push(letter);
        } else {
            flush(&mut word, &mut name);
            name.push(letter);
        }
    }
    flush(&mut word, &mut name);
    name
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn created_appended_replaced_and_removed_files_are_parts() {
        let (folder, sessions) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("var/cache")).unwrap();
        fs::create_dir_all(path("vendor/a")).unwrap();
        fs::write(path("log"), "one\n").unwrap();
        fs::write(path("gone"), "").unwrap();
        let mut watched = Watched::new(
            folder.path(),
            sessions.path(),
            &["var/cache".to_owned(), "*.tmp".to_owned()],
        );
        assert_eq!(watched.count(), 2);
        let mut parts = Parts::new();
        watched.add_changes(&mut parts);
        assert_eq!(parts, Parts::new());
        fs::write(path("var/new"), "text").unwrap();
        fs::write(path("vendor/a/b"), "").unwrap();
        fs::write(path("var/cache/b"), "").unwrap();
        fs::write(path("a.tmp"), "").unwrap();
        fs::write(path("log"), "one\ntwo\n").unwrap();
        fs::remove_file(path("gone")).unwrap();
        fs::write(sessions.path().join("sess_0123456789abcdef"), "user|i:1;").unwrap();
        watched.add_changes(&mut parts);
        let expected = [
            ("file gone (removed)", ""),
            ("file log", "two\n"),
            ("file var/new", "text"),
            ("session sess_*", "user|i:1;"),
        ];
        let expected: Parts =
            expected.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
        assert_eq!(parts, expected);
        let mut parts = Parts::new();
        watched.add_changes(&mut parts);
        assert_eq!(parts, Parts::new(), "each change once");
    }

    #[test]
    fn patterns_and_random_names() {
        for (pattern, text, wanted) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*.log", "x/y.log", true),
            ("*.log", "x.logs", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
        assert_eq!(
            without_random("storage/framework/sessions/aB3dE6gH9"),
            "storage/framework/sessions/*"
        );
        assert_eq!(without_random("laravel-2026-11-27.log"), "laravel-2026-11-27.log");
    }
}
