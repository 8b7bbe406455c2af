//! Many sessions on two event loops perform random actions, and each receives exactly the frames that a simple model
//! predicts, in that order.
//!
//! The model has no shards, sequences, inboxes or timers: only lists and loops over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::testing::{Diary, Loop, app};
use crate::{App, Author, ChannelName, History, Publication, Records};

const CHANNELS: [&str; 7] = [
    "news",
    "private-a",
    "presence-a",
    "cache-a",
    "presence-cache-a",
    "private-encrypted-a",
    "private-b",
];
const USERS: [&str; 4] = ["ann", "bob", "eve", "7"];
const HISTORY: Duration = Duration::from_secs(10);
const CACHE: Duration = Duration::from_secs(8);
const EVENTS: usize = 3;
const MEMBERS: usize = 2;
const SUBSCRIPTIONS: usize = 3;
const CLIENT_EVENTS: u64 = 2;

fn limited() -> App {
    let mut app = app();
    app.rights.subscription_count = true;
    app.limits.subscription_rate = u32::MAX;
    app.limits.members = MEMBERS;
    app.limits.subscriptions = SUBSCRIPTIONS;
    app.limits.client_events = u32::try_from(CLIENT_EVENTS).unwrap();
    app.limits.cache = CACHE;
    let channels = vec!["news".into(), "private-".into()];
    app.history = Some(History { events: EVENTS, age: HISTORY, channels });
    app
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Open { event_loop: usize },
    Close { socket: usize },
    Subscribe { socket: usize, channel: usize, user: usize, signed: bool, back: Option<u64> },
    Unsubscribe { socket: usize, channel: usize },
    Publish { channel: usize, except: Option<usize> },
    Say { socket: usize, channel: usize },
    SignIn { socket: usize, user: usize, watches: usize },
    Tell { user: usize },
    Ping { socket: usize },
    Pass { millis: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let socket = 0..6_usize;
    let channel = 0..CHANNELS.len();
    let user = 0..USERS.len();
    prop_oneof![
        2 => (0..2_usize).prop_map(|event_loop| Op::Open { event_loop }),
        1 => socket.clone().prop_map(|socket| Op::Close { socket }),
        8 => (socket.clone(), channel.clone(), user.clone(), prop::bool::weighted(0.9), prop::option::of(0..5_u64))
            .prop_map(|(socket, channel, user, signed, back)| Op::Subscribe { socket, channel, user, signed, back }),
        3 => (socket.clone(), channel.clone()).prop_map(|(socket, channel)| Op::Unsubscribe { socket, channel }),
        6 => (channel.clone(), prop::option::of(socket.clone())).prop_map(|(channel, except)| Op::Publish { channel, except }),
        4 => (socket.clone(), channel).prop_map(|(socket, channel)| Op::Say { socket, channel }),
        2 => (socket.clone(), user.clone(), 0..16_usize).prop_map(|(socket, user, watches)| Op::SignIn { socket, user, watches }),
        1 => user.prop_map(|user| Op::Tell { user }),
        1 => socket.prop_map(|socket| Op::Ping { socket }),
        2 => prop::sample::select(vec![1_u64, 400, 1000, 3000, 11_000, 31_000]).prop_map(|millis| Op::Pass { millis }),
    ]
}

#[derive(Debug, Default)]
struct Socket {
    id: String,
    heard: u64,
    asked: Option<u64>,
    channels: BTreeMap<String, Option<String>>,
    user: Option<(String, Vec<String>)>,
    /// Remaining client events in thousandths, and the time of the last refill.
    allowance: Option<(u64, u64)>,
    expected: Vec<Value>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Channel {
    /// Subscribers in the order of their subscriptions.
    subscribers: Vec<usize>,
    /// `user_info` and sockets of each member.
    members: BTreeMap<String, (Value, BTreeSet<usize>)>,
    last: Option<(Value, u64)>,
    history: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    life: u64,
    offset: u64,
    /// Message, expiry time, excluded socket.
    events: VecDeque<(Value, u64, Option<usize>)>,
    /// Until when it waits for subscribers.
    waits: u64,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    sockets: Vec<Socket>,
    channels: BTreeMap<String, Channel>,
    lives: u64,
    published: u64,
    events: Vec<String>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn internal(event: &str, channel: &str, data: &Value) -> Value {
    json!({"event": format!("pusher_internal:{event}"), "channel": channel, "data": data})
}

impl Model {
    fn channel(&mut self, name: &str) -> &mut Channel {
        self.channels.entry(name.to_owned()).or_default()
    }

    fn give(&mut self, socket: usize, frame: Value) {
        self.sockets[socket].expected.push(frame);
    }

    fn refuse(&mut self, socket: usize, channel: &str, status: u64) {
        let frame = json!({"event": "pusher:subscription_error", "channel": channel, "data": {"status": status}});
        self.give(socket, frame);
    }

    fn error(&mut self, socket: usize, code: u64) {
        self.give(socket, json!({"event": "pusher:error", "data": {"code": code}}));
    }

    fn give_all(&mut self, channel: &str, frame: &Value, except: Option<usize>) {
        for socket in self.channel(channel).subscribers.clone() {
            if Some(socket) != except {
                self.give(socket, frame.clone());
            }
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        for channel in self.channels.values_mut() {
            if let Some(kept) = &mut channel.history {
                kept.events.retain(|(_, until, _)| *until > now);
                if kept.events.is_empty() && channel.subscribers.is_empty() && kept.waits <= now {
                    channel.history = None;
                }
            }
            channel.last = channel.last.take().filter(|(_, until)| *until > now);
        }
    }

    fn history(&mut self, name: &str) -> Option<&mut Kept> {
        if name != "news" && !name.starts_with("private-") {
            return None;
        }
        if self.channel(name).history.is_none() {
            self.lives += 1;
            let kept = Kept { life: self.lives, offset: 0, events: VecDeque::new(), waits: 0 };
            self.channel(name).history = Some(kept);
        }
        self.channel(name).history.as_mut()
    }

    fn subscribe(
        &mut self,
        socket: usize,
        name: &str,
        user: &str,
        signed: bool,
        back: Option<(u64, u64)>,
    ) {
        let presence = name.starts_with("presence-");
        if self.sockets[socket].channels.contains_key(name) {
            return self.error(socket, 4200);
        }
        if !signed && (presence || name.starts_with("private-")) {
            return self.refuse(socket, name, 401);
        }
        if self.sockets[socket].channels.keys().filter(|name| !name.is_empty()).count()
            >= SUBSCRIPTIONS
        {
            return self.refuse(socket, name, 403);
        }
        let members = &self.channel(name).members;
        if presence && !members.contains_key(user) && members.len() >= MEMBERS {
            return self.refuse(socket, name, 403);
        }
        if self.channel(name).subscribers.is_empty() {
            self.events.push(format!("{name} occupied"));
        }
        let mut data = json!({});
        if presence {
            let info = json!({"socket": socket});
            let is_new = !self.channel(name).members.contains_key(user);
            let entry = self.channel(name).members.entry(user.to_owned());
            entry.or_insert_with(|| (info.clone(), BTreeSet::new())).1.insert(socket);
            if is_new {
                self.events.push(format!("{name} +{user}"));
                let added = json!({"user_id": user, "user_info": info});
                self.give_all(name, &internal("member_added", name, &added), None);
            }
            let members = &self.channel(name).members;
            let ids: Vec<_> = members.keys().cloned().collect();
            let hash: BTreeMap<_, _> = members.iter().map(|(id, (info, _))| (id, info)).collect();
            data["presence"] = json!({"count": ids.len(), "ids": ids, "hash": hash});
        }
        self.channel(name).subscribers.push(socket);
        self.sockets[socket].channels.insert(name.to_owned(), presence.then(|| user.to_owned()));
        let mut missed = None;
        if let Some(kept) = self.history(name) {
            kept.waits = 0;
            data["resume"] = json!({"epoch": kept.life, "offset": kept.offset});
            if let Some((life, from)) = back {
                let first = kept.offset - kept.events.len() as u64;
                if life == kept.life && from >= first {
                    let skipped = usize::try_from(from - first).unwrap();
                    let events = kept.events.iter().skip(skipped).map(|(event, ..)| event.clone());
                    missed = Some(events.collect::<Vec<_>>());
                }
            }
        }
        if back.is_some() {
            data["recovered"] = missed.is_some().into();
        }
        self.give(socket, internal("subscription_succeeded", name, &data));
        for event in missed.into_iter().flatten() {
            self.give(socket, event);
        }
        // Observers are informed before, clients after the cached event.
        self.note_count(name);
        if name.contains("cache-") {
            let last = self.channel(name).last.clone();
            if last.is_none() {
                self.events.push(format!("{name} missed"));
            }
            let miss = json!({"event": "pusher:cache_miss", "channel": name});
            self.give(socket, last.map_or(miss, |(event, _)| event));
        }
        self.tell_count(name);
    }

    fn note_count(&mut self, name: &str) {
        if !name.starts_with("presence-") {
            let count = self.channel(name).subscribers.len();
            self.events.push(format!("{name} {count}"));
        }
    }

    fn tell_count(&mut self, name: &str) {
        if !name.starts_with("presence-") {
            let count = self.channel(name).subscribers.len();
            let frame = internal("subscription_count", name, &json!({"subscription_count": count}));
            self.give_all(name, &frame, None);
        }
    }

    fn unsubscribe(&mut self, socket: usize, name: &str) {
        let Some(user) = self.sockets[socket].channels.remove(name) else { return };
        self.channel(name).subscribers.retain(|other| *other != socket);
        if let Some(user) = user {
            let sockets = &mut self.channel(name).members.get_mut(&user).unwrap().1;
            sockets.remove(&socket);
            if sockets.is_empty() {
                self.channel(name).members.remove(&user);
                self.events.push(format!("{name} -{user}"));
                self.give_all(
                    name,
                    &internal("member_removed", name, &json!({"user_id": user})),
                    None,
                );
            }
        }
        if self.channel(name).subscribers.is_empty() {
            let until = self.now + millis(HISTORY);
            if let Some(kept) = &mut self.channel(name).history {
                kept.waits = until;
            }
            self.events.push(format!("{name} vacated"));
        }
        self.note_count(name);
        self.tell_count(name);
        self.expire();
    }

    fn publish(&mut self, name: &str, number: u64, except: Option<usize>) {
        self.expire();
        let mut frame = json!({"event": "e", "channel": name, "data": number});
        let until = self.now + millis(HISTORY);
        if let Some(kept) = self.history(name) {
            kept.offset += 1;
            frame["offset"] = kept.offset.into();
            kept.events.push_back((frame.clone(), until, except));
            if kept.events.len() > EVENTS {
                kept.events.pop_front();
            }
        }
        if name.contains("cache-") {
            self.channel(name).last = Some((frame.clone(), self.now + millis(CACHE)));
        }
        self.give_all(name, &frame, except);
    }

    fn say(&mut self, socket: usize, name: &str, number: u64) {
        let now = self.now;
        let (left, since) = self.sockets[socket].allowance.unwrap_or((CLIENT_EVENTS * 1000, now));
        let left = (left + (now - since) * CLIENT_EVENTS).min(CLIENT_EVENTS * 1000);
        let may = left >= 1000;
        self.sockets[socket].allowance = Some((if may { left - 1000 } else { left }, now));
        let kind = name.starts_with("presence-")
            || (name.starts_with("private-") && !name.starts_with("private-encrypted-"));
        let Some(user) = self.sockets[socket].channels.get(name).cloned().filter(|_| may && kind)
        else {
            return self.error(socket, 4301);
        };
        let id = &self.sockets[socket].id;
        let member = user.as_ref().map(|user| format!("{user:?}"));
        self.events.push(format!(
            "{name} client-e {number} {id} {}",
            member.map_or_else(|| "None".to_owned(), |member| format!("Some({member})"))
        ));
        let mut frame = json!({"event": "client-e", "channel": name, "data": number});
        if let Some(user) = user {
            frame["user_id"] = user.into();
        }
        self.give_all(name, &frame, Some(socket));
    }

    fn is_online(&self, user: &str) -> bool {
        self.sockets
            .iter()
            .any(|socket| !socket.closed && socket.user.as_ref().is_some_and(|(id, _)| id == user))
    }

    fn notify_watchers(&mut self, user: &str, name: &str) {
        let frame = watchlist(name, &[user.to_owned()]);
        for socket in 0..self.sockets.len() {
            let watches = self.sockets[socket]
                .user
                .as_ref()
                .is_some_and(|(_, watches)| watches.iter().any(|id| id == user));
            if watches && !self.sockets[socket].closed {
                self.give(socket, frame.clone());
            }
        }
    }

    fn sign_in(&mut self, socket: usize, user: &str, watches: Vec<String>) {
        let before = self.sockets[socket].user.take();
        if let Some((before, _)) = before.as_ref().filter(|(before, _)| before != user) {
            self.channel(&format!("#server-to-user-{before}"))
                .subscribers
                .retain(|other| *other != socket);
            if !self.is_online(before) {
                self.notify_watchers(before, "offline");
            }
        }
        let same = before.is_some_and(|(before, _)| before == user);
        let is_first = !self.is_online(user) && !same;
        let data = json!({"id": user, "watchlist": watches}).to_string();
        self.give(socket, json!({"event": "pusher:signin_success", "data": {"user_data": data}}));
        if is_first {
            self.notify_watchers(user, "online");
        }
        self.sockets[socket].user = Some((user.to_owned(), watches.clone()));
        let online: Vec<_> = watches.into_iter().filter(|id| self.is_online(id)).collect();
        if !online.is_empty() {
            self.give(socket, watchlist("online", &online));
        }
        if !same {
            self.channel(&format!("#server-to-user-{user}")).subscribers.push(socket);
        }
    }

    fn close(&mut self, socket: usize) {
        for name in self.sockets[socket].channels.keys().cloned().collect::<Vec<_>>() {
            self.unsubscribe(socket, &name);
        }
        self.sockets[socket].closed = true;
        if let Some((user, _)) = self.sockets[socket].user.take() {
            self.channel(&format!("#server-to-user-{user}"))
                .subscribers
                .retain(|other| *other != socket);
            if !self.is_online(&user) {
                self.notify_watchers(&user, "offline");
            }
        }
    }

    fn heard(&mut self, socket: usize) {
        self.sockets[socket].heard = self.now;
        self.sockets[socket].asked = None;
    }

    /// Advances the time and returns the sockets to close.
    fn pass(&mut self, millis: u64) -> Vec<usize> {
        self.now += millis;
        let mut late = Vec::new();
        for socket in 0..self.sockets.len() {
            let Socket { heard, asked, closed, .. } = self.sockets[socket];
            match asked {
                _ if closed => {}
                Some(asked) if self.now >= asked + 30_000 => {
                    self.error(socket, 4201);
                    late.push(socket);
                }
                None if self.now >= heard + 30_000 => {
                    self.give(socket, json!({"event": "pusher:ping", "data": {}}));
                    self.sockets[socket].asked = Some(self.now);
                }
                _ => {}
            }
        }
        self.expire();
        late
    }
}

fn watchlist(name: &str, users: &[String]) -> Value {
    json!({"event": "pusher_internal:watchlist_events", "data": {"events": [{"name": name, "user_ids": users}]}})
}

/// The real implementation, with a record of its results.
struct Real {
    loops: [Loop; 2],
    sockets: Vec<(usize, u32)>,
    /// Epochs by the number of the history they belong to.
    epochs: BTreeMap<u64, String>,
}

impl Real {
    /// Returns the new frames of a socket in the model's form.
    fn got(&mut self, socket: usize) -> Vec<Value> {
        let (event_loop, slot) = self.sockets[socket];
        let events = self.loops[event_loop].events(slot);
        events.into_iter().map(|event| self.as_in_the_model(event)).collect()
    }

    fn as_in_the_model(&mut self, mut event: Value) -> Value {
        match event["event"].as_str().unwrap() {
            "pusher_internal:subscription_succeeded" => {
                if let Some(ids) =
                    event.pointer_mut("/data/presence/ids").and_then(Value::as_array_mut)
                {
                    ids.sort_by_key(|id| id.as_str().unwrap().to_owned());
                }
                if let Some(epoch) = event.pointer("/data/resume/epoch").and_then(Value::as_str) {
                    let known = self.epochs.iter().find(|(_, known)| *known == epoch);
                    let life = known.map_or(self.epochs.len() as u64 + 1, |(life, _)| *life);
                    self.epochs.insert(life, epoch.to_owned());
                    event["data"]["resume"]["epoch"] = life.into();
                }
            }
            "pusher:subscription_error" => {
                event["data"] = json!({"status": event["data"]["status"]});
            }
            "pusher:error" => event["data"] = json!({"code": event["data"]["code"]}),
            _ => {}
        }
        event
    }
}

/// Histories are numbered in the order in which clients first see them, in the model as well.
fn renumber(frames: &mut [Value], known: &mut Vec<u64>) {
    for frame in frames {
        if let Some(life) = frame.pointer("/data/resume/epoch").and_then(Value::as_u64) {
            let place = known.iter().position(|other| *other == life).unwrap_or_else(|| {
                known.push(life);
                known.len() - 1
            });
            frame["data"]["resume"]["epoch"] = (place as u64 + 1).into();
        }
    }
}

fn run(ops: &[Op]) {
    let diary = Arc::new(Diary::default());
    let one = Loop::observed(limited(), Arc::<Diary>::clone(&diary));
    let other = Loop::on(Arc::clone(&one.app), one.channels.clone());
    let channels = one.channels.clone();
    let mut real = Real { loops: [one, other], sockets: Vec::new(), epochs: BTreeMap::new() };
    let mut model = Model::default();
    let mut known = Vec::new();

    for (step, op) in ops.iter().enumerate() {
        let live = |socket: usize| {
            let open: Vec<_> =
                (0..model.sockets.len()).filter(|at| !model.sockets[*at].closed).collect();
            (!open.is_empty()).then(|| open[socket % open.len()])
        };
        match *op {
            Op::Open { event_loop } => {
                let slot = real.loops[event_loop].open().unwrap();
                real.loops[event_loop].got(slot);
                real.sockets.push((event_loop, slot));
                let id = real.loops[event_loop].id(slot).to_string();
                model.sockets.push(Socket { id, heard: model.now, ..Socket::default() });
            }
            Op::Close { socket } => {
                let Some(socket) = live(socket) else { continue };
                model.close(socket);
                let (event_loop, slot) = real.sockets[socket];
                real.loops[event_loop].close(slot);
            }
            Op::Subscribe { socket, channel, user, signed, back } => {
                let Some(socket) = live(socket) else { continue };
                let (name, user) = (CHANNELS[channel], USERS[user]);
                let (event_loop, slot) = real.sockets[socket];
                let data = name
                    .starts_with("presence-")
                    .then(|| json!({"user_id": user, "user_info": {"socket": socket}}).to_string());
                let mut text = real.loops[event_loop].signed_subscribe(slot, name, data.as_deref());
                if !signed {
                    text["data"]["auth"] = "key:00".into();
                }
                // A position some events back in the current history, or in one that has ended.
                let place = back.map(|back| {
                    let kept =
                        model.channels.get(name).and_then(|channel| channel.history.as_ref());
                    let life = kept.map_or(0, |kept| kept.life);
                    (life, kept.map_or(back, |kept| kept.offset.saturating_sub(back)))
                });
                if let Some((life, offset)) = place {
                    let number =
                        known.iter().position(|other| *other == life).map(|at| at as u64 + 1);
                    let epoch = number.and_then(|number| real.epochs.get(&number)).cloned();
                    text["data"]["resume"] =
                        json!({"epoch": epoch.as_deref().unwrap_or("0"), "offset": offset});
                    model.heard(socket);
                    let life = if epoch.is_some() { life } else { 0 };
                    model.subscribe(socket, name, user, signed, Some((life, offset)));
                } else {
                    model.heard(socket);
                    model.subscribe(socket, name, user, signed, None);
                }
                real.loops[event_loop].says(slot, &text.to_string());
            }
            Op::Unsubscribe { socket, channel } => {
                let Some(socket) = live(socket) else { continue };
                model.heard(socket);
                model.unsubscribe(socket, CHANNELS[channel]);
                let (event_loop, slot) = real.sockets[socket];
                real.loops[event_loop].unsubscribe(slot, CHANNELS[channel]);
            }
            Op::Publish { channel, except } => {
                let except = except.and_then(live);
                model.published += 1;
                let data = model.published.to_string();
                model.publish(CHANNELS[channel], model.published, except);
                let name = ChannelName::new(CHANNELS[channel], 164).unwrap();
                let except = except.map(|socket| {
                    let (event_loop, slot) = real.sockets[socket];
                    real.loops[event_loop].id(slot)
                });
                let author = Author::Server { except };
                let publication = Publication { channel: &name, event: "e", data: &data, author };
                let world = &real.loops[0];
                channels.registry().publish(&world.app, &publication, world.now).unwrap();
            }
            Op::Say { socket, channel } => {
                let Some(socket) = live(socket) else { continue };
                model.published += 1;
                model.heard(socket);
                model.say(socket, CHANNELS[channel], model.published);
                let text = json!({"event": "client-e", "channel": CHANNELS[channel], "data": model.published});
                let (event_loop, slot) = real.sockets[socket];
                real.loops[event_loop].says(slot, &text.to_string());
            }
            Op::SignIn { socket, user, watches } => {
                let Some(socket) = live(socket) else { continue };
                let mut watched: Vec<String> = USERS
                    .iter()
                    .enumerate()
                    .filter(|(bit, _)| watches >> bit & 1 == 1)
                    .map(|(_, id)| (*id).to_owned())
                    .collect();
                watched.sort();
                let data = json!({"id": USERS[user], "watchlist": watched}).to_string();
                model.heard(socket);
                model.sign_in(socket, USERS[user], watched);
                let (event_loop, slot) = real.sockets[socket];
                let world = &mut real.loops[event_loop];
                let auth = crate::auth::sign_sign_in(&world.app, world.id(slot), &data);
                let text =
                    json!({"event": "pusher:signin", "data": {"auth": auth, "user_data": data}});
                world.says(slot, &text.to_string());
            }
            Op::Tell { user } => {
                model.published += 1;
                let (name, data) =
                    (format!("#server-to-user-{}", USERS[user]), model.published.to_string());
                model.publish(&name, model.published, None);
                real.loops[0].publish(&name, "e", &data).unwrap();
            }
            Op::Ping { socket } => {
                let Some(socket) = live(socket) else { continue };
                model.heard(socket);
                model.give(socket, json!({"event": "pusher:pong", "data": {}}));
                let (event_loop, slot) = real.sockets[socket];
                real.loops[event_loop].says(slot, r#"{"event":"pusher:ping"}"#);
            }
            Op::Pass { millis } => {
                let late = model.pass(millis);
                for world in &mut real.loops {
                    world.pass(Duration::from_millis(millis));
                }
                for socket in late {
                    let (event_loop, slot) = real.sockets[socket];
                    assert_eq!(
                        real.loops[event_loop].closed(slot).map(|close| close.code),
                        Some(4201)
                    );
                    let expected = std::mem::take(&mut model.sockets[socket].expected);
                    assert_eq!(
                        real.got(socket),
                        expected,
                        "socket {socket} is late at step {step}"
                    );
                    model.close(socket);
                    real.loops[event_loop].close(slot);
                }
            }
        }
        for socket in 0..model.sockets.len() {
            let mut expected = std::mem::take(&mut model.sockets[socket].expected);
            if model.sockets[socket].closed {
                continue;
            }
            renumber(&mut expected, &mut known);
            let got = real.got(socket);
            assert_eq!(got, expected, "socket {socket} after step {step}, {op:?}");
        }
        assert_eq!(diary.read(), std::mem::take(&mut model.events), "after step {step}, {op:?}");
    }

    for (name, channel) in &model.channels {
        let report = channels.registry().channel(&real.loops[0].app, name, real.loops[0].now);
        let count = report.as_ref().map_or(0, |report| report.subscription_count);
        assert_eq!(count, channel.subscribers.len(), "{name}");
        let users = report.and_then(|report| report.user_count).unwrap_or(0);
        assert_eq!(users, channel.members.len(), "{name}");
    }
    for world in &mut real.loops {
        world.close_all();
    }
    for world in &mut real.loops {
        world.pass(HISTORY);
    }
    assert_eq!(channels.records(), Records::default(), "unneeded records are removed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_socket_receives_what_the_model_predicts(ops in prop::collection::vec(op(), 1..120)) {
        run(&ops);
    }
}
