//! The listing of the watched folders, and of what symbolic links in them lead to.
//!
//! Invariants
//! - Nothing is written. Ignored folders are not entered, not even by a link.
//! - Each folder is entered once, however many links lead to it. What the application's folder contains has its own name there, not that of a link.
//! - Behind links that lead out of the application's folder, at most `MOST_OUTSIDE` entries are listed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Names that are ignored everywhere: libraries and version control, which requests do not write.
pub(super) const IGNORED: &[&str] = &[".git", "node_modules", "vendor"];
/// The most bytes of one file that are compared.
pub(super) const MOST: u64 = 256 << 10;
/// The most files, folders and links behind links that lead out of the application's folder: each of them costs time after every request.
pub(super) const MOST_OUTSIDE: usize = 50_000;

/// Device and inode.
type Id = (u64, u64);

/// The identity of a file's content as far as the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    id: Id,
    pub(super) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            id: id(metadata),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file at one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) stamp: Stamp,
    /// The checksum of its content; none if it cannot be read.
    sum: Option<u64>,
}

impl Seen {
    /// Returns whether the file has only been appended to since: it is the same one, larger, and begins with the same bytes.
    pub(super) fn is_start_of(&self, now: &Self, path: &Path) -> bool {
        let (old, new) = (&self.stamp, &now.stamp);
        let has_grown = old.id == new.id && old.size < new.size;
        has_grown && self.sum.is_some() && self.sum == checksum(path, old.size)
    }
}

/// The folders that are watched, and the patterns of what is left out.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) folder: PathBuf,
    pub(super) sessions: PathBuf,
    pub(super) ignored: Vec<String>,
}

impl Folders {
    fn ignores(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let relative = path.strip_prefix(&self.folder).unwrap_or(path).to_string_lossy();
        self.ignored.iter().any(|pattern| {
            let pattern = pattern.trim_matches('/');
            matches(pattern, &relative) || (!pattern.contains('/') && matches(pattern, &name))
        })
    }
}

/// The files of the watched folders at one look.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) files: BTreeMap<PathBuf, Seen>,
    /// The followed links that lead out of the application's folder, and where they lead.
    pub(super) outside: BTreeMap<PathBuf, PathBuf>,
    /// Links that are not followed, because of `MOST_OUTSIDE`.
    pub(super) refused: BTreeMap<PathBuf, PathBuf>,
}

impl Listing {
    /// Lists the folders. Checksums of unchanged files are those of an earlier look, and links that were refused then stay so.
    pub(super) fn of(folders: &Folders, before: &Self) -> Self {
        Self::within(MOST_OUTSIDE, folders, before)
    }

    fn within(most_outside: usize, folders: &Folders, before: &Self) -> Self {
        let own = [&folders.sessions, &folders.folder];
        let real = |path: &PathBuf| {
            (path.canonicalize().unwrap_or_else(|_missing| path.clone()), path.clone())
        };
        let mut walk = Walk {
            folders,
            before,
            roots: own.map(real).to_vec(),
            entered: HashSet::new(),
            links: BTreeSet::new(),
            files: BTreeMap::new(),
            listed: HashSet::new(),
            left: most_outside,
            listing: Self::default(),
        };
        for folder in own {
            if let Some(branch) = walk.branch(folder, usize::MAX) {
                walk.add(branch);
            }
        }
        while let Some((_, link)) = walk.links.pop_first() {
            walk.follow(link);
        }
        walk.finish()
    }
}

/// A listing that is being made.
struct Walk<'l> {
    folders: &'l Folders,
    before: &'l Listing,
    /// The folders that were begun with and those behind links that lead out, each by its own path and by the one that names its files.
    roots: Vec<(PathBuf, PathBuf)>,
    entered: HashSet<Id>,
    /// The links to follow. Those with the shortest paths come first, so that names do not depend on the file system's order.
    links: BTreeSet<(usize, PathBuf)>,
    files: BTreeMap<PathBuf, Stamp>,
    listed: HashSet<Id>,
    /// How many entries more may be listed behind links that lead out.
    left: usize,
    listing: Listing,
}

/// The content of one folder.
#[derive(Default)]
struct Branch {
    entered: HashSet<Id>,
    files: Vec<(PathBuf, Stamp)>,
    links: Vec<PathBuf>,
    entries: usize,
}

impl Walk<'_> {
    /// Lists a folder and those in it that have not been entered. Returns none if there are more entries than `most`.
    fn branch(&self, folder: &Path, most: usize) -> Option<Branch> {
        let mut branch = Branch::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let Ok(metadata) = folder.metadata() else { continue };
            let id = id(&metadata);
            if self.entered.contains(&id) || !branch.entered.insert(id) {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let path = entry.path();
                if self.folders.ignores(&path) {
                    continue;
                }
                branch.entries += 1;
                if branch.entries > most {
                    return None;
                }
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_symlink() {
                    branch.links.push(path);
                } else if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file() {
                    branch.files.push((path, Stamp::of(&metadata)));
                }
            }
        }
        Some(branch)
    }

    fn add(&mut self, branch: Branch) {
        self.entered.extend(branch.entered);
        self.listed.extend(branch.files.iter().map(|(_, stamp)| stamp.id));
        self.files.extend(branch.files);
        let links = branch.links.into_iter().map(|link| (link.components().count(), link));
        self.links.extend(links);
    }

    /// Lists what a link leads to, unless it is listed or ignored.
    fn follow(&mut self, link: PathBuf) {
        // A link may lead nowhere, or to itself.
        let (Ok(metadata), Ok(target)) = (link.metadata(), link.canonicalize()) else { return };
        if self.is_ignored(&target) {
            return;
        }
        let is_in = |(root, _): &(PathBuf, PathBuf)| target.starts_with(root);
        let leads_out = !self.roots.iter().any(is_in);
        let counts = !self.roots.iter().take(2).any(is_in);
        // A link that was followed once is followed in later looks, too: its files are not taken for removed ones.
        let was_followed = self.before.outside.get(&link) == Some(&target);
        let most = if counts && !was_followed { self.left } else { usize::MAX };
        let branch = if self.before.refused.get(&link) == Some(&target) {
            None
        } else if metadata.is_dir() {
            self.branch(&link, most)
        } else if metadata.is_file() && !self.listed.contains(&id(&metadata)) {
            let files = vec![(link.clone(), Stamp::of(&metadata))];
            (most > 0).then(|| Branch { files, entries: 1, ..Branch::default() })
        } else {
            return;
        };
        let Some(branch) = branch else {
            self.listing.refused.insert(link, target);
            return;
        };
        if counts {
            self.left = self.left.saturating_sub(branch.entries);
        }
        self.add(branch);
        if leads_out {
            self.roots.push((target.clone(), link.clone()));
            self.listing.outside.insert(link, target);
        }
    }

    /// Returns whether the target of a link is ignored under its own name, or is in a folder that is.
    fn is_ignored(&self, target: &Path) -> bool {
        self.roots.iter().any(|(root, name)| {
            let Ok(relative) = target.strip_prefix(root) else { return false };
            let mut parts = relative.ancestors().filter(|part| !part.as_os_str().is_empty());
            parts.any(|part| self.folders.ignores(&name.join(part)))
        })
    }

    /// Adds the checksums.
    fn finish(mut self) -> Listing {
        for (path, stamp) in self.files {
            let known = self.before.files.get(&path).filter(|known| known.stamp == stamp);
            let seen = known.copied();
            let seen = seen.unwrap_or_else(|| Seen { stamp, sum: checksum(&path, stamp.size) });
            self.listing.files.insert(path, seen);
        }
        self.listing
    }
}

fn id(metadata: &Metadata) -> Id {
    (metadata.dev(), metadata.ino())
}

/// Returns a checksum of the first `size` bytes of a file. If those are more than are compared, the beginning and the end of them count.
fn checksum(path: &Path, size: u64) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let mut hasher = DefaultHasher::new();
    let head = size.min(MOST / 2);
    let tail = (size - head).min(MOST / 2);
    for (start, length) in [(0, head), (size - tail, tail)] {
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut bytes = Vec::new();
        file.by_ref().take(length).read_to_end(&mut bytes).ok()?;
        hasher.write(&bytes);
    }
    Some(hasher.finish())
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
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

#[cfg(test)]
mod tests;
