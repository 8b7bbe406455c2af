//! A bounded byte queue between a fast and a slow side: in memory first, then in an unlinked temporary file.
//!
//! Invariants
//! - Bytes are read in the order in which they were appended, and every appended byte can be read, even after the
//!   disk is full.
//! - A queue holds at most its limits, and all queues of a [`Spools`] together hold at most its limits. Each queue
//!   may exceed them by one batch being collected, one being written and the last appended piece.
//! - No disk access runs on the caller's thread. A file has no name and ends with its queue, however the process
//!   ends.
//! - A queue wakes its caller only for disk access: the side that waits for bytes, or for room, is woken by the owner
//!   of both sides.

mod limits;
mod pieces;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::JoinHandle;

pub(crate) use self::limits::{Limits, Spools};
use self::pieces::Pieces;

/// Number of bytes collected before they are written to a file, and read from it at once.
const BATCH: usize = 64 << 10;

/// Batch size when the shared memory is used up, because many queues then hold little.
const CROWDED_BATCH: usize = 4 << 10;

/// A file of at least this size is closed on a blocking thread, because freeing its blocks takes time.
const LARGE_FILE: u64 = 4 << 20;

/// Whether a queue accepts more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// [`Spool::append`] may be called once.
    Free,
    /// A limit is reached: bytes must be read first.
    Full,
}

/// A byte queue. One task polls both sides.
#[derive(Debug)]
pub(crate) struct Spool {
    spools: Arc<Spools>,
    limits: Limits,
    /// The first bytes, counted as memory of `spools`.
    head: Pieces,
    /// The bytes after `head`, once that was full.
    disk: Option<Disk>,
    /// Total number of appended bytes.
    appended: u64,
}

/// The part of a queue that is, or will be, in a file.
#[derive(Debug, Default)]
struct Disk {
    file: Option<Arc<File>>,
    /// The file is counted in `spools`.
    counted: bool,
    /// Number of bytes in the file.
    written: u64,
    /// Number of bytes read from the file.
    read: u64,
    /// Bytes after those in the file, counted as memory of `spools`.
    tail: Pieces,
    writing: Option<Writing>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    /// The error after which nothing more is written to the file.
    failed: Option<io::ErrorKind>,
    /// Bytes were lost with the thread that was to write them: the runtime is shutting down.
    lost: bool,
}

/// Bytes being written to the file.
#[derive(Debug)]
struct Writing {
    bytes: u64,
    job: JoinHandle<Written>,
}

/// The result of writing: the file, or the pieces and the error.
type Written = Result<Arc<File>, (Vec<Bytes>, io::Error)>;

impl Spool {
    /// Creates an empty queue whose bytes are freed when they are read.
    pub(crate) fn new(spools: &Arc<Spools>, limits: Limits) -> Self {
        Self {
            spools: Arc::clone(spools),
            limits,
            head: Pieces::default(),
            disk: None,
            appended: 0,
        }
    }

    /// Returns the number of bytes appended so far, read or not.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns whether all appended bytes were read.
    pub(crate) fn is_empty(&self) -> bool {
        let is_read = |disk: &Disk| {
            let on_disk = disk.read == disk.written && disk.writing.is_none();
            on_disk && disk.reading.is_none() && disk.tail.is_empty()
        };
        self.head.is_empty() && self.disk.as_ref().is_none_or(is_read)
    }

    /// Returns whether bytes are, or will be, in a file.
    pub(crate) fn uses_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Checks whether another piece may be appended. Pending while a batch is written to the file. Cancel safe.
    ///
    /// # Errors
    /// The file could not be written, for instance because the disk is full ([`is_disk_full`]). The bytes can still
    /// be read, and a queue that was read to its end starts again in memory.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Room>> {
        let Some(disk) = &mut self.disk else {
            let bytes = self.head.bytes();
            if bytes < self.limits.memory && self.spools.memory.has_room() {
                return Poll::Ready(Ok(Room::Free));
            }
            if self.limits.file == 0 {
                return Poll::Ready(Ok(Room::Full));
            }
            self.disk = Some(Disk::default());
            return Poll::Ready(Ok(Room::Free));
        };
        let batch = if self.spools.memory.has_room() { BATCH } else { CROWDED_BATCH };
        if disk.tail.bytes() < batch as u64 {
            return Poll::Ready(Ok(Room::Free));
        }
        ready!(disk.poll_written(&self.spools, cx));
        if let Some(kind) = disk.failed {
            return Poll::Ready(Err(kind.into()));
        }
        if !disk.write(&self.spools, self.limits.file) {
            return Poll::Ready(Ok(Room::Full));
        }
        Poll::Ready(Ok(Room::Free))
    }

    /// Appends a piece. The caller must have got [`Room::Free`] from [`Spool::poll_room`].
    pub(crate) fn append(&mut self, piece: Bytes) {
        let length = piece.len() as u64;
        self.appended += length;
        self.spools.memory.add(length);
        match &mut self.disk {
            Some(disk) => disk.tail.push(piece),
            None => self.head.push(piece),
        }
    }

    /// Returns the next bytes; `None` when all appended bytes were read. Pending while bytes are read from the file.
    /// Cancel safe.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(piece) = self.next_of_head() {
            return Poll::Ready(Some(Ok(piece)));
        }
        let Some(disk) = &mut self.disk else { return Poll::Ready(None) };
        loop {
            if disk.lost {
                return Poll::Ready(Some(Err(io::ErrorKind::Interrupted.into())));
            }
            if let Some(job) = &mut disk.reading {
                let outcome = ready!(Pin::new(job).poll(cx));
                disk.reading = None;
                let bytes = outcome.unwrap_or_else(|lost| Err(io::Error::other(lost)));
                if let Ok(bytes) = &bytes {
                    disk.read += bytes.len() as u64;
                }
                return Poll::Ready(Some(bytes));
            }
            if disk.read == disk.written {
                if disk.writing.is_none() {
                    break;
                }
                ready!(disk.poll_written(&self.spools, cx));
            } else {
                disk.start_reading();
            }
        }
        let piece = disk.tail.pop();
        match &piece {
            Some(piece) => self.spools.memory.give_back(piece.len() as u64),
            // All bytes are read: the file is closed, and the next bytes stay in memory again.
            None => self.forget_disk(),
        }
        Poll::Ready(piece.map(Ok))
    }

    fn next_of_head(&mut self) -> Option<Bytes> {
        let piece = self.head.pop()?;
        self.spools.memory.give_back(piece.len() as u64);
        Some(piece)
    }

    fn forget_disk(&mut self) {
        let Some(disk) = self.disk.take() else { return };
        let in_flight = disk.writing.as_ref().map_or(0, |writing| writing.bytes);
        self.spools.memory.give_back(disk.tail.bytes() + in_flight);
        self.spools.disk.give_back(disk.written + in_flight);
        self.spools.files.give_back(u64::from(disk.counted));
        if disk.written + in_flight >= LARGE_FILE
            && let Some(file) = disk.file
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.spools.memory.give_back(self.head.bytes());
        self.forget_disk();
    }
}

impl Disk {
    /// Starts to write the tail, unless a limit is reached.
    fn write(&mut self, spools: &Arc<Spools>, limit: u64) -> bool {
        let bytes = self.tail.bytes();
        self.counted = self.counted || spools.files.take(1);
        if !self.counted || self.written + bytes > limit || !spools.disk.take(bytes) {
            return false;
        }
        let pieces = self.tail.take();
        let (at, file, spools) = (self.written, self.file.clone(), Arc::clone(spools));
        let job = tokio::task::spawn_blocking(move || write(&spools, file, at, pieces));
        self.writing = Some(Writing { bytes, job });
        true
    }

    /// Ready when nothing is being written.
    fn poll_written(&mut self, spools: &Spools, cx: &mut Context<'_>) -> Poll<()> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(()) };
        let outcome = ready!(Pin::new(&mut writing.job).poll(cx));
        let bytes = writing.bytes;
        self.writing = None;
        let outcome = outcome.unwrap_or_else(|cancelled| {
            self.lost = true;
            spools.memory.give_back(bytes);
            Err((Vec::new(), io::Error::other(cancelled)))
        });
        match outcome {
            Ok(file) => {
                self.file = Some(file);
                self.written += bytes;
                spools.memory.give_back(bytes);
            }
            Err((pieces, error)) => {
                self.tail.put_back(pieces);
                self.failed = Some(error.kind());
                spools.disk.give_back(bytes);
                tracing::warn!(%error, directory = %spools.directory().display(), "temporary file not written");
            }
        }
        Poll::Ready(())
    }

    fn start_reading(&mut self) {
        let left = usize::try_from(self.written - self.read).unwrap_or(usize::MAX);
        let (at, length, file) = (self.read, left.min(BATCH), self.file.clone());
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let Some(file) = file else { return Err(io::ErrorKind::NotFound.into()) };
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, at)?;
            Ok(Bytes::from(bytes))
        }));
    }
}

/// Writes pieces at offset `at` of a file, which is created if there is none. Blocks.
fn write(spools: &Spools, file: Option<Arc<File>>, at: u64, pieces: Vec<Bytes>) -> Written {
    let mut place = at;
    let outcome = match file {
        Some(file) => Ok(file),
        None => spools.file().map(Arc::new),
    };
    let outcome = outcome.and_then(|file| {
        for piece in &pieces {
            file.write_all_at(piece, place)?;
            place += piece.len() as u64;
        }
        Ok(file)
    });
    outcome.map_err(|error| (pieces, error))
}

/// Returns whether a write failed because the disk, or a quota on it, is full.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
