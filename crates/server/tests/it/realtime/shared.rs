//! Three nodes that share the history of their channels through a real broker: nodes are killed, cut off and replaced,
//! the broker restarts, and no client loses an event or gets one twice.

pub(super) mod cluster;
mod crowd;

use std::time::Duration;

use channels::Secret;
use channels::auth::sign;
use serde_json::json;
use testkit::eventually;

use super::Client;
use cluster::{Cluster, Kind, Start};
use crowd::{Crowd, Told};

use crate::hearth::LIMIT;

/// Publishes through the nodes in turn until `done`; an event that was not confirmed counts as neither.
fn publish_while(cluster: &Cluster, told: &mut Told, nodes: &[usize], events: usize) {
    for index in 0..events {
        told.publish(cluster, nodes[index % nodes.len()]);
    }
}

fn nodes_die_and_are_cut_off(kind: Kind) {
    let mut cluster = Cluster::start(kind, Start::Empty, 3);
    let crowd = Crowd::start(&cluster, 30);
    let mut told = Told::default();
    publish_while(&cluster, &mut told, &[0, 1, 2], 30);

    // Node 0 is killed while events are on their way.
    cluster.kill(0);
    publish_while(&cluster, &mut told, &[1, 2], 30);
    cluster.restart(0);
    publish_while(&cluster, &mut told, &[0, 1, 2], 30);

    // Node 1 is cut off from the broker: it confirms nothing, and its clients get everything later.
    cluster.cut(1, true);
    publish_while(&cluster, &mut told, &[0, 2], 20);
    assert_eq!(told.publish(&cluster, 1), 503, "{kind:?}: nothing can be stored");
    publish_while(&cluster, &mut told, &[0, 2], 20);
    cluster.cut(1, false);
    eventually("the node stores events again", LIMIT, || told.publish(&cluster, 1) == 200);
    publish_while(&cluster, &mut told, &[0, 1, 2], 30);
    let gaps = crowd.check(&told);
    assert_eq!(gaps, 0, "{kind:?}: every position was known");
}

#[test]
fn killed_and_cut_off_nodes_of_redis_lose_no_event_and_double_none() {
    nodes_die_and_are_cut_off(Kind::Redis);
}

#[test]
fn killed_and_cut_off_nodes_of_nats_lose_no_event_and_double_none() {
    nodes_die_and_are_cut_off(Kind::Nats);
}

fn the_broker_restarts(kind: Kind, start: Start) {
    let mut cluster = Cluster::start(kind, start, 3);
    let crowd = Crowd::start(&cluster, 30);
    let mut told = Told::default();
    publish_while(&cluster, &mut told, &[0, 1, 2], 30);
    crowd.wait(&told);
    cluster.restart_broker();
    eventually("events are stored again", LIMIT, || told.publish(&cluster, 0) == 200);
    publish_while(&cluster, &mut told, &[0, 1, 2], 30);
    // A client that comes with a position of before.
    crowd.reconnect_all();
    publish_while(&cluster, &mut told, &[0, 1, 2], 10);
    let gaps = crowd.check(&told);
    match start {
        Start::Kept => assert_eq!(gaps, 0, "{kind:?}: the broker kept the events"),
        Start::Empty => assert!(gaps >= 30, "{kind:?}: {gaps} of 30 clients were told of the loss"),
    }
}

#[test]
fn a_redis_that_keeps_its_data_loses_no_event_at_a_restart() {
    the_broker_restarts(Kind::Redis, Start::Kept);
}

#[test]
fn a_jetstream_that_keeps_its_data_loses_no_event_at_a_restart() {
    the_broker_restarts(Kind::Nats, Start::Kept);
}

#[test]
fn an_empty_redis_after_a_restart_is_reported_to_every_client() {
    the_broker_restarts(Kind::Redis, Start::Empty);
}

#[test]
fn an_empty_jetstream_after_a_restart_is_reported_to_every_client() {
    the_broker_restarts(Kind::Nats, Start::Empty);
}

/// Replaces all nodes, one after the other, while events are published.
fn nodes_are_replaced(kind: Kind, clients: usize) {
    let mut cluster = Cluster::start(kind, Start::Empty, 3);
    let crowd = Crowd::start(&cluster, clients);
    let mut told = Told::default();
    publish_while(&cluster, &mut told, &[0, 1, 2], 10);
    for node in 0..3 {
        let others: Vec<usize> = (0..3).filter(|other| *other != node).collect();
        let ending = cluster.end(node);
        publish_while(&cluster, &mut told, &others, 10);
        ending.join().unwrap();
        publish_while(&cluster, &mut told, &others, 5);
        cluster.restart(node);
        publish_while(&cluster, &mut told, &[0, 1, 2], 5);
    }
    let gaps = crowd.check(&told);
    assert_eq!(gaps, 0, "{kind:?}: every position was known");
}

#[test]
fn a_rolling_upgrade_under_300_clients_loses_no_event_and_doubles_none() {
    nodes_are_replaced(Kind::Redis, 300);
}

#[test]
fn a_rolling_upgrade_under_5000_clients_of_redis_loses_no_event_and_doubles_none() {
    nodes_are_replaced(Kind::Redis, 5000);
}

#[test]
fn a_rolling_upgrade_under_5000_clients_of_nats_loses_no_event_and_doubles_none() {
    nodes_are_replaced(Kind::Nats, 5000);
}

/// Each node is connected to another master, and one of them has the log.
#[test]
fn nodes_of_a_redis_cluster_share_events_and_history() {
    nodes_are_replaced(Kind::RedisCluster, 30);
}

/// Returns a client that is a member of a presence channel through a node, and the members that it was told.
fn member(cluster: &Cluster, node: usize, user: &str) -> (Client, Vec<String>) {
    let address = cluster.addresses.read().unwrap()[node].unwrap();
    let mut client = Client::open_through(address, "key", &[]);
    let (_, established) = client.next();
    let socket = established["socket_id"].as_str().unwrap();
    let data = json!({ "user_id": user }).to_string();
    let signature =
        sign(&Secret::new("secret"), format!("{socket}:presence-room:{data}").as_bytes());
    client.send(&json!({"event": "pusher:subscribe", "data": {
        "channel": "presence-room", "auth": format!("key:{signature}"), "channel_data": data,
    }}));
    let (event, members) = client.next();
    assert_eq!(event, "pusher_internal:subscription_succeeded", "{members}");
    let ids = members["presence"]["ids"].as_array().unwrap();
    (client, ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect())
}

fn members_move_to_other_nodes(kind: Kind) {
    let mut cluster = Cluster::start(kind, Start::Empty, 3);
    let (mut watcher, _) = member(&cluster, 1, "watcher");
    let (_lost, _) = member(&cluster, 0, "moves");
    let (_gone, _) = member(&cluster, 0, "leaves");
    let mut next = || {
        let (event, data) = watcher.next();
        (event, data["user_id"].as_str().unwrap_or_default().to_owned())
    };
    let added = |user: &str| ("pusher_internal:member_added".to_owned(), user.to_owned());
    let removed = |user: &str| ("pusher_internal:member_removed".to_owned(), user.to_owned());
    assert_eq!([next(), next()], [added("moves"), added("leaves")], "{kind:?}");
    // A second connection of a member that is there changes nothing.
    let knows = |cluster: &Cluster, node: usize, members: usize| {
        let known = || member(cluster, node, "watcher").1.len() == members;
        eventually("the node knows all members", LIMIT, known);
    };
    knows(&cluster, 2, 3);
    // One member is there through another node, too, before its node is killed. After that it would depend on how fast that is noticed.
    let (moved, members) = member(&cluster, 2, "moves");
    assert_eq!(members.len(), 3, "{kind:?}: {members:?}");
    cluster.kill(0);
    // A member that is there through another node has not left.
    assert_eq!(next(), removed("leaves"), "{kind:?}");
    // The node comes back without members, and learns who is there.
    cluster.restart(0);
    knows(&cluster, 0, 2);
    let (_late, members) = member(&cluster, 0, "late");
    assert_eq!(members.len(), 3, "{kind:?}: {members:?}");
    assert_eq!(next(), added("late"), "{kind:?}");
    drop(moved);
    assert_eq!(next(), removed("moves"), "{kind:?}");
}

#[test]
fn members_of_a_killed_node_of_redis_move_to_others_or_leave() {
    members_move_to_other_nodes(Kind::Redis);
}

#[test]
fn members_of_a_killed_node_of_nats_move_to_others_or_leave() {
    members_move_to_other_nodes(Kind::Nats);
}

#[test]
fn members_of_a_killed_node_of_a_redis_cluster_move_to_others_or_leave() {
    members_move_to_other_nodes(Kind::RedisCluster);
}

/// How long the nodes of these tests wait for a broker before they answer 503.
const WAIT: Duration = Duration::from_secs(1);
