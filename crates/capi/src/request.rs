//! A request: its parts, and whether it is running.
//!
//! Invariants
//! - It does not change while it is running: the request is sent as it was at its start.
//! - Each start has exactly one completion, after which no callback of it is called.
//! - A child of a fork takes no lock of the parent's: a request in use by a thread at that moment stays the parent's.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::calls::{Body, Debug, Done, Head, Interim, Progress, Source};
use crate::cookies::Jar;
use crate::engine::Engine;
use crate::error::Refused;
use crate::in_flight::{InFlight, Kept};
use crate::settings::Settings;
use crate::sys::{PerProcess, lock};
use crate::target::Target;
use crate::verb::Verb;

/// The parts of a request.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) settings: Arc<Settings>,
    /// None: the method is one of the extras.
    verb: Option<Verb>,
    pub(crate) target: Option<Target>,
    /// The parts that most requests do not have.
    pub(crate) extras: Option<Arc<Extras>>,
    /// Whether callbacks run on the callback thread. It is also here, because `settings` are shared by all of an
    /// engine's requests until one is set.
    pub(crate) threaded: bool,
}

impl Spec {
    /// A GET request without a target.
    pub(crate) fn new(settings: Arc<Settings>, target: Option<Target>) -> Self {
        let threaded = settings.threaded_callback;
        Self { settings, verb: Some(Verb::Get), target, extras: None, threaded }
    }

    pub(crate) fn method(&self) -> &Method {
        match (self.verb, &self.extras) {
            (None, Some(extras)) => extras.method.as_ref().unwrap_or_else(|| Verb::Get.method()),
            (verb, _) => verb.unwrap_or(Verb::Get).method(),
        }
    }

    pub(crate) fn set_method(&mut self, method: Method) {
        self.verb = Verb::of(&method);
        if self.verb.is_none() {
            self.extras_mut().method = Some(method);
        }
    }

    /// The parts that most requests do not have, to be changed.
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        Arc::make_mut(self.extras.get_or_insert_default())
    }

    /// The mail that it sends.
    pub(crate) fn mail(&self) -> Option<&Mail> {
        self.extras.as_ref()?.mail.as_deref()
    }
}

/// The optional properties of a request, besides method and target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The method, if it is no [`Verb`].
    method: Option<Method>,
    pub(crate) headers: HeaderMap,
    /// Default fields that are not sent.
    pub(crate) removed: Vec<http::HeaderName>,
    pub(crate) trailers: HeaderMap,
    pub(crate) body: Payload,
    pub(crate) jar: Option<Arc<Jar>>,
    /// The request's own jar, once it has one. It stays over a reset.
    own_jar: Option<Arc<Jar>>,
    pub(crate) head: Option<Head>,
    pub(crate) interim: Option<Interim>,
    pub(crate) sink: Option<Body>,
    pub(crate) progress: Option<Progress>,
    pub(crate) debug: Option<Debug>,
    /// The mail that the request sends. None: it calls an HTTP origin.
    pub(crate) mail: Option<Box<Mail>>,
}

/// A mail: its parts, and the message that is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) draft: mail::Draft,
    /// The message, written at each start.
    pub(crate) message: Option<mail::Message>,
}

/// The body of a request.
#[derive(Clone, Debug, Default)]
pub(crate) enum Payload {
    /// No body.
    #[default]
    None,
    /// Bytes in memory.
    Bytes(Bytes),
    /// A file.
    File(PathBuf),
    /// The caller's source.
    Source(Source),
}

/// A request and its state.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) engine: Arc<Engine>,
    own: PerProcess<Own>,
}

/// The state of a request in one process.
#[derive(Debug)]
struct Own {
    state: Mutex<State>,
    over: Condvar,
    waiting: AtomicU32,
}

#[derive(Debug)]
struct State {
    /// The request's parts, and its last start.
    start: Arc<InFlight>,
    /// Whether that start is under way.
    under_way: bool,
    /// Number of completions whose callbacks are running.
    calling: u32,
    /// Whether a thread of the parent used it when this process was forked: its state is unknown here.
    lost: bool,
}

impl Own {
    fn new(state: State) -> Self {
        Self { state: Mutex::new(state), over: Condvar::new(), waiting: AtomicU32::new(0) }
    }

    /// State for a child of a fork, in which no callback of the parent's runs.
    fn in_child(parents: &Self) -> Self {
        let known = |state: &State| State {
            start: Arc::clone(&state.start),
            under_way: state.under_way,
            calling: 0,
            lost: state.lost,
        };
        Self::new(match parents.state.try_lock() {
            Ok(state) => known(&state),
            Err(TryLockError::Poisoned(state)) => known(&state.into_inner()),
            Err(TryLockError::WouldBlock) => State {
                start: Arc::new(InFlight::new(Spec::new(Arc::default(), None))),
                under_way: false,
                calling: 0,
                lost: true,
            },
        })
    }
}

impl Request {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Self, Refused> {
        let settings = engine.settings()?;
        let start = Arc::new(InFlight::new(Spec::new(settings, None)));
        let state = State { start, under_way: false, calling: 0, lost: false };
        Ok(Self { engine, own: PerProcess::new(Own::new(state)) })
    }

    fn own(&self) -> &Own {
        self.own.get(Own::in_child)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.own().state)
    }

    /// Returns its state, if it is not under way.
    fn idle(&self) -> Result<MutexGuard<'_, State>, Refused> {
        let state = self.state();
        match state.under_way {
            true if state.start.is_ours() => Err(Refused::state("the request is under way")),
            false if !state.lost => Ok(state),
            _ => Err(parents()),
        }
    }

    /// Changes the request. `change` returns a replaced body, because the caller's `release` may use this request.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Spec) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        // A start that is still referred to keeps its parts.
        change(&mut Arc::make_mut(&mut self.idle()?.start).spec)
    }

    /// Changes the parts that most requests do not have.
    pub(crate) fn extend<T>(
        &self,
        change: impl FnOnce(&mut Extras) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.change(|spec| change(spec.extras_mut()))
    }

    /// Changes the mail. From then on the request sends one.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&mut mail::Draft) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.extend(|extras| write(&mut extras.mail.get_or_insert_default().draft))
    }

    /// Changes its settings.
    pub(crate) fn set(
        &self,
        set: impl FnOnce(&mut Settings) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.change(|spec| {
            let settings = Arc::make_mut(&mut spec.settings);
            settings.threaded_callback = spec.threaded;
            set(settings)?;
            spec.threaded = settings.threaded_callback;
            Ok(())
        })
    }

    /// Sets where its callbacks run.
    pub(crate) fn set_threaded(&self, on: bool) -> Result<(), Refused> {
        let mut state = self.idle()?;
        if state.start.spec.threaded != on {
            Arc::make_mut(&mut state.start).spec.threaded = on;
        }
        Ok(())
    }

    /// Resets it to the engine's defaults.
    pub(crate) fn reset(&self) -> Result<(), Refused> {
        let settings = self.engine.settings()?;
        let before = self.change(|spec| {
            let own_jar = spec.extras.as_ref().and_then(|extras| extras.own_jar.clone());
            let before = std::mem::replace(spec, Spec::new(settings, None));
            if own_jar.is_some() {
                spec.extras_mut().own_jar = own_jar;
            }
            Ok(before)
        })?;
        drop(before);
        Ok(())
    }

    /// Sets its body.
    pub(crate) fn set_body(&self, body: impl FnOnce() -> Payload) -> Result<(), Refused> {
        let before = self.extend(|extras| Ok(std::mem::replace(&mut extras.body, body())))?;
        drop(before);
        Ok(())
    }

    /// Returns its parts and its last start. Borrowed by C: the parts stay until they are changed.
    pub(crate) fn last(&self) -> Arc<InFlight> {
        Arc::clone(&self.state().start)
    }

    /// Starts it.
    /// `kept`: where the response is left for a waiting caller.
    pub(crate) fn start(
        self: Arc<Self>,
        done: Option<Done>,
        kept: Option<Kept>,
    ) -> Result<(), Refused> {
        let this = Arc::clone(&self);
        let mut state = this.idle()?;
        let state = &mut *state;
        if state.start.spec.target.is_none() {
            return Err(Refused::invalid("the request has no URL"));
        }
        let start = Arc::make_mut(&mut state.start);
        let own_jar = match start.spec.settings.cookies {
            crate::settings::Cookies::Own => {
                Some(Arc::clone(start.spec.extras_mut().own_jar.get_or_insert_default()))
            }
            _ => None,
        };
        if start.spec.mail().is_some()
            && let Some(mail) = start.spec.extras_mut().mail.as_mut()
        {
            let message = mail.draft.compose(SystemTime::now());
            mail.message = Some(message.map_err(|flaw| Refused::invalid(flaw.0))?);
        }
        let runtime = self.engine.running()?;
        start.begin(&runtime, Some(self), done, kept, own_jar);
        let taken = runtime.take(Arc::clone(&state.start));
        if taken.is_err() {
            state.start.refused();
        }
        state.under_way = taken.is_ok();
        taken
    }

    /// Returns its start, if it is under way.
    pub(crate) fn under_way(&self) -> Option<Arc<InFlight>> {
        let state = self.state();
        state.under_way.then(|| Arc::clone(&state.start))
    }

    /// Returns whether it is under way, here or in the parent.
    pub(crate) fn is_under_way(&self) -> bool {
        let state = self.state();
        state.under_way || state.lost
    }

    /// Begins the completion: from here on it may be changed and started again.
    pub(crate) fn completing(&self, calls: bool) {
        let mut state = self.state();
        state.under_way = false;
        state.calling += u32::from(calls);
        drop(state);
        if !calls {
            self.wake_waiting();
        }
    }

    /// Called when its callback has returned.
    pub(crate) fn completed(&self) {
        // A child that was forked in the callback has counted none.
        let mut state = self.state();
        state.calling = state.calling.saturating_sub(1);
        drop(state);
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        let own = self.own();
        if own.waiting.load(SeqCst) > 0 {
            own.over.notify_all();
        }
    }

    /// Fails if the calling thread is one that it would wait for.
    pub(crate) fn may_wait(&self) -> Result<(), Refused> {
        if self.engine.is_this_thread()? {
            return Err(Refused::state("a callback cannot wait for its own engine"));
        }
        Ok(())
    }

    /// Waits until it is not under way and no callback of it runs. Returns false if the time limit is reached first.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Result<bool, Refused> {
        self.may_wait()?;
        let own = self.own();
        {
            let state = self.state();
            if state.lost || (state.under_way && !state.start.is_ours()) {
                return Err(parents());
            }
        }
        own.waiting.fetch_add(1, SeqCst);
        let busy = |state: &mut State| state.under_way || state.calling > 0;
        let over = match time {
            None => {
                let waited = own.over.wait_while(self.state(), busy);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                true
            }
            Some(time) => {
                let waited = own.over.wait_timeout_while(self.state(), time, busy);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            }
        };
        own.waiting.fetch_sub(1, SeqCst);
        Ok(over)
    }
}

/// Returns whether it was under way, or used by a thread, when this process was forked.
fn parents() -> Refused {
    Refused::state("the request is under way in the parent process")
}
