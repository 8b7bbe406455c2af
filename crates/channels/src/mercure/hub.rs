//! Subscribers, the updates that are kept, and the answers to requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{mpsc, oneshot};

use super::authorization::{self, Unauthorized, is_allowed};
use super::selector::{self, Selector};
use super::state::{Connected, EARLIEST, Interest, State};
use super::subscriber::Subscriber;
use super::subscriptions::{self, Subscription};
use super::token::Claims;
use super::update::Update;
use super::{Answer, BODY, Body, Options, PATH, Request};
use crate::Ticket;
use crate::app::App;
use crate::auth;
use crate::channels::Channels;
use crate::delivery::{AppNumber, Delivery, Full, Outlet, RESTARTED};
use crate::moment::{Moment, UnixTime};
use crate::name::ChannelName;
use crate::registry::{Author, Publication, PublishRefused};

/// Maximum number of topics of a subscriber.
const TOPICS: usize = 100;

/// Maximum number of updates that wait for the fan-out.
const INBOX: usize = 65_536;

/// The hub.
#[derive(Debug)]
pub struct Mercure {
    pub(super) options: Options,
    channels: Channels,
    app: Arc<App>,
    channel: ChannelName,
    clock: fn() -> Moment,
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
}

#[derive(Debug)]
enum Arrival {
    Message(Bytes),
    /// Kept updates are not those of the log any more.
    Restarted,
    /// All earlier arrivals are handled when this is dropped.
    Barrier(oneshot::Sender<()>),
}

impl Outlet for Inbox {
    fn put(&self, _: AppNumber, delivery: Delivery) -> Result<(), Full> {
        let Delivery::Channel { message, position, .. } = delivery else { return Ok(()) };
        let arrival = if position == RESTARTED {
            Arrival::Restarted
        } else {
            Arrival::Message(message.text())
        };
        self.arrivals.try_send(arrival).map_err(|_full| {
            self.lost.store(true, Ordering::Relaxed);
            Full
        })
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
        let outlet = Inbox { arrivals: arrivals.clone(), lost: Arc::clone(&lost) };
        let event_loop = channels.attach(Arc::new(outlet))?;
        let channel = ChannelName::new("updates", 20).expect("the name is valid");
        let subscription =
            crate::Subscription { channel: &channel, event_loop, member: None, resume: None };
        channels.registry().subscribe(app, &subscription, clock()).ok()?;
        let hub = Arc::new(Self {
            options,
            channels: channels.clone(),
            app: Arc::clone(app),
            channel,
            clock,
            state: Mutex::default(),
            arrivals,
            published: AtomicU64::new(0),
            disconnected: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&hub);
        let run = async move {
            while let Some(arrival) = inbox.recv().await {
                let Some(hub) = weak.upgrade() else { return };
                if lost.swap(false, Ordering::Relaxed) {
                    hub.restart();
                }
                match arrival {
                    Arrival::Message(message) => hub.fan_out(&message),
                    Arrival::Restarted => hub.restart(),
                    Arrival::Barrier(handled) => drop(handled),
                }
            }
        };
        Some((hub, run))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of subscribers, of published updates, and of subscribers that were too slow.
    pub fn figures(&self) -> (usize, u64, u64) {
        let subscribers = self.lock().subscribers.len();
        let relaxed = Ordering::Relaxed;
        (subscribers, self.published.load(relaxed), self.disconnected.load(relaxed))
    }

    /// Waits until the updates that have arrived so far are kept.
    pub async fn ready(&self) {
        let (handled, wait) = oneshot::channel();
        if self.arrivals.send(Arrival::Barrier(handled)).await.is_ok() {
            // It is dropped, never sent.
            let _handled = wait.await;
        }
    }

    /// Disconnects all subscribers, spread over `patience`.
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
                self.report_end(&gone);
                if all {
                    return;
                }
            }
            tokio::time::sleep(patience / SLICES).await;
        }
    }

    fn fan_out(&self, message: &[u8]) {
        let Some(update) = Update::of_message(message) else { return };
        let event = update.event();
        let now = (self.clock)();
        let mut state = self.lock();
        let slow: Vec<u64> = state
            .subscribers
            .iter()
            .filter(|(_, one)| {
                one.interest.takes(&update) && one.queue.try_send(event.clone()).is_err()
            })
            .map(|(number, _)| *number)
            .collect();
        // Their streams end, and they come back with the id of their last update.
        let gone: Vec<Connected> =
            slow.iter().filter_map(|number| state.subscribers.remove(number)).collect();
        state.keep(update, event, &self.options, now);
        drop(state);
        self.disconnected.fetch_add(gone.len() as u64, Ordering::Relaxed);
        self.report_end(&gone);
    }

    /// Ends all streams, because updates were lost. Subscribers come back with the id of their last update, and the
    /// answer tells them that it is not kept.
    fn restart(&self) {
        let gone = self.lock().restart();
        self.report_end(&gone);
    }

    /// Answers a request.
    pub fn answer(self: &Arc<Self>, request: &Request<'_>) -> Answer {
        let mut answer = match (request.method, request.path) {
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
        if let Some(origin) = (request.field)("origin")
            .filter(|origin| is_allowed(origin, &self.options.cors_origins))
        {
            answer.fields.extend([
                ("access-control-allow-origin", origin.to_owned()),
                ("access-control-allow-credentials", String::from("true")),
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
        let claims =
            authorization::claims(request, &self.options, self.options.publisher.as_ref(), unix());
        let Ok(Some(Claims { publish: Some(allowed), .. })) = claims else {
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
        if update.private && !update.topics.iter().all(may) {
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
            Err(why) => Answer::text(503, &why.to_string()),
        }
    }

    fn dispatch(&self, update: &Update) -> Result<Option<Ticket>, PublishRefused> {
        let data = update.json();
        let author = Author::Server { except: None };
        let publication =
            Publication { channel: &self.channel, event: "update", data: &data, author };
        let published =
            self.channels.registry().publish_all(&self.app, &[publication], (self.clock)());
        published.map_err(|(_, why)| why)
    }

    fn subscribe(self: &Arc<Self>, request: &Request<'_>) -> Answer {
        let Ok(claims) = self.reader(request) else { return Answer::text(401, "Unauthorized") };
        let parameters = auth::parameters(request.query).filter(|(name, _)| name == "topic");
        let topics: Vec<Selector> = parameters.map(|(_, topic)| Selector::new(&topic)).collect();
        if topics.is_empty() {
            return Answer::text(400, "Missing \"topic\" parameter.");
        }
        if topics.len() > TOPICS {
            return Answer::text(400, "Too many \"topic\" parameters.");
        }
        let wanted = last_event_id(request);
        let expires = claims.expires;
        let (queue, events) = mpsc::channel(self.options.queue);
        let connected = Connected {
            id: uuid(),
            interest: Arc::new(Interest { topics, private: claims.subscribe }),
            payload: claims.payload,
            queue,
        };
        let begun: Vec<Update> = self.events(&connected, true);
        let mut state = self.lock();
        if state.ending {
            // After an error status a browser would not come back.
            let body = Body::Whole(String::from(":\n"));
            return Answer { status: 200, fields: stream_fields(), body };
        }
        if state.subscribers.len() >= self.options.connections {
            let mut answer = Answer::text(503, "Too many subscribers");
            answer.fields.push(("retry-after", String::from("5")));
            return answer;
        }
        let now = (self.clock)();
        let (last, missed) = state.since(wanted.as_deref(), now);
        let interest = Arc::clone(&connected.interest);
        let number = state.next;
        state.next += 1;
        state.subscribers.insert(number, connected);
        drop(state);
        self.dispatch_all(&begun);
        let mut fields = stream_fields();
        if wanted.is_some() {
            fields.push(("last-event-id", last));
        }
        let subscriber =
            Subscriber { hub: Arc::clone(self), number, interest, missed, events, expires };
        Answer { status: 200, fields, body: Body::Stream(subscriber) }
    }

    /// Returns the claims of a subscriber; empty ones if it needs none.
    fn reader(&self, request: &Request<'_>) -> Result<Claims, Unauthorized> {
        let options = &self.options;
        let claims = authorization::claims(request, options, options.subscriber.as_ref(), unix())?;
        match claims {
            Some(claims) => Ok(claims),
            None if options.anonymous => Ok(Claims::default()),
            None => Err(Unauthorized),
        }
    }

    /// Returns the updates that report a subscriber's subscriptions.
    fn events(&self, connected: &Connected, active: bool) -> Vec<Update> {
        if !self.options.subscriptions {
            return Vec::new();
        }
        let update = |subscription: Subscription<'_>| Update {
            id: uuid(),
            topics: vec![subscription.id()],
            private: true,
            data: subscription.json(true),
            ..Update::default()
        };
        connected.subscriptions(active).map(update).collect()
    }

    pub(super) fn leave(&self, number: u64) {
        let gone = self.lock().subscribers.remove(&number);
        self.report_end(gone.as_slice());
    }

    /// Publishes that the subscriptions of these ended.
    fn report_end(&self, subscribers: &[Connected]) {
        for subscriber in subscribers {
            self.dispatch_all(&self.events(subscriber, false));
        }
    }

    fn dispatch_all(&self, updates: &[Update]) {
        for update in updates {
            // A broker that is away stores no event of a subscription; the subscription itself needs none.
            let _unstored = self.dispatch(update);
        }
    }

    /// Answers `/subscriptions[/TOPIC[/SUBSCRIBER]]`.
    fn subscriptions(&self, request: &Request<'_>, path: &str) -> Answer {
        let Some(rest) =
            path.strip_prefix(PATH).and_then(|rest| rest.strip_prefix("/subscriptions"))
        else {
            return Answer::text(404, "Not Found");
        };
        let allowed = self.reader(request).map(|claims| claims.subscribe);
        if !allowed.is_ok_and(|allowed| selector::any(&allowed, &[path.to_owned()])) {
            return Answer::text(401, "Unauthorized");
        }
        let parts: Vec<&str> = rest.split('/').skip(1).collect();
        let state = self.lock();
        let mut found = Vec::new();
        for subscription in state.subscribers.values().flat_map(|one| one.subscriptions(true)) {
            let same = match parts[..] {
                [] => true,
                [topic] => subscriptions::escaped(subscription.topic) == topic,
                [topic, subscriber] => {
                    subscriptions::escaped(subscription.topic) == topic
                        && subscriptions::escaped(subscription.subscriber) == subscriber
                }
                _ => false,
            };
            if same {
                found.push(subscription.json(parts.len() == 2));
            }
        }
        let last = if state.newest.is_empty() { EARLIEST } else { &state.newest };
        let body = match (parts.len(), found.pop()) {
            (2, Some(one)) => one,
            (2, None) => return Answer::text(404, "Not Found"),
            (_, one) => {
                found.extend(one);
                subscriptions::list(path, last, &found)
            }
        };
        let fields = vec![
            ("content-type", String::from("application/ld+json")),
            ("etag", format!("\"{}\"", subscriptions::escaped(last))),
            ("last-event-id", last.to_owned()),
        ];
        drop(state);
        Answer { status: 200, fields, body: Body::Whole(body) }
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

/// Returns the id of the last update that a client has.
fn last_event_id(request: &Request<'_>) -> Option<String> {
    let field = (request.field)("last-event-id").filter(|id| !id.is_empty()).map(str::to_owned);
    field.or_else(|| {
        let names = ["lastEventID", "Last-Event-ID", "last-event-id"];
        let mut parameters = auth::parameters(request.query);
        parameters.find(|(name, _)| names.contains(&&**name)).map(|(_, id)| id.into_owned())
    })
}

/// Returns the seconds since 1970.
pub(super) fn unix() -> u64 {
    UnixTime::from(SystemTime::now()).seconds()
}

/// Draws a random identifier (RFC 9562, version 4).
fn uuid() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the kernel has random bytes");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let bits = u128::from_be_bytes(bytes);
    let part = |shift: u32, digits: u32| bits >> shift & ((1 << (4 * digits)) - 1);
    let (time, low, high) = (part(96, 8), part(80, 4), part(64, 4));
    format!("urn:uuid:{time:08x}-{low:04x}-{high:04x}-{:04x}-{:012x}", part(48, 4), part(0, 12))
}
