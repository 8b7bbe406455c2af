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

/// The callback thread and what it is to do.
#[derive(Default)]
struct Calls {
    wanted: Mutex<VecDeque<Call>>,
    came: Condvar,
    running: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("running", &self.running).finish_non_exhaustive()
    }
}

enum Call {
    Complete(Arc<Flight>, Box<Response>),
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
            calls: Calls::default(),
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
        if flight.spec.settings.threaded_callback && !self.calls.running.load(SeqCst) {
            self.begin_calls()?;
        }
        let mut queue = self.queue();
        if queue.stage != Stage::Open {
            return Err(Refused::state("the engine is stopped"));
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
        if flight.spec.settings.threaded_callback && called {
            self.call(Call::Complete(flight, Box::new(response)));
        } else {
            self.completed(&flight, response);
        }
    }

    fn completed(&self, flight: &Flight, response: Response) {
        self.numbers.active.fetch_sub(1, Relaxed);
        flight.complete(response);
        if self.active.fetch_sub(1, SeqCst) == 1 && self.queue().stage != Stage::Open {
            self.wake.notify_one();
            self.over.notify_all();
        }
    }

    /// Calls the caller where its callbacks run, and waits for what it says.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        threaded: bool,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !threaded {
            return Some(call());
        }
        let (tell, told) = oneshot::channel();
        self.call(Call::Ask(Box::new(move || drop(tell.send(call())))));
        told.await.ok()
    }

    /// Calls the caller where its callbacks run, and does not wait.
    pub(crate) fn tell(&self, threaded: bool, call: impl FnOnce() + Send + 'static) {
        if threaded {
            self.call(Call::Ask(Box::new(call)));
        } else {
            call();
        }
    }

    fn call(&self, call: Call) {
        let mut wanted = self.calls.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let sleeps = wanted.is_empty();
        wanted.push_back(call);
        drop(wanted);
        if sleeps {
            self.calls.came.notify_one();
        }
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
                while wanted.is_empty() {
                    wanted = self.calls.came.wait(wanted).unwrap_or_else(PoisonError::into_inner);
                }
                std::mem::swap(&mut *wanted, &mut here);
            }
            for call in here.drain(..) {
                match call {
                    Call::Complete(flight, response) => self.completed(&flight, *response),
                    Call::Ask(ask) => ask(),
                    Call::End => return,
                }
            }
        }
    }

    /// Ends it: true if something had to be aborted. Not on a thread of its own.
    pub(crate) fn end(&self, patience: Duration) -> bool {
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
    fn end_calls(&self, join: bool) {
        let thread = self.calls.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.call(Call::End);
            if join {
                drop(thread.join());
            }
        }
    }

    /// Nobody waits for its end: what `end` would do is done here.
    pub(crate) fn over_by_itself(&self) {
        if self.left.load(SeqCst) {
            self.end_calls(false);
        }
    }
}
