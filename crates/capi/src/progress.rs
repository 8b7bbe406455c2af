//! How far a request is, both ways, and when something last moved.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::calls::Far;

/// Nobody has said.
const UNKNOWN: u64 = u64::MAX;

/// How far one request is.
#[derive(Debug)]
pub(crate) struct Track {
    began: Instant,
    sent: AtomicU64,
    to_send: AtomicU64,
    received: AtomicU64,
    to_receive: AtomicU64,
    /// Milliseconds after `began`.
    moved: AtomicU64,
    /// Somebody has asked for the caller's body.
    begun: AtomicBool,
    /// So many hold it: a callback that runs, a way that is paused, a delay before the next try.
    held: AtomicU32,
    /// Why the caller's body could not be read.
    failure: Mutex<Option<String>>,
}

impl Track {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            sent: AtomicU64::new(0),
            to_send: AtomicU64::new(0),
            received: AtomicU64::new(0),
            to_receive: AtomicU64::new(UNKNOWN),
            moved: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            held: AtomicU32::new(0),
            failure: Mutex::default(),
        }
    }

    /// Another try begins: nothing was sent and received yet.
    pub(crate) fn again(&self) {
        self.sent.store(0, Relaxed);
        self.received.store(0, Relaxed);
        self.to_receive.store(UNKNOWN, Relaxed);
        self.move_on();
    }

    fn move_on(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.begun.store(true, Relaxed);
    }

    /// The body was begun since this was asked last.
    pub(crate) fn begun(&self) -> bool {
        self.begun.swap(false, Relaxed)
    }

    /// That nothing moves is the program's wish, or ours, as long as this is kept.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.held.fetch_add(1, Relaxed);
        Held(self)
    }

    pub(crate) fn to_send(&self, length: Option<u64>) {
        self.to_send.store(length.unwrap_or(UNKNOWN), Relaxed);
    }

    pub(crate) fn to_receive(&self, length: Option<u64>) {
        self.to_receive.store(length.unwrap_or(UNKNOWN), Relaxed);
        self.move_on();
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.move_on();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.move_on();
    }

    pub(crate) fn fail(&self, why: &std::io::Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_string());
    }

    /// Why the caller's body could not be read, if that was it.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn far(&self) -> Far {
        let known = |value: &AtomicU64| Some(value.load(Relaxed)).filter(|value| *value != UNKNOWN);
        Far {
            sent: self.sent.load(Relaxed),
            to_send: known(&self.to_send),
            received: self.received.load(Relaxed),
            to_receive: known(&self.to_receive),
        }
    }

    /// Returns when nothing has moved for so long.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let until = self.began + Duration::from_millis(self.moved.load(Relaxed)) + limit;
            if until > Instant::now() {
                tokio::time::sleep_until(until).await;
            } else if self.held.load(Relaxed) > 0 {
                tokio::time::sleep(limit).await;
            } else {
                return;
            }
        }
    }
}

/// While it exists nothing is expected to move, and the time without movement begins anew at its end.
#[must_use]
pub(crate) struct Held<'a>(&'a Track);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.move_on();
        self.0.held.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_not_idle_until_the_last_one_lets_go() {
        const LIMIT: Duration = Duration::from_millis(20);
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        clock.expect("a runtime").block_on(async {
            let track = Track::new();
            let (one, two) = (track.hold(), track.hold());
            assert!(tokio::time::timeout(LIMIT * 5, track.idle(LIMIT)).await.is_err());
            drop(one);
            assert!(tokio::time::timeout(LIMIT * 5, track.idle(LIMIT)).await.is_err());
            drop(two);
            track.idle(LIMIT).await;
        });
    }
}
