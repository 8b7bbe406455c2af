//! Restores that workers of the model `snapshot` have verified by comparing all their memory with the snapshot
//! ([`crate::Options::verify_restores`]), as reported in the workers' shared counters.
//!
//! Invariants
//! - Counters are written by workers and not trusted: they are only added up.

use std::time::Duration;

use serde::Serialize;

/// Size of the record in the shared counters (`struct snapshot_verified` in `native/snapshot/snapshot.h`).
pub(crate) const RECORD: usize = 24;

/// Restores that were verified, all workers together, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VerifiedRestores {
    /// Restores after which all memory was compared with the snapshot.
    pub verified: u64,
    /// Restores that had left a difference. The worker then retired.
    pub differing: u64,
    /// Total time of the comparisons in seconds.
    pub seconds: f64,
}

impl VerifiedRestores {
    /// Parses a record of the shared counters.
    pub(crate) fn of_record(record: [u8; RECORD]) -> Self {
        let number = |at: usize| {
            u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes are eight"))
        };
        let seconds = Duration::from_nanos(number(16)).as_secs_f64();
        Self { verified: number(0), differing: number(8), seconds }
    }

    /// Adds the counters of another worker or pool.
    pub(crate) fn add(&mut self, other: Self) {
        self.verified = self.verified.saturating_add(other.verified);
        self.differing = self.differing.saturating_add(other.differing);
        self.seconds += other.seconds;
    }
}
