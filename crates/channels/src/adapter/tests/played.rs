//! Tests a node whose log the test plays: what it reads before and after its clients came, and applications that are not
//! known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::brokers::LIMIT;
use crate::adapter::log::LogOutbox;
use crate::adapter::packet::Packet;
use crate::adapter::run::{Late, LocalChannels};
use crate::adapter::shared::Shared;
use crate::adapter::{LogEvent, LogLink, LogOptions, Options};
use crate::apps::{Answer, AppRef, Apps, Found, Unavailable};
use crate::moment::Moment;
use crate::nodes::{LogWriter as _, NodeId};
use crate::shared_log::position;
use crate::testing::{Loop, app};
use crate::{App, Author, ChannelName, Channels, FixedApps, History, NoObserver, Publication};

/// Applications that are unknown for a while.
#[derive(Debug)]
struct Fickle {
    apps: FixedApps,
    unknown: AtomicBool,
}

impl Apps for Fickle {
    fn find(&self, app: AppRef<'_>) -> Found {
        if self.unknown.load(Ordering::Relaxed) { Found::Unknown } else { self.apps.find(app) }
    }

    fn ask(&self, _: AppRef<'_>, answer: Answer) {
        answer(Err(Unavailable));
    }
}

/// A node whose log the test plays.
struct Played {
    world: Loop,
    apps: Arc<Fickle>,
    shared: Shared,
    late: Late,
    /// Makes the packets of another node.
    other: LogOutbox,
    _link: (mpsc::Receiver<(u64, Bytes)>, mpsc::Sender<LogEvent>),
}

impl Played {
    fn new() -> Self {
        let age = Duration::from_mins(1);
        let history = Some(History { events: 10, age, channels: Vec::new() });
        let apps = FixedApps::new([App { history, ..app() }]);
        let app = Arc::clone(&apps.all()[0]);
        let apps = Arc::new(Fickle { apps, unknown: AtomicBool::new(false) });
        let channels = Channels::new(Arc::<Fickle>::clone(&apps), Arc::new(NoObserver));
        let world = Loop::on(app, channels);
        let (link, to_append, events) = LogLink::new();
        let (me, options) = (NodeId(1), Options::default());
        let wait = Duration::from_secs(3);
        let log = LogOptions { age, bytes: 1 << 20, wait };
        let woken = Arc::new(Notify::new());
        let shared =
            Shared::new(&world.channels, link, me, &options, &log, &woken, Moment::default());
        let limits = (woken, Arc::new(usize::MAX.into()));
        let other = LogOutbox::new(NodeId(2), &options, wait, limits, Moment::default());
        Self { world, apps, shared, late: Late::default(), other, _link: (to_append, events) }
    }

    async fn play(&mut self, event: LogEvent) {
        let now = self.world.now;
        let wake = Instant::now() + LIMIT;
        self.shared
            .handle_all(event, wake, &self.world.channels, &mut self.late, &move || now)
            .await;
        self.world.turn();
    }

    async fn open(&mut self, epoch: u64, first: u64, last: u64) {
        self.play(LogEvent::Opened { epoch, first, last }).await;
    }

    /// Plays an entry with one event on the channel `news`.
    async fn entry(&mut self, sequence: u64, event: &str) {
        let channel = ChannelName::new("news", 30).unwrap();
        let author = Author::Server { except: None };
        let publication = Publication { channel: &channel, event, data: "1", author };
        self.other.append(&self.world.app, &publication);
        let (_, packet) = self.other.take().unwrap();
        self.play(LogEvent::Entry { sequence, age: Duration::ZERO, packet }).await;
    }

    /// Subscribes a new client to `news`, from a sequence of an epoch if one is given. Returns it with the data of the
    /// answer and the names of the events behind it.
    fn subscribe(&mut self, from: Option<(u64, u64)>) -> (u32, Value, Vec<String>) {
        let socket = self.world.open().unwrap();
        self.world.got(socket);
        let mut text = self.world.signed_subscribe(socket, "news", None);
        if let Some((epoch, sequence)) = from {
            let epoch = format!("{epoch:016x}");
            text["data"]["resume"] = json!({"epoch": epoch, "offset": position(sequence, 0)});
        }
        self.world.says(socket, &text.to_string());
        let mut events = self.world.events(socket);
        let data = events.remove(0)["data"].clone();
        (socket, data, names(&events))
    }

    fn names(&mut self, socket: u32) -> Vec<String> {
        names(&self.world.events(socket))
    }
}

fn names(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_node_that_starts_before_its_broker_delivers_no_old_event() {
    let mut node = Played::new();
    let (early, data, _) = node.subscribe(None);
    assert_eq!(data, json!({}), "there is no position yet");
    node.open(7, 1, 2).await;
    node.entry(1, "a").await;
    let (next, data, _) = node.subscribe(Some((6, 1)));
    assert_eq!(data, json!({"recovered": false}));
    // One that resumes gets what is still to be read.
    let (resumed, data, missed) = node.subscribe(Some((7, 0)));
    assert_eq!((&data["recovered"], missed), (&json!(true), vec!["a".into()]));
    // Another node has read more.
    let (ahead, data, _) = node.subscribe(Some((7, 2)));
    assert_eq!(data["recovered"], true);
    assert_eq!(node.names(early), [""; 0]);
    node.entry(2, "b").await;
    assert_eq!((node.names(resumed), node.names(ahead)), (vec!["b".into()], vec![]));
    for socket in [early, next] {
        let events = node.world.events(socket);
        let resume = json!({"epoch": "0000000000000007", "offset": position(3, 0) - 1});
        assert_eq!(
            events,
            [json!({"event": "hearth:resume", "channel": "news",
                "data": {"resume": resume, "recovered": false}})]
        );
    }
    node.entry(3, "c").await;
    for socket in [early, next, resumed, ahead] {
        assert_eq!(node.names(socket), ["c"]);
    }
    let (late, data, missed) = node.subscribe(Some((7, 1)));
    assert_eq!((&data["recovered"], missed), (&json!(true), vec!["b".into(), "c".into()]));
    // Later a gap is reported at once.
    node.open(8, 1, 1).await;
    assert_eq!(node.names(late), ["hearth:resume"]);
}

#[tokio::test]
async fn a_gap_while_the_log_is_read_for_the_first_time_is_reported_when_it_is_read() {
    let mut node = Played::new();
    let (early, ..) = node.subscribe(None);
    node.open(7, 1, 3).await;
    node.entry(1, "a").await;
    node.open(7, 3, 4).await;
    node.entry(3, "c").await;
    assert_eq!(node.names(early), [""; 0]);
    node.entry(4, "d").await;
    assert_eq!(node.names(early), ["hearth:resume"]);
    assert_eq!(node.subscribe(Some((7, 1))).1["recovered"], false);
    assert_eq!(node.subscribe(Some((7, 3))).2, ["d"]);
}

#[tokio::test]
async fn an_event_of_an_unknown_application_ends_the_history_of_its_channel() {
    let mut node = Played::new();
    node.open(7, 1, 1).await;
    node.entry(1, "a").await;
    assert_eq!(node.subscribe(Some((7, 0))).2, ["a"]);
    node.apps.unknown.store(true, Ordering::Relaxed);
    node.entry(2, "b").await;
    node.apps.unknown.store(false, Ordering::Relaxed);
    node.entry(3, "c").await;
    let (_, data, missed) = node.subscribe(Some((7, 1)));
    assert_eq!((&data["recovered"], missed.len()), (&json!(false), 0), "b is missing");
    assert_eq!(node.subscribe(Some((7, 2))).2, ["c"]);
}

/// Applications whose look-up never ends.
#[derive(Debug, Default)]
struct Hanging(Mutex<Vec<Held>>);

struct Held(#[expect(dead_code, reason = "it is only held")] Answer);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl Apps for Hanging {
    fn find(&self, _: AppRef<'_>) -> Found {
        Found::Unknown
    }

    fn ask(&self, _: AppRef<'_>, answer: Answer) {
        self.0.lock().unwrap().push(Held(answer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_hangs_delays_packets_once_for_all_applications() {
    let channels = Channels::new(Arc::<Hanging>::default(), Arc::new(NoObserver));
    let limits = (Arc::new(Notify::new()), Arc::new(usize::MAX.into()));
    let (options, wait) = (Options::default(), Duration::from_secs(3));
    let other = LogOutbox::new(NodeId(2), &options, wait, limits, Moment::default());
    let channel = ChannelName::new("news", 30).unwrap();
    let author = Author::Server { except: None };
    let publication = Publication { channel: &channel, event: "e", data: "1", author };
    let mut late = Late::default();
    let mut waited = async |seconds: u64| {
        let began = Instant::now();
        for number in 0..5 {
            let app = App { id: format!("{seconds}-{number}").into(), ..app() };
            other.append(&Arc::new(app), &publication);
            let (_, packet) = other.take().unwrap();
            let packet = Packet::read(&packet).unwrap();
            LocalChannels::new(&channels).look_up(&packet, &mut late).await;
        }
        let waited = began.elapsed();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        waited
    };
    assert_eq!(waited(5).await, Duration::from_secs(1));
    assert_eq!(waited(6).await, Duration::ZERO);
    assert_eq!(waited(0).await, Duration::from_secs(1), "it is tried again");
}
