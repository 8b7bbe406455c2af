//! The counters that a worker shares with the server: its requests, their states, and its database connections
//! (docs/internals/frames.md, "The shared counters").
//!
//! Invariants
//! - A request that was written ahead is begun by the worker or withdrawn by the server, never both.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::io::Errno;

use crate::databases::{self, DatabaseStatus};
use crate::memory::SnapshotMemory;
use crate::memory_file::memory_file;
use crate::sys::MappedWords;
use crate::verified::{RECORD, VerifiedRestores};

/// Size of the shared counters in bytes: restores that were verified come last.
const SHARED_COUNTERS: usize = databases::END + RECORD;

/// Creates a file without a name, in memory if possible.
fn nameless_file() -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |folder: &Path| rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR);
    let file = open(Path::new("/dev/shm")).or_else(|_none| open(&std::env::temp_dir()))?;
    Ok(file)
}

/// The shared counters of a worker: its requests and its database connections (docs/internals/frames.md, "The
/// shared counters").
#[derive(Debug)]
pub(crate) struct SharedCounters {
    pub(crate) file: OwnedFd,
    /// The first words, mapped when they are first needed; `None` if that failed.
    mapped: OnceLock<Option<MappedWords>>,
}

/// State of a request in the shared counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum RequestState {
    /// The client is gone.
    Aborted,
    /// The request was written ahead.
    Offered,
    /// The worker has begun it.
    Begun,
    /// The server has taken it back, and the worker skips it.
    Withdrawn,
}

impl RequestState {
    /// Returns the word that stands for this state of request `number`.
    fn of(self, number: u64) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "its lower bits tell requests apart")]
        let number = number as u32;
        number << 2 | self as u32
    }
}

impl SharedCounters {
    pub(crate) fn new() -> io::Result<Self> {
        let file = match memory_file("hearth-counters") {
            // A sandbox may block the call. `snapshot` cannot run without it; the other models can.
            Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => nameless_file()?,
            file => file?,
        };
        rustix::fs::ftruncate(&file, SHARED_COUNTERS as u64)?;
        // The worker could otherwise make accesses to the mapping fail.
        let _not_in_memory = rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).is_err();
        Ok(Self { file, mapped: OnceLock::new() })
    }

    /// Returns the worker's statistics about kept connections.
    pub(crate) fn databases(&self) -> DatabaseStatus {
        let mut bytes = vec![0; SHARED_COUNTERS];
        match rustix::io::pread(&self.file, &mut bytes, 0) {
            Ok(SHARED_COUNTERS) => DatabaseStatus::of_counters(&bytes),
            _ => DatabaseStatus::default(),
        }
    }

    /// Returns how many restores the worker has verified.
    pub(crate) fn verified(&self) -> VerifiedRestores {
        let mut record = [0; RECORD];
        match rustix::io::pread(&self.file, &mut record, databases::END as u64) {
            Ok(RECORD) => VerifiedRestores::of_record(record),
            _ => VerifiedRestores::default(),
        }
    }

    /// Returns the snapshot that the worker has taken, if any.
    pub(crate) fn snapshot(&self) -> Option<SnapshotMemory> {
        let mut words = [0; 16];
        let read = rustix::io::pread(&self.file, &mut words, 16);
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("8 bytes"));
        let (bytes, shared_bytes) = (word(0), word(8));
        (matches!(read, Ok(16)) && bytes > 0).then_some(SnapshotMemory { bytes, shared_bytes })
    }

    /// Returns whether it ended by itself and normally.
    pub(crate) fn is_left(&self) -> bool {
        let mut word = [0; 4];
        matches!(rustix::io::pread(&self.file, &mut word, 8), Ok(4))
            && u32::from_le_bytes(word) == 1
    }

    /// Tells the worker whether requests take long, so that it chooses its scheduling policy.
    pub(crate) fn set_long(&self, are_long: bool) {
        /// Word and bit; the worker has the other bits.
        const SCHEDULING: usize = 3;
        const LONG: u32 = 1;
        // It expects short ones, so that only long ones are worth a mapping.
        let mapped =
            if are_long { self.mapped() } else { self.mapped.get().and_then(Option::as_ref) };
        let Some(mapped) = mapped else { return };
        let word = mapped.word(SCHEDULING);
        if (word.load(Ordering::Relaxed) & LONG != 0) != are_long {
            word.fetch_xor(LONG, Ordering::Relaxed);
        }
    }

    /// Number of requests whose state is kept: the place of a request is used again after this many others.
    const REQUESTS: u64 = 32;

    /// Marks that a request is written ahead. Returns `false` if that is not possible: the worker must first read
    /// others.
    pub(crate) fn offer(&self, number: u64) -> bool {
        let Some(word) = self.request(number) else { return false };
        word.store(RequestState::Offered.of(number), Ordering::SeqCst);
        true
    }

    /// Takes back a request that was written ahead. Returns `false` if the worker has begun it.
    pub(crate) fn withdraw(&self, number: u64) -> bool {
        let (offered, withdrawn) = (RequestState::Offered, RequestState::Withdrawn);
        self.request(number).is_some_and(|word| {
            word.compare_exchange(
                offered.of(number),
                withdrawn.of(number),
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
        })
    }

    /// Marks that the client of a request is gone, which the worker may have begun. Returns `false` if that is not
    /// possible.
    pub(crate) fn abort(&self, number: u64) -> bool {
        let Some(word) = self.request(number) else { return false };
        word.store(RequestState::Aborted.of(number), Ordering::SeqCst);
        true
    }

    /// Returns whether the worker has begun a request.
    pub(crate) fn has_begun(&self, number: u64) -> bool {
        let is_begun = |mapped: &MappedWords| {
            let state = mapped.word(word_of(number)).load(Ordering::SeqCst);
            state == RequestState::Begun.of(number) || state == RequestState::Aborted.of(number)
        };
        self.taken() >= number
            || self.mapped.get().is_some_and(|m| m.as_ref().is_some_and(is_begun))
    }

    /// Returns the place of a request's state; `None` if the worker may still need it for an earlier request.
    fn request(&self, number: u64) -> Option<&AtomicU32> {
        let mapped = self.mapped()?;
        #[expect(clippy::cast_possible_truncation, reason = "the difference is what counts")]
        let ahead = (number as u32).wrapping_sub(mapped.word(0).load(Ordering::SeqCst));
        let free = i64::from(ahead.cast_signed()) < Self::REQUESTS.cast_signed();
        free.then(|| mapped.word(word_of(number)))
    }

    fn mapped(&self) -> Option<&MappedWords> {
        let map = || {
            MappedWords::of(&self.file).inspect_err(|error| {
                tracing::warn!(%error, "requests are not written ahead: states cannot be shared");
            })
        };
        self.mapped.get_or_init(|| map().ok()).as_ref()
    }

    /// Returns how many REQUEST frames the worker has started.
    fn taken(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::pread(&self.file, &mut count, 0) {
            Ok(8) => u64::from_le_bytes(count),
            _ => u64::MAX, // impossible; if it occurs, nothing is sent twice
        }
    }
}

/// Returns the number of the word that has the state of a request: they begin at byte 32.
fn word_of(number: u64) -> usize {
    const FIRST: usize = 8;
    FIRST + usize::try_from(number % SharedCounters::REQUESTS).expect("less than 32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_begun_or_withdrawn_and_never_both() {
        let counters = SharedCounters::new().unwrap();
        let take = |number: u32| counters.mapped().unwrap().word(0).store(number, Ordering::SeqCst);
        assert!(!counters.withdraw(1), "it was not offered");
        assert!(counters.offer(1) && !counters.has_begun(1));
        assert!(counters.withdraw(1) && !counters.withdraw(1));
        assert!(
            !counters.offer(33),
            "the worker may still look for the state of 1, in the same place"
        );
        take(1);
        assert!(!counters.offer(33), "it has begun that, and looks whether its client is gone");
        take(2);
        assert!(counters.offer(33) && !counters.has_begun(33));
        let word = counters.request(33).unwrap();
        word.store(RequestState::Begun.of(33), Ordering::SeqCst);
        assert!(!counters.withdraw(33) && counters.has_begun(33));
        assert!(counters.abort(33) && counters.has_begun(33));
        assert!(!counters.has_begun((1 << 32) + 34));
    }
}
