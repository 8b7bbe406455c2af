//! One start of a request, from the queue to its completion.
//!
//! Invariants
//! - It completes exactly once, also if the library itself fails in between.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::calls::Done;
use crate::cookies::Jar;
use crate::error::{Failure, Kind};
use crate::request::{Request, Spec};
use crate::response::Response;
use crate::runtime::Runtime;
use crate::sys::{self, Once, lock};

const GOING: u8 = 0;
const ABORTED: u8 = 1;
const STOPPED: u8 = 2;

/// The place of the response for a waiting caller.
pub(crate) type Kept = Arc<std::sync::OnceLock<Arc<Response>>>;

/// The parts of a request, and one start of it. Both are one piece of memory, because tens of thousands may wait.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) spec: Spec,
    /// Empty before its start, and from its completion on: the request keeps this, and this the request.
    held: Mutex<Option<Held>>,
    done: Option<Done>,
    /// When it was started, in nanoseconds after [`first`].
    began: u64,
    /// Where it was started.
    process: Option<NonZeroU32>,
    fate: AtomicU8,
    /// Boxed, because most need none of it.
    rare: Option<Box<Rare>>,
}

/// Copies the parts for the next start.
impl Clone for InFlight {
    fn clone(&self) -> Self {
        Self::new(self.spec.clone())
    }
}

/// Values that a start keeps alive.
#[derive(Debug)]
struct Held {
    request: Option<Arc<Request>>,
    runtime: Arc<Runtime>,
}

/// A moment before all starts.
fn first() -> Instant {
    static FIRST: Once<Instant> = Once::new();
    *FIRST.get(Instant::now)
}

/// The parts that few starts have.
#[derive(Debug, Default)]
struct Rare {
    /// Until the completion, because it holds the response.
    kept: Mutex<Option<Kept>>,
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
    pub(crate) const fn new(spec: Spec) -> Self {
        Self {
            spec,
            held: Mutex::new(None),
            done: None,
            began: 0,
            process: None,
            fate: AtomicU8::new(GOING),
            rare: None,
        }
    }

    /// Begins a start, which `runtime` is to take. `request`: the one with a handle. `kept`: where the response is left for a waiting caller.
    pub(crate) fn begin(
        &mut self,
        runtime: &Arc<Runtime>,
        request: Option<Arc<Request>>,
        done: Option<Done>,
        kept: Option<Kept>,
        own_jar: Option<Arc<Jar>>,
    ) {
        let pauses = self.spec.extras.as_ref().map(|_| Pauses::default());
        let any = kept.is_some() || own_jar.is_some() || pauses.is_some();
        let first = first();
        self.began = u64::try_from((Instant::now() - first).as_nanos()).unwrap_or(u64::MAX);
        self.done = done;
        self.process = runtime.process();
        *self.fate.get_mut() = GOING;
        self.rare = any.then(|| Box::new(Rare { kept: Mutex::new(kept), own_jar, pauses }));
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Held { request, runtime: Arc::clone(runtime) });
    }

    /// The runtime did not take it.
    pub(crate) fn refused(&self) {
        let held = lock(&self.held).take();
        drop(held);
    }

    /// The moment of its start.
    pub(crate) fn began(&self) -> Instant {
        first() + Duration::from_nanos(self.began)
    }

    /// The deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.spec.settings.timeout.map(|timeout| self.began() + timeout)
    }

    /// The runtime that has taken it, until the completion.
    pub(crate) fn runtime(&self) -> Option<Arc<Runtime>> {
        lock(&self.held).as_ref().map(|held| Arc::clone(&held.runtime))
    }

    /// The request with a handle, until the completion.
    pub(crate) fn request(&self) -> Option<Arc<Request>> {
        lock(&self.held).as_ref()?.request.clone()
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
        self.process.is_none_or(sys::is_this_process)
    }

    /// Cancels it; takes effect when it is next polled, to which the I/O thread sees.
    pub(crate) fn abort(&self) {
        let _was = self.fate.compare_exchange(GOING, ABORTED, SeqCst, SeqCst);
        if let Some(runtime) = self.runtime() {
            runtime.look();
        }
    }

    /// Aborts it because the engine stops; takes effect when it is next polled.
    pub(crate) fn stop(&self) {
        let _was = self.fate.compare_exchange(GOING, STOPPED, SeqCst, SeqCst);
    }

    pub(crate) fn resume(&self) {
        if let Some(pauses) = self.pauses() {
            pauses.resume();
        }
    }

    /// Returns whether it is to end before its time.
    pub(crate) fn is_ended(&self) -> bool {
        self.fate.load(SeqCst) != GOING
    }

    /// Why it is to end, if it is.
    pub(crate) fn ended(&self) -> Option<Failure> {
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
        let after = self.began().elapsed().as_millis();
        Failure::new(Kind::Timeout, format!("Operation timed out after {after} milliseconds"))
    }

    pub(crate) fn has_callback(&self) -> bool {
        self.done.is_some()
    }

    /// Delivers the completion, the last event of a start. Called on the callback thread. Returns the runtime.
    pub(crate) fn complete(&self, mut response: Arc<Response>) -> Option<Arc<Runtime>> {
        let last = Arc::get_mut(&mut response).expect("it is not shared yet");
        last.timings.total = self.began().elapsed();
        if last.target.is_none() {
            last.target.clone_from(&self.spec.target);
        }
        if let Some(kept) = self.rare.as_ref().and_then(|rare| lock(&rare.kept).take()) {
            let _first = kept.set(Arc::clone(&response));
        }
        let Held { request, runtime } = lock(&self.held).take()?;
        runtime.numbers.active.fetch_sub(1, Relaxed);
        if let Some(request) = &request {
            request.completing(self.done.is_some());
        }
        if let Some(done) = self.done {
            done.call(request.as_ref(), &response);
            if let Some(request) = &request {
                request.completed();
            }
        }
        Some(runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_waits_is_small() {
        // With its two counts and the word that malloc adds.
        assert!(size_of::<InFlight>() + 3 * size_of::<usize>() <= 128);
    }
}
