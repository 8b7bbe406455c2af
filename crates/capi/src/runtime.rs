//! The runtime of an engine: its queue, its threads, its end.
//!
//! The I/O thread runs tokio and all connections. Callbacks run there or where `callbacks` says. A start
//! puts its request into the queue and wakes the I/O thread if the queue was empty: one wake-up for all starts until the thread looks.
//!
//! Invariants
//! - Every accepted start completes before `end` returns.
//! - The queue is bounded by the callers' requests under way: each entry is a start of theirs, and its completion is reported to them.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Notify;

use crate::callbacks::{Callbacks, Make};
use crate::calls::Executor;
use crate::cookies::Jar;
use crate::error::{Kind, Refused};
use crate::in_flight::InFlight;
use crate::io;
use crate::response::Response;
use crate::settings::Settings;
use crate::stats::Numbers;
use crate::sys::{self, OurProcess, lock};

/// A runtime.
#[derive(Debug)]
pub(crate) struct Runtime {
    number: usize,
    ours: Arc<OurProcess>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) jar: Arc<Jar>,
    queue: Mutex<Queue>,
    /// Accepted and not completed starts. It grows under the queue's lock alone; the thread that brings it to 0 takes the lock before it notifies.
    active: AtomicUsize,
    /// Wakes the I/O thread.
    pub(crate) wake: Notify,
    /// Whether a waiting start was aborted.
    pub(crate) aborted: AtomicBool,
    over: Condvar,
    /// Whether no thread waits for the end.
    left: AtomicBool,
    pub(crate) callbacks: Arc<Callbacks<Completion>>,
    io: Mutex<Option<JoinHandle<()>>>,
    /// The engine below, for its statistics.
    pub(crate) egress: egress::Engine,
}

#[derive(Debug)]
struct Queue {
    stage: Stage,
    starts: Vec<Arc<InFlight>>,
}

/// The phase of a runtime.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Stage {
    /// The runtime accepts requests.
    Open,
    /// The runtime accepts no requests, and waits for the running ones.
    Ending,
    /// The runtime aborts the remaining requests.
    Killed,
}

/// The completion of a start, delivered where its callbacks run.
#[derive(Debug)]
pub(crate) struct Completion(Arc<InFlight>, Arc<Response>);

impl Make for Completion {
    fn make(self) {
        let Self(in_flight, response) = self;
        if let Some(runtime) = in_flight.complete(response) {
            runtime.completed();
        }
    }
}

static NUMBER: AtomicUsize = AtomicUsize::new(1);

impl Runtime {
    /// Starts the I/O thread.
    pub(crate) fn begin(
        ours: Arc<OurProcess>,
        settings: &Arc<Settings>,
        jar: Arc<Jar>,
        numbers: Arc<Numbers>,
        executor: Option<Executor>,
    ) -> Result<Arc<Self>, Refused> {
        let number = NUMBER.fetch_add(1, Relaxed);
        let runtime = Arc::new(Self {
            number,
            ours,
            numbers,
            jar,
            queue: Mutex::new(Queue { stage: Stage::Open, starts: Vec::new() }),
            active: AtomicUsize::new(0),
            wake: Notify::new(),
            aborted: AtomicBool::new(false),
            over: Condvar::new(),
            left: AtomicBool::new(false),
            callbacks: Callbacks::new(number, executor),
            io: Mutex::new(None),
            egress: egress::Engine::new(io::options(settings)),
        });
        let (tell, told) = mpsc::channel();
        let (this, settings) = (Arc::clone(&runtime), Arc::clone(settings));
        let thread = sys::quiet_thread("hearth-io", move || {
            sys::belong_to(this.number);
            io::run(&this, &settings, &tell);
        });
        let thread = thread
            .map_err(|error| Refused::system(format!("no thread could be started: {error}")))?;
        let begun =
            told.recv().unwrap_or_else(|_gone| Err(std::io::Error::other("its thread ended")));
        match begun {
            Ok(()) => {
                *lock(&runtime.io) = Some(thread);
                Ok(runtime)
            }
            Err(error) => {
                drop(thread.join());
                Err(Refused::system(format!("the I/O thread cannot work: {error}")))
            }
        }
    }

    /// The process that it belongs to.
    pub(crate) fn process(&self) -> Option<NonZeroU32> {
        self.ours.number()
    }

    /// Returns whether the calling thread belongs to this runtime.
    pub(crate) fn is_this_thread(&self) -> bool {
        sys::belongs_to() == self.number
    }

    fn busy(&self) -> bool {
        self.active.load(SeqCst) > 0
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Accepts a start, which completes from here on.
    pub(crate) fn take(&self, in_flight: Arc<InFlight>) -> Result<(), Refused> {
        let mut queue = self.queue();
        if queue.stage != Stage::Open {
            return Err(Refused::state("the engine is stopped"));
        }
        // With the lock: the thread that ends this runtime joins this one, or this one does not start.
        if in_flight.spec.threaded {
            self.callbacks.begin_thread()?;
        }
        self.active.fetch_add(1, SeqCst);
        self.numbers.launched();
        let sleeps = queue.starts.is_empty();
        queue.starts.push(in_flight);
        drop(queue);
        if sleeps {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Moves the new starts into `starts`, which is empty. Returns the phase, and whether nothing is left.
    pub(crate) fn taken(&self, starts: &mut Vec<Arc<InFlight>>) -> (Stage, bool) {
        let mut queue = self.queue();
        std::mem::swap(&mut queue.starts, starts);
        (queue.stage, self.active.load(SeqCst) == 0)
    }

    /// Called when a waiting start was aborted.
    pub(crate) fn look(&self) {
        self.aborted.store(true, SeqCst);
        self.wake.notify_one();
    }

    /// Delivers the completion of a start where its callbacks run.
    pub(crate) fn complete(self: &Arc<Self>, in_flight: Arc<InFlight>, response: Response) {
        let numbers = &self.numbers;
        match &response.failure {
            None => numbers.answered.fetch_add(1, Relaxed),
            Some(failure) => {
                if matches!(failure.kind, Kind::Aborted | Kind::Stopped) {
                    numbers.aborted.fetch_add(1, Relaxed);
                }
                numbers.failed.fetch_add(1, Relaxed)
            }
        };
        // Queued behind all its other callbacks: none of them runs after its completion.
        let called = in_flight.has_callback() || in_flight.spec.extras.is_some();
        let response = Arc::new(response);
        if in_flight.spec.threaded && called {
            self.callbacks.gather(Completion(in_flight, response));
        } else {
            Completion(in_flight, response).make();
        }
    }

    fn completed(&self) {
        if self.active.fetch_sub(1, SeqCst) == 1 && self.queue().stage != Stage::Open {
            self.wake.notify_one();
            self.over.notify_all();
        }
    }

    /// Ends the runtime. Returns true if something had to be aborted. Must not be called on one of its threads.
    pub(crate) fn end(self: &Arc<Self>, patience: Duration) -> bool {
        let mut queue = self.queue();
        queue.stage = queue.stage.max(Stage::Ending);
        self.wake.notify_one();
        let waited = self.over.wait_timeout_while(queue, patience, |_queue| self.busy());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let forced = self.busy();
        queue.stage = Stage::Killed;
        drop(queue);
        self.wake.notify_one();
        let io = lock(&self.io).take();
        if let Some(io) = io {
            drop(io.join());
        }
        let queue = self.queue();
        drop(self.over.wait_while(queue, |_queue| self.busy()));
        self.callbacks.end(true);
        forced
    }

    /// Ends the runtime without a waiting thread. Called on a thread of its own.
    pub(crate) fn leave(&self) {
        self.left.store(true, SeqCst);
        self.queue().stage = Stage::Killed;
        self.wake.notify_one();
    }

    /// Does what `end` would do, if no thread waits for the end.
    pub(crate) fn over_by_itself(self: &Arc<Self>) {
        if self.left.load(SeqCst) {
            self.callbacks.end(false);
        }
    }
}
