//! The progress of a request in both directions, and the time of its last byte.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::calls::Far;
use crate::sys::lock;

/// An unknown total.
const UNKNOWN: u64 = u64::MAX;

/// The progress of one request.
#[derive(Debug)]
pub(crate) struct Track {
    /// None: there is no idle clock, and no time is read.
    began: Option<Instant>,
    sent: AtomicU64,
    to_send: AtomicU64,
    received: AtomicU64,
    to_receive: AtomicU64,
    /// Milliseconds after `began`.
    moved: AtomicU64,
    /// Whether the caller's body was read.
    begun: AtomicBool,
    /// How many reasons suspend the idle clock: a running callback, a paused direction, a delay before the next try.
    held: AtomicU32,
    /// Why the caller's body could not be read.
    failure: Mutex<Option<String>>,
}

impl Track {
    /// `clock`: the idle time counts.
    pub(crate) fn new(clock: bool) -> Self {
        Self {
            began: clock.then(Instant::now),
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

    /// Resets the counters for another try.
    pub(crate) fn again(&self) {
        self.sent.store(0, Relaxed);
        self.received.store(0, Relaxed);
        self.to_receive.store(UNKNOWN, Relaxed);
        self.move_on();
    }

    fn move_on(&self) {
        let Some(began) = self.began else { return };
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.begun.store(true, Relaxed);
    }

    /// Returns whether the body was started since the last call.
    pub(crate) fn begun(&self) -> bool {
        self.begun.swap(false, Relaxed)
    }

    /// Suspends the idle clock while the returned value lives.
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
        *lock(&self.failure) = Some(why.to_string());
    }

    /// Returns why the caller's body could not be read, if that was the reason.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
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

    /// Returns when no byte has moved for a time.
    pub(crate) async fn idle(&self, limit: Duration) {
        let Some(began) = self.began else { return std::future::pending().await };
        loop {
            let until = began + Duration::from_millis(self.moved.load(Relaxed)) + limit;
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

/// Suspends the idle clock while it lives; the idle time starts again at its end.
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
    fn a_held_transfer_is_not_idle_until_released() {
        const LIMIT: Duration = Duration::from_millis(20);
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        clock.expect("a runtime").block_on(async {
            let track = Track::new(true);
            let (one, two) = (track.hold(), track.hold());
            assert!(tokio::time::timeout(LIMIT * 5, track.idle(LIMIT)).await.is_err());
            drop(one);
            assert!(tokio::time::timeout(LIMIT * 5, track.idle(LIMIT)).await.is_err());
            drop(two);
            track.idle(LIMIT).await;
        });
    }
}
