//! A set of slots, one for each worker: a request leases a slot, or waits in the backlog.
//!
//! Invariants
//! - A free slot goes to the request that has waited longest; while one waits, no slot is free.
//! - The backlog is bounded, and more tightly while more requests arrive than are answered. When it is full, a request
//!   is rejected at once. A request that has waited too long is rejected too.
//! - A [`Leased`] slot is returned on drop.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::overload::{Line, Overload, Waits};
use crate::{DispatchError, Options};

/// The slots; `T` is the content of each.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    free: Arc<Semaphore>,
    count: u32,
    /// A place for each free permit. The back is the one used last, whose caches are warmest.
    idle: Mutex<VecDeque<T>>,
    waiting: AtomicUsize,
    limits: Limits,
    clock: Arc<Clock>,
    statistics: Mutex<WaitStatistics>,
    refused: AtomicU64,
    draining: AtomicBool,
}

/// How many requests may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    backlog: usize,
    patience: Duration,
    target: Option<Duration>,
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            backlog: options.backlog,
            patience: options.backlog_timeout,
            target: options.backlog_target,
        }
    }
}

/// Statistics about waiting requests.
#[derive(Debug)]
struct WaitStatistics {
    overload: Overload,
    waits: Waits,
}

/// A leased slot.
#[derive(Debug)]
pub(crate) struct Leased<T> {
    slots: Arc<Slots<T>>,
    slot: Option<T>,
    _permit: OwnedSemaphorePermit,
}

impl<T> Slots<T> {
    /// Creates the set with all slots free.
    pub(crate) fn new(all: VecDeque<T>, limits: Limits, clock: Arc<Clock>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all.len())),
            count: u32::try_from(all.len()).unwrap_or(u32::MAX),
            idle: Mutex::new(all),
            waiting: AtomicUsize::new(0),
            statistics: Mutex::new(WaitStatistics {
                overload: Overload::new(limits.target),
                waits: Waits::default(),
            }),
            limits,
            clock,
            refused: AtomicU64::new(0),
            draining: AtomicBool::new(false),
        }
    }

    /// Returns a free slot, at once or after waiting in the backlog. Cancel safe: dropping the future only gives up
    /// the place.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Leased<T>, DispatchError> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(DispatchError::Draining);
        }
        if let Some(leased) = self.try_lease() {
            return Ok(leased);
        }
        let room = self.statistics().overload.room(self.running());
        let room = room.unwrap_or(usize::MAX).min(self.limits.backlog);
        let Some(place) = Place::take(&self.waiting, room) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(DispatchError::Overloaded { waited: Duration::ZERO });
        };
        let since = self.clock.instant();
        let free = Arc::clone(&self.free).acquire_owned();
        let permit = self.clock.timeout(self.limits.patience, free).await;
        drop(place);
        match permit {
            Ok(Ok(permit)) if self.is_in_time(since) => Ok(self.loan(permit)),
            _ => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let waited = self.clock.instant().saturating_duration_since(since);
                Err(DispatchError::Overloaded { waited })
            }
        }
    }

    /// Returns the statistics. The overload state is reset once no request waits, whether they were served, rejected
    /// or dropped.
    fn statistics(&self) -> MutexGuard<'_, WaitStatistics> {
        let mut statistics = self.statistics.lock().expect("no holder panics");
        if self.waiting.load(Ordering::Relaxed) == 0 {
            statistics.overload.emptied();
        }
        statistics
    }

    fn running(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Returns whether a request waiting since `since` may still be served.
    fn is_in_time(&self, since: Instant) -> bool {
        let mut statistics = self.statistics.lock().expect("no holder panics");
        let (now, running) = (self.clock.instant(), self.running());
        let waited = now.saturating_duration_since(since);
        if statistics.overload.bound(running).is_some_and(|bound| waited >= bound) {
            return false;
        }
        statistics.waits.add(waited);
        statistics.overload.handed_out(now, waited, self.waiting.load(Ordering::Relaxed), running);
        true
    }

    /// Returns a free slot if there is one and no request waits for it.
    pub(crate) fn try_lease(self: &Arc<Self>) -> Option<Leased<T>> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.loan(permit))
    }

    fn loan(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Leased<T> {
        let slot = self.idle.lock().expect("no holder panics").pop_back();
        debug_assert!(slot.is_some(), "each permit stands for an idle slot");
        Leased { slots: Arc::clone(self), slot, _permit: permit }
    }

    /// Moves the first free slot that `wanted` selects to where the next lease takes it. Returns `false` if there is
    /// none.
    pub(crate) fn prefer(&self, wanted: impl FnMut(&mut T) -> bool) -> bool {
        let mut idle = self.idle.lock().expect("no holder panics");
        let found = idle.iter_mut().position(wanted);
        if let Some(slot) = found.and_then(|at| idle.remove(at)) {
            idle.push_back(slot);
        }
        found.is_some()
    }

    /// Returns the state of the backlog.
    pub(crate) fn line(&self) -> Line {
        let statistics = self.statistics();
        Line {
            backlog: self.waiting.load(Ordering::Relaxed),
            ahead: 0,
            overloaded: statistics.overload.is_shedding(),
            refused: self.refused.load(Ordering::Relaxed),
            waits: statistics.waits,
        }
    }

    /// Rejects new requests from now on.
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Waits until no request waits and no slot is leased. Cancel safe.
    pub(crate) async fn is_quiet(&self) {
        // This queues behind all waiting requests.
        drop(self.free.acquire_many(self.count).await);
    }

    /// Rejects all waiting requests and returns the free slots: nothing is leased any more.
    pub(crate) fn close(&self) -> VecDeque<T> {
        self.free.close();
        std::mem::take(&mut self.idle.lock().expect("no holder panics"))
    }
}

impl<T> Deref for Leased<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.slot.as_ref().expect("a leased slot is there until it is dropped")
    }
}

impl<T> DerefMut for Leased<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.slot.as_mut().expect("a leased slot is there until it is dropped")
    }
}

impl<T> Drop for Leased<T> {
    fn drop(&mut self) {
        // Before the permit, which is dropped after this.
        if let Some(slot) = self.slot.take() {
            self.slots.idle.lock().expect("no holder panics").push_back(slot);
        }
    }
}

/// A place in the backlog.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let one_more = |waiting: usize| (waiting < most).then_some(waiting + 1);
        let taken = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Self(waiting))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: u32, backlog: usize) -> Arc<Slots<u32>> {
        let limits = Limits { backlog, patience: Duration::from_secs(1), target: None };
        Arc::new(Slots::new((0..count).collect(), limits, Arc::new(Clock::new())))
    }

    #[tokio::test(start_paused = true)]
    async fn the_backlog_is_bounded_in_number_and_time() {
        let slots = slots(1, 1);
        let held = slots.lease().await.unwrap();
        let waiter = slots.lease();
        tokio::pin!(waiter);
        assert!(futures_poll(waiter.as_mut()).await.is_none(), "the second waits");
        let refused = slots.lease().await.unwrap_err();
        assert!(matches!(refused, DispatchError::Overloaded { waited: Duration::ZERO }));
        let error = waiter.await.unwrap_err();
        assert!(
            matches!(error, DispatchError::Overloaded { waited } if waited >= Duration::from_secs(1))
        );
        assert_eq!(slots.line().backlog, 0);
        assert_eq!(slots.line().refused, 2);
        drop(held);
        assert!(slots.lease().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_refuses_new_ones_and_waits_for_the_others() {
        let slots = slots(1, 9);
        let held = slots.lease().await.unwrap();
        let waiter = slots.lease();
        tokio::pin!(waiter);
        assert!(futures_poll(waiter.as_mut()).await.is_none());
        slots.start_draining();
        assert!(matches!(slots.lease().await, Err(DispatchError::Draining)));
        let quiet = slots.is_quiet();
        tokio::pin!(quiet);
        assert!(futures_poll(quiet.as_mut()).await.is_none());
        drop(held);
        assert!(futures_poll(quiet.as_mut()).await.is_none(), "who waited has it now");
        drop(waiter.await.unwrap());
        quiet.await;
        assert_eq!(slots.close().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_ends_when_those_who_waited_have_gone_away() {
        let limits = Limits {
            backlog: 64,
            patience: Duration::from_secs(30),
            target: Some(Duration::from_millis(100)),
        };
        let slots = Arc::new(Slots::new(VecDeque::from([1_u32]), limits, Arc::new(Clock::new())));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..60 {
            let slots = Arc::clone(&slots);
            clients.spawn(async move {
                while let Ok(_slot) = slots.lease().await {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            });
        }
        while !slots.line().overloaded {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        clients.shutdown().await;
        assert!(!slots.line().overloaded);
        assert!(slots.lease().await.is_ok());
    }

    #[tokio::test]
    async fn a_preferred_slot_is_leased_next() {
        let slots = slots(3, 9);
        assert!(slots.prefer(|slot| *slot == 1));
        assert_eq!(*slots.lease().await.unwrap(), 1);
        assert!(!slots.prefer(|slot| *slot == 7));
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
