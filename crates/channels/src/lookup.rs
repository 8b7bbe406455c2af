//! Applications that are not known from the beginning: they are asked for when a client or a call names them, and kept for a while.
//!
//! Invariants
//! - Nobody waits in a call: event loops find what is known, and get everything else in their inbox.
//! - However many ask for an application, one fetch for it is under way.
//! - Who cannot be told, because the source fails, is not told that there is no such application.
//! - An application that is used is asked for again when it is [`Options::age`] old; until there is an answer, what was known holds. So a source
//!   that fails costs new applications alone.
//! - What is under way, waits and is kept is bounded by [`Options`], whatever keys clients come with.

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
use cache::{Cache, Settled};

/// How applications are looked up.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long what is known of an application holds.
    pub age: Duration,
    /// How long it holds that there is none.
    pub absence: Duration,
    /// How long after a failure the same is not asked again.
    pub failure: Duration,
    /// How long after a failure an application that is known is asked for again.
    pub retry: Duration,
    /// How long the source may take.
    pub timeout: Duration,
    /// How long an ask may wait for its turn.
    pub patience: Duration,
    /// Fetches at a time.
    pub flights: usize,
    /// Keys and ids that may be asked for at a time; further ones are answered with [`Unavailable`].
    pub waiting: usize,
    /// Applications without sockets that are kept; with more, those that nobody came for go.
    pub kept: usize,
    /// Keys and ids that are known to be nobody's; with more, all are forgotten.
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
            flights: 4,
            waiting: 1024,
            kept: 10_000,
            refused: 10_000,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The application whose clients have this key.
    Key(Arc<str>),
    /// The one with this id.
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

/// What a [`Source`] answers: the application, none when there is no such one, or in words why it cannot say.
pub type Fetch = Pin<Box<dyn Future<Output = Result<Option<App>, String>> + Send>>;

/// Who knows all applications. One that panics has failed.
pub trait Source: fmt::Debug + Send + Sync {
    /// Asks for one.
    ///
    /// # Cancel safety
    /// It is dropped when it takes longer than [`Options::timeout`].
    fn fetch(&self, subject: &Subject) -> Fetch;

    /// An application is not kept any more: nobody uses it, or there is none.
    fn forgotten(&self, app: &App);
}

/// An application that is another one now, or none.
#[derive(Clone, Debug)]
struct Change {
    before: Arc<App>,
    now: Option<Arc<App>>,
}

/// What a look-up has done so far.
#[derive(Debug, Default)]
pub struct Figures {
    /// Applications that were found.
    pub found: Number,
    /// Keys and ids that are nobody's.
    pub absent: Number,
    /// Times the source did not say.
    pub failed: Number,
    /// Applications that were another one, or none, when they were asked for again.
    pub changed: Number,
}

/// Applications of which some are known from the beginning, and others are looked up while [`run`] runs.
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
    /// With these known from the beginning; they are never asked for. `clock` may stand anywhere, as long as it goes.
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

    /// What has been done so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// How many looked-up applications are known now.
    pub fn known(&self) -> usize {
        self.lock().len()
    }

    /// How many keys and ids are being asked for.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// All looked-up applications that are known now.
    pub fn all(&self) -> Vec<Arc<App>> {
        self.lock().apps().map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An application of the settings is not to be had twice.
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
            // Outside of the lock: what is called may ask.
            Some((answer, answered)) => answer(answered),
            None => self.woken.notify_one(),
        }
    }
}

/// Looks applications up until `ending` is over. Sockets of those that change are told through `channels`.
pub async fn run(
    lookup: Arc<Lookup>,
    source: Arc<dyn Source>,
    channels: Channels,
    ending: impl Future<Output = ()>,
) {
    let mut ending = pin!(ending);
    let mut log = Log::default();
    let mut flights: JoinSet<(Subject, Result<Option<App>, String>)> = JoinSet::new();
    let in_use = |id: &str| channels.statistics().connections(id) > 0;
    loop {
        let now = (lookup.clock)();
        let mut late = Vec::new();
        while flights.len() < lookup.options.flights {
            let Some(subject) = lookup.lock().next(now, &mut late) else { break };
            flights.spawn(fetch(subject, Arc::clone(&source), lookup.options.timeout));
        }
        answer_all(late, &Err(Unavailable));
        let wake = lookup.lock().wake().map(|at| Instant::now() + at.since(now));
        tokio::select! {
            () = lookup.woken.notified() => {}
            Some(flight) = flights.join_next() => {
                let (subject, fetched) = flight.expect("a flight neither panics nor is cancelled");
                let fetched = fetched.and_then(|app| lookup.distinct(app));
                let now = (lookup.clock)();
                let settled = lookup.lock().settle(&subject, fetched, &in_use, now);
                if let Some(why) = &settled.failure {
                    log.complain(&subject, why);
                }
                tell(&lookup, &*source, &channels, settled);
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
    // In a task of its own: a source that panics has failed, and no more.
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

/// Tells those who waited, and those for whom something is different.
fn tell(lookup: &Lookup, source: &dyn Source, channels: &Channels, settled: Settled) {
    let Settled { waiting, answered, change, forgotten, .. } = settled;
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

/// Says what goes wrong, once a second at most: what clients ask for is theirs to choose.
#[derive(Debug, Default)]
struct Log(Option<Instant>);

/// Between two complaints.
const COMPLAINTS: Duration = Duration::from_secs(1);

impl Log {
    fn complain(&mut self, subject: &Subject, why: &str) {
        if self.0.is_none_or(|last| last.elapsed() >= COMPLAINTS) {
            self.0 = Some(Instant::now());
            warn!(%subject, why, "an application cannot be looked up");
        }
    }
}

#[cfg(test)]
mod tests;
