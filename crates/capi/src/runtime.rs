//! The runtime of an engine: its queue, its threads, its end.
//!
//! The I/O thread runs tokio and all connections. The callback thread exists once a request wants its callbacks there. A start
//! puts its request into the queue and wakes the I/O thread if the queue was empty: one wake-up for all starts until the thread looks.
//!
//! Invariants
//! - Every accepted start completes before `end` returns.
//! - The queue is bounded by the callers' requests under way: each entry is a start of theirs, and its completion is reported to them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::calls::{Executor, Job};
use crate::cookies::Jar;
use crate::error::{Kind, Refused};
use crate::in_flight::InFlight;
use crate::io;
use crate::response::Response;
use crate::settings::Settings;
use crate::stats::Numbers;
use crate::sys::{self, OurProcess};

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
    calls: Calls,
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
    /// It accepts requests.
    Open,
    /// It accepts none, and waits for running ones.
    Ending,
    /// It aborts the remaining ones.
    Killed,
}

/// How many completions are gathered before the callback thread is woken, unless the I/O thread has handled everything that was ready:
/// waking a thread costs as much as a small request.
const GATHERED: usize = 32;

/// The callback thread and its queue.
#[derive(Default)]
struct Calls {
    /// Completions that are not delivered yet.
    gathered: Mutex<Vec<Call>>,
    /// Notified when there are some.
    some: Notify,
    wanted: Mutex<Wanted>,
    came: Condvar,
    running: AtomicBool,
    /// The program's executor, used instead of the thread.
    executor: Option<Executor>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Wanted {
    calls: VecDeque<Call>,
    /// Whether the thread waits.
    sleeps: bool,
    /// Whether the executor has a job that delivers until the queue is empty.
    posted: bool,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("running", &self.running).finish_non_exhaustive()
    }
}

enum Call {
    Complete(Arc<InFlight>, Arc<Response>),
    Ask(Box<dyn FnOnce() + Send>),
    End,
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
        let runtime = Arc::new(Self {
            number: NUMBER.fetch_add(1, Relaxed),
            ours,
            numbers,
            jar,
            queue: Mutex::new(Queue { stage: Stage::Open, starts: Vec::new() }),
            active: AtomicUsize::new(0),
            wake: Notify::new(),
            aborted: AtomicBool::new(false),
            over: Condvar::new(),
            left: AtomicBool::new(false),
            calls: Calls { executor, ..Calls::default() },
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
                *runtime.io.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                Ok(runtime)
            }
            Err(error) => {
                drop(thread.join());
                Err(Refused::system(format!("the I/O thread cannot work: {error}")))
            }
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.ours.is_this()
    }

    /// Whether the calling thread belongs to this runtime.
    pub(crate) fn is_this_thread(&self) -> bool {
        sys::belongs_to() == self.number
    }

    fn busy(&self) -> bool {
        self.active.load(SeqCst) > 0
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a start, which completes from here on.
    pub(crate) fn take(
        self: &Arc<Self>,
        in_flight: Arc<InFlight>,
    ) -> Result<Arc<InFlight>, Refused> {
        let own_thread = in_flight.spec.threaded && self.calls.executor.is_none();
        let mut queue = self.queue();
        if queue.stage != Stage::Open {
            return Err(Refused::state("the engine is stopped"));
        }
        // With the lock: who ends this runtime joins the thread, or it does not begin.
        if own_thread && !self.calls.running.load(SeqCst) {
            self.begin_calls()?;
        }
        self.active.fetch_add(1, SeqCst);
        self.numbers.launched();
        let sleeps = queue.starts.is_empty();
        queue.starts.push(Arc::clone(&in_flight));
        drop(queue);
        if sleeps {
            self.wake.notify_one();
        }
        Ok(in_flight)
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
        // Behind what is still to be asked of its callbacks: none of them comes after its completion.
        let called = in_flight.has_callback() || in_flight.spec.extras.is_some();
        let response = Arc::new(response);
        if in_flight.spec.threaded && called {
            let mut gathered = self.calls.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.push(Call::Complete(in_flight, response));
            let count = gathered.len();
            drop(gathered);
            match count {
                1 => self.calls.some.notify_one(),
                GATHERED.. => self.flush(),
                _ => {}
            }
        } else {
            self.completed(&in_flight, response);
        }
    }

    /// Waits until completions were gathered.
    pub(crate) async fn gathered(&self) {
        self.calls.some.notified().await;
    }

    /// Wakes the callback thread for the gathered completions.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut gathered = self.calls.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.is_empty() {
            return;
        }
        // An executor may run a job at once, and the job may complete other requests: not under the lock. Only the I/O thread gathers.
        let room = Vec::with_capacity(gathered.capacity());
        let taken = std::mem::replace(&mut *gathered, room);
        drop(gathered);
        self.call(|calls| calls.extend(taken));
    }

    fn completed(&self, in_flight: &InFlight, response: Arc<Response>) {
        self.numbers.active.fetch_sub(1, Relaxed);
        in_flight.complete(response);
        if self.active.fetch_sub(1, SeqCst) == 1 && self.queue().stage != Stage::Open {
            self.wake.notify_one();
            self.over.notify_all();
        }
    }

    /// Calls the caller where its callbacks run, and waits for the result.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        threaded: bool,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !threaded {
            return Some(call());
        }
        let (tell, told) = oneshot::channel();
        let ask = Call::Ask(Box::new(move || drop(tell.send(call()))));
        self.call(|calls| calls.push_back(ask));
        told.await.ok()
    }

    /// Calls the caller where its callbacks run, and does not wait.
    pub(crate) fn tell(self: &Arc<Self>, threaded: bool, call: impl FnOnce() + Send + 'static) {
        if threaded {
            self.call(|calls| calls.push_back(Call::Ask(Box::new(call))));
        } else {
            call();
        }
    }

    fn call(self: &Arc<Self>, put: impl FnOnce(&mut VecDeque<Call>)) {
        let mut wanted = self.calls.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        put(&mut wanted.calls);
        let sleeps = std::mem::take(&mut wanted.sleeps);
        let posts = self.calls.executor.is_some()
            && !self.calls.running.load(SeqCst)
            && !std::mem::replace(&mut wanted.posted, true);
        drop(wanted);
        if posts {
            self.post();
        } else if sleeps {
            self.calls.came.notify_one();
        }
    }

    /// Submits a job to the executor. If the executor refuses, the thread delivers from then on.
    fn post(self: &Arc<Self>) {
        let Some(executor) = &self.calls.executor else { return };
        if executor.execute(Arc::clone(self)) {
            return;
        }
        if self.begin_calls().is_err() {
            // There is no thread to be had: late is worse than here.
            self.make_some_calls();
        }
    }

    /// Delivers the queued completions on a thread of the program's. For later ones it submits another job, so that other jobs get their turn.
    fn make_some_calls(self: &Arc<Self>) {
        let wanted = || self.calls.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let here = std::mem::take(&mut wanted().calls);
        sys::lent_to(self.number, || {
            for call in here {
                self.make(call);
            }
        });
        let mut wanted = wanted();
        if wanted.calls.is_empty() {
            wanted.posted = false;
            return;
        }
        drop(wanted);
        self.post();
    }

    /// Returns true if it was the last.
    fn make(&self, call: Call) -> bool {
        match call {
            Call::Complete(in_flight, response) => self.completed(&in_flight, response),
            Call::Ask(ask) => ask(),
            Call::End => return true,
        }
        false
    }

    fn begin_calls(self: &Arc<Self>) -> Result<(), Refused> {
        let mut thread = self.calls.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return Ok(());
        }
        let this = Arc::clone(self);
        let started = sys::quiet_thread("hearth-calls", move || {
            sys::belong_to(this.number);
            this.make_calls();
        });
        *thread =
            Some(started.map_err(|error| {
                Refused::system(format!("no thread could be started: {error}"))
            })?);
        self.calls.running.store(true, SeqCst);
        Ok(())
    }

    fn make_calls(&self) {
        let mut here = VecDeque::new();
        loop {
            {
                let mut wanted = self.calls.wanted.lock().unwrap_or_else(PoisonError::into_inner);
                while wanted.calls.is_empty() {
                    wanted.sleeps = true;
                    wanted = self.calls.came.wait(wanted).unwrap_or_else(PoisonError::into_inner);
                }
                wanted.sleeps = false;
                std::mem::swap(&mut wanted.calls, &mut here);
            }
            for call in here.drain(..) {
                if self.make(call) {
                    return;
                }
            }
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
        let io = self.io.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(io) = io {
            drop(io.join());
        }
        let queue = self.queue();
        drop(self.over.wait_while(queue, |_queue| self.busy()));
        self.end_calls(true);
        forced
    }

    /// Ends the runtime without a waiting thread. Called on one of its threads.
    pub(crate) fn leave(&self) {
        self.left.store(true, SeqCst);
        self.queue().stage = Stage::Killed;
        self.wake.notify_one();
    }

    /// Called when the I/O thread ends and nothing is left.
    fn end_calls(self: &Arc<Self>, join: bool) {
        let thread = self.calls.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.call(|calls| calls.push_back(Call::End));
            if join {
                drop(thread.join());
            }
        }
    }

    /// Does what `end` would do, if no thread waits for the end.
    pub(crate) fn over_by_itself(self: &Arc<Self>) {
        if self.left.load(SeqCst) {
            self.end_calls(false);
        }
    }
}

impl Job for Runtime {
    fn run(self: Arc<Self>) {
        self.make_some_calls();
    }
}
