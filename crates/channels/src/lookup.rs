//! Looks up applications that are not in the settings when a client or request names them, and caches them.
//!
//! Invariants
//! - No call waits: event loops find what is cached, and receive everything else in their inbox.
//! - At most one fetch per application is in progress, however many callers ask.
//! - If the source fails, callers get an error and not the answer that the application does not exist.
//! - An application in use is fetched again when it is [`Options::age`] old; the cached value stays valid until the
//!   answer arrives. In use means: clients of this node, or channels here, whose clients may be on other nodes.
//!   A failing source therefore affects only new applications.
//! - Fetches, waiting callers and cached entries are bounded by [`Options`], whatever keys clients use.

mod cache;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::app::App;
use crate::apps::{Answer, Answered, AppRef, Apps, FixedApps, Found, Unavailable};
use crate::channels::Channels;
use crate::moment::Moment;
use crate::statistics::Number;
use cache::{Cache, Completed};

/// Settings of the look-up.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a cached application is valid.
    pub age: Duration,
    /// How long a negative result is valid.
    pub absence: Duration,
    /// How long after a failure the same key or id is not fetched again.
    pub failure: Duration,
    /// How long after a failure a cached application is fetched again.
    pub retry: Duration,
    /// Timeout of one fetch.
    pub timeout: Duration,
    /// How long a look-up may wait for its turn.
    pub patience: Duration,
    /// Maximum number of concurrent fetches.
    pub concurrency: usize,
    /// Maximum number of keys and ids being looked up; further ones are answered with [`Unavailable`].
    pub waiting: usize,
    /// Maximum number of cached applications without sockets and channels. Beyond it, unused ones are removed.
    pub kept: usize,
    /// Maximum number of cached negative results. Beyond it, all are removed.
    pub refused: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            age: Duration::from_mins(1),
            absence: Duration::from_secs(10),
            failure: Duration::from_secs(1),
            retry: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            patience: Duration::from_secs(5),
            concurrency: 4,
            waiting: 1024,
            kept: 10_000,
            refused: 10_000,
        }
    }
}

/// The subject of a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The application with this client key.
    Key(Arc<str>),
    /// The application with this id.
    Id(Arc<str>),
}

impl Subject {
    fn of(app: AppRef<'_>) -> Self {
        match app {
            AppRef::Key(key) => Self::Key(key.into()),
            AppRef::Id(id) => Self::Id(id.into()),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key {key}"),
            Self::Id(id) => write!(f, "id {id}"),
        }
    }
}

/// Result of a [`Source`]: the application, `None` if it does not exist, or an error message.
pub type Fetch = Pin<Box<dyn Future<Output = Result<Option<App>, String>> + Send>>;

/// A source of applications. A panic counts as a failure.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fetches an application.
    ///
    /// # Cancel safety
    /// The future is dropped when it takes longer than [`Options::timeout`].
    fn fetch(&self, subject: &Subject) -> Fetch;

    /// Called when an application is removed from the cache, because it is unused or does not exist any more.
    fn forgotten(&self, app: &App);
}

/// A replaced or removed application.
#[derive(Clone, Debug)]
struct Change {
    before: Arc<App>,
    now: Option<Arc<App>>,
}

/// Counters of a look-up.
#[derive(Debug, Default)]
pub struct Figures {
    /// Applications found.
    pub found: Number,
    /// Keys and ids without an application.
    pub absent: Number,
    /// Failures of the source.
    pub failed: Number,
    /// Applications that a later fetch found changed or removed.
    pub changed: Number,
}

/// Applications of which some are fixed, and others are looked up while [`run`] runs.
#[derive(Debug)]
pub struct Lookup {
    fixed: FixedApps,
    cache: Mutex<Cache>,
    options: Options,
    woken: Notify,
    ended: AtomicBool,
    figures: Figures,
    clock: fn() -> Moment,
}

impl Lookup {
    /// Creates a look-up with these fixed applications, which are never fetched. `clock` may have any start, but must
    /// advance.
    pub fn new(fixed: FixedApps, options: Options, clock: fn() -> Moment) -> Self {
        Self {
            fixed,
            cache: Mutex::new(Cache::new(options.clone())),
            options,
            woken: Notify::new(),
            ended: AtomicBool::new(false),
            figures: Figures::default(),
            clock,
        }
    }

    /// Returns the counters.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Returns the number of cached applications.
    pub fn known(&self) -> usize {
        self.lock().len()
    }

    /// Returns the number of keys and ids being looked up.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Returns all cached applications.
    pub fn all(&self) -> Vec<Arc<App>> {
        self.lock().apps().map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rejects a fetched application that has the id or key of a fixed one.
    fn distinct(&self, app: Option<App>) -> Result<Option<App>, String> {
        let twin = app.as_ref().and_then(|app| {
            let known = self.fixed.all().iter();
            known.into_iter().find(|known| known.id == app.id || known.key == app.key)
        });
        match twin {
            Some(twin) => Err(format!(
                "the answer has the id or key of `{}`, which the settings name",
                twin.id
            )),
            None => Ok(app),
        }
    }
}

impl Apps for Lookup {
    fn find(&self, app: AppRef<'_>) -> Found {
        match self.fixed.find(app) {
            Found::None => self.lock().find(app),
            found => found,
        }
    }

    fn ask(&self, app: AppRef<'_>, answer: Answer) {
        if let Found::App(app) = self.fixed.find(app) {
            return answer(Ok(Some(app)));
        }
        if self.ended.load(Ordering::Relaxed) {
            return answer(Err(Unavailable));
        }
        let now = (self.clock)();
        let at_once = self.lock().ask(app, answer, now);
        match at_once {
            // Called outside of the lock, because the callback may look up again.
            Some((answer, answered)) => answer(answered),
            None => self.woken.notify_one(),
        }
    }
}

/// Looks applications up until `ending` completes. Sockets of changed applications are updated through `channels`.
pub async fn run(
    lookup: Arc<Lookup>,
    source: Arc<dyn Source>,
    channels: Channels,
    ending: impl Future<Output = ()>,
) {
    let mut ending = pin!(ending);
    let mut log = Log::default();
    let mut fetches: JoinSet<(Subject, Result<Option<App>, String>)> = JoinSet::new();
    let in_use = |id: &str| channels.statistics().is_in_use(id);
    loop {
        let now = (lookup.clock)();
        let mut late = Vec::new();
        while fetches.len() < lookup.options.concurrency {
            let Some(subject) = lookup.lock().next(now, &mut late) else { break };
            fetches.spawn(fetch(subject, Arc::clone(&source), lookup.options.timeout));
        }
        answer_all(late, &Err(Unavailable));
        let wake = lookup.lock().wake().map(|at| Instant::now() + at.since(now));
        tokio::select! {
            () = lookup.woken.notified() => {}
            Some(in_flight) = fetches.join_next() => {
                let (subject, fetched) = in_flight.expect("a fetch task neither panics nor is cancelled");
                let fetched = fetched.and_then(|app| lookup.distinct(app));
                let now = (lookup.clock)();
                let completed = lookup.lock().complete(&subject, fetched, &in_use, now);
                if let Some(why) = &completed.failure {
                    log.log_once(&subject, why);
                }
                notify(&lookup, &*source, &channels, completed);
            }
            () = until(wake) => {
                let forgotten = lookup.lock().expire((lookup.clock)(), &in_use);
                for app in forgotten {
                    source.forgotten(&app);
                }
            }
            () = &mut ending => break,
        }
    }
    lookup.ended.store(true, Ordering::Relaxed);
    let waiting = lookup.lock().end();
    answer_all(waiting, &Err(Unavailable));
}

fn answer_all(waiting: Vec<Answer>, answered: &Answered) {
    for answer in waiting {
        answer(answered.clone());
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn fetch(
    subject: Subject,
    source: Arc<dyn Source>,
    patience: Duration,
) -> (Subject, Result<Option<App>, String>) {
    // A separate task contains a panic of the source.
    let mut attempt = JoinSet::new();
    let asked = subject.clone();
    attempt.spawn(async move { source.fetch(&asked).await });
    let fetched = match timeout(patience, attempt.join_next()).await {
        Ok(Some(Ok(fetched))) => fetched,
        Ok(_) => Err("the look-up panicked".to_owned()),
        Err(_) => Err(format!("no answer within {patience:?}")),
    };
    (subject, fetched)
}

/// Answers the waiting callers, and updates sockets of a changed application.
fn notify(lookup: &Lookup, source: &dyn Source, channels: &Channels, completed: Completed) {
    let Completed { waiting, answered, change, forgotten, .. } = completed;
    let figures = &lookup.figures;
    match &answered {
        Ok(Some(_)) => figures.found.increase(),
        Ok(None) => figures.absent.increase(),
        Err(Unavailable) => figures.failed.increase(),
    }
    for app in forgotten {
        source.forgotten(&app);
    }
    if let Some(Change { before, now }) = change {
        figures.changed.increase();
        info!(app = &*before.id, exists = now.is_some(), "an application has changed");
        if now.is_none() {
            source.forgotten(&before);
        }
        channels.renew(&before.id, now.as_ref());
    }
    answer_all(waiting, &answered);
}

/// Logs failures at most once a second, because clients choose how many look-ups fail.
#[derive(Debug, Default)]
struct Log(Option<Instant>);

/// Minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

impl Log {
    fn log_once(&mut self, subject: &Subject, why: &str) {
        if self.0.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            self.0 = Some(Instant::now());
            warn!(%subject, why, "an application cannot be looked up");
        }
    }
}

#[cfg(test)]
mod tests;
