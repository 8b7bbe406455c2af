//! An event loop without sockets, for tests: sessions, audiences, an inbox, and the messages of each socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::delivery::{skips, starts_positions};
use crate::{
    App, AppNumber, Author, ChannelEvent, ChannelId, ChannelName, Channels, Close, Delivery,
    FixedApps, Full, Hello, Limits, Moment, NoObserver, Observer, Offset, Out, Outlet, Publication,
    PublishRefused, Rights, Room, Seat, Secret, Session, SocketId, auth,
};

/// Returns an application with Pusher's limits.
pub(crate) fn app() -> App {
    App {
        id: "1".into(),
        key: "key".into(),
        secret: Secret::new("secret"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: None,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<Delivery>>);

impl Outlet for Inbox {
    fn put(&self, _: AppNumber, delivery: Delivery) -> Result<(), Full> {
        self.0.lock().unwrap().push(delivery);
        Ok(())
    }
}

/// One socket: its session, and the messages its client received.
#[derive(Debug)]
struct Socket {
    session: Session,
    id: SocketId,
    got: Vec<String>,
    closed: Option<Close>,
}

/// One event loop.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) app: Arc<App>,
    pub(crate) channels: Channels,
    pub(crate) now: Moment,
    /// The room in the queues of its sockets.
    pub(crate) room: Room,
    number: u16,
    /// The high bits of its sockets' ids, above the bits for loop and slot.
    node: u64,
    inbox: Arc<Inbox>,
    sockets: BTreeMap<u32, Socket>,
    subscribers: HashMap<ChannelId, Vec<(u32, Offset, u64)>>,
    next: u32,
}

impl Loop {
    pub(crate) fn new(app: App) -> Self {
        Self::observed(app, Arc::new(NoObserver))
    }

    pub(crate) fn observed(app: App, observer: Arc<dyn Observer>) -> Self {
        let apps = FixedApps::new([app]);
        let app = Arc::clone(&apps.all()[0]);
        let channels = Channels::new(Arc::new(apps), observer);
        Self::on(app, channels)
    }

    /// Creates a loop on a node of its own.
    pub(crate) fn observed_as(app: App, observer: Arc<dyn Observer>, node: usize) -> Self {
        let world = Self::observed(app, observer);
        Self { node: node as u64, ..world }
    }

    /// Creates a further loop with the same channels.
    pub(crate) fn on(app: Arc<App>, channels: Channels) -> Self {
        let inbox = Arc::new(Inbox::default());
        let number = channels.attach(Arc::<Inbox>::clone(&inbox)).unwrap();
        Self {
            app,
            channels,
            now: Moment::default(),
            room: Room::default(),
            number,
            node: 0,
            inbox,
            sockets: BTreeMap::new(),
            subscribers: HashMap::new(),
            next: 0,
        }
    }

    /// Connects a client; returns its number unless it was rejected.
    pub(crate) fn open(&mut self) -> Result<u32, Close> {
        self.open_as(&Hello { tls: false, origin: None, without_origin: false })
    }

    pub(crate) fn open_as(&mut self, hello: &Hello<'_>) -> Result<u32, Close> {
        let slot = self.next;
        self.next += 1;
        let id =
            SocketId::from_random(self.node << 48 | u64::from(self.number) << 32 | u64::from(slot));
        let mut out = Out::default();
        let seat = Seat { event_loop: self.number, slot, generation: 0 };
        let session = Session::open(
            Arc::clone(&self.app),
            seat,
            id,
            hello,
            &self.channels,
            self.now,
            &mut out,
        );
        match session {
            Some(session) => {
                let socket = Socket { session, id, got: Vec::new(), closed: None };
                self.sockets.insert(slot, socket);
                self.carry_out(slot, out);
                Ok(slot)
            }
            None => Err(out.close.unwrap()),
        }
    }

    /// Sends a message of a client. The loop applies direct results at once and inbox deliveries after that.
    pub(crate) fn says(&mut self, socket: u32, text: &str) {
        let mut out = Out { room: self.room, ..Out::default() };
        let found = self.sockets.get_mut(&socket).unwrap();
        found.session.text(text, &self.channels, self.now, &mut out);
        self.carry_out(socket, out);
        self.turn();
    }

    /// Subscribes a client with a signature of its application, and returns the replies.
    pub(crate) fn subscribe(
        &mut self,
        socket: u32,
        channel: &str,
        channel_data: Option<&str>,
    ) -> Vec<Value> {
        self.got(socket);
        let text = self.signed_subscribe(socket, channel, channel_data).to_string();
        self.says(socket, &text);
        self.events(socket)
    }

    /// Returns the subscription message with a signature.
    pub(crate) fn signed_subscribe(
        &self,
        socket: u32,
        channel: &str,
        channel_data: Option<&str>,
    ) -> Value {
        let auth = auth::sign_subscription(&self.app, self.id(socket), channel, channel_data);
        let mut data = json!({"channel": channel, "auth": auth});
        if let Some(channel_data) = channel_data {
            data["channel_data"] = channel_data.into();
        }
        json!({"event": "pusher:subscribe", "data": data})
    }

    /// Unsubscribes a client.
    pub(crate) fn unsubscribe(&mut self, socket: u32, channel: &str) {
        let text = json!({"event": "pusher:unsubscribe", "data": {"channel": channel}});
        self.says(socket, &text.to_string());
    }

    /// Signs a client in, and returns the replies.
    pub(crate) fn sign_in(&mut self, socket: u32, user_data: &str) -> Vec<Value> {
        self.got(socket);
        let auth = auth::sign_sign_in(&self.app, self.id(socket), user_data);
        let data = json!({"auth": auth, "user_data": user_data});
        self.says(socket, &json!({"event": "pusher:signin", "data": data}).to_string());
        self.events(socket)
    }

    /// Publishes as the application.
    pub(crate) fn publish(
        &mut self,
        channel: &str,
        event: &str,
        data: &str,
    ) -> Result<(), PublishRefused> {
        self.publish_but(channel, event, data, None)
    }

    pub(crate) fn publish_but(
        &mut self,
        channel: &str,
        event: &str,
        data: &str,
        except: Option<SocketId>,
    ) -> Result<(), PublishRefused> {
        let channel = ChannelName::new(channel, 200).unwrap();
        let author = Author::Server { except };
        let publication = Publication { channel: &channel, event, data, author };
        let result = self.channels.registry().publish(&self.app, &publication, self.now);
        self.turn();
        result.map(|_stored| ())
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for slot in self.sockets.keys().copied().collect::<Vec<_>>() {
            let mut out = Out::default();
            self.sockets.get_mut(&slot).unwrap().session.idle(self.now, &mut out);
            self.carry_out(slot, out);
        }
        self.channels.tick(self.now);
        self.turn();
    }

    /// Closes a client's socket.
    pub(crate) fn close(&mut self, socket: u32) {
        let gone = self.sockets.remove(&socket).unwrap();
        for list in self.subscribers.values_mut() {
            list.retain(|(slot, ..)| *slot != socket);
        }
        gone.session.closed(&self.channels, self.now);
        self.turn();
    }

    pub(crate) fn close_all(&mut self) {
        for socket in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.close(socket);
        }
    }

    pub(crate) fn id(&self, socket: u32) -> SocketId {
        self.sockets[&socket].id
    }

    /// Returns how a socket was closed.
    pub(crate) fn closed(&self, socket: u32) -> Option<Close> {
        self.sockets[&socket].closed
    }

    /// Returns the messages that a client received since the last call.
    pub(crate) fn got(&mut self, socket: u32) -> Vec<String> {
        self.turn();
        std::mem::take(&mut self.sockets.get_mut(&socket).unwrap().got)
    }

    /// Returns the same messages parsed, including `data` that is a string with JSON.
    pub(crate) fn events(&mut self, socket: u32) -> Vec<Value> {
        self.got(socket).iter().map(|text| read(text)).collect()
    }

    /// Moves the inbox into the sockets.
    pub(crate) fn turn(&mut self) {
        let deliveries = std::mem::take(&mut *self.inbox.0.lock().unwrap());
        for delivery in deliveries {
            match delivery {
                Delivery::Channel { channel, offset, message, position, except } => {
                    for (slot, after, ahead) in
                        self.subscribers.get_mut(&channel).into_iter().flatten()
                    {
                        if skips(position, *ahead) {
                            continue;
                        }
                        if starts_positions(position) {
                            *ahead = 0;
                        }
                        let socket = self.sockets.get_mut(slot).unwrap();
                        if *after < offset && Some(socket.id) != except {
                            socket.got.push(String::from_utf8(message.text().to_vec()).unwrap());
                        }
                    }
                }
                Delivery::Seats { seats, message } => {
                    for seat in seats {
                        if let Some(socket) = self.sockets.get_mut(&seat.slot) {
                            socket.got.push(String::from_utf8(message.text().to_vec()).unwrap());
                        }
                    }
                }
                // Handled only by the hub.
                Delivery::App { .. } => {}
                Delivery::Close { seat, code, reason } => {
                    if let Some(socket) = self.sockets.get_mut(&seat.slot) {
                        socket.closed = Some(Close { code, reason });
                    }
                }
            }
        }
    }

    fn carry_out(&mut self, slot: u32, out: Out) {
        let socket = self.sockets.get_mut(&slot).unwrap();
        let texts =
            out.frames.iter().map(|frame| String::from_utf8(frame.text().to_vec()).unwrap());
        socket.got.extend(texts);
        socket.closed = socket.closed.or(out.close);
        for channel in out.left {
            let list = self.subscribers.get_mut(&channel).unwrap();
            list.retain(|(other, ..)| *other != slot);
        }
        for join in out.joined {
            self.subscribers.entry(join.channel).or_default().push((slot, join.after, join.ahead));
        }
    }
}

/// Records channel events as text.
#[derive(Debug, Default)]
pub(crate) struct Diary(Mutex<Vec<String>>);

impl Diary {
    /// Returns the events since the last call.
    pub(crate) fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Diary {
    fn observe(&self, _: &Arc<App>, event: &ChannelEvent<'_>) {
        let line = match event {
            ChannelEvent::Occupied { channel } => format!("{channel} occupied"),
            ChannelEvent::Vacated { channel } => format!("{channel} vacated"),
            ChannelEvent::MemberAdded { channel, user_id } => format!("{channel} +{user_id}"),
            ChannelEvent::MemberRemoved { channel, user_id } => format!("{channel} -{user_id}"),
            ChannelEvent::SubscriptionCount { channel, count } => format!("{channel} {count}"),
            ChannelEvent::CacheMiss { channel } => format!("{channel} missed"),
            ChannelEvent::ClientEvent { channel, event, data, socket, user_id } => {
                format!("{channel} {event} {data} {socket} {user_id:?}")
            }
        };
        self.0.lock().unwrap().push(line);
    }
}

/// Returns `pusher:subscribe` for a channel that needs no signature.
pub(crate) fn subscribe(channel: &str) -> String {
    json!({"event": "pusher:subscribe", "data": {"channel": channel}}).to_string()
}

/// Parses a message, including `data` that is a string with JSON.
pub(crate) fn read(text: &str) -> Value {
    let mut message: Value = serde_json::from_str(text).unwrap();
    if let Some(data) = message.get("data").and_then(Value::as_str)
        && let Ok(inner) = serde_json::from_str(data)
    {
        message["data"] = inner;
    }
    message
}
