//! The file that keeps webhooks across restarts. Records are appended, and the file is sometimes replaced by the
//! events still waiting.
//!
//! The first line names the format. A record has the length and CRC-32 of its body (both `u32`, little-endian), a
//! byte for the kind, and the event's number (`u64`). An event and the end of a batch also have the application and
//! the target, each preceded by its length (`u16`); an event's JSON is the rest.
//!
//! Invariants
//! - A truncated or damaged record ends the file. What follows was written later and is not interpreted.
//! - The file may contain data of private channels, so only the server's user can read it.
//! - A failed write leaves the file unchanged or marks it for replacement; it stops nothing.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The first line. A file with another format is not read but renamed.
const FORMAT: &[u8] = b"hearth webhooks 1\n";

/// The file is not replaced below this size in bytes.
const SMALL: u64 = 1024 * 1024;

/// Mode of its files.
const OWN: u32 = 0o600;

/// An event that an earlier process accepted and did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub(super) sequence: u64,
    pub(super) app: String,
    pub(super) target: String,
    pub(super) json: String,
}

/// The kinds of records.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record<'a> {
    /// An accepted event.
    Event { sequence: u64, app: &'a str, target: &'a str, json: &'a str },
    /// An event was delivered or dropped, together with all earlier ones for this target.
    Done { sequence: u64, app: &'a str, target: &'a str },
    /// Only this event was dropped.
    Dropped { sequence: u64 },
}

impl Record<'_> {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        let (kind, sequence) = match self {
            Self::Event { sequence, .. } => (b'e', sequence),
            Self::Done { sequence, .. } => (b'd', sequence),
            Self::Dropped { sequence } => (b'x', sequence),
        };
        out.push(kind);
        out.extend_from_slice(&sequence.to_le_bytes());
        if let Self::Event { app, target, .. } | Self::Done { app, target, .. } = self {
            for text in [app, target] {
                // Settings reject longer ids and addresses.
                let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend(text.bytes().take(usize::from(length)));
            }
        }
        if let Self::Event { json, .. } = self {
            out.extend_from_slice(json.as_bytes());
        }
        let (head, payload) = out[start..].split_at_mut(8);
        let length =
            u32::try_from(payload.len()).expect("an event is smaller than a client's message");
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    }
}

/// Returns the events still waiting according to `bytes`, and the length of the valid part.
pub(super) fn read(bytes: &[u8]) -> (Vec<Kept>, usize) {
    let mut kept = BTreeMap::new();
    let mut sound = 0;
    while let Some(length) = bytes.get(sound..).and_then(|rest| record(rest, &mut kept)) {
        sound += length;
    }
    (kept.into_values().collect(), sound)
}

/// Applies the first record and returns its length.
fn record(bytes: &[u8], kept: &mut BTreeMap<u64, Kept>) -> Option<usize> {
    let mut rest = bytes;
    let length = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
    let checksum = u32::from_le_bytes(take(&mut rest)?);
    let mut payload = rest.get(..length).filter(|payload| crc32fast::hash(payload) == checksum)?;
    let [kind] = take(&mut payload)?;
    let sequence = u64::from_le_bytes(take(&mut payload)?);
    match kind {
        b'e' => {
            let (app, target) = (text(&mut payload)?, text(&mut payload)?);
            let json = str::from_utf8(payload).ok()?.to_owned();
            kept.insert(sequence, Kept { sequence, app, target, json });
        }
        b'd' => {
            let (app, target) = (text(&mut payload)?, text(&mut payload)?);
            kept.retain(|_, event| {
                event.sequence > sequence || event.app != app || event.target != target
            });
        }
        b'x' => {
            kept.remove(&sequence);
        }
        _ => return None,
    }
    Some(8 + length)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::from(u16::from_le_bytes(take(bytes)?));
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(taken.to_vec()).ok()
}

/// Reasons why the spool cannot be opened. Webhooks then work without it, until the process ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses it, usually an earlier one that is stopping. [`super::Keeping::Soon`] waits for it.
    #[error("{} is used by another process", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A system error.
    #[error("cannot store webhooks in {}", folder.display())]
    System {
        /// The folder.
        folder: PathBuf,
        /// The error.
        #[source]
        cause: io::Error,
    },
}

/// The open file. Its methods block on disk operations.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    file: File,
    /// Length of the valid part; a failed write may have left bytes after it.
    length: u64,
    sound: bool,
    dirty: bool,
    /// Held as long as the spool, so that no other process appends.
    _lock: File,
}

impl Spool {
    /// Opens the spool in `folder`, creating it if necessary, and returns its events. A damaged file is read up to
    /// the damage.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Kept>), OpenError> {
        let system = |cause| OpenError::System { folder: folder.to_owned(), cause };
        // The parent folder may be used by others too.
        folder.parent().map_or(Ok(()), fs::create_dir_all).map_err(system)?;
        DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(system)?;
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(OWN)
            .open(folder.join("lock"))
            .map_err(system)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { folder: folder.to_owned() });
            }
            Err(TryLockError::Error(cause)) => return Err(system(cause)),
        }
        let path = folder.join("webhooks.spool");
        Self::load(path, lock).map_err(system)
    }

    fn load(path: PathBuf, lock: File) -> io::Result<(Self, Vec<Kept>)> {
        let mut file = options().open(&path)?;
        // A file of an earlier version was readable by all. If the file has another owner, its mode is not changed.
        let _not_ours = file.set_permissions(Permissions::from_mode(OWN));
        let bytes = fs::read(&path)?;
        let (kept, sound) = match bytes.strip_prefix(FORMAT) {
            Some(records) => {
                let (kept, sound) = read(records);
                (kept, FORMAT.len() + sound)
            }
            None if FORMAT.starts_with(&bytes) => (Vec::new(), 0),
            None => {
                fs::rename(&path, path.with_extension("unknown"))?;
                file = options().open(&path)?;
                (Vec::new(), 0)
            }
        };
        let mut spool =
            Self { path, file, length: sound as u64, sound: true, dirty: false, _lock: lock };
        spool.cut()?;
        if sound == 0 {
            spool.append(FORMAT)?;
        }
        Ok((spool, kept))
    }

    /// Removes the bytes after the valid part.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        Ok(())
    }

    /// Appends records. They survive the end of the process at once, and a power failure after [`Spool::sync`].
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if !self.sound {
            // Records after a gap could mark batches whose events are missing. They are never wrong, but they wait
            // for the replacement.
            return Err(io::Error::other("an earlier write failed"));
        }
        self.dirty = true;
        match self.file.write_all(records) {
            Ok(()) => {
                self.length += records.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.sound = false;
                self.cut()?;
                Err(error)
            }
        }
    }

    /// Syncs appended records to the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Returns whether a new file with `waiting` bytes of events would be much smaller, or would repair a failed
    /// write.
    pub(super) fn wants_replacement(&self, waiting: usize) -> bool {
        !self.sound || (self.length > SMALL && self.length / 4 > waiting as u64)
    }

    /// Replaces the file by one with these records. At any time one of the two is there, complete.
    pub(super) fn replace(&mut self, records: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = options().truncate(true).open(&new)?;
        let written = file
            .write_all(FORMAT)
            .and_then(|()| file.write_all(records))
            .and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| fs::rename(&new, &self.path)) {
            // An incomplete file would take space that is missing.
            let _gone = fs::remove_file(&new);
            return Err(error);
        }
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        self.file = file;
        self.length = (FORMAT.len() + records.len()) as u64;
        self.sound = true;
        self.dirty = false;
        Ok(())
    }

    /// Marks the file for replacement in the next turn.
    pub(super) fn into_damaged(mut self) -> Self {
        self.sound = false;
        self
    }

    /// Returns whether all accepted events are in the file.
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Returns whether there are records to sync.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).read(true).write(true).mode(OWN);
    options
}

#[cfg(test)]
mod tests;
