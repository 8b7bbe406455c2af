//! An engine as C holds it: its defaults, and its life, which begins with the first request and anew in the child of a fork.
//!
//! Invariants
//! - In a child no lock of the parent's is taken, and nothing of the parent's is dropped.

#![expect(
    unsafe_code,
    reason = "what a process has of an engine is exchanged without a lock, for a fork may hold any"
)]

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::calls::Executor;
use crate::cookies::Jar;
use crate::error::Refused;
use crate::flight::Flight;
use crate::life::Life;
use crate::settings::Settings;
use crate::stats::{HttpNumbers, Numbers};
use crate::sys::{OurProcess, Shared};

/// An engine.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Of this process, or of the parent until somebody looks. What a fork has left behind is leaked: it is the parent's.
    place: AtomicPtr<Place>,
    freed: AtomicBool,
}

/// What one process has of an engine.
#[derive(Debug)]
struct Place {
    ours: Arc<OurProcess>,
    settings: Shared<Settings>,
    jar: Arc<Jar>,
    executor: Shared<Option<Executor>>,
    life: Mutex<Option<Arc<Life>>>,
    /// It was stopped, and not begun again.
    stopped: AtomicBool,
    numbers: Arc<Numbers>,
}

impl Place {
    fn new(
        settings: Arc<Settings>,
        jar: Arc<Jar>,
        executor: Arc<Option<Executor>>,
    ) -> Result<Box<Self>, Refused> {
        let ours =
            OurProcess::new().ok_or_else(|| Refused::system("no memory that a fork wipes"))?;
        Ok(Box::new(Self {
            ours: Arc::new(ours),
            settings: Shared::new(settings),
            jar,
            executor: Shared::new(executor),
            life: Mutex::new(None),
            stopped: AtomicBool::new(false),
            numbers: Arc::default(),
        }))
    }
}

impl Engine {
    pub(crate) fn new() -> Result<Self, Refused> {
        let place = Place::new(Arc::default(), Arc::default(), Arc::default())?;
        Ok(Self { place: AtomicPtr::new(Box::into_raw(place)), freed: AtomicBool::new(false) })
    }

    /// What this process has of it.
    fn place(&self) -> Result<&Place, Refused> {
        let found = self.place.load(SeqCst);
        // SAFETY: it came from `Box::into_raw` and is not dropped before this engine.
        let place = unsafe { &*found };
        if place.ours.is_this() {
            return Ok(place);
        }
        let new = Place::new(
            place.settings.get_in_child(),
            Arc::clone(&place.jar),
            place.executor.get_in_child(),
        )?;
        let new = Box::into_raw(new);
        match self.place.compare_exchange(found, new, SeqCst, SeqCst) {
            // SAFETY: as above.
            Ok(_) => Ok(unsafe { &*new }),
            Err(other) => {
                // SAFETY: it came from `Box::into_raw`, and nobody has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above.
                Ok(unsafe { &*other })
            }
        }
    }

    /// The defaults of this moment.
    pub(crate) fn settings(&self) -> Result<Arc<Settings>, Refused> {
        Ok(self.place()?.settings.get())
    }

    /// Changes the defaults.
    pub(crate) fn set(
        &self,
        set: impl FnOnce(&mut Settings) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.place()?.settings.change(set)
    }

    /// Says where callbacks run from the next start on; `make` is called once nothing is in the way.
    pub(crate) fn set_executor(
        &self,
        make: impl FnOnce() -> Option<Executor>,
    ) -> Result<(), Refused> {
        let place = self.place()?;
        let life = place.life.lock().unwrap_or_else(PoisonError::into_inner);
        if life.is_some() {
            return Err(Refused::state("the engine has begun"));
        }
        // What it is let go with is the program's, which may call us.
        let before = place.executor.get();
        let changed = place.executor.change(|executor| {
            *executor = make();
            Ok(())
        });
        drop(life);
        drop(before);
        changed
    }

    /// The cookies of `cookies=2`.
    pub(crate) fn jar(&self) -> Result<Arc<Jar>, Refused> {
        Ok(Arc::clone(&self.place()?.jar))
    }

    pub(crate) fn numbers(&self) -> Result<Arc<Numbers>, Refused> {
        Ok(Arc::clone(&self.place()?.numbers))
    }

    /// Its connections, those of lives that have ended included.
    pub(crate) fn connections(&self) -> Result<HttpNumbers, Refused> {
        let place = self.place()?;
        let life = place.life.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = *place.numbers.ended.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*life {
            Some(life) => ended.and(&life.egress.report()),
            None => ended,
        })
    }

    /// The calling thread is one of its life's, which may not wait for itself.
    pub(crate) fn is_this_thread(&self) -> Result<bool, Refused> {
        let life = self.place()?.life.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(life.is_some_and(|life| life.is_this_thread()))
    }

    /// Begins, where it has not, also after a stop.
    pub(crate) fn start(&self) -> Result<(), Refused> {
        self.place()?.stopped.store(false, SeqCst);
        self.begin().map(drop)
    }

    fn begin(&self) -> Result<Arc<Life>, Refused> {
        let place = self.place()?;
        let mut life = place.life.lock().unwrap_or_else(PoisonError::into_inner);
        if self.freed.load(SeqCst) {
            return Err(Refused::state("the engine was freed"));
        }
        if let Some(life) = &*life {
            return Ok(Arc::clone(life));
        }
        if place.stopped.load(SeqCst) {
            return Err(Refused::state("the engine is stopped"));
        }
        let begun = Life::begin(
            Arc::clone(&place.ours),
            &place.settings.get(),
            Arc::clone(&place.jar),
            Arc::clone(&place.numbers),
            Option::clone(&place.executor.get()),
        )?;
        *life = Some(Arc::clone(&begun));
        Ok(begun)
    }

    /// Takes a start.
    pub(crate) fn launch(&self, mut flight: Flight) -> Result<Arc<Flight>, Refused> {
        let life = self.begin()?;
        flight.life = Some(Arc::clone(&life));
        life.take(Arc::new(flight))
    }

    /// Ends what is under way after so long, and the threads. True: something had to be aborted.
    pub(crate) fn stop(&self, patience: Duration) -> Result<bool, Refused> {
        let place = self.place()?;
        // While it ends it takes nothing, and does not begin anew.
        let life = place.life.lock().unwrap_or_else(PoisonError::into_inner).clone();
        place.stopped.store(true, SeqCst);
        let Some(life) = life else { return Ok(false) };
        if life.is_this_thread() {
            return Err(Refused::state("a callback cannot wait for its own engine"));
        }
        let forced = life.end(patience);
        let mut current = place.life.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &life)) {
            *current = None;
            // In the same moment: whoever asks for the numbers meets them once.
            let mut ended = place.numbers.ended.lock().unwrap_or_else(PoisonError::into_inner);
            *ended = HttpNumbers { connections: 0, ..ended.and(&life.egress.report()) };
        }
        Ok(forced)
    }

    /// Nobody has its handle any more.
    pub(crate) fn free(&self) {
        self.freed.store(true, SeqCst);
        if self.stop(Duration::ZERO).is_err()
            && let Ok(place) = self.place()
        {
            // In a callback: it ends by itself, when the callback has returned.
            let life = place.life.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(life) = life {
                life.leave();
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let place = *self.place.get_mut();
        // SAFETY: it came from `Box::into_raw`, and nobody else has this engine.
        let place = unsafe { Box::from_raw(place) };
        if !place.ours.is_this() {
            // The parent's.
            Box::leak(place);
        }
    }
}
