//! Subscribers, the updates that are kept, and the answers to requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{mpsc, oneshot};

use super::authorization::is_allowed;
use super::behind::last_event_id;
use super::directory::Listed;
use super::reports::{LOOK, Reports};
use super::selector::{self, Selector};
use super::state::{Connected, Interest, State};
use super::subscriber::Subscriber;
use super::update::Update;
use super::{Answer, BODY, Body, Options, PATH, Request};
use crate::Ticket;
use crate::app::App;
use crate::auth;
use crate::channels::Channels;
use crate::delivery::{AppNumber, ChannelId, Delivery, Full, LOADED, Outlet, RESTARTED};
use crate::moment::{Moment, UnixTime};
use crate::name::ChannelName;
use crate::nodes::Nodes;
use crate::registry::{Author, Publication, PublishRefused};

/// Maximum number of topics of a subscriber.
const TOPICS: usize = 100;

/// Maximum number of updates that wait for the fan-out.
const INBOX: usize = 65_536;

/// Minimum time that a drain waits for the reports of the subscriptions that it ended. Another node reports the rest.
const DRAIN_REPORTS: Duration = Duration::from_secs(1);

/// The hub.
#[derive(Debug)]
pub struct Mercure {
    pub(super) options: Options,
    pub(super) channels: Channels,
    pub(super) app: Arc<App>,
    channel: ChannelName,
    /// The channel whose members are the subscribers of all nodes.
    pub(super) members: ChannelName,
    members_id: ChannelId,
    pub(super) clock: fn() -> Moment,
    state: Mutex<State>,
    arrivals: mpsc::Sender<Arrival>,
    published: AtomicU64,
    disconnected: AtomicU64,
}

/// The inbox of the hub: an event loop without sockets.
#[derive(Debug)]
struct Inbox {
    arrivals: mpsc::Sender<Arrival>,
    /// The inbox was full, so updates are missing.
    lost: Arc<AtomicBool>,
    hub: OnceLock<Weak<Mercure>>,
}

#[derive(Debug)]
enum Arrival {
    Message(Bytes),
    /// An update of the log that was stored so long before this node read it, and before it had read the log: it is kept. Only who
    /// had come then without an id gets it.
    Old(Bytes, Duration),
    /// A member came or left. `ours` if this node reports it.
    Member {
        message: Bytes,
        ours: bool,
    },
    /// Kept updates are not those of the log any more.
    Restarted,
    /// All old updates are kept.
    Loaded,
    /// All earlier arrivals are handled when this is dropped.
    Barrier(oneshot::Sender<()>),
}

impl Outlet for Inbox {
    fn put(&self, _: AppNumber, delivery: Delivery) -> Result<(), Full> {
        let Delivery::Channel { channel, message, position, .. } = delivery else { return Ok(()) };
        let hub = self.hub.get().and_then(Weak::upgrade);
        let is_old =
            |hub: &Arc<Mercure>| !hub.channels.registry().shared().is_loaded() && position > 0;
        let arrival = match &hub {
            // It is decided here, under the channel's lock, as for webhooks: later another node may report.
            Some(hub) if hub.members_id == channel => {
                Arrival::Member { message: message.text(), ours: hub.reports() }
            }
            _ if position == RESTARTED => Arrival::Restarted,
            _ if position == LOADED => Arrival::Loaded,
            Some(hub) if is_old(hub) => {
                Arrival::Old(message.text(), hub.channels.registry().shared().age())
            }
            _ => Arrival::Message(message.text()),
        };
        self.arrivals.try_send(arrival).map_err(|_full| {
            self.lost.store(true, Ordering::Relaxed);
            Full
        })
    }

    fn takes_old(&self) -> bool {
        true
    }
}

impl Mercure {
    /// Creates the hub over these channels, which know `app`. The future fans updates out until the hub is dropped.
    pub fn start(
        options: Options,
        channels: &Channels,
        app: &Arc<App>,
        clock: fn() -> Moment,
    ) -> Option<(Arc<Self>, impl Future<Output = ()> + Send + use<>)> {
        let (arrivals, mut inbox) = mpsc::channel(INBOX);
        let lost = Arc::new(AtomicBool::new(false));
        let outlet = Arc::new(Inbox {
            arrivals: arrivals.clone(),
            lost: Arc::clone(&lost),
            hub: OnceLock::new(),
        });
        let event_loop = channels.attach(Arc::clone(&outlet) as Arc<dyn Outlet>)?;
        let subscribe = |channel: &ChannelName| {
            let subscription =
                crate::Subscription { channel, event_loop, member: None, resume: None };
            channels.registry().subscribe(app, &subscription, clock()).ok()
        };
        let name = |name| ChannelName::new(name, 30).expect("the name is valid");
        let (channel, members) = (name("updates"), name("presence-subscribers"));
        subscribe(&channel)?;
        let members_id = subscribe(&members)?.channel;
        let hub = Arc::new(Self {
            options,
            channels: channels.clone(),
            app: Arc::clone(app),
            channel,
            members,
            members_id,
            clock,
            state: Mutex::default(),
            arrivals,
            published: AtomicU64::new(0),
            disconnected: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&hub);
        let _first = outlet.hub.set(Weak::clone(&weak));
        let run = async move {
            let mut reports = Reports::default();
            loop {
                let arrival = match inbox.try_recv() {
                    Ok(arrival) => Some(arrival),
                    Err(_) if !reports.is_empty() => None,
                    Err(_) if reports.expects() => {
                        match tokio::time::timeout(LOOK, inbox.recv()).await {
                            Ok(Some(arrival)) => Some(arrival),
                            Ok(None) => return,
                            Err(_elapsed) => None,
                        }
                    }
                    Err(_) => match inbox.recv().await {
                        Some(arrival) => Some(arrival),
                        None => return,
                    },
                };
                let Some(hub) = weak.upgrade() else { return };
                if lost.swap(false, Ordering::Relaxed) {
                    hub.restart();
                    hub.correct_directory();
                    reports.forget_expected();
                }
                match arrival {
                    Some(Arrival::Message(message)) => hub.fan_out(&message, None, &mut reports),
                    Some(Arrival::Old(message, age)) => {
                        hub.fan_out(&message, Some(age), &mut reports);
                    }
                    Some(Arrival::Member { message, ours }) => {
                        hub.apply_member(&message, ours, &mut reports);
                    }
                    Some(Arrival::Restarted) => {
                        hub.restart();
                        reports.forget_expected();
                    }
                    Some(Arrival::Loaded) => hub.end_streams(),
                    Some(Arrival::Barrier(handled)) => reports.barrier(handled),
                    None => {}
                }
                hub.report(&mut reports, inbox.len());
                drop(hub);
                tokio::task::consume_budget().await;
            }
        };
        Some((hub, run))
    }

    /// Returns whether this node reports the subscriptions of all nodes.
    pub(super) fn reports(&self) -> bool {
        let nodes = self.channels.registry().nodes();
        nodes.is_none_or(|nodes| nodes.reports(&self.app, self.members.as_str()))
    }

    /// Returns whether this node is one of those that may have to report. One that joins learns what others have reported.
    pub(super) fn takes_part(&self) -> bool {
        self.channels.registry().nodes().is_some_and(Nodes::may_report)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of subscribers, of published updates, and of subscribers that were too slow.
    pub fn figures(&self) -> (usize, u64, u64) {
        let subscribers = self.lock().subscribers.len();
        let relaxed = Ordering::Relaxed;
        (subscribers, self.published.load(relaxed), self.disconnected.load(relaxed))
    }

    /// Returns the number of arrivals that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.arrivals.max_capacity() - self.arrivals.capacity()
    }

    /// Waits until the updates that have arrived so far are kept, and the subscriptions that began or ended are
    /// published.
    pub async fn ready(&self) {
        let (handled, wait) = oneshot::channel();
        if self.arrivals.send(Arrival::Barrier(handled)).await.is_ok() {
            // It is dropped, never sent.
            let _handled = wait.await;
        }
    }

    /// Disconnects all subscribers, spread over `patience`, and waits that long at most until this is reported.
    pub async fn drain(&self, patience: Duration) {
        const SLICES: u32 = 50;
        self.lock().ending = true;
        let all = self.lock().subscribers.len();
        for left in (0..SLICES).rev() {
            let most = all * left as usize / SLICES as usize;
            {
                let mut state = self.lock();
                let mut gone = Vec::new();
                while state.subscribers.len() > most {
                    gone.extend(state.subscribers.pop_first().map(|(_, one)| one));
                }
                let all = state.subscribers.is_empty();
                drop(state);
                self.remove_members(&gone);
                if all {
                    break;
                }
            }
            tokio::time::sleep(patience / SLICES).await;
        }
        let patience = patience.max(DRAIN_REPORTS);
        if tokio::time::timeout(patience, self.ready()).await.is_err() {
            tracing::warn!("not all ends of subscriptions to Mercure were reported in time");
        }
    }

    /// Keeps an update, and sends it to its subscribers; an old one, which has an `age`, to those that waited for it.
    fn fan_out(&self, message: &[u8], age: Option<Duration>, reports: &mut Reports) {
        let Some(update) = Update::of_message(message) else { return };
        let now = (self.clock)();
        reports.note(&update, now, || self.takes_part() && !self.reports());
        let event = update.event();
        let mut state = self.lock();
        let mut topics = state.cache.begin(&update.topics);
        let mut slow = Vec::new();
        let waited = |one: &Connected| age.is_none_or(|age| one.has_waited(age, now));
        for (number, one) in state.subscribers.iter().filter(|(_, one)| waited(one)) {
            if one.interest.takes(update.private, &mut topics)
                && one.queue.try_send(event.clone()).is_err()
            {
                slow.push(*number);
            }
        }
        state.cache.end(topics);
        // Their streams end, and they come back with the id of their last update.
        let gone: Vec<Connected> =
            slow.iter().filter_map(|number| state.subscribers.remove(number)).collect();
        state.keep(update, event, &self.options, now);
        drop(state);
        self.disconnected.fetch_add(gone.len() as u64, Ordering::Relaxed);
        self.remove_members(&gone);
    }

    /// Ends all streams, because updates were lost. Subscribers come back with the id of their last update, and the
    /// answer tells them that it is not kept.
    pub(super) fn restart(&self) {
        let gone = self.lock().restart();
        self.remove_members(&gone);
    }

    /// Ends streams, because updates are kept that the subscribers may have missed. They come back with the id of their
    /// last update. Who came without one has got every update since, and could not ask for it.
    fn end_streams(&self) {
        let gone = self.lock().end_resumed();
        self.remove_members(&gone);
    }

    /// Answers a request.
    pub fn answer(self: &Arc<Self>, request: &Request<'_>) -> Answer {
        let answer = match (request.method, request.path) {
            ("OPTIONS", _) => Self::preflight(),
            ("GET", PATH) => self.subscribe(request),
            ("POST", PATH) => self.publish(request),
            ("GET", path) if self.options.subscriptions => self.subscriptions(request, path),
            (_, PATH) => {
                let mut answer = Answer::text(405, "Method Not Allowed");
                answer.fields.push(("allow", String::from("GET, POST, OPTIONS")));
                answer
            }
            _ => Answer::text(404, "Not Found"),
        };
        self.for_origin(request, answer)
    }

    /// Adds the fields that a page of another origin needs.
    pub(super) fn for_origin(&self, request: &Request<'_>, mut answer: Answer) -> Answer {
        if let Some(origin) = (request.field)("origin")
            .filter(|origin| is_allowed(origin, &self.options.cors_origins))
        {
            // With `*` a page of any origin may read, but not with its visitor's cookie.
            if self.options.cors_origins.iter().any(|allowed| allowed == origin) {
                answer.fields.push(("access-control-allow-credentials", String::from("true")));
            }
            answer.fields.extend([
                ("access-control-allow-origin", origin.to_owned()),
                ("access-control-expose-headers", String::from("Last-Event-ID, Link")),
                ("vary", String::from("Origin")),
            ]);
        }
        answer
    }

    fn preflight() -> Answer {
        let fields = vec![
            ("access-control-allow-methods", String::from("GET, POST")),
            (
                "access-control-allow-headers",
                String::from("authorization, cache-control, last-event-id"),
            ),
            ("access-control-max-age", String::from("600")),
        ];
        Answer { status: 204, fields, body: Body::Whole(String::new()) }
    }

    fn publish(&self, request: &Request<'_>) -> Answer {
        let Ok(allowed) = self.publisher(request) else {
            return Answer::text(401, "Unauthorized");
        };
        if request.body.len() > BODY {
            return Answer::text(413, "Payload Too Large");
        }
        let Ok(form) = str::from_utf8(request.body) else {
            return Answer::text(400, "Bad Request");
        };
        let mut update = match Update::read(form) {
            Ok(update) => update,
            Err(why) => return Answer::text(400, why),
        };
        let may = |topic: &String| selector::any(&allowed, std::slice::from_ref(topic));
        // A token without topics allows all public updates, as of the hubs before version 0.14.
        let limited = update.private || !allowed.is_empty();
        // Only the hub sends its own events.
        if (limited && !update.topics.iter().all(may))
            || update.topics.iter().any(|topic| topic.contains(PATH))
        {
            return Answer::text(401, "Unauthorized");
        }
        if update.id.is_empty() {
            update.id = uuid();
        }
        match self.dispatch(&update) {
            Ok(ticket) => {
                self.published.fetch_add(1, Ordering::Relaxed);
                let body = Body::Stored(update.id, ticket);
                let fields = vec![("content-type", String::from("text/plain; charset=utf-8"))];
                Answer { status: 200, fields, body }
            }
            Err(PublishRefused::TooLarge) => Answer::text(413, "Payload Too Large"),
            Err(why) => Answer::text(503, &why.to_string()),
        }
    }

    pub(super) fn dispatch(&self, update: &Update) -> Result<Option<Ticket>, PublishRefused> {
        let data = update.json();
        let author = Author::Server { except: None };
        let publication =
            Publication { channel: &self.channel, event: "update", data: &data, author };
        let published =
            self.channels.registry().publish_all(&self.app, &[publication], (self.clock)());
        published.map_err(|(_, why)| why)
    }

    fn subscribe(self: &Arc<Self>, request: &Request<'_>) -> Answer {
        let Ok(mut claims) = self.reader(request) else { return Answer::text(401, "Unauthorized") };
        let parameters = auth::parameters(request.query).filter(|(name, _)| name == "topic");
        let topics = parameters.take(TOPICS + 1).map(|(_, topic)| Selector::new(&topic));
        let mut topics: Vec<Selector> = topics.collect();
        if topics.is_empty() {
            return Answer::text(400, "Missing \"topic\" parameter.");
        }
        if topics.len() > TOPICS {
            return Answer::text(400, "Too many \"topic\" parameters.");
        }
        if !selector::are_bounded(&topics) {
            return Answer::text(400, "Too many expressions in \"topic\" parameters.");
        }
        let wanted = last_event_id(request);
        let expires = claims.expires;
        let (queue, events) = mpsc::channel(self.options.queue);
        let mut state = self.lock();
        if state.ending {
            return ended_stream();
        }
        if state.subscribers.len() >= self.options.connections {
            let mut answer = Answer::text(503, "Too many subscribers");
            answer.fields.push(("retry-after", String::from("5")));
            return answer;
        }
        let now = (self.clock)();
        let (last, missed) = state.since(wanted.as_deref(), now);
        let member = self.options.subscriptions.then(|| {
            let listed = Listed::new(&topics, claims.payload.as_deref());
            self.add_member(&mut state.directory, listed)
        });
        state.templates.share(&mut topics);
        state.templates.share(&mut claims.subscribe);
        let interest = Arc::new(Interest { topics, private: claims.subscribe });
        let number = state.next;
        state.next += 1;
        let connected = Connected {
            member,
            interest: Arc::clone(&interest),
            queue,
            opened: wanted.is_none().then_some(now),
        };
        state.subscribers.insert(number, connected);
        drop(state);
        let mut fields = stream_fields();
        if wanted.is_some() {
            fields.push(("last-event-id", last));
        }
        let subscriber =
            Subscriber { hub: Arc::clone(self), number, interest, missed, events, expires };
        Answer { status: 200, fields, body: Body::Stream(subscriber) }
    }

    pub(super) fn leave(&self, number: u64) {
        let gone = self.lock().subscribers.remove(&number);
        self.remove_members(gone.as_slice());
    }
}

/// Returns the header fields of a stream.
fn stream_fields() -> Vec<(&'static str, String)> {
    let uncached = "private, no-cache, no-store, must-revalidate, max-age=0";
    vec![
        ("content-type", String::from("text/event-stream")),
        ("cache-control", String::from(uncached)),
        ("x-accel-buffering", String::from("no")),
    ]
}

/// Returns a stream that ends at once, so that a browser comes back. After an error status it would not.
pub(super) fn ended_stream() -> Answer {
    Answer { status: 200, fields: stream_fields(), body: Body::Whole(String::from(":\n")) }
}

/// Returns the seconds since 1970.
pub(super) fn unix() -> u64 {
    UnixTime::from(SystemTime::now()).seconds()
}

/// Draws a random identifier (RFC 9562, version 4).
pub(super) fn uuid() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the kernel has random bytes");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let bits = u128::from_be_bytes(bytes);
    let part = |shift: u32, digits: u32| bits >> shift & ((1 << (4 * digits)) - 1);
    let (time, low, high) = (part(96, 8), part(80, 4), part(64, 4));
    format!("urn:uuid:{time:08x}-{low:04x}-{high:04x}-{:04x}-{:012x}", part(48, 4), part(0, 12))
}
