//! The life of an engine: its queue, its threads, its end.
//!
//! The I/O thread runs tokio and all connections. The callback thread exists once a request wants its callbacks there. Whoever starts
//! a request puts it into the queue and wakes the I/O thread when the queue was empty: once for as many as come until it looks.
//!
//! Invariants
//! - What was taken completes, before `end` returns.
//! - The queue is bounded by what callers have under way: each entry is a start of theirs, and they are told when it completes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::calls::{Executor, Job};
use crate::cookies::Jar;
use crate::error::{Kind, Refused};
use crate::flight::Flight;
use crate::io;
use crate::response::Response;
use crate::settings::Settings;
use crate::stats::Numbers;
use crate::sys::{self, OurProcess};

/// A life.
#[derive(Debug)]
pub(crate) struct Life {
    number: usize,
    ours: Arc<OurProcess>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) jar: Arc<Jar>,
    queue: Mutex<Queue>,
    /// Taken and not completed. It grows under the queue's lock alone; who brings it to 0 takes the lock before telling.
    active: AtomicUsize,
    /// The I/O thread has something to look at.
    pub(crate) wake: Notify,
    /// Some of what waits was aborted.
    pub(crate) aborted: AtomicBool,
    over: Condvar,
    /// Nobody waits for its end.
    left: AtomicBool,
    calls: Calls,
    io: Mutex<Option<JoinHandle<()>>>,
    /// The engine below, for its numbers.
    pub(crate) egress: egress::Engine,
}

#[derive(Debug)]
struct Queue {
    stage: Stage,
    starts: Vec<Arc<Flight>>,
}

/// How far a life is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Stage {
    /// It takes requests.
    Open,
    /// It takes none and waits for those there are.
    Ending,
    /// What is left is aborted.
    Killed,
}

/// So many completions are gathered before the callback thread is told of them, unless all that was ready on the I/O thread has had its
/// turn: waking a thread costs as much as a small request.
const GATHERED: usize = 32;

/// The callback thread and what it is to do.
#[derive(Default)]
struct Calls {
    /// Completions that it is still to be told of.
    gathered: Mutex<Vec<Call>>,
    /// There are some.
    some: Notify,
    wanted: Mutex<Wanted>,
    came: Condvar,
    running: AtomicBool,
    /// The program's own place for them, instead of the thread.
    executor: Option<Executor>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Wanted {
    calls: VecDeque<Call>,
    /// The thread waits for some.
    sleeps: bool,
    /// The executor has been asked, and will look here until there is nothing left.
    posted: bool,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("running", &self.running).finish_non_exhaustive()
    }
}

enum Call {
    Complete(Arc<Flight>, Arc<Response>),
    Ask(Box<dyn FnOnce() + Send>),
    End,
}

static NUMBER: AtomicUsize = AtomicUsize::new(1);

impl Life {
    /// Starts the I/O thread.
    pub(crate) fn begin(
        ours: Arc<OurProcess>,
        settings: &Arc<Settings>,
        jar: Arc<Jar>,
        numbers: Arc<Numbers>,
        executor: Option<Executor>,
    ) -> Result<Arc<Self>, Refused> {
        let life = Arc::new(Self {
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
        let (this, settings) = (Arc::clone(&life), Arc::clone(settings));
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
                *life.io.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                Ok(life)
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

    /// The calling thread is one of this life's.
    pub(crate) fn is_this_thread(&self) -> bool {
        sys::belongs_to() == self.number
    }

    fn busy(&self) -> bool {
        self.active.load(SeqCst) > 0
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a start: from here on it completes.
    pub(crate) fn take(self: &Arc<Self>, flight: Arc<Flight>) -> Result<Arc<Flight>, Refused> {
        let own_thread = flight.spec.threaded && self.calls.executor.is_none();
        let mut queue = self.queue();
        if queue.stage != Stage::Open {
            return Err(Refused::state("the engine is stopped"));
        }
        // With the lock: who ends this life joins the thread, or it does not begin.
        if own_thread && !self.calls.running.load(SeqCst) {
            self.begin_calls()?;
        }
        self.active.fetch_add(1, SeqCst);
        self.numbers.launched();
        let sleeps = queue.starts.is_empty();
        queue.starts.push(Arc::clone(&flight));
        drop(queue);
        if sleeps {
            self.wake.notify_one();
        }
        Ok(flight)
    }

    /// What has come since the last time, into `starts`, which is empty; and how far the life is, and whether nothing is left.
    pub(crate) fn taken(&self, starts: &mut Vec<Arc<Flight>>) -> (Stage, bool) {
        let mut queue = self.queue();
        std::mem::swap(&mut queue.starts, starts);
        (queue.stage, self.active.load(SeqCst) == 0)
    }

    /// Something that waits was aborted.
    pub(crate) fn look(&self) {
        self.aborted.store(true, SeqCst);
        self.wake.notify_one();
    }

    /// It has ended: its callback is called where it wants to be.
    pub(crate) fn complete(self: &Arc<Self>, flight: Arc<Flight>, response: Response) {
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
        let called = flight.has_callback() || flight.spec.extras.is_some();
        let response = Arc::new(response);
        if flight.spec.threaded && called {
            let mut gathered = self.calls.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.push(Call::Complete(flight, response));
            let count = gathered.len();
            drop(gathered);
            match count {
                1 => self.calls.some.notify_one(),
                GATHERED.. => self.flush(),
                _ => {}
            }
        } else {
            self.completed(&flight, response);
        }
    }

    /// Waits until completions were gathered.
    pub(crate) async fn gathered(&self) {
        self.calls.some.notified().await;
    }

    /// The callback thread is told of what was gathered.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut gathered = self.calls.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.is_empty() {
            return;
        }
        // An executor may call at once, and that may complete others: not with the lock. Nobody but the I/O thread gathers.
        let room = Vec::with_capacity(gathered.capacity());
        let taken = std::mem::replace(&mut *gathered, room);
        drop(gathered);
        self.call(|calls| calls.extend(taken));
    }

    fn completed(&self, flight: &Flight, response: Arc<Response>) {
        self.numbers.active.fetch_sub(1, Relaxed);
        flight.complete(response);
        if self.active.fetch_sub(1, SeqCst) == 1 && self.queue().stage != Stage::Open {
            self.wake.notify_one();
            self.over.notify_all();
        }
    }

    /// Calls the caller where its callbacks run, and waits for what it says.
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

    /// Asks the executor. One that refuses is not asked again: the thread does it from then on.
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

    /// Makes the calls there are, on a thread of the program's. For those that come meanwhile it asks once more: others want their turn, too.
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

    /// True: it was the last.
    fn make(&self, call: Call) -> bool {
        match call {
            Call::Complete(flight, response) => self.completed(&flight, response),
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

    /// Ends it: true if something had to be aborted. Not on a thread of its own.
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

    /// Ends by itself. On a thread of its own.
    pub(crate) fn leave(&self) {
        self.left.store(true, SeqCst);
        self.queue().stage = Stage::Killed;
        self.wake.notify_one();
    }

    /// The I/O thread is at its end, and nothing is left.
    fn end_calls(self: &Arc<Self>, join: bool) {
        let thread = self.calls.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.call(|calls| calls.push_back(Call::End));
            if join {
                drop(thread.join());
            }
        }
    }

    /// Nobody waits for its end: what `end` would do is done here.
    pub(crate) fn over_by_itself(self: &Arc<Self>) {
        if self.left.load(SeqCst) {
            self.end_calls(false);
        }
    }
}

impl Job for Life {
    fn run(self: Arc<Self>) {
        self.make_some_calls();
    }
}
