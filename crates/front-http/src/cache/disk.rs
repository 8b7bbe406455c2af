//! Answers on disk: what memory has no room for is kept in a file until it is asked for again, purged, or too old.
//!
//! Invariants
//! - The answers on disk stay below the bound, in blocks of the file system. Those that are used often stay longest.
//! - The file has no name and ends with the process, however that ends. The space of an answer that goes is given back.
//! - Their index in memory has a bound for each of them: [`INDEXED`] for its key and tags, and about 300 bytes.
//! - A request waits for the disk only to read an answer that is there. A thread writes. What waits for it has a bound in
//!   memory, and what comes above it is dropped.
//! - Only bytes that are as they were written are sent.

mod head;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use answer_cache::{Freshness, Standing};
use bytes::Bytes;
use http::StatusCode;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::time::Instant;
use tracing::warn;

use super::Count;
use super::purges::{Purges, Ticket};
use super::store::{Entry, Slot, Variants};

/// The most memory of what waits for the thread; further answers and rules are dropped.
const WAITING: u64 = 16 << 20;
/// The memory of a job beside its content, roughly.
const JOB: u64 = 128;
/// The most bytes of a key and its tags, or of a key and its rule. What has more is not kept on disk: an answer takes 4 KiB
/// there, so clients with invented addresses could fill more memory than disk.
const INDEXED: usize = 1 << 10;
/// Answers begin at multiples of this, so that the space of each can be given back.
const BLOCK: u64 = 4 << 10;
/// The place in a file after which the next file is begun. File systems have bounds of 16 TiB and more.
const FILE_END: u64 = 1 << 40;
/// The expected size of an answer, by which the index is laid out.
const TYPICAL: u64 = 16 << 10;

/// An answer on disk.
#[derive(Debug)]
pub(super) struct OnDisk {
    extent: Extent,
    /// The size of the head, which is before the body.
    head: usize,
    checksum: u32,
    status: StatusCode,
    freshness: Freshness,
    since: Instant,
    tags: Box<[u64]>,
    id: u64,
    release: u64,
}

/// A part of a file. Dropping it gives its space back.
#[derive(Debug)]
struct Extent {
    file: Arc<File>,
    at: u64,
    size: usize,
    jobs: Sender<Job>,
}

impl Drop for Extent {
    fn drop(&mut self) {
        let hole = Job::Free { file: Arc::clone(&self.file), at: self.at, size: self.size };
        // Without the thread the file ends, too.
        drop(self.jobs.send(hole));
    }
}

impl OnDisk {
    /// Reads the answer, which is at this key of the index. It blocks.
    fn read(&self, key: Box<[u8]>) -> io::Result<Entry> {
        let mut bytes = vec![0; self.extent.size];
        self.extent.file.read_exact_at(&mut bytes, self.extent.at)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the bytes have changed");
        if crc32fast::hash(&bytes) != self.checksum {
            return Err(damaged());
        }
        let bytes = Bytes::from(bytes);
        let headers = head::decode(&bytes[..self.head]).ok_or_else(damaged)?;
        Ok(Entry {
            status: self.status,
            headers,
            body: bytes.slice(self.head..),
            freshness: self.freshness.clone(),
            since: self.since,
            tags: self.tags.clone(),
            id: self.id,
            key,
            release: self.release,
        })
    }
}

/// The index's entry at a key.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Answer(Arc<OnDisk>),
    /// The answers are at keys of their own. It is in memory only.
    Rule(Arc<Variants>),
}

impl Kept {
    pub(super) fn tags(&self) -> Option<&[u64]> {
        match self {
            Self::Answer(answer) => Some(&answer.tags),
            Self::Rule(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<Box<[u8]>, Kept> for Weigh {
    fn weight(&self, _key: &Box<[u8]>, kept: &Kept) -> u64 {
        match kept {
            Kept::Answer(answer) => blocks(answer.extent.size),
            Kept::Rule(_) => BLOCK,
        }
    }
}

/// A job of the thread.
#[derive(Debug)]
enum Job {
    Write {
        entry: Arc<Entry>,
        ticket: Ticket,
    },
    Keep {
        key: Box<[u8]>,
        variants: Arc<Variants>,
        ticket: Ticket,
    },
    Free {
        file: Arc<File>,
        at: u64,
        size: usize,
    },
    End,
    /// Says that what was sent before is done.
    #[cfg(test)]
    Tell(Sender<()>),
    /// Waits until the other side is dropped.
    #[cfg(test)]
    Wait(Receiver<()>),
}

impl Job {
    /// Returns the memory that it takes while it waits. The holes of a file take little, and are no more than there were
    /// answers.
    fn weight(&self) -> u64 {
        match self {
            Self::Write { entry, .. } => entry.weight() + JOB,
            Self::Keep { key, variants, .. } => (key.len() + variants.rule.size()) as u64 + JOB,
            _ => 0,
        }
    }
}

/// State that the thread and requests share.
#[derive(Debug)]
struct Shared {
    index: Cache<Box<[u8]>, Kept, Weigh>,
    purges: Arc<Purges>,
    waiting: AtomicU64,
    written: Count,
    dropped: Count,
    failed: Count,
}

/// The answers on disk.
#[derive(Debug)]
pub(super) struct Disk {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    hits: Count,
}

impl Disk {
    /// Begins a file in this folder. An error says that the folder cannot be written, or that its file system cannot give
    /// back the space of parts of a file.
    pub(super) fn open(folder: &Path, limit: u64, purges: Arc<Purges>) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        file.write_all_at(&[1], 0)?;
        free(&file, 0, 1)?;
        let typical = usize::try_from(limit / TYPICAL).unwrap_or(usize::MAX).clamp(64, 1 << 18);
        let shared = Arc::new(Shared {
            index: Cache::with_weighter(typical, limit, Weigh),
            purges,
            waiting: AtomicU64::new(0),
            written: Count::default(),
            dropped: Count::default(),
            failed: Count::default(),
        });
        let (jobs, received) = channel();
        let writer = Writer {
            shared: Arc::downgrade(&shared),
            folder: folder.to_owned(),
            file: Arc::new(file),
            at: 0,
            warned: None,
        };
        let sender = jobs.clone();
        std::thread::Builder::new()
            .name("hearth-cache".into())
            .spawn(move || writer.run(&received, &sender))?;
        Ok(Self { shared, jobs, hits: Count::default() })
    }

    /// Takes what memory has no room for. It never waits. `settled` is the number of purges at that time.
    pub(super) fn offer(&self, key: &[u8], slot: &Slot, settled: u64) {
        match slot {
            Slot::Entry(entry) => self.offer_answer(entry, settled),
            Slot::Rule(variants) if key.len() + variants.rule.size() <= INDEXED => {
                let ticket = Ticket { release: variants.release, number: settled };
                self.queue(Job::Keep { key: key.into(), variants: Arc::clone(variants), ticket });
            }
            Slot::Rule(_) | Slot::Coded { .. } | Slot::Passed { .. } => {}
        }
    }

    fn offer_answer(&self, entry: &Arc<Entry>, settled: u64) {
        let standing = entry.freshness.standing(entry.since.elapsed());
        let useless = standing == Standing::Stale(false) && !entry.has_validator();
        let indexed = entry.key.len() + size_of_val(&*entry.tags);
        if useless || indexed > INDEXED || self.has(entry) {
            return;
        }
        let ticket = Ticket { release: entry.release, number: settled };
        self.queue(Job::Write { entry: Arc::clone(entry), ticket });
    }

    /// Gives a job to the thread, unless too much waits for it.
    fn queue(&self, job: Job) {
        let (shared, weight) = (&self.shared, job.weight());
        if shared.waiting.fetch_add(weight, Ordering::Relaxed) + weight > WAITING {
            shared.waiting.fetch_sub(weight, Ordering::Relaxed);
            shared.dropped.add();
            return;
        }
        drop(self.jobs.send(job));
    }

    /// Returns whether this very answer is on disk.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        let kept = self.shared.index.peek(&*entry.key);
        matches!(kept, Some(Kept::Answer(kept)) if kept.id == entry.id)
    }

    /// Returns the rule at a key.
    pub(super) fn rule(&self, key: &[u8]) -> Option<Arc<Variants>> {
        match self.shared.index.get(key)? {
            Kept::Rule(variants) => Some(variants),
            Kept::Answer(_) => None,
        }
    }

    /// Reads the answer at a key.
    pub(super) async fn read(&self, key: &[u8]) -> Option<Entry> {
        let Kept::Answer(kept) = self.shared.index.get(key)? else { return None };
        let at = key.into();
        let read = tokio::task::spawn_blocking(move || kept.read(at)).await.ok()?;
        match read {
            Ok(entry) => {
                self.hits.add();
                Some(entry)
            }
            Err(error) => {
                self.shared.failed.add();
                warn!(%error, "a stored answer cannot be read from disk: PHP makes it again");
                self.remove(key);
                None
            }
        }
    }

    pub(super) fn remove(&self, key: &[u8]) {
        self.shared.index.remove(key);
    }

    pub(super) fn retain(&self, keep: impl Fn(&[u8], &Kept) -> bool) {
        self.shared.index.retain(|key, kept| keep(key, kept));
    }

    /// Returns what the disk has done and has.
    pub(super) fn report(&self) -> DiskReport {
        let shared = &self.shared;
        DiskReport {
            hits: self.hits.get(),
            written: shared.written.get(),
            dropped: shared.dropped.get(),
            failed: shared.failed.get(),
            bytes: shared.index.weight(),
            limit: shared.index.capacity(),
            entries: shared.index.len() as u64,
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.jobs.send(Job::End));
    }
}

/// Counters of the cache's disk since the start, and its content now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DiskReport {
    /// Answers that were read from disk.
    pub hits: u64,
    /// Answers that were written.
    pub written: u64,
    /// Answers that were dropped because the disk was too slow.
    pub dropped: u64,
    /// Answers that could not be written or read.
    pub failed: u64,
    /// Space in use, in bytes.
    pub bytes: u64,
    /// The most space, in bytes.
    #[serde(rename = "bytes_limit")]
    pub limit: u64,
    /// Answers on disk.
    pub entries: u64,
}

/// The thread that writes.
struct Writer {
    shared: Weak<Shared>,
    folder: std::path::PathBuf,
    file: Arc<File>,
    /// The place of the next answer.
    at: u64,
    /// The error that was logged last: each is logged once.
    warned: Option<io::ErrorKind>,
}

impl Writer {
    /// Works until the cache is dropped.
    fn run(mut self, jobs: &Receiver<Job>, sender: &Sender<Job>) {
        while let Ok(job) = jobs.recv() {
            let weight = job.weight();
            match job {
                // The files end with the cache.
                _ if self.shared.strong_count() == 0 => return,
                Job::End => return,
                #[cfg(test)]
                Job::Tell(done) => drop(done.send(())),
                #[cfg(test)]
                Job::Wait(free) => drop(free.recv()),
                Job::Free { file, at, size } => {
                    if let Err(error) = free(&file, at, size) {
                        self.warn(&error, "space of the answer cache is not given back");
                    }
                }
                Job::Keep { key, variants, ticket } => {
                    let Some(shared) = self.shared.upgrade() else { return };
                    shared.waiting.fetch_sub(weight, Ordering::Relaxed);
                    shared.purges.insert(ticket, (&key, &[]), || {
                        shared.index.insert(key.clone(), Kept::Rule(variants));
                    });
                }
                Job::Write { entry, ticket } => {
                    let Some(shared) = self.shared.upgrade() else { return };
                    shared.waiting.fetch_sub(weight, Ordering::Relaxed);
                    match self.write(&entry, sender) {
                        Ok(kept) => {
                            let kept = Kept::Answer(Arc::new(kept));
                            shared.purges.insert(ticket, (&entry.key, &entry.tags), || {
                                shared.index.insert(entry.key.clone(), kept);
                            });
                            shared.written.add();
                            self.warned = None;
                        }
                        Err(error) => {
                            shared.failed.add();
                            self.warn(&error, "a stored answer cannot be written to disk");
                        }
                    }
                }
            }
        }
    }

    fn write(&mut self, entry: &Entry, jobs: &Sender<Job>) -> io::Result<OnDisk> {
        if self.at > FILE_END {
            (self.file, self.at) = (Arc::new(tempfile::tempfile_in(&self.folder)?), 0);
        }
        let mut bytes = head::encode(&entry.headers);
        let head = bytes.len();
        bytes.extend_from_slice(&entry.body);
        // From here on its space is given back, also when the disk is full in the middle.
        let extent = Extent {
            file: Arc::clone(&self.file),
            at: self.at,
            size: bytes.len(),
            jobs: jobs.clone(),
        };
        self.at += blocks(bytes.len());
        extent.file.write_all_at(&bytes, extent.at)?;
        Ok(OnDisk {
            extent,
            head,
            checksum: crc32fast::hash(&bytes),
            status: entry.status,
            freshness: entry.freshness.clone(),
            since: entry.since,
            tags: entry.tags.clone(),
            id: entry.id,
            release: entry.release,
        })
    }

    fn warn(&mut self, error: &io::Error, what: &str) {
        if self.warned != Some(error.kind()) {
            self.warned = Some(error.kind());
            warn!(%error, folder = %self.folder.display(), "{what} (`http.cache_disk`)");
        }
    }
}

/// The space that this many bytes take.
fn blocks(size: usize) -> u64 {
    (size as u64).next_multiple_of(BLOCK)
}

fn free(file: &File, at: u64, size: usize) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, at, blocks(size))?)
}

#[cfg(test)]
mod tests;
