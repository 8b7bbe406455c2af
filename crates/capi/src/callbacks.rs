//! Runs the caller's functions that do not run on the I/O thread. They run on the callback thread, which is created
//! when it is needed, or on the program's executor.
//!
//! Invariants
//! - It does not know requests or engines: a call is a function of its creator.
//! - Calls are made in the order in which they were added.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use tokio::sync::{Notify, oneshot};

use crate::calls::{Execute, Executor};
use crate::error::Refused;
use crate::sys::{self, lock};

/// Number of calls to collect before the callback thread is woken, because that costs as much as a small request. It is
/// woken earlier if the I/O thread has handled everything that was ready.
const GATHERED: usize = 64;

/// A call that waits for its turn.
pub(crate) trait Make: Send + 'static {
    fn make(self);
}

/// The callback thread and its queue.
pub(crate) struct Callbacks<M> {
    /// The runtime that its thread belongs to.
    number: usize,
    /// Calls that are not put into the queue yet.
    gathered: Mutex<Vec<Call<M>>>,
    /// Notified when there are some.
    some: Notify,
    wanted: Mutex<Wanted<M>>,
    came: Condvar,
    running: AtomicBool,
    /// The program's executor, used instead of the thread.
    executor: Option<Executor>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Wanted<M> {
    calls: VecDeque<Call<M>>,
    /// Whether the thread waits.
    sleeps: bool,
    /// Whether the executor has a job that makes calls until the queue is empty.
    posted: bool,
}

enum Call<M> {
    Make(M),
    Ask(Box<dyn FnOnce() + Send>),
    End,
}

impl<M> std::fmt::Debug for Callbacks<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks").field("running", &self.running).finish_non_exhaustive()
    }
}

impl<M: Make> Callbacks<M> {
    pub(crate) fn new(number: usize, executor: Option<Executor>) -> Arc<Self> {
        Arc::new(Self {
            number,
            gathered: Mutex::default(),
            some: Notify::new(),
            wanted: Mutex::new(Wanted { calls: VecDeque::new(), sleeps: false, posted: false }),
            came: Condvar::new(),
            running: AtomicBool::new(false),
            executor,
            thread: Mutex::new(None),
        })
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted<M>> {
        lock(&self.wanted)
    }

    /// Adds a call to the queue, together with others that follow soon.
    pub(crate) fn gather(self: &Arc<Self>, call: M) {
        let mut gathered = lock(&self.gathered);
        gathered.push(Call::Make(call));
        let count = gathered.len();
        drop(gathered);
        match count {
            1 => self.some.notify_one(),
            GATHERED.. => self.flush(),
            _ => {}
        }
    }

    /// Waits until calls were gathered and a turn of the I/O thread has added none, or until they were passed on.
    pub(crate) async fn gathered_all(&self) {
        self.some.notified().await;
        let mut before = 0;
        loop {
            let count = lock(&self.gathered).len();
            if count <= before {
                return;
            }
            before = count;
            tokio::task::yield_now().await;
        }
    }

    /// Wakes the callback thread for the gathered calls.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut gathered = lock(&self.gathered);
        if gathered.is_empty() {
            return;
        }
        // An executor may run a job at once, and the job may complete other requests: not under the lock. Only the I/O thread gathers.
        let room = Vec::with_capacity(gathered.capacity());
        let taken = std::mem::replace(&mut *gathered, room);
        drop(gathered);
        self.put(|calls| calls.extend(taken));
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
        let (result, returned) = oneshot::channel();
        self.notify(true, move || drop(result.send(call())));
        returned.await.ok()
    }

    /// Calls the caller where its callbacks run, and does not wait.
    pub(crate) fn notify(self: &Arc<Self>, threaded: bool, call: impl FnOnce() + Send + 'static) {
        if threaded {
            self.put(|calls| calls.push_back(Call::Ask(Box::new(call))));
        } else {
            call();
        }
    }

    fn put(self: &Arc<Self>, put: impl FnOnce(&mut VecDeque<Call<M>>)) {
        let mut wanted = self.wanted();
        put(&mut wanted.calls);
        let sleeps = std::mem::take(&mut wanted.sleeps);
        let posts = self.executor.is_some()
            && !self.running.load(SeqCst)
            && !std::mem::replace(&mut wanted.posted, true);
        drop(wanted);
        if posts {
            self.post();
        } else if sleeps {
            self.came.notify_one();
        }
    }

    /// Submits a job to the executor. If the executor refuses, the thread makes the calls from then on.
    fn post(self: &Arc<Self>) {
        let Some(executor) = &self.executor else { return };
        if executor.execute(Arc::clone(self)) {
            return;
        }
        if self.begin().is_err() {
            // No thread can be created: a call on this thread is better than none.
            self.make_some();
        }
    }

    /// Makes the queued calls on a thread of the program's. For later ones it submits another job, so that other jobs get their turn.
    fn make_some(self: &Arc<Self>) {
        let here = std::mem::take(&mut self.wanted().calls);
        sys::lent_to(self.number, || {
            for call in here {
                call.make();
            }
        });
        let mut wanted = self.wanted();
        if wanted.calls.is_empty() {
            wanted.posted = false;
            return;
        }
        drop(wanted);
        self.post();
    }

    /// Begins the thread where calls of the program's own kind need it: an executor takes them otherwise.
    pub(crate) fn begin_thread(self: &Arc<Self>) -> Result<(), Refused> {
        if self.executor.is_some() || self.running.load(SeqCst) {
            return Ok(());
        }
        self.begin()
    }

    fn begin(self: &Arc<Self>) -> Result<(), Refused> {
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            return Ok(());
        }
        let this = Arc::clone(self);
        let started = sys::quiet_thread("hearth-calls", move || {
            sys::belong_to(this.number);
            this.make_all();
        });
        *thread =
            Some(started.map_err(|error| {
                Refused::system(format!("no thread could be started: {error}"))
            })?);
        self.running.store(true, SeqCst);
        Ok(())
    }

    fn make_all(&self) {
        let mut here = VecDeque::new();
        loop {
            {
                let mut wanted = self.wanted();
                while wanted.calls.is_empty() {
                    wanted.sleeps = true;
                    let woken = self.came.wait(wanted);
                    wanted = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                wanted.sleeps = false;
                std::mem::swap(&mut wanted.calls, &mut here);
            }
            for call in here.drain(..) {
                if call.make() {
                    return;
                }
            }
        }
    }

    /// Ends the thread behind the calls that are queued.
    pub(crate) fn end(self: &Arc<Self>, join: bool) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            self.put(|calls| calls.push_back(Call::End));
            if join {
                drop(thread.join());
            }
        }
    }
}

impl<M: Make> Call<M> {
    /// Returns true if it was the last.
    fn make(self) -> bool {
        match self {
            Self::Make(call) => call.make(),
            Self::Ask(ask) => ask(),
            Self::End => return true,
        }
        false
    }
}

impl<M: Make> Execute for Callbacks<M> {
    fn run(self: Arc<Self>) {
        self.make_some();
    }
}
