//! Tests the cache alone, and the look-up task with a source that the test controls.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;

use tokio::sync::oneshot;

use super::*;
use crate::app::{Limits, Rights, Secret};
use crate::hub;
use crate::name::ChannelName;
use crate::nodes::{ClusterUpdate, NodeId, Origin};
use crate::observer::NoObserver;

fn app(id: &str, key: &str) -> App {
    App {
        id: id.into(),
        key: key.into(),
        secret: Secret::new("secret"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: None,
    }
}

fn at(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

/// A cache with a record of the answers to callers.
struct Asked {
    cache: Cache,
    told: Arc<Mutex<Vec<String>>>,
    in_use: bool,
}

impl Asked {
    fn new(options: Options) -> Self {
        Self { cache: Cache::new(options), told: Arc::default(), in_use: false }
    }

    fn ask(&mut self, app: AppRef<'_>, now: Moment) {
        let told = Arc::clone(&self.told);
        let answer = Box::new(move |answered: Answered| {
            told.lock().unwrap().push(in_words(&answered));
        });
        if let Some((answer, answered)) = self.cache.ask(app, answer, now) {
            answer(answered);
        }
    }

    fn next(&mut self, now: Moment) -> Option<String> {
        let mut late = Vec::new();
        let next = self.cache.next(now, &mut late);
        answer_all(late, &Err(Unavailable));
        next.map(|subject| subject.to_string())
    }

    fn complete(
        &mut self,
        app: AppRef<'_>,
        fetched: Result<Option<App>, String>,
        now: Moment,
    ) -> Completed {
        let in_use = self.in_use;
        let mut completed = self.cache.complete(&Subject::of(app), fetched, &|_| in_use, now);
        for answer in completed.waiting.drain(..) {
            answer(completed.answered.clone());
        }
        completed
    }

    fn expire(&mut self, now: Moment) -> usize {
        let in_use = self.in_use;
        self.cache.expire(now, &|_| in_use).len()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    fn find(&mut self, app: AppRef<'_>) -> String {
        match self.cache.find(app) {
            Found::App(app) => app.id.to_string(),
            Found::None => "none".to_owned(),
            Found::Unknown => "unknown".to_owned(),
        }
    }
}

fn in_words(answered: &Answered) -> String {
    match answered {
        Ok(Some(app)) => app.id.to_string(),
        Ok(None) => "none".to_owned(),
        Err(Unavailable) => "unavailable".to_owned(),
    }
}

const KEY: AppRef<'_> = AppRef::Key("k");
const ID: AppRef<'_> = AppRef::Id("1");

#[test]
fn look_ups_of_one_application_share_one_fetch() {
    let mut asked = Asked::new(Options::default());
    for _ in 0..3 {
        asked.ask(KEY, at(0));
    }
    assert_eq!(asked.next(at(0)).as_deref(), Some("key k"));
    asked.ask(KEY, at(1));
    assert_eq!((asked.next(at(1)), asked.told()), (None, vec![]));
    asked.complete(KEY, Ok(Some(app("1", "k"))), at(1));
    assert_eq!(asked.told(), ["1", "1", "1", "1"]);
    assert_eq!((asked.find(KEY), asked.find(ID)), ("1".into(), "1".into()));
    asked.ask(ID, at(1));
    assert_eq!((asked.told(), asked.next(at(1))), (vec!["1".to_owned()], None));
}

#[test]
fn a_negative_result_is_cached_for_a_while() {
    let mut asked = Asked::new(Options::default());
    asked.ask(KEY, at(0));
    asked.next(at(0));
    asked.complete(KEY, Ok(None), at(0));
    assert_eq!(asked.find(KEY), "none");
    asked.expire(at(9));
    asked.ask(KEY, at(9));
    assert_eq!(asked.told(), ["none", "none"]);
    asked.expire(at(10));
    assert_eq!(asked.find(KEY), "unknown");
    asked.ask(KEY, at(10));
    assert_eq!(asked.next(at(10)).as_deref(), Some("key k"));
}

#[test]
fn a_failed_fetch_is_not_a_negative_result_and_is_retried_soon() {
    let mut asked = Asked::new(Options::default());
    asked.ask(KEY, at(0));
    asked.next(at(0));
    asked.complete(KEY, Err("it burns".into()), at(0));
    assert_eq!(asked.find(KEY), "unknown");
    // A look-up within a second of a failure is answered without a fetch.
    asked.ask(KEY, at(0));
    assert_eq!((asked.told(), asked.next(at(0))), (vec!["unavailable".into(); 2], None));
    asked.expire(at(1));
    asked.ask(KEY, at(1));
    assert_eq!(asked.next(at(1)).as_deref(), Some("key k"));
}

#[test]
fn used_applications_are_refetched_while_valid_and_unused_ones_are_removed() {
    let mut asked = Asked::new(Options::default());
    asked.ask(KEY, at(0));
    asked.next(at(0));
    asked.complete(KEY, Ok(Some(app("1", "k"))), at(0));
    asked.find(KEY);
    assert_eq!(asked.expire(at(59)), 0);
    assert_eq!(asked.next(at(59)), None);
    assert_eq!(asked.expire(at(60)), 0);
    assert_eq!(asked.next(at(60)).as_deref(), Some("id 1"));
    assert_eq!(asked.find(KEY), "1");
    // The source fails: the cached application stays valid and is fetched again.
    assert!(asked.complete(ID, Err("it burns".into()), at(60)).change.is_none());
    assert_eq!(asked.find(KEY), "1");
    asked.expire(at(65));
    assert_eq!(asked.next(at(65)).as_deref(), Some("id 1"));
    assert!(asked.complete(ID, Ok(Some(app("1", "k"))), at(65)).change.is_none());
    // No caller looks it up, but a socket is open.
    asked.in_use = true;
    asked.expire(at(125));
    assert_eq!(asked.next(at(125)).as_deref(), Some("id 1"));
    asked.complete(ID, Ok(Some(app("1", "k"))), at(125));
    asked.in_use = false;
    assert_eq!(asked.expire(at(185)), 1);
    assert_eq!((asked.find(KEY), asked.cache.len()), ("unknown".into(), 0));
}

#[test]
fn changed_and_removed_applications_update_their_sockets() {
    let mut asked = Asked::new(Options::default());
    asked.complete(KEY, Ok(Some(app("1", "k"))), at(0));
    let change = asked.complete(ID, Ok(Some(app("1", "other"))), at(1)).change.unwrap();
    assert_eq!((&*change.before.key, &*change.now.unwrap().key), ("k", "other"));
    assert_eq!((asked.find(KEY), asked.find(AppRef::Key("other"))), ("unknown".into(), "1".into()));
    let change = asked.complete(ID, Ok(None), at(2)).change.unwrap();
    assert!(change.now.is_none());
    assert_eq!(
        (asked.find(ID), asked.find(AppRef::Key("other"))),
        ("none".into(), "unknown".into())
    );
    // It exists again before the negative result expires, because the look-up by key found it.
    asked.complete(KEY, Ok(Some(app("1", "k"))), at(3));
    assert_eq!(asked.find(ID), "1");
}

#[test]
fn a_result_for_another_application_is_a_failure() {
    let mut asked = Asked::new(Options::default());
    let failure = |completed: Completed| completed.failure.unwrap_or_default();
    assert!(failure(asked.complete(KEY, Ok(Some(app("1", "x"))), at(0))).contains("another"));
    assert!(failure(asked.complete(ID, Ok(Some(app("2", "k"))), at(0))).contains("another"));
    asked.complete(KEY, Ok(Some(app("1", "k"))), at(0));
    let twice = failure(asked.complete(AppRef::Id("2"), Ok(Some(app("2", "k"))), at(0)));
    assert_eq!(twice, "the key of `2` is the one of `1` too");
    assert_eq!((asked.find(KEY), asked.find(AppRef::Id("2"))), ("1".into(), "unknown".into()));
}

#[test]
fn pending_and_cached_entries_are_bounded_whatever_keys_clients_use() {
    let options = Options { waiting: 10, kept: 10, refused: 10, ..Options::default() };
    let mut asked = Asked::new(options);
    for n in 0..1000 {
        asked.ask(AppRef::Key(&format!("k{n}")), at(0));
    }
    assert_eq!(asked.cache.waiting(), 10);
    assert_eq!(asked.told(), vec!["unavailable"; 990]);
    // Callers whose turn does not come in time get an error.
    assert_eq!(asked.next(at(0)).as_deref(), Some("key k0"));
    assert_eq!(asked.next(at(5)), None);
    assert_eq!((asked.cache.waiting(), asked.told()), (1, vec!["unavailable".to_owned(); 9]));
    // Invalid keys are not fetched.
    asked.ask(AppRef::Key(""), at(5));
    asked.ask(AppRef::Key(&"x".repeat(201)), at(5));
    assert_eq!((asked.told(), asked.next(at(5))), (vec!["none".to_owned(); 2], None));
    for n in 0..1000 {
        asked.complete(AppRef::Key(&format!("k{n}")), Ok(None), at(5));
        asked.complete(
            AppRef::Id(&format!("{n}")),
            Ok(Some(app(&format!("{n}"), &n.to_string()))),
            at(5),
        );
        assert!(asked.cache.len() <= 10);
    }
    assert!(
        (0..1000).filter(|n| asked.find(AppRef::Key(&format!("k{n}"))) == "none").count() <= 10
    );
    // Applications with sockets are never removed.
    asked.in_use = true;
    let before = asked.cache.len();
    asked.complete(AppRef::Id("new"), Ok(Some(app("new", "new"))), at(5));
    for n in 0..20 {
        let id = format!("more{n}");
        asked.complete(AppRef::Id(&id), Ok(Some(app(&id, &id))), at(5));
    }
    assert_eq!(asked.cache.len(), before + 21);
}

/// A source that returns what the test sets.
#[derive(Debug, Default)]
struct Book {
    apps: Mutex<HashMap<String, App>>,
    fails: AtomicBool,
    hangs: AtomicBool,
    fetched: AtomicUsize,
    forgotten: Mutex<Vec<String>>,
}

impl Source for Book {
    fn fetch(&self, subject: &Subject) -> Fetch {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        let (Subject::Key(text) | Subject::Id(text)) = subject;
        assert_ne!(&**text, "panic", "as wanted");
        let apps = self.apps.lock().unwrap();
        let by = |app: &&App| match subject {
            Subject::Key(key) => app.key == *key,
            Subject::Id(id) => app.id == *id,
        };
        let app = apps.values().find(by).cloned();
        let (fails, hangs) =
            (self.fails.load(Ordering::Relaxed), self.hangs.load(Ordering::Relaxed));
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            if fails { Err("it burns".to_owned()) } else { Ok(app) }
        })
    }

    fn forgotten(&self, app: &App) {
        self.forgotten.lock().unwrap().push(app.id.to_string());
    }
}

/// A running look-up.
struct Running {
    lookup: Arc<Lookup>,
    book: Arc<Book>,
    channels: Channels,
    tasks: JoinSet<()>,
    end: Option<oneshot::Sender<()>>,
}

impl Running {
    fn start(options: Options) -> Self {
        let fixed = FixedApps::new([app("fixed", "of settings")]);
        let lookup = Arc::new(Lookup::new(fixed, options, hub::now));
        let book = Arc::<Book>::default();
        let channels = Channels::new(Arc::<Lookup>::clone(&lookup), Arc::new(NoObserver));
        let (end, ended) = oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        let source: Arc<dyn Source> = Arc::<Book>::clone(&book);
        let ending = async { drop(ended.await) };
        tasks.spawn(run(Arc::clone(&lookup), source, channels.clone(), ending));
        Self { lookup, book, channels, tasks, end: Some(end) }
    }

    fn knows(&self, app: App) {
        self.book.apps.lock().unwrap().insert(app.id.to_string(), app);
    }

    async fn ask(&self, app: AppRef<'_>) -> String {
        let (sender, receiver) = oneshot::channel();
        self.lookup.ask(app, Box::new(move |answered| sender.send(answered).unwrap()));
        in_words(&receiver.await.unwrap())
    }
}

#[tokio::test]
async fn unknown_applications_are_looked_up_by_key_and_id_and_fixed_ones_are_not() {
    let running = Running::start(Options::default());
    running.knows(app("1", "k"));
    running.knows(app("2", "of settings"));
    assert_eq!(running.ask(KEY).await, "1");
    assert_eq!(running.ask(ID).await, "1");
    assert_eq!(running.ask(AppRef::Key("unknown")).await, "none");
    assert_eq!(running.ask(AppRef::Key("of settings")).await, "fixed");
    // A fetched application with a fixed application's key is rejected.
    assert_eq!(running.ask(AppRef::Id("2")).await, "unavailable");
    assert_eq!(running.book.fetched.load(Ordering::Relaxed), 3);
    let figures = running.lookup.figures();
    assert_eq!((figures.found.get(), figures.absent.get(), figures.failed.get()), (1, 1, 1));
}

#[tokio::test]
async fn a_source_that_fails_hangs_or_panics_counts_as_a_failure_and_look_ups_continue() {
    let options = Options {
        timeout: Duration::from_millis(50),
        failure: Duration::ZERO,
        ..Options::default()
    };
    let running = Running::start(options);
    running.knows(app("1", "k"));
    assert_eq!(running.ask(AppRef::Key("panic")).await, "unavailable");
    running.book.hangs.store(true, Ordering::Relaxed);
    assert_eq!(running.ask(AppRef::Key("a")).await, "unavailable");
    running.book.hangs.store(false, Ordering::Relaxed);
    running.book.fails.store(true, Ordering::Relaxed);
    assert_eq!(running.ask(KEY).await, "unavailable");
    running.book.fails.store(false, Ordering::Relaxed);
    assert_eq!(running.ask(AppRef::Id("1")).await, "1");
}

#[tokio::test]
async fn look_ups_pending_at_the_end_and_later_ones_are_answered() {
    let mut running = Running::start(Options::default());
    running.book.hangs.store(true, Ordering::Relaxed);
    let (sender, receiver) = oneshot::channel();
    running.lookup.ask(KEY, Box::new(move |answered| sender.send(in_words(&answered)).unwrap()));
    running.end.take().unwrap().send(()).unwrap();
    assert_eq!(receiver.await.unwrap(), "unavailable");
    while running.tasks.join_next().await.is_some() {}
    assert_eq!(running.ask(KEY).await, "unavailable");
}

#[tokio::test]
async fn an_unused_application_is_removed_and_the_source_is_notified() {
    let running = Running::start(Options { age: Duration::from_millis(20), ..Options::default() });
    running.knows(app("1", "k"));
    assert_eq!(running.ask(KEY).await, "1");
    while running.lookup.known() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(*running.book.forgotten.lock().unwrap(), ["1"]);
}

#[tokio::test]
async fn an_application_with_channels_of_other_nodes_is_not_forgotten() {
    let running = Running::start(Options { age: Duration::from_millis(20), ..Options::default() });
    running.knows(app("1", "k"));
    assert_eq!(running.ask(KEY).await, "1");
    // Its clients are all on another node.
    let channel = ChannelName::new("news", 30).unwrap();
    let origin = Origin { node: NodeId(2), round: 1 };
    let update = ClusterUpdate::Subscribers { channel: &channel, count: 1 };
    let known = running.lookup.all().remove(0);
    running.channels.apply_remote(origin, &known, &update, at(0));
    let until = async |condition: &dyn Fn() -> bool| {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_mins(1), wait).await.expect("in time");
    };
    until(&|| running.book.fetched.load(Ordering::Relaxed) >= 5 || running.lookup.known() == 0)
        .await;
    assert_eq!((running.lookup.known(), running.book.forgotten.lock().unwrap().len()), (1, 0));
    // When that node is gone, nothing holds it.
    running.channels.forget(NodeId(2), at(1));
    assert!(running.channels.registry().is_empty());
    until(&|| running.lookup.known() == 0).await;
}
