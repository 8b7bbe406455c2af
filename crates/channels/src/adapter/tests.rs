//! Tests several nodes with real channels over a simulated broker that loses, doubles and delays packets, driven by a
//! seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::cluster::Cluster;
use super::packet::Packet;
use super::run::LocalChannels;
use super::{Options, Outbox, Report};
use crate::app::App;
use crate::moment::Moment;
use crate::nodes::NodeId;
use crate::testing::{Diary, Loop, app};

/// Pseudo-random numbers from a seed (`SplitMix64`).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % sides
    }
}

struct Node {
    id: NodeId,
    outbox: Arc<Outbox>,
    cluster: Cluster,
    server: Loop,
    diary: Arc<Diary>,
    /// Sockets, with the channels each is subscribed to.
    sockets: BTreeMap<u32, BTreeSet<String>>,
    /// All messages that each socket received.
    got: BTreeMap<u32, Vec<String>>,
    inbox: Vec<(Moment, Bytes)>,
    wake: Moment,
}

impl Node {
    fn new(id: u64, app: &App, now: Moment) -> Self {
        let diary = Arc::new(Diary::default());
        let mut server = Loop::observed(app.clone(), Arc::<Diary>::clone(&diary));
        // The loop's number is a part of its sockets' ids, so no id exists on two nodes.
        for _ in 0..id {
            server = Loop::on(Arc::clone(&server.app), server.channels.clone());
        }
        server.now = now;
        let outbox = Arc::new(Outbox::new(NodeId(id), &Options::default(), || {}));
        server.channels.connect(Arc::<Outbox>::clone(&outbox));
        let cluster = Cluster::new(Arc::clone(&outbox), Options::default(), now);
        let (sockets, got, inbox) = Default::default();
        Self { id: NodeId(id), outbox, cluster, server, diary, sockets, got, inbox, wake: now }
    }

    fn open(&mut self) -> u32 {
        let socket = self.server.open().unwrap();
        self.server.got(socket);
        self.sockets.insert(socket, BTreeSet::new());
        socket
    }

    fn subscribe(&mut self, socket: u32, channel: &str, user: &str) {
        let data = channel.starts_with("presence-").then(|| format!(r#"{{"user_id":"{user}"}}"#));
        let text = self.server.signed_subscribe(socket, channel, data.as_deref());
        self.server.says(socket, &text.to_string());
        self.sockets.get_mut(&socket).unwrap().insert(channel.into());
    }

    fn close(&mut self, socket: u32) {
        self.collect();
        self.server.close(socket);
        self.sockets.remove(&socket);
    }

    fn collect(&mut self) {
        for socket in self.sockets.keys() {
            self.got.entry(*socket).or_default().extend(self.server.got(*socket));
        }
    }

    /// Returns how often a socket received an event with this data.
    fn times(&mut self, socket: u32, data: &str) -> usize {
        self.collect();
        let data = format!(r#""data":"{data}""#);
        self.got
            .get(&socket)
            .map_or(0, |got| got.iter().filter(|text| text.contains(&data)).count())
    }

    fn subscribers(&self, channel: &str) -> usize {
        self.server
            .channels
            .registry()
            .channel(&self.server.app, channel, self.server.now)
            .map_or(0, |report| report.subscription_count)
    }

    fn members(&self, channel: &str) -> BTreeSet<String> {
        let members =
            self.server.channels.registry().members(&self.server.app, channel, self.server.now);
        members.iter().map(ToString::to_string).collect()
    }
}

/// Probabilities in thousandths, and the maximum delay of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    lost: u64,
    doubled: u64,
    delay: u64,
}

struct World {
    now: Moment,
    dice: Dice,
    weather: Weather,
    nodes: Vec<Node>,
    /// Nodes that receive only each other's packets while the network is cut.
    island: BTreeSet<NodeId>,
    app: App,
    next_id: u64,
}

impl World {
    fn new(seed: u64, nodes: u64, weather: Weather) -> Self {
        let mut world = Self {
            now: Moment::from_millis(1000),
            dice: Dice(seed),
            weather,
            nodes: Vec::new(),
            island: BTreeSet::new(),
            app: app(),
            next_id: 1,
        };
        for _ in 0..nodes {
            world.add();
        }
        world
    }

    fn add(&mut self) {
        self.nodes.push(Node::new(self.next_id, &self.app, self.now));
        self.next_id += 1;
    }

    /// Kills the process of a node.
    fn kill(&mut self, index: usize) -> Node {
        self.nodes.remove(index)
    }

    /// Delivers all packets under way while the time passes in small steps.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_millis(20);
            self.turn();
        }
    }

    fn turn(&mut self) {
        let mut sent = Vec::new();
        for node in &mut self.nodes {
            node.server.now = self.now;
            let (due, later) =
                std::mem::take(&mut node.inbox).into_iter().partition(|(at, _)| *at <= self.now);
            node.inbox = later;
            let mut due: Vec<(Moment, Bytes)> = due;
            due.sort_by_key(|(at, _)| *at);
            for (_, packet) in due {
                let mut here = LocalChannels::new(&node.server.channels).knows(&node.server.app);
                node.cluster.receive(Packet::read(&packet).unwrap(), self.now, &mut here);
            }
            if node.wake <= self.now {
                let mut here = LocalChannels::new(&node.server.channels).knows(&node.server.app);
                node.wake = node.cluster.poll(self.now, &mut here);
            }
            node.server.turn();
            sent.extend(node.outbox.take().into_iter().map(|packet| (node.id, packet)));
        }
        for (from, packet) in sent {
            self.send(from, &packet);
        }
    }

    fn send(&mut self, from: NodeId, packet: &Bytes) {
        for node in &mut self.nodes {
            if self.island.contains(&from) != self.island.contains(&node.id)
                || self.dice.roll(1000) < self.weather.lost
            {
                continue;
            }
            let copies = if self.dice.roll(1000) < self.weather.doubled { 2 } else { 1 };
            for _ in 0..copies {
                let delay =
                    if self.weather.delay == 0 { 0 } else { self.dice.roll(self.weather.delay) };
                node.inbox.push((self.now + Duration::from_millis(delay), packet.clone()));
            }
        }
    }

    /// Asserts what all nodes must report once they have received everything.
    fn agree(&mut self) {
        let mut channels: BTreeMap<String, usize> = BTreeMap::new();
        for socket in self.nodes.iter().flat_map(|node| node.sockets.values()) {
            for channel in socket {
                *channels.entry(channel.clone()).or_default() += 1;
            }
        }
        let mut members: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in &self.nodes {
            for (socket, heard) in &node.sockets {
                for channel in heard.iter().filter(|channel| channel.starts_with("presence-")) {
                    members.entry(channel.clone()).or_default().insert(user(node.id, *socket));
                }
            }
        }
        for node in &self.nodes {
            let others =
                Report { nodes: self.nodes.len() as u64 - 1, ready: true, ..node.cluster.report() };
            assert_eq!(node.cluster.report(), others, "{:?}", node.id);
            for name in CHANNELS {
                assert_eq!(
                    node.subscribers(name),
                    channels.get(*name).copied().unwrap_or(0),
                    "{:?} {name}",
                    node.id
                );
                if name.starts_with("presence-") {
                    assert_eq!(
                        node.members(name),
                        members.get(*name).cloned().unwrap_or_default(),
                        "{:?} {name}",
                        node.id
                    );
                }
            }
        }
    }

    /// Returns what all diaries together report of a channel, sorted.
    fn told(&self, channel: &str) -> Vec<String> {
        let mut told: Vec<String> = self
            .nodes
            .iter()
            .flat_map(|node| node.diary.read())
            .filter(|line| line.starts_with(&format!("{channel} ")))
            .collect();
        told.sort();
        told
    }

    fn forget_diaries(&self) {
        for node in &self.nodes {
            node.diary.read();
        }
    }
}

const CHANNELS: &[&str] = &["a", "b", "private-c", "presence-d", "presence-e"];

/// Returns a user for a socket; some users have sockets on several nodes.
fn user(node: NodeId, socket: u32) -> String {
    if socket.is_multiple_of(3) {
        String::from("everywhere")
    } else {
        format!("u{}-{socket}", node.0)
    }
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn an_event_of_one_node_is_delivered_once_on_all_and_not_to_its_author() {
    let mut world = World::new(1, 3, Weather::default());
    world.pass(Duration::from_secs(3));
    for node in &mut world.nodes {
        let socket = node.open();
        node.subscribe(socket, "private-c", "");
        node.subscribe(socket, "a", "");
    }
    world.pass(Duration::from_secs(1));
    let author = world.nodes[1].server.id(0);
    world.nodes[0].server.publish_but("a", "n", r#""by the server""#, Some(author)).unwrap();
    world.nodes[1]
        .server
        .says(0, r#"{"event":"client-x","channel":"private-c","data":"by a client"}"#);
    world.pass(Duration::from_secs(1));
    let heard = |node: &mut Node| (node.times(0, "by the server"), node.times(0, "by a client"));
    let heard: Vec<_> = world.nodes.iter_mut().map(heard).collect();
    assert_eq!(heard, [(1, 1), (0, 0), (1, 1)]);
    world.agree();
}

#[test]
fn a_user_is_terminated_on_all_nodes() {
    let mut world = World::new(2, 3, Weather::default());
    world.pass(Duration::from_secs(3));
    for node in &mut world.nodes {
        let socket = node.open();
        node.server.sign_in(socket, r#"{"id":"7"}"#);
    }
    world.pass(Duration::from_secs(1));
    let app = Arc::clone(&world.nodes[2].server.app);
    world.nodes[2].server.channels.terminate(&app, "7");
    world.pass(Duration::from_secs(1));
    for node in &mut world.nodes {
        assert_eq!(node.server.closed(0).unwrap().code, 4009);
    }
}

#[test]
fn a_lost_termination_is_repeated_but_does_not_affect_later_connections() {
    let mut world = World::new(12, 2, Weather::default());
    world.pass(Duration::from_secs(3));
    let user = world.nodes[1].open();
    world.nodes[1].server.sign_in(user, r#"{"id":"7"}"#);
    world.pass(Duration::from_secs(1));
    world.weather.lost = 1000;
    let app = Arc::clone(&world.nodes[0].server.app);
    world.nodes[0].server.channels.terminate(&app, "7");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.nodes[1].server.closed(user), None);
    world.weather.lost = 0;
    world.pass(Duration::from_secs(5));
    assert_eq!(world.nodes[1].server.closed(user).unwrap().code, 4009);
    // A new node receives the termination in its first round, and has no connection of that user.
    let back = world.nodes[1].open();
    world.nodes[1].server.sign_in(back, r#"{"id":"7"}"#);
    world.add();
    let remote = world.nodes[2].open();
    world.nodes[2].server.sign_in(remote, r#"{"id":"7"}"#);
    world.pass(Duration::from_secs(10));
    assert_eq!(
        (world.nodes[1].server.closed(back), world.nodes[2].server.closed(remote)),
        (None, None)
    );
}

#[test]
fn a_dead_nodes_members_are_removed_and_subscribers_are_notified() {
    let mut world = World::new(3, 3, Weather::default());
    world.pass(Duration::from_secs(3));
    let watcher = world.nodes[0].open();
    world.nodes[0].subscribe(watcher, "presence-d", "watcher");
    let lost = world.nodes[2].open();
    world.nodes[2].subscribe(lost, "presence-d", "lost");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.nodes[1].members("presence-d").len(), 2);
    world.nodes[0].collect();
    world.nodes[0].got.clear();
    world.forget_diaries();

    world.kill(2);
    world.pass(Duration::from_secs(4));
    assert_eq!(world.nodes[0].members("presence-d").len(), 2, "patience");
    world.pass(Duration::from_secs(3));
    for node in &world.nodes {
        assert_eq!(node.members("presence-d"), BTreeSet::from([String::from("watcher")]));
        assert_eq!(node.cluster.report().died, 1);
    }
    world.nodes[0].collect();
    let got = &world.nodes[0].got[&watcher];
    assert_eq!(got.iter().filter(|text| text.contains("member_removed")).count(), 1, "{got:?}");
    assert_eq!(world.told("presence-d"), ["presence-d -lost"]);
}

#[test]
fn a_stopping_node_says_goodbye_and_is_removed_at_once() {
    let mut world = World::new(4, 3, Weather::default());
    world.pass(Duration::from_secs(3));
    let socket = world.nodes[2].open();
    world.nodes[2].subscribe(socket, "a", "");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.nodes[0].subscribers("a"), 1);
    world.nodes[2].cluster.end();
    let goodbye = world.nodes[2].outbox.take();
    let gone = world.kill(2);
    for packet in &goodbye {
        world.send(gone.id, packet);
    }
    world.turn();
    assert_eq!(world.nodes[0].subscribers("a"), 0);
    world.agree();
    for packet in &goodbye {
        world.send(gone.id, packet);
    }
    world.pass(LONG);
    world.agree();
}

#[test]
fn a_later_node_reaches_the_state_of_the_others() {
    let mut world = World::new(5, 2, Weather::default());
    world.pass(Duration::from_secs(3));
    let socket = world.nodes[0].open();
    world.nodes[0].subscribe(socket, "presence-d", &user(NodeId(1), socket));
    world.nodes[1].server.publish("cache-x", "n", r#""last""#).unwrap();
    world.pass(Duration::from_secs(10));
    world.forget_diaries();
    world.add();
    world.pass(Duration::from_secs(3));
    world.agree();
    let late = world.nodes[2].open();
    world.nodes[2].subscribe(late, "cache-x", "");
    assert_eq!(world.nodes[2].times(late, "last"), 1);
    assert_eq!(world.told("presence-d"), [""; 0], "that a node is new is no news");
}

#[test]
fn both_sides_of_a_cut_network_continue_and_reunite() {
    let mut world = World::new(6, 3, Weather::default());
    world.pass(Duration::from_secs(3));
    for node in &mut world.nodes {
        let socket = node.open();
        node.subscribe(socket, "presence-d", &format!("u{}", node.id.0));
    }
    world.pass(Duration::from_secs(1));
    world.island.insert(NodeId(3));
    world.pass(Duration::from_secs(10));
    let members: Vec<_> = world.nodes.iter().map(|node| node.members("presence-d").len()).collect();
    assert_eq!(members, [2, 2, 1]);
    world.nodes[2].server.publish("presence-d", "n", r#""alone""#).unwrap();
    world.turn();
    world.island.clear();
    world.pass(Duration::from_secs(5));
    let members: Vec<_> = world.nodes.iter().map(|node| node.members("presence-d").len()).collect();
    assert_eq!(members, [3, 3, 3]);
    world.nodes[2].server.publish("presence-d", "n", r#""together""#).unwrap();
    world.pass(Duration::from_secs(1));
    let heard: Vec<_> = world
        .nodes
        .iter_mut()
        .map(|node| (node.times(0, "alone"), node.times(0, "together")))
        .collect();
    assert_eq!(heard, [(0, 1), (0, 1), (1, 1)]);
}

#[test]
fn the_state_of_other_nodes_stays_valid_for_a_while_without_the_broker() {
    let mut world = World::new(7, 2, Weather::default());
    world.pass(Duration::from_secs(3));
    let socket = world.nodes[1].open();
    world.nodes[1].subscribe(socket, "a", "");
    world.pass(Duration::from_secs(1));
    world.nodes[0].cluster.lost(world.now);
    world.island.insert(NodeId(1));
    world.pass(Duration::from_secs(25));
    assert_eq!(
        (world.nodes[0].subscribers("a"), world.nodes[0].cluster.report().connected),
        (1, false)
    );
    world.pass(Duration::from_secs(6));
    assert_eq!(world.nodes[0].subscribers("a"), 0);
    world.island.clear();
    world.nodes[0].cluster.found(world.now);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.nodes[0].subscribers("a"), 1);
    world.agree();
}

#[test]
fn a_short_outage_of_the_broker_removes_no_member() {
    let mut world = World::new(8, 2, Weather::default());
    world.pass(Duration::from_secs(3));
    let (here, there) = (world.nodes[0].open(), world.nodes[1].open());
    world.nodes[0].subscribe(here, "presence-d", "here");
    world.nodes[1].subscribe(there, "presence-d", "there");
    world.pass(Duration::from_secs(1));
    world.nodes[0].collect();
    world.nodes[0].got.clear();
    for node in &mut world.nodes {
        node.cluster.lost(world.now);
    }
    world.weather.lost = 1000;
    world.pass(Duration::from_secs(20));
    world.weather.lost = 0;
    for node in &mut world.nodes {
        node.cluster.found(world.now);
    }
    world.pass(Duration::from_secs(10));
    world.nodes[0].collect();
    let got = &world.nodes[0].got[&here];
    assert!(!got.iter().any(|text| text.contains("member_")), "{got:?}");
}

#[test]
fn records_above_the_limit_cause_a_gap_that_other_nodes_detect_and_fill() {
    let mut world = World::new(9, 2, Weather::default());
    world.pass(Duration::from_secs(3));
    let long = "x".repeat(100_000);
    for number in 0..1000 {
        world.nodes[0].server.publish("a", "n", &format!(r#""{long}""#)).unwrap();
        if number == 900 {
            let socket = world.nodes[0].open();
            world.nodes[0].subscribe(socket, "b", "");
        }
    }
    let waiting: usize = world.nodes[0].outbox.take().iter().map(Bytes::len).sum();
    assert!(waiting < 70 * 1024 * 1024, "{waiting}");
    assert_eq!(world.nodes[1].subscribers("b"), 0);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.nodes[1].subscribers("b"), 1);
    assert!(world.nodes[1].cluster.report().missed > 0);
}

#[test]
fn a_dropped_round_is_repeated() {
    let mut world = World::new(9, 2, Weather::default());
    world.pass(Duration::from_secs(3));
    let socket = world.nodes[0].open();
    world.nodes[0].subscribe(socket, "b", "");
    world.pass(Duration::from_secs(3));
    // The first packet of a new node requests the whole state while the outbox is full.
    world.add();
    world.turn();
    assert_eq!(world.nodes[0].inbox.len(), 1);
    let long = "x".repeat(100_000);
    for _ in 0..700 {
        world.nodes[0].server.publish("a", "n", &format!(r#""{long}""#)).unwrap();
    }
    world.nodes[0].wake = world.now;
    world.pass(Duration::from_millis(20));
    world.pass(LONG);
    world.agree();
}

#[test]
fn one_node_reports_each_channel_and_each_node_reports_a_share() {
    let mut world = World::new(10, 5, Weather::default());
    world.pass(Duration::from_secs(3));
    let mut shares = vec![0; 5];
    for number in 0..1000 {
        let channel = format!("channel-{number}");
        let reporting: Vec<_> = (0..5)
            .filter(|index| {
                crate::nodes::Nodes::reports(&*world.nodes[*index].outbox, &world.app, &channel)
            })
            .collect();
        assert_eq!(reporting.len(), 1);
        shares[reporting[0]] += 1;
    }
    assert!(shares.iter().all(|share| (120..300).contains(share)), "{shares:?}");
}

#[test]
fn simultaneous_changes_on_all_nodes_are_reported_once() {
    let mut world = World::new(11, 3, Weather::default());
    world.pass(Duration::from_secs(3));
    for node in &mut world.nodes {
        let socket = node.open();
        node.subscribe(socket, "presence-d", &format!("u{}", node.id.0));
    }
    world.pass(Duration::from_secs(1));
    let expected = ["presence-d +u1", "presence-d +u2", "presence-d +u3", "presence-d occupied"];
    assert_eq!(world.told("presence-d"), expected);
}

#[derive(Clone, Debug)]
enum Act {
    Open(usize),
    Close(usize, usize),
    Subscribe(usize, usize, usize),
    Unsubscribe(usize, usize, usize),
    Publish(usize, usize),
    Pass(u64),
    Kill(usize),
    Add,
    Cut(usize),
    Heal,
}

fn act() -> impl Strategy<Value = Act> {
    let any = 0..8_usize;
    prop_oneof![
        4 => any.clone().prop_map(Act::Open),
        2 => (any.clone(), any.clone()).prop_map(|(node, socket)| Act::Close(node, socket)),
        8 => (any.clone(), any.clone(), 0..5_usize).prop_map(|(node, socket, channel)| Act::Subscribe(node, socket, channel)),
        3 => (any.clone(), any.clone(), 0..5_usize).prop_map(|(node, socket, channel)| Act::Unsubscribe(node, socket, channel)),
        6 => (any.clone(), 0..5_usize).prop_map(|(node, channel)| Act::Publish(node, channel)),
        5 => (20..3000_u64).prop_map(Act::Pass),
        1 => any.clone().prop_map(Act::Kill),
        1 => Just(Act::Add),
        1 => any.prop_map(Act::Cut),
        1 => Just(Act::Heal),
    ]
}

/// Performs all steps and returns the published events.
fn live(world: &mut World, acts: Vec<Act>) -> Vec<String> {
    let mut published = Vec::new();
    for act in acts {
        let nodes = world.nodes.len();
        match act {
            Act::Open(node) => {
                world.nodes[node % nodes].open();
            }
            Act::Close(node, socket) => {
                let node = &mut world.nodes[node % nodes];
                if let Some(socket) = node.sockets.keys().nth(socket).copied() {
                    node.close(socket);
                }
            }
            Act::Subscribe(node, socket, channel) => {
                let node = &mut world.nodes[node % nodes];
                if let Some((socket, heard)) = node.sockets.iter().nth(socket)
                    && !heard.contains(CHANNELS[channel])
                {
                    let socket = *socket;
                    node.subscribe(socket, CHANNELS[channel], &user(node.id, socket));
                }
            }
            Act::Unsubscribe(node, socket, channel) => {
                let node = &mut world.nodes[node % nodes];
                if let Some((socket, heard)) = node.sockets.iter_mut().nth(socket)
                    && heard.remove(CHANNELS[channel])
                {
                    let socket = *socket;
                    node.server.unsubscribe(socket, CHANNELS[channel]);
                }
            }
            Act::Publish(node, channel) => {
                let data = format!("event {}", published.len());
                world.nodes[node % nodes]
                    .server
                    .publish(CHANNELS[channel], "n", &format!(r#""{data}""#))
                    .unwrap();
                published.push(data);
            }
            Act::Pass(millis) => world.pass(Duration::from_millis(millis)),
            Act::Kill(node) if nodes > 1 => drop(world.kill(node % nodes)),
            Act::Add if nodes < 5 => world.add(),
            Act::Kill(_) | Act::Add => {}
            Act::Cut(node) => {
                let id = world.nodes[node % nodes].id;
                world.island.insert(id);
            }
            Act::Heal => world.island.clear(),
        }
    }
    published
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// With packets lost, doubled and late, nodes killed and networks cut, no event is delivered twice, and in the
    /// end all nodes report the true state.
    #[test]
    fn nodes_agree_in_the_end_and_deliver_nothing_twice(seed: u64, acts in prop::collection::vec(act(), 1..60)) {
        let mut world = World::new(seed, 3, Weather { lost: 50, doubled: 100, delay: 300 });
        let published = live(&mut world, acts);
        for data in &published {
            for node in &mut world.nodes {
                for socket in node.sockets.keys().copied().collect::<Vec<_>>() {
                    prop_assert!(node.times(socket, data) <= 1);
                }
            }
        }
        world.island.clear();
        world.weather = Weather::default();
        world.pass(LONG);
        world.agree();
    }

    /// On a network that only delays packets, each node receives every event published while it was subscribed, and
    /// each change is reported once.
    #[test]
    fn on_a_reliable_network_no_event_is_missed_and_each_change_is_reported_once(seed: u64, channel in 0..5_usize) {
        let channel = CHANNELS[channel];
        let mut world = World::new(seed, 3, Weather::default());
        world.pass(LONG);
        let first = world.nodes[(seed % 3) as usize].open();
        world.nodes[(seed % 3) as usize].subscribe(first, channel, "x");
        world.pass(Duration::from_secs(1));
        for node in &mut world.nodes {
            let socket = node.open();
            node.subscribe(socket, channel, &format!("u{}", node.id.0));
        }
        world.pass(Duration::from_secs(1));
        for number in 0..30 {
            let node = usize::try_from(world.dice.roll(3)).unwrap();
            world.nodes[node].server.publish(channel, "n", &format!(r#""event {number}.""#)).unwrap();
            let pause = world.dice.roll(40);
            world.pass(Duration::from_millis(pause));
        }
        world.pass(Duration::from_secs(1));
        for node in &mut world.nodes {
            for socket in node.sockets.keys().copied().collect::<Vec<_>>() {
                for number in 0..30 {
                    prop_assert_eq!(node.times(socket, &format!("event {number}.")), 1);
                }
            }
        }
        for node in &mut world.nodes {
            for socket in node.sockets.keys().copied().collect::<Vec<_>>() {
                node.close(socket);
            }
        }
        world.pass(Duration::from_secs(1));
        let mut expected = vec![format!("{channel} occupied"), format!("{channel} vacated")];
        if channel.starts_with("presence-") {
            expected.extend(["x", "u1", "u2", "u3"].iter().flat_map(|user| [format!("{channel} +{user}"), format!("{channel} -{user}")]));
        }
        expected.sort();
        // The current number of subscribers is reported too, by a line with a number at the end.
        let is_count = |line: &String| line.rsplit(' ').next().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let told: Vec<_> = world.told(channel).into_iter().filter(|line| !is_count(line)).collect();
        prop_assert_eq!(told, expected);
    }
}

mod brokers;
mod cuts;
mod logs;
mod played;
mod processes;
mod slow;
mod streams;
