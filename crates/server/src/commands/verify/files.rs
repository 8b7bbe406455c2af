//! The files that requests write: the application's folder and PHP's session files, listed after each request.
//!
//! Invariants
//! - Nothing is written.
//! - What a file has gained is all that is compared of it only if its earlier content is unchanged.

mod listing;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use self::listing::{Folders, IGNORED, Listing, MOST, MOST_OUTSIDE};
use super::compare::Parts;

/// The most links that a note names.
const MOST_NAMED: usize = 8;

/// The latest listing of any instance. Files that are unchanged since then are not read for their checksums a second time.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest(Arc<Mutex<Arc<Listing>>>);

/// The watched folders as they were at the last look.
#[derive(Debug)]
pub(super) struct Watched {
    folders: Folders,
    latest: Latest,
    listing: Arc<Listing>,
}

impl Watched {
    /// Looks at the folders for the first time.
    pub(super) fn new(folder: &Path, sessions: &Path, ignored: &[String], latest: &Latest) -> Self {
        let ignored = IGNORED.iter().map(|name| (*name).to_owned()).chain(ignored.iter().cloned());
        let folders = Folders {
            folder: folder.to_owned(),
            sessions: sessions.to_owned(),
            ignored: ignored.collect(),
        };
        let mut watched = Self { folders, latest: latest.clone(), listing: Arc::default() };
        watched.look();
        watched
    }

    /// Looks again, and forgets what was written since the last look.
    pub(super) fn look(&mut self) {
        self.listing = self.list();
    }

    /// Returns the number of watched files.
    pub(super) fn count(&self) -> usize {
        self.listing.files.len()
    }

    /// Returns notes that name the links out of the application's folder.
    pub(super) fn notes(&self) -> Vec<String> {
        let named = |links: &BTreeMap<PathBuf, PathBuf>| {
            let name = |(link, target): (&PathBuf, &PathBuf)| {
                let link = link.strip_prefix(&self.folders.folder).unwrap_or(link);
                format!("{} -> {}", link.display(), target.display())
            };
            let mut names: Vec<String> = links.iter().take(MOST_NAMED).map(name).collect();
            if links.len() > MOST_NAMED {
                names.push(format!("{} more", links.len() - MOST_NAMED));
            }
            names.join(", ")
        };
        let mut notes = Vec::new();
        let Listing { outside, refused, .. } = &*self.listing;
        if !outside.is_empty() {
            notes.push(format!(
                "links lead out of the application's folder, and requests write there: {}",
                named(outside)
            ));
        }
        if !refused.is_empty() {
            notes.push(format!(
                "not watched, as more than {MOST_OUTSIDE} files are behind links out of the application's folder (`--ignore` leaves some out): {}",
                named(refused)
            ));
        }
        notes
    }

    /// Adds what was written since the last look to the parts of an answer: names of files, and what they contain or gained.
    pub(super) fn add_changes(&mut self, parts: &mut Parts) {
        let new = self.list();
        for (path, now) in &new.files {
            let old = self.listing.files.get(path);
            if old.is_some_and(|old| old.stamp == now.stamp) {
                continue;
            }
            let start =
                old.filter(|old| old.is_start_of(now, path)).map_or(0, |old| old.stamp.size);
            self.add(parts, path, &content(path, start).unwrap_or_default());
        }
        for path in self.listing.files.keys().filter(|path| !new.files.contains_key(*path)) {
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
        let (relative, own) = match path.strip_prefix(&self.folders.sessions) {
            Ok(relative) => (relative, true),
            Err(_) => (path.strip_prefix(&self.folders.folder).unwrap_or(path), false),
        };
        let is_session = own || relative.iter().any(|part| part.eq_ignore_ascii_case("sessions"));
        let kind = if is_session { "session" } else { "file" };
        format!("{kind} {}", without_random(&relative.to_string_lossy()))
    }

    fn list(&self) -> Arc<Listing> {
        let latest = || self.latest.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = Arc::clone(&latest());
        let listing = Arc::new(Listing::of(&self.folders, &before));
        *latest() = Arc::clone(&listing);
        listing
    }
}

fn content(path: &Path, start: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut content = Vec::new();
    file.take(MOST).read_to_end(&mut content)?;
    Ok(content)
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
    use std::os::unix::fs::symlink;

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
            &Latest::default(),
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

    /// A folder with a file of this text, and the folder of its sessions.
    fn with_file(text: &str) -> (tempfile::TempDir, tempfile::TempDir) {
        let (folder, sessions) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("file"), text).unwrap();
        (folder, sessions)
    }

    fn watched((folder, sessions): &(tempfile::TempDir, tempfile::TempDir)) -> Watched {
        Watched::new(folder.path(), sessions.path(), &[], &Latest::default())
    }

    fn changes(watched: &mut Watched) -> Vec<(String, String)> {
        let mut parts = Parts::new();
        watched.add_changes(&mut parts);
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        parts.into_iter().map(|(name, content)| (name, text(content))).collect()
    }

    #[test]
    fn a_rewritten_file_that_has_grown_is_compared_whole() {
        let folders = with_file("Ada");
        let mut watched = watched(&folders);
        let change = |text: &str| vec![("file file".to_owned(), text.to_owned())];
        let write = |text: &str| fs::write(folders.0.path().join("file"), text).unwrap();
        write("guest");
        assert_eq!(changes(&mut watched), change("guest"));
        // Only the first letter differs.
        write("Guest, and more");
        assert_eq!(changes(&mut watched), change("Guest, and more"));
        write("Guest, and more, and more");
        assert_eq!(changes(&mut watched), change(", and more"), "what it has gained");
        write("Guest");
        assert_eq!(changes(&mut watched), change("Guest"));
    }

    #[test]
    fn a_large_file_is_rewritten_if_its_beginning_or_its_end_has_changed() {
        let size = usize::try_from(MOST * 3).unwrap();
        let text = "a".repeat(size);
        let folders = with_file(&text);
        let mut watched = watched(&folders);
        let mut length = |text: &str| {
            fs::write(folders.0.path().join("file"), text).unwrap();
            changes(&mut watched).pop().unwrap().1.len()
        };
        assert_eq!(length(&format!("{text}new")), 3);
        assert_eq!(length(&format!("b{text}newer")), usize::try_from(MOST).unwrap());
        assert_eq!(length(&format!("b{text}other, newer")), usize::try_from(MOST).unwrap());
        assert_eq!(length(&format!("b{text}other, newer!")), 1);
    }

    #[test]
    fn an_instance_recognises_what_was_appended_by_the_checksum_of_an_earlier_one() {
        let folders = with_file("one\n");
        let latest = Latest::default();
        let new = || Watched::new(folders.0.path(), folders.1.path(), &[], &latest);
        let (_earlier, mut later) = (new(), new());
        fs::write(folders.0.path().join("file"), "one\ntwo\n").unwrap();
        assert_eq!(changes(&mut later), [("file file".to_owned(), "two\n".to_owned())]);
    }

    #[test]
    fn the_notes_name_links_out_of_the_folder() {
        let folders = with_file("");
        let shared = tempfile::tempdir().unwrap();
        assert_eq!(watched(&folders).notes(), Vec::<String>::new());
        symlink(shared.path(), folders.0.path().join("storage")).unwrap();
        symlink("file", folders.0.path().join("link")).unwrap();
        let target = shared.path().canonicalize().unwrap();
        let wanted = format!(
            "links lead out of the application's folder, and requests write there: storage -> {}",
            target.display()
        );
        assert_eq!(watched(&folders).notes(), [wanted]);
        for number in 0..8 {
            symlink(shared.path(), folders.0.path().join(number.to_string())).unwrap();
        }
        // Each folder is entered once, by the first link.
        assert_eq!(watched(&folders).listing.outside.len(), 1);
    }

    #[test]
    fn random_names() {
        assert_eq!(
            without_random("storage/framework/sessions/aB3dE6gH9"),
            "storage/framework/sessions/*"
        );
        assert_eq!(without_random("laravel-2026-11-27.log"), "laravel-2026-11-27.log");
    }
}
