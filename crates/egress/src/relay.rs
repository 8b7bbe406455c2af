//! A waker between a task and what it polls in several parts that wake each other.
//!
//! A connection, the answer that it hands out and that answer's body are polled by one task. When one of them makes the next one
//! ready, the task is already there: waking it would only have it polled once more for nothing, at the cost of a turn of the reactor.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// How often the parts are polled again because one has woken another. After that it is the task's turn to yield.
const ROUNDS: usize = 4;

const RESTING: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;

/// Polls parts for a task.
#[derive(Debug)]
pub(crate) struct Relay {
    inner: Arc<Inner>,
    waker: Waker,
}

#[derive(Debug)]
struct Inner {
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Inner {
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // While they are polled, whoever polls looks after them.
        if self.state.swap(WOKEN, SeqCst) == RESTING {
            let task = self.task().clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

impl Relay {
    pub(crate) fn new() -> Self {
        let inner = Arc::new(Inner { state: AtomicU8::new(RESTING), task: Mutex::default() });
        Self { waker: Waker::from(Arc::clone(&inner)), inner }
    }

    /// Polls with a waker that all parts are to be given; again, when one of them has woken it in the meantime.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        mut parts: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        {
            let mut task = self.inner.task();
            if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        for _ in 0..ROUNDS {
            self.inner.state.store(POLLING, SeqCst);
            let polled = parts(&mut Context::from_waker(&self.waker));
            if polled.is_ready() {
                self.inner.state.store(RESTING, SeqCst);
                return polled;
            }
            if self.inner.state.compare_exchange(POLLING, RESTING, SeqCst, SeqCst).is_ok() {
                return Poll::Pending;
            }
        }
        self.inner.state.store(RESTING, SeqCst);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The task has nothing to do with it any more.
    pub(crate) fn forget(&self) {
        self.inner.task().take();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn task() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn parts_that_wake_each_other_wake_nobody_else() {
        let (count, waker) = task();
        let relay = Relay::new();
        let mut rounds = 0;
        let polled = relay.poll(&Context::from_waker(&waker), |cx| {
            rounds += 1;
            cx.waker().wake_by_ref();
            if rounds == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        assert_eq!((polled, rounds, count.0.load(SeqCst)), (Poll::Ready(()), 2, 0));
    }

    #[test]
    fn what_wakes_later_wakes_the_task_that_polled_last() {
        let relay = Relay::new();
        let mut kept = None;
        let (first, first_waker) = task();
        let (second, second_waker) = task();
        for waker in [&first_waker, &second_waker] {
            let polled = relay.poll(&Context::from_waker(waker), |cx| {
                kept = Some(cx.waker().clone());
                Poll::<()>::Pending
            });
            assert!(polled.is_pending());
        }
        let kept = kept.expect("it was polled");
        kept.wake_by_ref();
        assert_eq!((first.0.load(SeqCst), second.0.load(SeqCst)), (0, 1));
        // It is known already.
        kept.wake_by_ref();
        assert_eq!(second.0.load(SeqCst), 1);
        relay.forget();
        assert!(
            relay.poll(&Context::from_waker(&first_waker), |_| Poll::<()>::Pending).is_pending()
        );
        kept.wake_by_ref();
        assert_eq!(first.0.load(SeqCst), 1);
    }

    #[test]
    fn parts_that_never_rest_let_the_task_yield() {
        let (count, waker) = task();
        let mut rounds = 0;
        let polled = Relay::new().poll(&Context::from_waker(&waker), |cx| {
            rounds += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((rounds, count.0.load(SeqCst)), (ROUNDS, 1));
    }
}
