//! Tests three nodes over links that only keep order: packets are late, lost for a while, or lost with a node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ClusterUpdate, NodeId, Nodes, Origin};
use crate::testing::{Diary, Loop, app};
use crate::{App, Author, ChannelName, Close, History, Member, Publication, SocketId};

const NODES: usize = 3;

/// An update under way.
#[derive(Clone, Debug)]
enum Parcel {
    Published {
        channel: ChannelName,
        event: String,
        data: String,
        except: Option<SocketId>,
        client: Option<(SocketId, Option<Arc<str>>)>,
    },
    Last {
        channel: ChannelName,
        message: String,
        age: Duration,
    },
    Subscribers {
        channel: ChannelName,
        count: u32,
    },
    Member {
        channel: ChannelName,
        member: Arc<Member>,
    },
    NoMember {
        channel: ChannelName,
        user_id: String,
    },
    Online {
        user_id: Arc<str>,
    },
    Offline {
        user_id: Arc<str>,
    },
    Terminated {
        user_id: String,
    },
}

impl Parcel {
    fn of(update: &ClusterUpdate<'_>) -> Self {
        match *update {
            ClusterUpdate::Published(publication) => {
                let (except, client) = match publication.author {
                    Author::Server { except } => (except, None),
                    Author::Client { socket, user_id } => (None, Some((socket, user_id.cloned()))),
                };
                Self::Published {
                    channel: publication.channel.clone(),
                    event: publication.event.to_owned(),
                    data: publication.data.to_owned(),
                    except,
                    client,
                }
            }
            ClusterUpdate::Last { channel, message, age } => {
                Self::Last { channel: channel.clone(), message: message.to_owned(), age }
            }
            ClusterUpdate::Subscribers { channel, count } => {
                Self::Subscribers { channel: channel.clone(), count }
            }
            ClusterUpdate::Member { channel, member } => {
                Self::Member { channel: channel.clone(), member: Arc::clone(member) }
            }
            ClusterUpdate::NoMember { channel, user_id } => {
                Self::NoMember { channel: channel.clone(), user_id: user_id.to_owned() }
            }
            ClusterUpdate::Online { user_id } => Self::Online { user_id: Arc::clone(user_id) },
            ClusterUpdate::Offline { user_id } => Self::Offline { user_id: Arc::clone(user_id) },
            ClusterUpdate::Terminated { user_id } => {
                Self::Terminated { user_id: user_id.to_owned() }
            }
        }
    }

    fn open<T>(&self, read: impl FnOnce(&ClusterUpdate<'_>) -> T) -> T {
        match self {
            Self::Published { channel, event, data, except, client } => {
                let author = match client {
                    Some((socket, user_id)) => {
                        Author::Client { socket: *socket, user_id: user_id.as_ref() }
                    }
                    None => Author::Server { except: *except },
                };
                read(&ClusterUpdate::Published(&Publication { channel, event, data, author }))
            }
            Self::Last { channel, message, age } => {
                read(&ClusterUpdate::Last { channel, message, age: *age })
            }
            Self::Subscribers { channel, count } => {
                read(&ClusterUpdate::Subscribers { channel, count: *count })
            }
            Self::Member { channel, member } => read(&ClusterUpdate::Member { channel, member }),
            Self::NoMember { channel, user_id } => {
                read(&ClusterUpdate::NoMember { channel, user_id })
            }
            Self::Online { user_id } => read(&ClusterUpdate::Online { user_id }),
            Self::Offline { user_id } => read(&ClusterUpdate::Offline { user_id }),
            Self::Terminated { user_id } => read(&ClusterUpdate::Terminated { user_id }),
        }
    }
}

/// One node's connection to the others.
#[derive(Debug, Default)]
struct Wire {
    number: usize,
    reported: Mutex<Vec<Parcel>>,
    living: Mutex<Vec<usize>>,
}

impl Nodes for Wire {
    fn publish(&self, _: &Arc<App>, update: &ClusterUpdate<'_>) {
        self.reported.lock().unwrap().push(Parcel::of(update));
    }

    fn reports(&self, _: &App, channel: &str) -> bool {
        let living = self.living.lock().unwrap();
        living[channel.len() % living.len()] == self.number
    }

    fn may_report(&self) -> bool {
        self.living.lock().unwrap().contains(&self.number)
    }
}

struct Node {
    world: Loop,
    wire: Arc<Wire>,
    diary: Arc<Diary>,
    /// Number of the node's next round.
    round: u32,
}

type Link = VecDeque<(u32, Option<Parcel>)>;

struct Cluster {
    nodes: Vec<Option<Node>>,
    /// Updates and round ends under way, by sender and receiver.
    links: BTreeMap<(usize, usize), Link>,
    /// Links that lose everything.
    cut: BTreeSet<(usize, usize)>,
}

fn member(user: &str) -> String {
    json!({"user_id": user, "user_info": {"name": user}}).to_string()
}

impl Cluster {
    fn new(app: &App) -> Self {
        let nodes = (0..NODES).map(|number| {
            let diary = Arc::new(Diary::default());
            let world = Loop::observed_as(app.clone(), Arc::<Diary>::clone(&diary), number);
            let wire = Arc::new(Wire {
                number,
                living: Mutex::new((0..NODES).collect()),
                ..Wire::default()
            });
            world.channels.connect(Arc::<Wire>::clone(&wire));
            Some(Node { world, wire, diary, round: 0 })
        });
        Self { nodes: nodes.collect(), links: BTreeMap::new(), cut: BTreeSet::new() }
    }

    fn world(&mut self, node: usize) -> &mut Loop {
        &mut self.nodes[node].as_mut().unwrap().world
    }

    fn is_alive(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    /// Puts what a node published onto its links.
    fn send(&mut self, from: usize) {
        let Some(node) = &self.nodes[from] else { return };
        let parcels = std::mem::take(&mut *node.wire.reported.lock().unwrap());
        let round = node.round;
        for to in (0..NODES).filter(|to| *to != from && self.nodes[*to].is_some()) {
            if !self.cut.contains(&(from, to)) {
                let link = self.links.entry((from, to)).or_default();
                link.extend(parcels.iter().cloned().map(|parcel| (round, Some(parcel))));
            }
        }
    }

    /// Makes a node publish its whole state.
    fn publish_state(&mut self, from: usize) {
        self.send(from);
        let Some(node) = &mut self.nodes[from] else { return };
        node.round += 1;
        let (round, now) = (node.round, node.world.now);
        node.world.channels.publish_state(now);
        self.send(from);
        for to in (0..NODES).filter(|to| *to != from && !self.cut.contains(&(from, *to))) {
            self.links.entry((from, to)).or_default().push_back((round, None));
        }
    }

    /// Delivers the first `count` items of a link.
    fn arrive(&mut self, from: usize, to: usize, count: usize) {
        for _ in 0..count {
            let parcel = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front);
            let (Some((round, parcel)), Some(node)) = (parcel, &mut self.nodes[to]) else { return };
            let origin = Origin { node: NodeId(from as u64), round };
            let world = &mut node.world;
            match parcel {
                Some(parcel) => parcel.open(|update| {
                    world.channels.apply_remote(origin, &world.app, update, world.now);
                }),
                None => world.channels.end_round(origin, world.now),
            }
            world.turn();
        }
    }

    /// Delivers everything.
    fn end_round(&mut self) {
        for from in 0..NODES {
            self.send(from);
        }
        for (from, to) in self.links.keys().copied().collect::<Vec<_>>() {
            self.arrive(from, to, usize::MAX);
        }
    }

    /// Removes a node together with what it has not sent, and informs the others.
    fn kill(&mut self, gone: usize) {
        self.send(gone);
        self.nodes[gone] = None;
        for to in 0..NODES {
            self.arrive(gone, to, usize::MAX);
            self.links.remove(&(to, gone));
        }
        let living: Vec<_> = (0..NODES).filter(|node| self.is_alive(*node)).collect();
        for node in self.nodes.iter_mut().flatten() {
            node.wire.living.lock().unwrap().clone_from(&living);
            node.world.channels.forget(NodeId(gone as u64), node.world.now);
            node.world.turn();
        }
    }

    /// Returns the events of all observers, sorted, because there is no order across nodes.
    fn events(&self) -> Vec<String> {
        let mut all: Vec<_> =
            self.nodes.iter().flatten().flat_map(|node| node.diary.read()).collect();
        all.sort();
        all
    }
}

#[test]
fn an_event_of_one_node_is_delivered_once_on_all() {
    let mut cluster = Cluster::new(&app());
    let sockets: Vec<_> = (0..NODES)
        .map(|node| {
            let world = cluster.world(node);
            let socket = world.open().unwrap();
            world.subscribe(socket, "private-a", None);
            socket
        })
        .collect();
    cluster.end_round();
    let excluded = cluster.world(2).id(sockets[2]);
    cluster.world(0).publish_but("private-a", "e", r#""x""#, Some(excluded)).unwrap();
    cluster.end_round();
    let heard = [r#"{"event":"e","channel":"private-a","data":"x"}"#];
    assert_eq!(cluster.world(0).got(sockets[0]), heard);
    assert_eq!(cluster.world(1).got(sockets[1]), heard);
    assert_eq!(cluster.world(2).got(sockets[2]), [""; 0]);

    cluster.world(1).says(sockets[1], r#"{"event":"client-a","channel":"private-a","data":1}"#);
    cluster.end_round();
    assert_eq!(
        cluster.world(0).got(sockets[0]),
        [r#"{"event":"client-a","channel":"private-a","data":1}"#]
    );
    assert_eq!(cluster.world(1).got(sockets[1]), [""; 0]);
    assert_eq!(cluster.world(2).got(sockets[2]).len(), 1);
    let reported = cluster.events();
    assert_eq!(reported.iter().filter(|line| line.contains("client-a")).count(), 1, "{reported:?}");
}

#[test]
fn an_event_reaches_remote_subscribers_that_are_not_known_yet() {
    let mut cluster = Cluster::new(&app());
    let socket = cluster.world(1).open().unwrap();
    cluster.world(1).subscribe(socket, "news", None);
    // Node 0 has not received the number of subscribers yet.
    cluster.world(0).publish("news", "e", "1").unwrap();
    cluster.end_round();
    assert_eq!(cluster.world(1).got(socket).len(), 1);
}

#[test]
fn each_node_knows_the_subscribers_and_members_of_all_nodes() {
    let mut cluster = Cluster::new(&app());
    for node in 0..NODES {
        let world = cluster.world(node);
        let (socket, other) = (world.open().unwrap(), world.open().unwrap());
        world.subscribe(socket, "presence-a", Some(&member(&format!("u{node}"))));
        world.subscribe(other, "presence-a", Some(&member("everywhere")));
        cluster.end_round();
    }
    for node in 0..NODES {
        let world = cluster.world(node);
        let report =
            world.channels.registry().channel(&world.app, "presence-a", world.now).unwrap();
        assert_eq!((report.subscription_count, report.user_count), (6, Some(4)));
        let members: BTreeSet<_> = world
            .channels
            .registry()
            .members(&world.app, "presence-a", world.now)
            .into_iter()
            .collect();
        assert_eq!(members, ["everywhere", "u0", "u1", "u2"].map(Into::into).into());
    }
    // A new member receives the members on other nodes, with their `user_info`.
    let world = cluster.world(0);
    let socket = world.open().unwrap();
    let answer = world.subscribe(socket, "presence-a", Some(&member("u0")));
    assert_eq!(answer[0]["data"]["presence"]["hash"]["u2"], json!({"name": "u2"}));
    // The limit counts members on all nodes.
    assert_eq!(
        cluster.events(),
        [
            "presence-a +everywhere",
            "presence-a +u0",
            "presence-a +u1",
            "presence-a +u2",
            "presence-a occupied"
        ],
        "each once, by one node"
    );
}

#[test]
fn a_dead_nodes_members_are_removed() {
    let mut cluster = Cluster::new(&app());
    let watcher = cluster.world(0).open().unwrap();
    cluster.world(0).subscribe(watcher, "presence-a", Some(&member("ann")));
    for node in [1, 2] {
        let world = cluster.world(node);
        let (socket, other) = (world.open().unwrap(), world.open().unwrap());
        world.subscribe(socket, "presence-a", Some(&member("both")));
        world.subscribe(other, "presence-a", Some(&member(&format!("u{node}"))));
        world.subscribe(other, "only-there", None);
    }
    cluster.end_round();
    cluster.world(0).got(watcher);
    cluster.events();
    cluster.kill(2);
    let removed = |user: &str| json!({"event": "pusher_internal:member_removed", "channel": "presence-a", "data": {"user_id": user}});
    assert_eq!(cluster.world(0).events(watcher), [removed("u2")], "the other is still on node 1");
    cluster.kill(1);
    let gone: BTreeSet<_> = cluster.world(0).events(watcher).iter().map(Value::to_string).collect();
    assert_eq!(gone, [removed("both"), removed("u1")].map(|event| event.to_string()).into());
    assert_eq!(
        cluster.events(),
        [
            "only-there 1",
            "only-there 0",
            "only-there vacated",
            "presence-a -both",
            "presence-a -u1",
            "presence-a -u2"
        ]
        .map(str::to_owned)
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
    );
    assert_eq!(cluster.world(0).channels.records().channels, 1);
}

#[test]
fn watchlists_user_messages_and_terminations_work_across_nodes() {
    let mut cluster = Cluster::new(&app());
    let eve = cluster.world(0).open().unwrap();
    cluster.world(0).sign_in(eve, r#"{"id":"eve","watchlist":["ann"]}"#);
    let anns: Vec<_> = [1, 2].map(|node| (node, cluster.world(node).open().unwrap())).into();
    for (node, ann) in &anns {
        cluster.world(*node).sign_in(*ann, r#"{"id":"ann"}"#);
        cluster.end_round();
    }
    let event = |name: &str| json!({"event": "pusher_internal:watchlist_events", "data": {"events": [{"name": name, "user_ids": ["ann"]}]}});
    assert_eq!(cluster.world(0).events(eve), [event("online")]);

    cluster.world(0).publish("#server-to-user-ann", "hello", "1").unwrap();
    cluster.end_round();
    for (node, ann) in &anns {
        assert_eq!(cluster.world(*node).got(*ann).len(), 1);
    }
    let (channels, app) = (cluster.world(0).channels.clone(), Arc::clone(&cluster.world(0).app));
    channels.terminate(&app, "ann");
    cluster.end_round();
    for (node, ann) in &anns {
        assert_eq!(cluster.world(*node).closed(*ann), Some(Close::TERMINATED));
        cluster.world(*node).close(*ann);
    }
    cluster.end_round();
    assert_eq!(cluster.world(0).events(eve), [event("offline")]);
}

#[test]
fn a_late_node_receives_the_current_state() {
    let mut cluster = Cluster::new(&app());
    // Node 2 receives nothing.
    cluster.cut = [(0, 2), (1, 2)].into();
    let world = cluster.world(0);
    let socket = world.open().unwrap();
    world.subscribe(socket, "presence-a", Some(&member("ann")));
    world.publish("cache-a", "e", r#""x""#).unwrap();
    world.now = world.now + Duration::from_mins(10);
    cluster.end_round();
    assert_eq!(cluster.world(2).channels.records().channels, 0);

    cluster.cut.clear();
    cluster.publish_state(0);
    cluster.end_round();
    let world = cluster.world(2);
    world.now = world.now + Duration::from_mins(10);
    let socket = world.open().unwrap();
    let answer = world.subscribe(socket, "presence-a", Some(&member("bob")));
    assert_eq!(answer[0]["data"]["presence"]["count"], 2);
    assert_eq!(
        world.subscribe(socket, "cache-a", None)[1],
        json!({"event": "e", "channel": "cache-a", "data": "x"})
    );
    // The event expires at the same time as on the node that published it.
    world.now = world.now + Duration::from_mins(20);
    let socket = world.open().unwrap();
    assert_eq!(world.subscribe(socket, "cache-a", None)[1]["event"], "pusher:cache_miss");
}

/// Without a shared log each node counts its own events.
#[test]
fn a_cached_event_of_another_node_brings_no_position_of_its_history() {
    let mut with_history = app();
    let age = Duration::from_mins(1);
    with_history.history = Some(History { events: 10, age, channels: Vec::new() });
    let mut cluster = Cluster::new(&with_history);
    cluster.cut = [(0, 2), (1, 2)].into();
    for _ in 0..3 {
        cluster.world(0).publish("cache-a", "e", "1").unwrap();
    }
    cluster.end_round();
    cluster.cut.clear();
    cluster.publish_state(0);
    cluster.end_round();
    let world = cluster.world(2);
    let socket = world.open().unwrap();
    let answer = world.subscribe(socket, "cache-a", None);
    assert_eq!(answer[0]["data"]["resume"]["offset"], 0);
    assert_eq!(answer[1], json!({"event": "e", "channel": "cache-a", "data": 1}));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Join { node: usize, channel: usize, user: usize },
    Leave { socket: usize },
    SignIn { socket: usize, user: usize },
    Send { node: usize },
    Arrive { from: usize, to: usize, count: usize },
    Cut { from: usize, to: usize },
    Mend,
    Kill { node: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let node = 0..NODES;
    prop_oneof![
        8 => (node.clone(), 0..3_usize, 0..3_usize).prop_map(|(node, channel, user)| Op::Join { node, channel, user }),
        5 => (0..8_usize).prop_map(|socket| Op::Leave { socket }),
        3 => (0..8_usize, 0..3_usize).prop_map(|(socket, user)| Op::SignIn { socket, user }),
        4 => node.clone().prop_map(|node| Op::Send { node }),
        6 => (node.clone(), node.clone(), 1..4_usize).prop_map(|(from, to, count)| Op::Arrive { from, to, count }),
        1 => (node.clone(), node.clone()).prop_map(|(from, to)| Op::Cut { from, to }),
        1 => Just(Op::Mend),
        1 => node.prop_map(|node| Op::Kill { node }),
    ]
}

const CHANNELS: [&str; 3] = ["presence-a", "presence-b", "news"];
const USERS: [&str; 3] = ["ann", "bob", "eve"];

/// The state that a client derives from its events: members of its channel, users it watches.
#[derive(Debug, Default, PartialEq, Eq)]
struct View {
    members: BTreeSet<String>,
    online: BTreeSet<String>,
}

impl View {
    fn take(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let user = || text(&event["data"]["user_id"]);
        match event["event"].as_str().unwrap() {
            "pusher_internal:subscription_succeeded" => {
                if let Some(ids) = event.pointer("/data/presence/ids").and_then(Value::as_array) {
                    self.members = ids.iter().map(text).collect();
                }
            }
            "pusher_internal:member_added" => {
                assert!(self.members.insert(user()), "received twice: {event}");
            }
            "pusher_internal:member_removed" => {
                assert!(self.members.remove(&user()), "never received: {event}");
            }
            "pusher_internal:watchlist_events" => {
                for event in event["data"]["events"].as_array().unwrap() {
                    for user in event["user_ids"].as_array().unwrap().iter().map(text) {
                        let update = match event["name"].as_str().unwrap() {
                            "online" => self.online.insert(user),
                            _ => self.online.remove(&user),
                        };
                        assert!(update, "without effect: {event}");
                    }
                }
            }
            _ => {}
        }
    }
}

struct Client {
    node: usize,
    socket: u32,
    channel: &'static str,
    member: &'static str,
    user: Option<&'static str>,
    view: View,
}

fn run(ops: &[Op]) {
    let mut cluster = Cluster::new(&app());
    let mut clients: Vec<Client> = Vec::new();
    let read = |cluster: &mut Cluster, clients: &mut Vec<Client>| {
        for client in clients {
            for event in cluster.world(client.node).events(client.socket) {
                client.view.take(&event);
            }
        }
    };
    for op in ops {
        match *op {
            Op::Join { node, channel, user } if cluster.is_alive(node) => {
                let (channel, member_id) = (CHANNELS[channel], USERS[user]);
                let world = cluster.world(node);
                let socket = world.open().unwrap();
                let data = channel.starts_with("presence-").then(|| member(member_id));
                let mut view = View::default();
                for event in world.subscribe(socket, channel, data.as_deref()) {
                    view.take(&event);
                }
                clients.push(Client { node, socket, channel, member: member_id, user: None, view });
            }
            Op::Leave { socket } if socket < clients.len() => {
                let client = clients.swap_remove(socket);
                cluster.world(client.node).close(client.socket);
            }
            Op::SignIn { socket, user }
                if socket < clients.len() && clients[socket].user.is_none() =>
            {
                let client = &mut clients[socket];
                client.user = Some(USERS[user]);
                let data = json!({"id": USERS[user], "watchlist": USERS}).to_string();
                for event in cluster.world(client.node).events(client.socket) {
                    client.view.take(&event);
                }
                for event in cluster.world(client.node).sign_in(client.socket, &data) {
                    client.view.take(&event);
                }
            }
            Op::Send { node } => cluster.send(node),
            Op::Arrive { from, to, count } => cluster.arrive(from, to, count),
            Op::Cut { from, to } => {
                cluster.cut.insert((from, to));
            }
            Op::Mend => {
                // A node that missed updates receives everything, starting with what was under way.
                let cut = std::mem::take(&mut cluster.cut);
                for from in cut.into_iter().map(|(from, _)| from).collect::<BTreeSet<_>>() {
                    cluster.publish_state(from);
                }
            }
            Op::Kill { node }
                if cluster.is_alive(node) && cluster.nodes.iter().flatten().count() > 1 =>
            {
                clients.retain(|client| client.node != node);
                cluster.kill(node);
            }
            _ => {}
        }
        read(&mut cluster, &mut clients);
    }
    let cut = std::mem::take(&mut cluster.cut);
    for (from, _) in cut {
        cluster.publish_state(from);
    }
    cluster.end_round();
    read(&mut cluster, &mut clients);

    let online: BTreeSet<String> =
        clients.iter().filter_map(|client| client.user).map(str::to_owned).collect();
    for node in 0..NODES {
        if !cluster.is_alive(node) {
            continue;
        }
        let world = cluster.world(node);
        let (registry, app, now) = (world.channels.registry(), &world.app, world.now);
        for channel in CHANNELS {
            let there = || clients.iter().filter(|client| client.channel == channel);
            let report = registry.channel(app, channel, now);
            assert_eq!(
                report.map_or(0, |report| report.subscription_count),
                there().count(),
                "{channel} on node {node}"
            );
            if channel.starts_with("presence-") {
                let members: BTreeSet<_> =
                    registry.members(app, channel, now).iter().map(ToString::to_string).collect();
                assert_eq!(
                    members,
                    there().map(|client| client.member.to_owned()).collect(),
                    "{channel} on node {node}"
                );
            }
        }
    }
    for client in &clients {
        if client.channel.starts_with("presence-") {
            let there = clients.iter().filter(|other| other.channel == client.channel);
            assert_eq!(client.view.members, there.map(|other| other.member.to_owned()).collect());
        }
        if client.user.is_some() {
            assert_eq!(client.view.online, online);
        }
    }
    for client in clients {
        cluster.world(client.node).close(client.socket);
    }
    cluster.end_round();
    for node in cluster.nodes.iter().flatten() {
        assert_eq!(node.world.channels.records(), crate::Records::default());
    }
}

proptest! {
    #[test]
    fn nodes_with_the_same_updates_report_the_same_state(ops in prop::collection::vec(op(), 1..80)) {
        run(&ops);
    }
}
