//! Several nodes: each lists the subscriptions of all, the end of those of a killed node is reported once, and subscribers
//! move to a node that has read less.

use std::time::Duration;

use super::*;
use crate::realtime::shared::cluster::Relay;

/// What the subscription API of a node lists, as pairs of topic and payload.
fn listed(node: &Node) -> Vec<(String, String)> {
    let target = format!("{HUB}/subscriptions");
    let bearer = format!("Bearer {TOKEN}");
    let mut client = Client::connect(node.address).unwrap();
    let answer = client.request("GET", &target, &[("Authorization", &bearer)], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let each = answer["subscriptions"].as_array().unwrap().iter();
    let mut each: Vec<_> = each
        .map(|one| (one["topic"].as_str().unwrap().to_owned(), one["payload"].to_string()))
        .collect();
    each.sort();
    each
}

/// Returns how often a stream has reported the state of the subscriptions of this topic.
fn reports(stream: &Stream, topic: &str, active: bool) -> usize {
    let (topic, active) = (format!("\"topic\":\"{topic}\""), format!("\"active\":{active}"));
    stream.text.lines().filter(|line| line.contains(&topic) && line.contains(&active)).count()
}

fn ends_are_reported(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(kind, Start::Empty, &folder);
    let scheme = if kind == Kind::Redis { "redis" } else { "nats" };
    let config = format!(
        "[realtime]\nadapter = \"{scheme}://127.0.0.1:{}\"\n{}",
        broker.port,
        settings("anonymous = true\nsubscriptions = true")
    );
    let mut nodes = [node(&config), node(&config), node(&config), node(&config)];
    let watch = format!("topic={HUB}/subscriptions/%7Btopic%7D/%7Bid%7D&authorization={TOKEN}");
    let mut watchers =
        [Stream::open(nodes[0].address, &watch), Stream::open(nodes[1].address, &watch)];
    let claims = r#"{"mercure":{"subscribe":["*"],"payload":{"name":"ann"}}}"#;
    let ann = token(r#"{"alg":"HS256"}"#, claims, KEY);
    let _killed = [
        Stream::open(
            nodes[2].address,
            &format!("topic=killed-a&topic=killed-b&authorization={ann}"),
        ),
        Stream::open(nodes[2].address, "topic=killed-a"),
    ];
    let _stopped = Stream::open(nodes[3].address, "topic=stopped");
    let left = Stream::open(nodes[0].address, "topic=left");
    for watcher in &mut watchers {
        let of = |watcher: &Stream, topic| reports(watcher, topic, true);
        watcher.read_until(|watcher| {
            of(watcher, "killed-a") == 2
                && of(watcher, "killed-b") + of(watcher, "stopped") + of(watcher, "left") == 3
        });
        assert!(watcher.text.contains(r#""payload":{"name":"ann"}"#), "{}", watcher.text);
    }
    // Each node lists the subscribers of all.
    let is_watch = |(topic, _): &(String, String)| topic.starts_with(HUB);
    let of_others =
        |node: &Node| listed(node).into_iter().filter(|one| !is_watch(one)).collect::<Vec<_>>();
    let expected = [
        ("killed-a", "null"),
        ("killed-a", r#"{"name":"ann"}"#),
        ("killed-b", r#"{"name":"ann"}"#),
        ("left", "null"),
        ("stopped", "null"),
    ];
    let expected = expected.map(|(topic, payload)| (topic.to_owned(), payload.to_owned()));
    for node in &nodes {
        eventually("all are listed", LIMIT, || of_others(node) == expected);
    }

    nodes[2].process.signal(Signal::KILL);
    nodes[3].process.signal(Signal::TERM);
    drop(left);
    nodes[2].process.wait(LIMIT);
    assert!(nodes[3].process.wait(LIMIT).success());
    // The comments of a silent stream tell that a client has left: the publication takes their place.
    for node in &nodes[..2] {
        eventually("they are gone", LIMIT, || {
            publish(nodes[0].address, "topic=left&data=x");
            of_others(node).is_empty()
        });
        assert_eq!(listed(node).iter().filter(|one| is_watch(one)).count(), 2, "{kind:?}");
    }
    // A list is shorter before that is published: the ends arrive, and no second one of them until something later does.
    let times = [("killed-a", 2), ("killed-b", 1), ("stopped", 1), ("left", 1)];
    for (node, watcher) in nodes[..2].iter().zip(&mut watchers) {
        watcher.read_until(|watcher| {
            times.iter().all(|(topic, times)| reports(watcher, topic, false) >= *times)
        });
        let late = Stream::open(node.address, "topic=late");
        watcher.read_until(|watcher| reports(watcher, "late", true) > 0);
        drop(late);
    }
    for watcher in &mut watchers {
        for (topic, times) in times {
            for active in [true, false] {
                let found = reports(watcher, topic, active);
                assert_eq!(found, times, "{kind:?} {topic} {active}: {}", watcher.text);
            }
        }
    }
}

#[test]
fn the_end_of_a_killed_nodes_mercure_subscriptions_is_reported_once_through_redis() {
    ends_are_reported(Kind::Redis);
}

#[test]
fn the_end_of_a_killed_nodes_mercure_subscriptions_is_reported_once_through_nats() {
    ends_are_reported(Kind::Nats);
}

fn subscribers_move_to_a_node_that_has_read_less(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(kind, Start::Empty, &folder);
    let relay = Relay::start(broker.port);
    let scheme = if kind == Kind::Redis { "redis" } else { "nats" };
    let start = |broker: SocketAddr| {
        let adapter = format!("[realtime]\nadapter = \"{scheme}://{broker}\"\n");
        node(&format!("{adapter}{}", settings("anonymous = true")))
    };
    let ahead = start(SocketAddr::from(([127, 0, 0, 1], broker.port)));
    let behind = start(relay.address);
    let mut stream = Stream::open(behind.address, "topic=a");
    publish(ahead.address, "topic=a&id=u1&data=1");
    stream.until("id: u1\n");
    relay.cut(true);
    for id in ["u2", "u3"] {
        publish(ahead.address, &format!("topic=a&id={id}&data=2"));
    }
    // A browser comes back when its stream ends; the last answer is that of a node that has caught up.
    let moved = std::thread::spawn(move || {
        loop {
            let stream = Stream::open(behind.address, "topic=a&lastEventID=u3");
            if stream.answer.field("last-event-id").is_some() {
                return (stream, behind);
            }
        }
    });
    // Before, the node answered at once.
    std::thread::sleep(Duration::from_millis(500));
    relay.cut(false);
    let (mut moved, _behind) = moved.join().unwrap();
    stream.until("id: u3\n");
    publish(ahead.address, "topic=a&id=u4&data=4");
    let text = moved.until("data: 4\n");
    let ids: Vec<&str> = text.lines().filter(|line| line.starts_with("id: ")).collect();
    assert_eq!(ids, ["id: u4"], "{kind:?}");
    assert_eq!(moved.answer.field("last-event-id"), Some("u3"), "{kind:?}");
    // An id that no node knows is answered by a node that knows that.
    let unknown = Stream::open(ahead.address, "topic=a&lastEventID=unknown");
    assert_eq!(unknown.answer.field("last-event-id"), Some("u4"), "{kind:?}");
}

#[test]
fn a_mercure_subscriber_that_moves_to_a_node_that_lags_behind_redis_gets_nothing_twice() {
    subscribers_move_to_a_node_that_has_read_less(Kind::Redis);
}

#[test]
fn a_mercure_subscriber_that_moves_to_a_node_that_lags_behind_nats_gets_nothing_twice() {
    subscribers_move_to_a_node_that_has_read_less(Kind::Nats);
}
