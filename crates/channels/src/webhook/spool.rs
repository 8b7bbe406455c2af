//! The file in which webhooks outlive the process: only ever appended to, and now and then replaced by what still waits.
//!
//! A line that names the format, then records: length and CRC-32 of what follows (both `u32`, least byte first), a byte for the kind, the event's number (`u64`),
//! and for an event and for the end of a batch the application and the target, each after its length (`u16`); an event's JSON is the rest.
//!
//! Invariants
//! - A record that is cut or damaged ends the file: what follows it was written later, and nothing is made up of it.
//! - What clients say on private channels may stand in it: it is for the server's own user.
//! - A write that fails leaves the file as it was, or marks it as one to be replaced; it stops nothing.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The first line. Another format is not read but put aside.
const FORMAT: &[u8] = b"hearth webhooks 1\n";

/// Below this many bytes the file is left alone.
const SMALL: u64 = 1024 * 1024;

/// The mode of its files.
const OWN: u32 = 0o600;

/// An event that was accepted in an earlier life and not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub(super) sequence: u64,
    pub(super) app: String,
    pub(super) target: String,
    pub(super) json: String,
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record<'a> {
    /// Accepted.
    Event { sequence: u64, app: &'a str, target: &'a str, json: &'a str },
    /// Told or given up, with all before it for this target.
    Done { sequence: u64, app: &'a str, target: &'a str },
    /// This one alone is not wanted any more.
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
                // Ids and addresses are settings: a longer one is refused there.
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

/// What still waits according to `bytes`, and how many of them are sound.
pub(super) fn read(bytes: &[u8]) -> (Vec<Kept>, usize) {
    let mut kept = BTreeMap::new();
    let mut sound = 0;
    while let Some(length) = bytes.get(sound..).and_then(|rest| record(rest, &mut kept)) {
        sound += length;
    }
    (kept.into_values().collect(), sound)
}

/// Applies the first record; gives its length.
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

/// Why there is no spool. Webhooks work without, until the process ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it: an earlier one that is not done yet. [`super::Keeping::Soon`] waits for it.
    #[error("{} is used by another process", folder.display())]
    InUse {
        /// Where.
        folder: PathBuf,
    },
    /// The system says no.
    #[error("cannot keep webhooks in {}", folder.display())]
    System {
        /// Where.
        folder: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// The open file. Its calls wait for the disk.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    file: File,
    /// Sound bytes; what a failed write left stands after them.
    length: u64,
    sound: bool,
    dirty: bool,
    /// Held while the spool is: nobody else appends.
    _lock: File,
}

impl Spool {
    /// Opens the spool in `folder`, which is made if it is not there, with what it has kept. A file that is damaged is read as far as it is sound.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Kept>), OpenError> {
        let system = |cause| OpenError::System { folder: folder.to_owned(), cause };
        // What it stands in may be for others, too.
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
        // One of an earlier version was for all to read. Where it is not ours, its mode is the business of whoever shares it with us.
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

    /// Takes away what stands after the sound part.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        Ok(())
    }

    /// Adds records. They are safe from the end of the process; from the end of the machine after [`Spool::sync`].
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if !self.sound {
            // Records after a gap could tell of the end of a batch whose events are missing, but nothing false: still, they wait for the replacement.
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

    /// Makes what was added safe from a loss of power.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Would a new file with `waiting` bytes of events be much smaller, or sound again?
    pub(super) fn wants_replacement(&self, waiting: usize) -> bool {
        !self.sound || (self.length > SMALL && self.length / 4 > waiting as u64)
    }

    /// Begins a new file with these records in place of the old one: either is there, whole, at any time.
    pub(super) fn replace(&mut self, records: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = options().truncate(true).open(&new)?;
        let written = file
            .write_all(FORMAT)
            .and_then(|()| file.write_all(records))
            .and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| fs::rename(&new, &self.path)) {
            // It would take room that is missing.
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

    /// The file is not what it should be: the next turn writes it anew.
    pub(super) fn into_unsound(mut self) -> Self {
        self.sound = false;
        self
    }

    /// Is all that was accepted in the file?
    pub(super) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Is there something to sync?
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
