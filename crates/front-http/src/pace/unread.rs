//! The request bodies of one HTTP/2 or HTTP/3 connection that may hold its credit.
//!
//! A client may send [`STREAM_WINDOW`] ahead of the application on each stream, and [`CONNECTION_WINDOW`] in all. Bodies
//! that the application reads slowly can therefore keep the client from sending others.
//!
//! Invariants
//! - A body counts from its start until it is dropped, except while all that has arrived of it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Credit for the request body of one stream: what a client may send ahead of PHP's reading.
pub(crate) const STREAM_WINDOW: u32 = 256 << 10;
/// Credit for all streams of a connection.
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 20;
/// Fewer unread bodies leave credit for another one.
const HOLD_ALL: usize = (CONNECTION_WINDOW / STREAM_WINDOW) as usize;

/// The number of unread bodies of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadBodies(Arc<AtomicUsize>);

/// One body, which counts while it is unread.
#[derive(Debug)]
pub(crate) struct UnreadBody {
    all: UnreadBodies,
    counts: bool,
}

impl UnreadBodies {
    /// Counts a new body.
    pub(crate) fn begin(&self) -> UnreadBody {
        let mut body = UnreadBody { all: self.clone(), counts: false };
        body.set(true);
        body
    }
}

impl UnreadBody {
    /// Sets whether bytes may have arrived that are not read.
    pub(crate) fn set(&mut self, unread: bool) {
        match (self.counts, unread) {
            (false, true) => self.all.0.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.all.0.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.counts = unread;
    }

    /// Returns whether other bodies may hold all credit, so that the client cannot send this one.
    pub(crate) fn is_blocked(&self) -> bool {
        self.all.0.load(Ordering::Relaxed) - usize::from(self.counts) >= HOLD_ALL
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_unread_bodies_block_another_one_until_one_is_read() {
        let all = UnreadBodies::default();
        let mut body = all.begin();
        let mut others: Vec<_> = (0..HOLD_ALL).map(|_| all.begin()).collect();
        assert!(body.is_blocked());
        body.set(false);
        assert!(body.is_blocked());
        others[0].set(false);
        assert!(!body.is_blocked());
        others[0].set(true);
        assert!(body.is_blocked());
        others.pop();
        assert!(!body.is_blocked());
    }
}
