//! Limits the workers that one client address blocks by reading nothing.
//!
//! A response is stalled while its worker still runs, bytes wait for the client, and the client has read none for
//! [`GRACE`].
//!
//! Invariants
//! - When an address has more stalled responses than allowed, the one that has been stalled longest is aborted.
//! - A response that its client reads, however slowly the worker produces it, is never aborted here.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use metrics::{Counter, Gauge};
use tokio::time::{Instant, Sleep};

use crate::site::Site;

/// Time without reading after which a response counts as stalled.
const GRACE: Duration = Duration::from_secs(3);

/// The stalled responses of all clients.
#[derive(Debug)]
pub(crate) struct StalledAnswers {
    per_client: usize,
    /// Stalled responses by site, the longest stalled first.
    answers: Mutex<HashMap<Site, Vec<Arc<Entry>>>>,
    now: Gauge,
    cut: Counter,
}

/// One stalled response.
#[derive(Debug, Default)]
struct Entry {
    cut: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// How long one response has waited for its client.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    since: Option<Instant>,
    /// Kept between waits: it is moved only when it fires too early.
    timer: Option<Pin<Box<Sleep>>>,
    place: Option<Place>,
}

/// An entry among the stalled responses, removed on drop.
#[derive(Debug)]
struct Place {
    all: Arc<StalledAnswers>,
    site: Site,
    entry: Arc<Entry>,
}

impl StalledAnswers {
    /// Creates the limit; `per_client` is the maximum of one client.
    pub(crate) fn new(per_client: usize, now: Gauge, cut: Counter) -> Self {
        Self { per_client, answers: Mutex::default(), now, cut }
    }

    fn enter(self: &Arc<Self>, site: Site) -> Place {
        let entry = Arc::new(Entry::default());
        let mut answers = self.answers.lock().expect("no holder panics");
        let of_site = answers.entry(site).or_default();
        of_site.push(Arc::clone(&entry));
        let longest = (of_site.len() > self.per_client).then(|| of_site.remove(0));
        drop(answers);
        self.now.increment(1.0);
        if let Some(longest) = longest {
            longest.cut.store(true, Ordering::Release);
            self.cut.increment(1);
            let waker = longest.waker.lock().expect("no holder panics").take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        Place { all: Arc::clone(self), site, entry }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.now.decrement(1.0);
        let mut answers = self.all.answers.lock().expect("no holder panics");
        let Some(of_site) = answers.get_mut(&self.site) else { return };
        of_site.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        if of_site.is_empty() {
            answers.remove(&self.site);
        }
    }
}

impl Stall {
    /// Ends the stall: the client has read something, or the worker is free.
    pub(crate) fn end(&mut self) {
        self.since = None;
        self.place = None;
    }

    /// Records that bytes wait for the client. Ready when the response must be aborted.
    pub(crate) fn poll(
        &mut self,
        all: &Arc<StalledAnswers>,
        site: Site,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if all.per_client == usize::MAX {
            return Poll::Pending;
        }
        if self.place.is_none() {
            let deadline = *self.since.get_or_insert_with(Instant::now) + GRACE;
            let timer =
                self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            while timer.as_mut().poll(cx).is_ready() {
                if timer.deadline() >= deadline {
                    self.place = Some(all.enter(site));
                    break;
                }
                timer.as_mut().reset(deadline);
            }
        }
        let Some(Place { entry, .. }) = &self.place else { return Poll::Pending };
        *entry.waker.lock().expect("no holder panics") = Some(cx.waker().clone());
        if entry.cut.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn bound(per_client: usize) -> Arc<StalledAnswers> {
        Arc::new(StalledAnswers::new(per_client, Gauge::noop(), Counter::noop()))
    }

    fn site(address: &str) -> Site {
        Site::of(address.parse().unwrap())
    }

    /// Returns whether the response must be aborted now.
    async fn is_cut(stall: &mut Stall, all: &Arc<StalledAnswers>, site: Site) -> bool {
        poll_fn(|cx| Poll::Ready(stall.poll(all, site, cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_stalled_answer_of_an_address_is_cut() {
        let all = bound(2);
        let (here, there) = (site("192.0.2.1"), site("192.0.2.2"));
        let mut stalls: Vec<Stall> = (0..3).map(|_| Stall::default()).collect();
        let mut other = Stall::default();
        for stall in &mut stalls {
            assert!(!is_cut(stall, &all, here).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!is_cut(&mut other, &all, there).await);
        tokio::time::sleep(GRACE).await;
        for stall in &mut stalls {
            assert!(!is_cut(stall, &all, here).await, "the one before is cut, not this one");
        }
        assert!(!is_cut(&mut other, &all, there).await, "another address is not concerned");
        let mut cut = Vec::new();
        for stall in &mut stalls {
            cut.push(is_cut(stall, &all, here).await);
        }
        assert_eq!(cut, [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_read_is_not_stalled() {
        let all = bound(1);
        let here = site("192.0.2.1");
        let (mut read, mut unread) = (Stall::default(), Stall::default());
        for _ in 0..10 {
            assert!(!is_cut(&mut read, &all, here).await);
            assert!(!is_cut(&mut unread, &all, here).await);
            tokio::time::sleep(GRACE / 2).await;
            read.end();
        }
        drop((read, unread));
        assert!(all.answers.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_of_a_cut_response_is_woken() {
        let all = bound(1);
        let here = site("192.0.2.1");
        let (mut first, mut second) = (Stall::default(), Stall::default());
        assert!(!is_cut(&mut second, &all, here).await);
        let cut = async { poll_fn(|cx| first.poll(&all, here, cx)).await };
        let enter = async {
            tokio::time::sleep(2 * GRACE).await;
            assert!(!is_cut(&mut second, &all, here).await);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = cut => {}
            () = enter => {}
        }
    }
}
