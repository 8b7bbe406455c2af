//! Memory of PHP's processes as the kernel counts it (`/proc/PID/smaps_rollup`), read in the background.
//!
//! Invariants
//! - Reading walks a process's page tables, so it runs on a thread for blocking work, at most once in
//!   [`Schedule::EVERY`]. It takes at most one part in [`Schedule::SHARE`] of the time.
//! - Figures that cannot be read are `None`, never zero.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::info::WorkerInfo;

/// Memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// Process id.
    pub pid: u32,
    /// Proportional set size (PSS): each page divided by the number of processes that map it.
    pub pss_bytes: u64,
    /// Pages that no other process maps.
    pub private_bytes: u64,
}

/// Memory of all processes of a pool together, each page counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatus {
    /// The sum of the processes' PSS. `None`: /proc does not show it to the server, or it has not been read yet.
    pub pss_bytes: Option<u64>,
    /// Pages that one process alone maps, of all of them.
    pub private_bytes: Option<u64>,
    /// Pages that are mapped by more than one process, each counted once.
    pub shared_bytes: Option<u64>,
    /// Bytes of the file that all snapshots of a generation share (model `snapshot`), counted once: the most that a worker uses of it.
    pub snapshot_shared_bytes: Option<u64>,
    /// The processes that workers are forked from; none if PHP runs in its own programs.
    pub zygotes: Vec<ProcessMemory>,
}

/// A snapshot that a worker has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotMemory {
    /// Bytes in the snapshot.
    pub bytes: u64,
    /// The part of it in the file that all workers of the generation share.
    pub shared_bytes: u64,
}

impl MemoryStatus {
    /// Adds the processes of another pool.
    pub(crate) fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.pss_bytes = sum(self.pss_bytes, other.pss_bytes);
        self.private_bytes = sum(self.private_bytes, other.private_bytes);
        self.shared_bytes = sum(self.shared_bytes, other.shared_bytes);
        self.snapshot_shared_bytes = match (self.snapshot_shared_bytes, other.snapshot_shared_bytes)
        {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        self.zygotes.extend(other.zygotes.iter().copied());
    }
}

/// Reads the memory of a process. `Ok(None)`: it has ended.
fn read(pid: u32) -> io::Result<Option<ProcessMemory>> {
    if pid == 0 {
        return Ok(None);
    }
    let text = match std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        Ok(text) => text,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Linux before 4.14 has no such file.
            let lives = std::path::Path::new(&format!("/proc/{pid}")).exists();
            return if lives { Err(error) } else { Ok(None) };
        }
        Err(error) => return Err(error),
    };
    // A process that has ended and was not waited for has no memory.
    Ok(parse(pid, &text).filter(|memory| memory.pss_bytes > 0))
}

/// Parses the text of `smaps_rollup` (proc(5)).
fn parse(pid: u32, text: &str) -> Option<ProcessMemory> {
    let bytes = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    Some(ProcessMemory {
        pid,
        pss_bytes: bytes("Pss:")?,
        private_bytes: bytes("Private_Clean:")? + bytes("Private_Dirty:")?,
    })
}

/// Reads the memory of a zygote and of workers. Workers keep their own figures; the sums are returned.
pub(crate) fn read_all(zygote: Option<u32>, workers: &[Arc<WorkerInfo>]) -> MemoryStatus {
    let mut status = MemoryStatus::default();
    let mut sums = Some((0, 0));
    let mut add = |read: io::Result<Option<ProcessMemory>>| {
        let memory = match read {
            Ok(memory) => memory,
            Err(error) => {
                tracing::debug!(%error, "memory of a process cannot be read");
                sums = None;
                None
            }
        };
        if let (Some((pss, private)), Some(memory)) = (&mut sums, memory) {
            *pss += memory.pss_bytes;
            *private += memory.private_bytes;
        }
        memory
    };
    status.zygotes.extend(zygote.and_then(|pid| add(read(pid))));
    for info in workers {
        info.set_memory(add(read(info.pid())));
        let shared = info.snapshot().map(|snapshot| snapshot.shared_bytes);
        status.snapshot_shared_bytes = status.snapshot_shared_bytes.max(shared);
    }
    if let Some((pss, private)) = sums {
        status.pss_bytes = Some(pss);
        status.private_bytes = Some(private);
        status.shared_bytes = Some(pss.saturating_sub(private));
    }
    status
}

/// When memory is read the next time.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    reading: Option<JoinHandle<Duration>>,
    next: Option<Instant>,
}

impl Schedule {
    /// The shortest time between two readings.
    const EVERY: Duration = Duration::from_secs(5);
    /// The time between two readings is at least this many times as long as a reading takes.
    const SHARE: u32 = 200;

    /// Returns whether a reading is due and none is in progress.
    pub(crate) async fn is_due(&mut self) -> bool {
        if self.reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            return false;
        }
        if let Some(reading) = self.reading.take() {
            let took = reading.await.unwrap_or_default();
            self.next = Some(Instant::now() + Self::EVERY.max(took * Self::SHARE));
        }
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Starts a reading.
    pub(crate) fn start(&mut self, read: impl FnOnce() + Send + 'static) {
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            read();
            began.elapsed()
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read_in_bytes() {
        const TEXT: &str = "55d8c0c4e000-7ffd1a9f8000 ---p 00000000 00:00 0    [rollup]\nRss:    1000 kB\n\
                            Pss:     420 kB\nPss_Dirty:   99 kB\nShared_Clean:  500 kB\nPrivate_Clean:   4 kB\n\
                            Private_Dirty:   16 kB\n";
        let memory = parse(7, TEXT).unwrap();
        let expected = ProcessMemory { pid: 7, pss_bytes: 420 << 10, private_bytes: 20 << 10 };
        assert_eq!(memory, expected);
        assert_eq!(parse(7, "Pss: much\n"), None);
    }

    #[test]
    fn a_process_that_has_ended_has_no_memory_and_one_that_lives_has() {
        let own = read(std::process::id()).unwrap().unwrap();
        assert!(own.pss_bytes >= own.private_bytes && own.private_bytes > 0, "{own:?}");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(read(child.id()).unwrap(), None);
    }

    #[test]
    fn sums_are_unknown_as_soon_as_one_part_is() {
        let known = MemoryStatus {
            pss_bytes: Some(3),
            private_bytes: Some(2),
            shared_bytes: Some(1),
            ..MemoryStatus::default()
        };
        let mut sum = known.clone();
        sum.add(&known);
        assert_eq!(
            (sum.pss_bytes, sum.private_bytes, sum.shared_bytes),
            (Some(6), Some(4), Some(2))
        );
        sum.add(&MemoryStatus::default());
        assert_eq!((sum.pss_bytes, sum.private_bytes, sum.shared_bytes), (None, None, None));
    }
}
