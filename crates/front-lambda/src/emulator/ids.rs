//! Ids of invocations and traces: unique, but not secret.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Generates ids that differ from those of every other process and start.
#[derive(Debug)]
pub(super) struct Ids {
    seed: std::hash::RandomState,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { seed: std::hash::RandomState::new(), next: AtomicU64::new(0) }
    }

    /// Returns 128 bits that are not returned again.
    pub(super) fn random(&self) -> (u64, u64) {
        // The standard library seeds its hash maps from the system's randomness, which is enough for unique names.
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let half = |which: u8| {
            let mut hasher = self.seed.build_hasher();
            hasher.write_u64(count);
            hasher.write_u8(which);
            hasher.finish()
        };
        (half(0), half(1))
    }

    /// Returns a UUID of version 4 (RFC 9562).
    pub(super) fn uuid(&self) -> String {
        let (high, low) = self.random();
        let high = (high & !0xf000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }
}
