//! An engine as C holds it: its defaults, and its runtime, which starts with the first request and again in the child of a fork.
//!
//! Invariants
//! - A child takes no lock of the parent's, and drops nothing of the parent's.

#![expect(
    unsafe_code,
    reason = "what a process has of an engine is exchanged without a lock, for a fork may hold any"
)]

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::calls::Executor;
use crate::cookies::Jar;
use crate::error::Refused;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::stats::{HttpNumbers, Numbers};
use crate::sys::{OurProcess, Shared, lock};
use crate::target::Target;

/// An engine.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The state of this process, or of the parent until the first access. The parent's state is leaked after a fork.
    place: AtomicPtr<Place>,
    freed: AtomicBool,
    /// The last target. Its lock is only tried: a child of a fork may find it held for good.
    target: Mutex<Option<Target>>,
}

/// The state of an engine in one process.
#[derive(Debug)]
struct Place {
    ours: Arc<OurProcess>,
    settings: Shared<Settings>,
    jar: Arc<Jar>,
    executor: Shared<Option<Executor>>,
    runtime: Mutex<Option<Arc<Runtime>>>,
    /// Whether it was stopped and not started again.
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
            runtime: Mutex::new(None),
            stopped: AtomicBool::new(false),
            numbers: Arc::default(),
        }))
    }
}

impl Engine {
    pub(crate) fn new() -> Result<Self, Refused> {
        let place = Place::new(Arc::default(), Arc::default(), Arc::default())?;
        Ok(Self {
            place: AtomicPtr::new(Box::into_raw(place)),
            freed: AtomicBool::new(false),
            target: Mutex::default(),
        })
    }

    /// Returns the state of this process.
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
                // SAFETY: it came from `Box::into_raw`, and no other code has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above.
                Ok(unsafe { &*other })
            }
        }
    }

    /// Returns the current defaults.
    pub(crate) fn settings(&self) -> Result<Arc<Settings>, Refused> {
        Ok(self.place()?.settings.get())
    }

    /// Parses a URL. Programs often call the same one again and again: these have one text, parsed once.
    pub(crate) fn target(&self, text: &[u8]) -> Result<Target, Refused> {
        if let Ok(last) = self.target.try_lock()
            && let Some(target) = &*last
            && target.as_str().as_bytes() == text
        {
            return Ok(target.clone());
        }
        let target = Target::parse(text)?;
        let before = self.target.try_lock().ok().and_then(|mut last| last.replace(target.clone()));
        drop(before);
        Ok(target)
    }

    /// Changes the defaults.
    pub(crate) fn set(
        &self,
        set: impl FnOnce(&mut Settings) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.place()?.settings.change(set)
    }

    /// Sets the executor of callbacks from the next start on; `make` is called once it is permitted.
    pub(crate) fn set_executor(
        &self,
        make: impl FnOnce() -> Option<Executor>,
    ) -> Result<(), Refused> {
        let place = self.place()?;
        let runtime = lock(&place.runtime);
        if runtime.is_some() {
            return Err(Refused::state("the engine has begun"));
        }
        // Its release function belongs to the program, which may call this library.
        let before = place.executor.get();
        let changed = place.executor.change(|executor| {
            *executor = make();
            Ok(())
        });
        drop(runtime);
        drop(before);
        changed
    }

    /// The cookie jar of `cookies=2`.
    pub(crate) fn jar(&self) -> Result<Arc<Jar>, Refused> {
        Ok(Arc::clone(&self.place()?.jar))
    }

    pub(crate) fn numbers(&self) -> Result<Arc<Numbers>, Refused> {
        Ok(Arc::clone(&self.place()?.numbers))
    }

    /// The statistics of its connections, those of ended runtimes included.
    pub(crate) fn connections(&self) -> Result<HttpNumbers, Refused> {
        let place = self.place()?;
        let runtime = lock(&place.runtime);
        let ended = *lock(&place.numbers.ended);
        Ok(match &*runtime {
            Some(runtime) => ended.and(&runtime.egress.report()),
            None => ended,
        })
    }

    /// Returns whether the calling thread belongs to the runtime, which may not wait for itself.
    pub(crate) fn is_this_thread(&self) -> Result<bool, Refused> {
        let runtime = lock(&self.place()?.runtime).clone();
        Ok(runtime.is_some_and(|runtime| runtime.is_this_thread()))
    }

    /// Starts the runtime if it does not run, also after a stop.
    pub(crate) fn start(&self) -> Result<(), Refused> {
        self.place()?.stopped.store(false, SeqCst);
        self.running().map(drop)
    }

    /// Returns the runtime, started if it did not run.
    pub(crate) fn running(&self) -> Result<Arc<Runtime>, Refused> {
        let place = self.place()?;
        let mut runtime = lock(&place.runtime);
        if self.freed.load(SeqCst) {
            return Err(Refused::state("the engine was freed"));
        }
        if let Some(runtime) = &*runtime {
            return Ok(Arc::clone(runtime));
        }
        if place.stopped.load(SeqCst) {
            return Err(Refused::state("the engine is stopped"));
        }
        let begun = Runtime::begin(
            Arc::clone(&place.ours),
            &place.settings.get(),
            Arc::clone(&place.jar),
            Arc::clone(&place.numbers),
            Option::clone(&place.executor.get()),
        )?;
        *runtime = Some(Arc::clone(&begun));
        Ok(begun)
    }

    /// Stops the requests that are under way after a time limit, and the threads. Returns true if something had to be aborted.
    pub(crate) fn stop(&self, patience: Duration) -> Result<bool, Refused> {
        let place = self.place()?;
        // While it ends, it accepts nothing and does not start again.
        let runtime = lock(&place.runtime).clone();
        place.stopped.store(true, SeqCst);
        let Some(runtime) = runtime else { return Ok(false) };
        if runtime.is_this_thread() {
            return Err(Refused::state("a callback cannot wait for its own engine"));
        }
        let forced = runtime.end(patience);
        let mut current = lock(&place.runtime);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &runtime)) {
            *current = None;
            // In the same step: a caller that reads the statistics counts them once.
            let mut ended = lock(&place.numbers.ended);
            *ended = HttpNumbers { connections: 0, ..ended.and(&runtime.egress.report()) };
        }
        Ok(forced)
    }

    /// Called when the last handle is freed.
    pub(crate) fn free(&self) {
        self.freed.store(true, SeqCst);
        if self.stop(Duration::ZERO).is_err()
            && let Ok(place) = self.place()
        {
            // In a callback: the engine ends when the callback has returned.
            let runtime = lock(&place.runtime).take();
            if let Some(runtime) = runtime {
                runtime.leave();
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let place = *self.place.get_mut();
        // SAFETY: it came from `Box::into_raw`, and no other reference to this engine exists.
        let place = unsafe { Box::from_raw(place) };
        if !place.ours.is_this() {
            // The parent's.
            Box::leak(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_urls_in_a_row_share_one_text() {
        let engine = Engine::new().expect("an engine");
        let target = |text: &str| engine.target(text.as_bytes());
        let first = target("http://a.test/x").expect("a URL");
        let second = target("http://a.test/x").expect("a URL");
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
        assert_eq!(target("http://a.test/y").expect("a URL").as_str(), "http://a.test/y");
        assert!(target("http://a test/").is_err());
        // One that is not written as the standard has it is parsed each time.
        for _ in 0..2 {
            assert_eq!(target("http://A.test").expect("a URL").as_str(), "http://a.test/");
        }
    }
}
