//! One start of a request, from the queue to its completion.
//!
//! Invariants
//! - It completes exactly once, also if the library itself fails in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::task::Context;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::calls::Done;
use crate::cookies::Jar;
use crate::error::{Failure, Kind};
use crate::request::{Request, Spec};
use crate::response::Response;
use crate::runtime::Runtime;

const GOING: u8 = 0;
const ABORTED: u8 = 1;
const STOPPED: u8 = 2;

/// The place of the response for a waiting caller.
pub(crate) type Kept = Arc<std::sync::OnceLock<Arc<Response>>>;

/// One start of a request.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) spec: Arc<Spec>,
    pub(crate) request: Option<Arc<Request>>,
    done: Option<Done>,
    pub(crate) began: Instant,
    /// Set by the engine that accepts it.
    pub(crate) runtime: Option<Arc<Runtime>>,
    fate: AtomicU8,
    waker: AtomicWaker,
    /// Boxed, because tens of thousands may wait and most need none of it.
    rare: Option<Box<Rare>>,
}

/// The parts that few starts have.
#[derive(Debug, Default)]
struct Rare {
    kept: Option<Kept>,
    own_jar: Option<Arc<Jar>>,
    pauses: Option<Pauses>,
}

/// The pauses of both directions.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    pub(crate) down: Pause,
    pub(crate) up: Pause,
}

/// The pause of one direction.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    paused: AtomicBool,
    resumed: Notify,
}

impl Pause {
    /// Waits until the direction is resumed.
    pub(crate) async fn wait(&self) {
        self.paused.store(true, SeqCst);
        self.resumed.notified().await;
        self.paused.store(false, SeqCst);
    }
}

impl Pauses {
    /// Resumes what is paused. If nothing is, the next pause has no effect.
    fn resume(&self) {
        let (down, up) = (self.down.paused.load(SeqCst), self.up.paused.load(SeqCst));
        if down || !up {
            self.down.resumed.notify_one();
        }
        if up || !down {
            self.up.resumed.notify_one();
        }
    }
}

impl InFlight {
    pub(crate) fn new(
        spec: Arc<Spec>,
        request: Option<Arc<Request>>,
        done: Option<Done>,
        kept: Option<Kept>,
        own_jar: Option<Arc<Jar>>,
    ) -> Self {
        let pauses = spec.extras.as_ref().map(|_| Pauses::default());
        let any = kept.is_some() || own_jar.is_some() || pauses.is_some();
        Self {
            spec,
            request,
            done,
            began: Instant::now(),
            runtime: None,
            fate: AtomicU8::new(GOING),
            waker: AtomicWaker::new(),
            rare: any.then(|| Box::new(Rare { kept, own_jar, pauses })),
        }
    }

    /// The deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.spec.settings.timeout.map(|timeout| self.began + timeout)
    }

    /// The cookie jar of its request.
    pub(crate) fn own_jar(&self) -> Option<Arc<Jar>> {
        self.rare.as_ref()?.own_jar.clone()
    }

    pub(crate) fn pauses(&self) -> Option<&Pauses> {
        self.rare.as_ref()?.pauses.as_ref()
    }

    /// Returns whether it was started in this process.
    pub(crate) fn is_ours(&self) -> bool {
        self.runtime.as_ref().is_none_or(|runtime| runtime.is_ours())
    }

    /// Cancels it; takes effect when it is next polled.
    pub(crate) fn abort(&self) {
        let _was = self.fate.compare_exchange(GOING, ABORTED, SeqCst, SeqCst);
        self.waker.wake();
        if let Some(runtime) = &self.runtime {
            runtime.look();
        }
    }

    /// Aborts it because the engine stops.
    pub(crate) fn stop(&self) {
        let _was = self.fate.compare_exchange(GOING, STOPPED, SeqCst, SeqCst);
        self.waker.wake();
    }

    pub(crate) fn resume(&self) {
        if let Some(pauses) = self.pauses() {
            pauses.resume();
        }
    }

    /// Why it is to end, if it is. A caller with a context is woken when that changes.
    pub(crate) fn ended(&self, cx: Option<&Context<'_>>) -> Option<Failure> {
        if let Some(cx) = cx {
            self.waker.register(cx.waker());
        }
        match self.fate.load(SeqCst) {
            ABORTED => Some(Failure::new(Kind::Aborted, "The request was aborted")),
            STOPPED => Some(Failure::new(Kind::Stopped, "The engine was stopped")),
            _ => None,
        }
    }

    /// Returns whether its deadline has passed.
    pub(crate) fn late(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// The message for that case.
    pub(crate) fn too_late(&self) -> Failure {
        let after = self.began.elapsed().as_millis();
        Failure::new(Kind::Timeout, format!("Operation timed out after {after} milliseconds"))
    }

    pub(crate) fn has_callback(&self) -> bool {
        self.done.is_some()
    }

    /// Delivers the completion, the last event of a start. Called on the callback thread.
    pub(crate) fn complete(&self, mut response: Arc<Response>) {
        let last = Arc::get_mut(&mut response).expect("it is not shared yet");
        last.timings.total = self.began.elapsed();
        if last.target.is_none() {
            last.target.clone_from(&self.spec.target);
        }
        if let Some(kept) = self.rare.as_ref().and_then(|rare| rare.kept.as_ref()) {
            let _first = kept.set(Arc::clone(&response));
        }
        if let Some(request) = &self.request {
            request.completing(self.done.is_some());
        }
        if let Some(done) = self.done {
            done.call(self.request.as_ref(), &response);
            if let Some(request) = &self.request {
                request.completed();
            }
        }
    }
}
