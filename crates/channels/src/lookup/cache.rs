//! The cache of looked-up applications and the callers waiting for them. Takes requests and results, returns
//! decisions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use super::{Change, Options, Subject};
use crate::app::App;
use crate::apps::{Answer, Answered, AppRef, Found, Unavailable};
use crate::moment::Moment;

/// Maximum length of a key or id in bytes. No application has a longer one.
const LENGTH: usize = 200;

/// Result of a fetch.
pub(super) type Fetched = Result<Option<App>, String>;

#[derive(Debug)]
pub(super) struct Cache {
    options: Options,
    /// Applications by id.
    apps: HashMap<Arc<str>, Known>,
    /// Ids of those applications by key.
    ids: HashMap<Arc<str>, Arc<str>>,
    refused: HashMap<Subject, Refusal>,
    pending: HashMap<Subject, Pending>,
    queue: VecDeque<Subject>,
    /// Entries to check again, by time. An entry is skipped if its application was updated since.
    due: BinaryHeap<Reverse<(Moment, Due)>>,
}

#[derive(Debug)]
struct Known {
    app: Arc<App>,
    due: Moment,
    /// The application was looked up since the last fetch.
    used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    until: Moment,
    answer: Result<(), Unavailable>,
}

struct Pending {
    since: Moment,
    waiting: Vec<Answer>,
    /// The fetch renews a cached application, and does not only serve waiting callers.
    refresh: bool,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    App(Arc<str>),
    Refusal(Subject),
}

/// Actions that follow a completed fetch.
pub(super) struct Completed {
    /// Callbacks of the waiting callers.
    pub(super) waiting: Vec<Answer>,
    /// Result for them.
    pub(super) answered: Answered,
    /// The changed application.
    pub(super) change: Option<Change>,
    /// Applications removed to make room.
    pub(super) forgotten: Vec<Arc<App>>,
    /// Error of the fetch.
    pub(super) failure: Option<String>,
}

impl Cache {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            apps: HashMap::new(),
            ids: HashMap::new(),
            refused: HashMap::new(),
            pending: HashMap::new(),
            queue: VecDeque::new(),
            due: BinaryHeap::new(),
        }
    }

    /// Iterates over the cached applications.
    pub(super) fn apps(&self) -> impl Iterator<Item = &Arc<App>> {
        self.apps.values().map(|known| &known.app)
    }

    pub(super) fn len(&self) -> usize {
        self.apps.len()
    }

    /// Returns the number of pending look-ups.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn find(&mut self, app: AppRef<'_>) -> Found {
        let id = match app {
            AppRef::Id(id) => Some(id),
            AppRef::Key(key) => self.ids.get(key).map(|id| &**id),
        };
        if let Some(known) = id.and_then(|id| self.apps.get_mut(id)) {
            known.used = true;
            return Found::App(Arc::clone(&known.app));
        }
        match self.refused.get(&Subject::of(app)) {
            Some(Refusal { answer: Ok(()), .. }) => Found::None,
            _ => Found::Unknown,
        }
    }

    /// Registers a look-up. If the result is known, returns it with the callback.
    pub(super) fn ask(
        &mut self,
        app: AppRef<'_>,
        answer: Answer,
        now: Moment,
    ) -> Option<(Answer, Answered)> {
        match self.find(app) {
            Found::App(app) => return Some((answer, Ok(Some(app)))),
            Found::None => return Some((answer, Ok(None))),
            Found::Unknown => {}
        }
        let (AppRef::Id(text) | AppRef::Key(text)) = app;
        if text.is_empty() || text.len() > LENGTH {
            return Some((answer, Ok(None)));
        }
        let subject = Subject::of(app);
        if self.refused.contains_key(&subject) {
            return Some((answer, Err(Unavailable)));
        }
        if let Some(pending) = self.pending.get_mut(&subject) {
            pending.waiting.push(answer);
            return None;
        }
        if self.pending.len() >= self.options.waiting {
            return Some((answer, Err(Unavailable)));
        }
        self.queue.push_back(subject.clone());
        self.pending.insert(subject, Pending { since: now, waiting: vec![answer], refresh: false });
        None
    }

    /// Returns the next subject to fetch; moves callbacks that waited too long for their turn into `late`.
    pub(super) fn next(&mut self, now: Moment, late: &mut Vec<Answer>) -> Option<Subject> {
        while let Some(subject) = self.queue.pop_front() {
            let Some(pending) = self.pending.get_mut(&subject) else { continue };
            if pending.refresh || now < pending.since + self.options.patience {
                return Some(subject);
            }
            late.append(&mut pending.waiting);
            self.pending.remove(&subject);
        }
        None
    }

    /// Processes the result of a fetch.
    pub(super) fn complete(
        &mut self,
        subject: &Subject,
        fetched: Fetched,
        in_use: &dyn Fn(&str) -> bool,
        now: Moment,
    ) -> Completed {
        let pending = self.pending.remove(subject);
        let mut completed = Completed {
            waiting: pending.map(|pending| pending.waiting).unwrap_or_default(),
            answered: Ok(None),
            change: None,
            forgotten: Vec::new(),
            failure: None,
        };
        match fetched.and_then(|app| self.validate(subject, app)) {
            Ok(Some(app)) => {
                self.refused.remove(subject);
                let app = self.learn(app, in_use, &mut completed, now);
                completed.answered = Ok(Some(app));
            }
            Ok(None) => {
                if let Subject::Id(id) = subject
                    && let Some(app) = self.forget(id)
                {
                    completed.change = Some(Change { before: app, now: None });
                }
                self.refuse(subject, Ok(()), now + self.options.absence);
            }
            Err(why) => {
                completed.failure = Some(why);
                completed.answered = Err(Unavailable);
                match subject {
                    // The cached application stays valid.
                    Subject::Id(id) if self.apps.contains_key(id) => {
                        let id = Arc::clone(id);
                        self.again(&id, now + self.options.retry);
                    }
                    _ => self.refuse(subject, Err(Unavailable), now + self.options.failure),
                }
            }
        }
        completed
    }

    /// Checks that the application has the requested key or id, and a key that no other application has.
    fn validate(&self, subject: &Subject, app: Option<App>) -> Fetched {
        let Some(app) = app else { return Ok(None) };
        let meant = match subject {
            Subject::Id(id) => app.id == *id,
            Subject::Key(key) => app.key == *key,
        };
        if !meant {
            return Err("the answer is about another application".to_owned());
        }
        match self.ids.get(&app.key) {
            Some(other) if *other != app.id => {
                Err(format!("the key of `{}` is the one of `{other}` too", app.id))
            }
            _ => Ok(Some(app)),
        }
    }

    fn learn(
        &mut self,
        app: App,
        in_use: &dyn Fn(&str) -> bool,
        completed: &mut Completed,
        now: Moment,
    ) -> Arc<App> {
        let due = now + self.options.age;
        if let Some(known) = self.apps.get(&app.id)
            && *known.app == app
        {
            let app = Arc::clone(&known.app);
            self.again(&app.id, due);
            return app;
        }
        let before = self.forget(&app.id);
        if before.is_none() && self.apps.len() >= self.options.kept {
            self.make_room(in_use, &mut completed.forgotten);
        }
        let app = Arc::new(app);
        self.ids.insert(Arc::clone(&app.key), Arc::clone(&app.id));
        self.apps.insert(Arc::clone(&app.id), Known { app: Arc::clone(&app), due, used: false });
        self.due.push(Reverse((due, Due::App(Arc::clone(&app.id)))));
        for subject in [Subject::Id(Arc::clone(&app.id)), Subject::Key(Arc::clone(&app.key))] {
            self.refused.remove(&subject);
        }
        completed.change = before.map(|before| Change { before, now: Some(Arc::clone(&app)) });
        app
    }

    /// Schedules the next check of an application.
    fn again(&mut self, id: &Arc<str>, due: Moment) {
        if let Some(known) = self.apps.get_mut(id) {
            known.due = due;
            self.due.push(Reverse((due, Due::App(Arc::clone(id)))));
        }
    }

    fn forget(&mut self, id: &str) -> Option<Arc<App>> {
        let known = self.apps.remove(id)?;
        self.ids.remove(&known.app.key);
        Some(known.app)
    }

    /// Removes applications without sockets and channels: those unused since the last fetch first, then all others.
    fn make_room(&mut self, in_use: &dyn Fn(&str) -> bool, forgotten: &mut Vec<Arc<App>>) {
        for also_used in [false, true] {
            if self.apps.len() < self.options.kept {
                return;
            }
            let idle = |known: &Known| (also_used || !known.used) && !in_use(&known.app.id);
            let ids: Vec<Arc<str>> = self
                .apps
                .values()
                .filter(|known| idle(known))
                .map(|known| Arc::clone(&known.app.id))
                .collect();
            forgotten.extend(ids.iter().filter_map(|id| self.forget(id)));
        }
    }

    fn refuse(&mut self, subject: &Subject, answer: Result<(), Unavailable>, until: Moment) {
        if self.refused.len() >= self.options.refused {
            // The number of clients that try keys is unbounded; removed negative results are fetched again when
            // needed.
            self.refused.clear();
        }
        self.refused.insert(subject.clone(), Refusal { until, answer });
        self.due.push(Reverse((until, Due::Refusal(subject.clone()))));
    }

    /// Performs due work: removes expired entries or schedules a new fetch. Returns the removed applications.
    pub(super) fn expire(&mut self, now: Moment, in_use: &dyn Fn(&str) -> bool) -> Vec<Arc<App>> {
        let mut forgotten = Vec::new();
        while let Some(Reverse((at, due))) = self.due.peek() {
            if *at > now {
                break;
            }
            let (at, due) = (*at, due.clone());
            self.due.pop();
            match due {
                Due::App(id) => {
                    let Some(known) = self.apps.get_mut(&id).filter(|known| known.due == at) else {
                        continue;
                    };
                    if std::mem::take(&mut known.used) || in_use(&id) {
                        self.refresh(id, now);
                    } else {
                        forgotten.extend(self.forget(&id));
                    }
                }
                Due::Refusal(subject) => {
                    if self.refused.get(&subject).is_some_and(|refusal| refusal.until <= now) {
                        self.refused.remove(&subject);
                    }
                }
            }
        }
        forgotten
    }

    fn refresh(&mut self, id: Arc<str>, now: Moment) {
        let subject = Subject::Id(id);
        let pending = self.pending.entry(subject.clone()).or_insert_with(|| {
            self.queue.push_back(subject);
            Pending { since: now, waiting: Vec::new(), refresh: false }
        });
        pending.refresh = true;
    }

    /// Returns when to call [`Cache::expire`] next.
    pub(super) fn wake(&self) -> Option<Moment> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns all waiting callbacks, which will get no result.
    pub(super) fn end(&mut self) -> Vec<Answer> {
        self.queue.clear();
        // No further look-ups are accepted.
        self.options.waiting = 0;
        self.pending.drain().flat_map(|(_, pending)| pending.waiting).collect()
    }
}
