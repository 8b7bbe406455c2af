use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::app::{Limits, Rights, Secret};
use crate::apps::FixedApps;
use crate::observer::{ChannelEvent, Observer as _};
use crate::webhook::{Endpoint, Endpoints, Kept, Options};

fn app() -> App {
    App {
        id: "3".into(),
        key: "key".into(),
        secret: Secret::new("secret"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: None,
    }
}

#[derive(Debug)]
struct One;

impl Endpoints for One {
    fn of(&self, _: &App) -> Arc<[Endpoint]> {
        Arc::new([Endpoint { target: "there".into(), topics: vec![], channels: vec![] }])
    }
}

/// Responds with these outcomes, then accepts everything; `None` panics.
#[derive(Debug)]
struct Listener {
    outcomes: Mutex<Vec<Option<Outcome>>>,
    heard: Mutex<Vec<Delivery>>,
}

impl Listener {
    fn new(outcomes: impl IntoIterator<Item = Option<Outcome>>) -> Arc<Self> {
        Arc::new(Self {
            outcomes: Mutex::new(outcomes.into_iter().collect()),
            heard: Mutex::default(),
        })
    }

    fn bodies(&self) -> Vec<Arc<str>> {
        self.heard.lock().unwrap().iter().map(|delivery| Arc::clone(&delivery.body)).collect()
    }
}

impl Carrier for Listener {
    fn carry(&self, delivery: Delivery) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        self.heard.lock().unwrap().push(delivery);
        let mut outcomes = self.outcomes.lock().unwrap();
        let outcome = if outcomes.is_empty() { Some(Outcome::Taken) } else { outcomes.remove(0) };
        Box::pin(async move { outcome.expect("the test makes the listener panic") })
    }
}

struct Running {
    intake: Arc<Intake>,
    end: oneshot::Sender<()>,
    task: JoinSet<Report>,
}

fn start(folder: &Path, listener: &Arc<Listener>) -> Running {
    let (spool, kept) = Spool::open(folder).unwrap();
    start_with(Keeping::Here(spool), kept, listener)
}

fn start_with(keeping: Keeping, kept: Vec<Kept>, listener: &Arc<Listener>) -> Running {
    let woken = Arc::new(Notify::new());
    let notify = Arc::clone(&woken);
    let intake = Arc::new(Intake::new(Arc::new(One), move || notify.notify_one()));
    let queue = Queue::new(Options { linger: Duration::from_secs(1), ..Options::default() }, kept);
    let (end, ended) = oneshot::channel::<()>();
    let apps = Arc::new(FixedApps::new([app()]));
    let carrier: Arc<dyn Carrier> = Arc::<Listener>::clone(listener);
    let mut task = JoinSet::new();
    task.spawn(run(queue, keeping, Arc::clone(&intake), woken, apps, carrier, async move {
        let _ended = ended.await;
    }));
    Running { intake, end, task }
}

impl Running {
    fn occupied(&self, channel: &str) {
        self.intake.observe(&Arc::new(app()), &ChannelEvent::Occupied { channel: &channel.into() });
    }

    async fn end(mut self) -> Report {
        self.end.send(()).unwrap();
        self.task.join_next().await.unwrap().unwrap()
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn events_are_sent_signed_and_retried_after_failures_and_panics() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::new([Some(Outcome::Failed), None]);
    let running = start(folder.path(), &listener);
    running.occupied("a");
    until(|| listener.bodies().len() == 3).await;
    let report = running.end().await;
    assert_eq!((report.delivered, report.failures, report.waiting), (1, 2, 0));
    let heard = listener.heard.lock().unwrap();
    let [first, second, third] = &**heard else { panic!("{heard:?}") };
    assert!(first.body == second.body && second.body == third.body);
    assert_eq!(first.signature, auth::sign(&first.app.secret, first.body.as_bytes()));
    assert!(first.body.ends_with(r#""events":[{"name":"channel_occupied","channel":"a"}]}"#));
    assert_eq!((&*first.app.key, &*first.target), ("key", "there"));
}

#[tokio::test]
async fn undelivered_webhooks_are_sent_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let deaf = Listener::new([Some(Outcome::Failed), Some(Outcome::Failed), Some(Outcome::Failed)]);
    let running = start(folder.path(), &deaf);
    running.occupied("a");
    until(|| !deaf.bodies().is_empty()).await;
    running.occupied("b");
    let channel: Arc<str> = "c".into();
    running.intake.observe(&Arc::new(app()), &ChannelEvent::Vacated { channel: &channel });
    assert_eq!(running.end().await.waiting, 3);

    let listener = Listener::new([]);
    let running = start(folder.path(), &listener);
    until(|| !listener.bodies().is_empty()).await;
    assert_eq!(running.end().await.delivered, 3);
    let bodies = listener.bodies();
    let names = [
        "channel_occupied\",\"channel\":\"a",
        "channel_occupied\",\"channel\":\"b",
        "channel_vacated\",\"channel\":\"c",
    ];
    let places: Vec<_> = names.iter().map(|name| bodies[0].find(name)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{bodies:?}");
    assert_eq!(Spool::open(folder.path()).unwrap().1, []);
}

#[tokio::test]
async fn webhooks_of_a_removed_application_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::new([]);
    let running = start(folder.path(), &listener);
    let removed = Arc::new(App { id: "removed".into(), ..app() });
    let channel: Arc<str> = "a".into();
    running.intake.observe(&removed, &ChannelEvent::Occupied { channel: &channel });
    running.occupied("b");
    until(|| !listener.bodies().is_empty()).await;
    let report = running.end().await;
    assert_eq!((report.delivered, report.given_up, report.failures, report.waiting), (1, 1, 0, 0));
}

/// An endpoint that subscribes only to vacated channels.
#[derive(Debug)]
struct Vacancies;

impl Endpoints for Vacancies {
    fn of(&self, _: &App) -> Arc<[Endpoint]> {
        let topics = vec![crate::webhook::Topic::Vacated];
        Arc::new([Endpoint { target: "there".into(), topics, channels: vec![] }])
    }
}

#[test]
fn a_reloaded_page_is_not_reported_to_an_endpoint_with_one_of_the_two_events() {
    let intake = Intake::new(Arc::new(Vacancies), || {});
    let mut queue = Queue::new(Options::default(), vec![]);
    let (app, reloaded, left): (_, Arc<str>, Arc<str>) =
        (Arc::new(app()), "reloaded".into(), "left".into());
    for event in [
        ChannelEvent::Vacated { channel: &reloaded },
        ChannelEvent::Vacated { channel: &left },
        ChannelEvent::Occupied { channel: &reloaded },
    ] {
        intake.observe(&app, &event);
    }
    queue.take(intake.take(), Moment::default());
    let later = Moment::from_millis(10_000);
    assert!(
        queue.poll(later, UnixTime::from(SystemTime::now())).send.is_empty(),
        "events gather for a moment"
    );
    let step = queue.poll(Moment::from_millis(11_000), UnixTime::from(SystemTime::now()));
    let [batch] = &*step.send else { panic!("{step:?}") };
    assert!(
        batch.body.ends_with(r#""events":[{"name":"channel_vacated","channel":"left"}]}"#),
        "{}",
        batch.body
    );
}

#[tokio::test]
async fn a_process_that_starts_before_the_other_ends_takes_over_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let deaf = Listener::new((0..9).map(|_| Some(Outcome::Failed)));
    let old = start(folder.path(), &deaf);
    old.occupied("old");
    until(|| !deaf.bodies().is_empty()).await;

    let listener = Listener::new([]);
    let new = start_with(Keeping::Soon(folder.path().to_owned()), vec![], &listener);
    new.occupied("new");
    until(|| listener.bodies().len() == 1).await;
    assert_eq!(old.end().await.waiting, 1);
    until(|| listener.bodies().len() == 2).await;
    assert!(listener.bodies()[1].contains(r#""channel":"old""#));

    // From now on the new process uses the folder.
    listener.outcomes.lock().unwrap().extend((0..9).map(|_| Some(Outcome::Failed)));
    new.occupied("kept");
    until(|| listener.bodies().len() == 3).await;
    assert_eq!(new.end().await.waiting, 1);
    let (_, kept) = Spool::open(folder.path()).unwrap();
    assert_eq!(kept.len(), 1);
}
