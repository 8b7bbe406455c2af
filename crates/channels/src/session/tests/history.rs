//! Tests resuming from a position in the history.

use std::time::Duration;

use serde_json::{Value, json};

use crate::testing::{Loop, app};
use crate::{App, History, Room};

fn with_history(events: usize, channels: &[&str]) -> App {
    let mut app = app();
    let channels = channels.iter().map(|prefix| (*prefix).into()).collect();
    app.history = Some(History { events, age: Duration::from_mins(1), channels });
    app
}

/// Subscribes from a position; returns the data of `subscription_succeeded` and the names of the following events.
fn resume(world: &mut Loop, channel: &str, from: &Value) -> (Value, Vec<String>) {
    let socket = world.open().unwrap();
    world.got(socket);
    let mut text = world.signed_subscribe(socket, channel, None);
    text["data"]["resume"] = from.clone();
    world.says(socket, &text.to_string());
    let mut answer = world.events(socket);
    let succeeded = answer.remove(0);
    assert_eq!(succeeded["event"], "pusher_internal:subscription_succeeded");
    let names = answer.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    world.close(socket);
    (succeeded["data"].clone(), names)
}

#[test]
fn events_carry_their_offset_and_missed_ones_arrive_once_and_in_order() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    let answer = world.subscribe(socket, "news", None);
    let place = answer[0]["data"]["resume"].clone();
    assert_eq!(place["offset"], 0);
    assert_eq!(place["epoch"].as_str().unwrap().len(), 16);
    assert_eq!(answer[0]["data"].get("recovered"), None, "it was not asked");

    world.publish("news", "a", "1").unwrap();
    assert_eq!(world.got(socket), [r#"{"event":"a","channel":"news","data":1,"offset":1}"#]);
    world.close(socket);
    for name in ["b", "c"] {
        world.publish("news", name, "1").unwrap();
    }
    let epoch = &place["epoch"];
    for (offset, missed) in [(0, &["a", "b", "c"][..]), (1, &["b", "c"]), (2, &["c"]), (3, &[])] {
        let (data, names) = resume(&mut world, "news", &json!({"epoch": epoch, "offset": offset}));
        assert_eq!(data, json!({"resume": {"epoch": epoch, "offset": 3}, "recovered": true}));
        assert_eq!(names, missed);
    }
    let counters = world.channels.statistics().of(&world.app.id);
    assert_eq!((counters.recovered.get(), counters.not_recovered.get()), (4, 0));
}

#[test]
fn a_position_outside_the_history_is_not_recovered() {
    let mut world = Loop::new(with_history(2, &[]));
    let socket = world.open().unwrap();
    let place = world.subscribe(socket, "news", None)[0]["data"]["resume"].clone();
    let epoch = place["epoch"].clone();
    for name in ["a", "b", "c"] {
        world.publish("news", name, "1").unwrap();
    }
    let mut recovers = |from: Value| {
        let (data, names) = resume(&mut world, "news", &from);
        assert_eq!(data["resume"], json!({"epoch": epoch, "offset": 3}));
        (data["recovered"].clone(), names.len())
    };
    assert_eq!(recovers(json!({"epoch": epoch, "offset": 1})), (json!(true), 2));
    assert_eq!(recovers(json!({"epoch": epoch, "offset": 0})), (json!(false), 0), "a is not kept");
    assert_eq!(
        recovers(json!({"epoch": epoch, "offset": 4})),
        (json!(false), 0),
        "from the future"
    );
    assert_eq!(recovers(json!({"epoch": epoch, "offset": u64::MAX})), (json!(false), 0));
    assert_eq!(recovers(json!({"epoch": "0000000000000000", "offset": 2})), (json!(false), 0));
    // A malformed position counts as none.
    for nonsense in [
        json!(null),
        json!({}),
        json!([]),
        json!("x"),
        json!({"epoch": 1, "offset": 2}),
        json!({"epoch": epoch, "offset": -1}),
    ] {
        assert_eq!(recovers(nonsense), (Value::Null, 0));
    }
}

#[test]
fn events_expire_and_the_channel_is_removed_with_the_last_one() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    let place = world.subscribe(socket, "news", None)[0]["data"]["resume"].clone();
    world.publish("news", "a", "1").unwrap();
    world.pass(Duration::from_secs(30));
    world.publish("news", "b", "1").unwrap();
    world.close(socket);
    world.pass(Duration::from_secs(30));
    let from = |offset: u32| json!({"epoch": place["epoch"], "offset": offset});
    assert_eq!(resume(&mut world, "news", &from(0)).0["recovered"], false);
    assert_eq!(resume(&mut world, "news", &from(1)).1, ["b"]);
    // The last subscriber may come back for as long as an event is kept.
    world.pass(Duration::from_secs(30));
    assert!(!world.channels.registry().is_empty());
    world.pass(Duration::from_mins(1));
    assert!(world.channels.registry().is_empty());
    let (data, _) = resume(&mut world, "news", &from(2));
    assert_eq!(data["recovered"], false);
    assert_ne!(data["resume"]["epoch"], place["epoch"], "a new beginning has a new epoch");
}

#[test]
fn a_quiet_channel_keeps_its_position_for_its_last_subscriber() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    let place = world.subscribe(socket, "news", None)[0]["data"]["resume"].clone();
    world.close(socket);
    world.pass(Duration::from_secs(59));
    let (data, names) = resume(&mut world, "news", &place);
    assert_eq!((&data["recovered"], names.len()), (&json!(true), 0));
    // What is published meanwhile is not lost.
    world.pass(Duration::from_secs(59));
    world.publish("news", "a", "1").unwrap();
    assert_eq!(resume(&mut world, "news", &place).1, ["a"]);
}

#[test]
fn channels_that_nobody_needs_are_kept_up_to_a_bound() {
    let mut app = with_history(10, &[]);
    app.limits.subscription_rate = u32::MAX;
    let mut world = Loop::new(app);
    let socket = world.open().unwrap();
    for number in 0..66_000 {
        let name = format!("news-{number}");
        world.subscribe(socket, &name, None);
        world.unsubscribe(socket, &name);
    }
    assert_eq!(world.channels.registry().len(), 65_536);
    world.pass(Duration::from_secs(61));
    assert!(world.channels.registry().is_empty());
    world.subscribe(socket, "news", None);
    world.close(socket);
    assert_eq!(world.channels.registry().len(), 1, "the places are free again");
}

#[test]
fn a_subscribed_channel_keeps_its_epoch_without_events() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    let place = world.subscribe(socket, "news", None)[0]["data"]["resume"].clone();
    world.publish("news", "a", "1").unwrap();
    world.now = world.now + Duration::from_hours(1);
    world.channels.tick(world.now);
    let from = json!({"epoch": place["epoch"], "offset": 1});
    assert_eq!(resume(&mut world, "news", &from).0["recovered"], true);
}

#[test]
fn only_configured_channels_have_a_history() {
    let mut world = Loop::new(with_history(10, &["private-", "cache-"]));
    let socket = world.open().unwrap();
    assert_eq!(world.subscribe(socket, "news", None)[0]["data"], json!({}));
    assert_eq!(world.subscribe(socket, "private-a", None)[0]["data"]["resume"]["offset"], 0);
    world.publish("news", "a", "1").unwrap();
    assert_eq!(world.got(socket), [r#"{"event":"a","channel":"news","data":1}"#]);
    let (data, names) = resume(&mut world, "news", &json!({"epoch": "0", "offset": 0}));
    assert_eq!((data, names.len()), (json!({"recovered": false}), 0));
}

#[test]
fn messages_to_a_user_are_not_in_the_history() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    world.sign_in(socket, r#"{"id":"ann"}"#);
    world.publish("#server-to-user-ann", "hello", "1").unwrap();
    assert_eq!(world.events(socket)[0].get("offset"), None);
    world.close(socket);
    world.publish("#server-to-user-ann", "hello", "1").unwrap();
    assert!(world.channels.registry().is_empty());
}

#[test]
fn client_events_are_not_in_the_history() {
    let mut world = Loop::new(with_history(10, &[]));
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    world.subscribe(one, "private-a", None);
    let place = world.subscribe(other, "private-a", None)[0]["data"]["resume"].clone();
    world.says(one, r#"{"event":"client-a","channel":"private-a","data":1}"#);
    assert_eq!(world.got(other), [r#"{"event":"client-a","channel":"private-a","data":1}"#]);
    let (data, names) = resume(&mut world, "private-a", &place);
    assert_eq!((&data["recovered"], names.len()), (&json!(true), 0));
}

#[test]
fn an_excluded_socket_does_not_receive_the_event_after_reconnecting() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    let place = world.subscribe(socket, "news", None)[0]["data"]["resume"].clone();
    let id = world.id(socket).to_string();
    world.publish_but("news", "mine", "1", Some(world.id(socket))).unwrap();
    world.publish("news", "yours", "1").unwrap();
    let mut from = json!({"epoch": place["epoch"], "offset": 0});
    assert_eq!(resume(&mut world, "news", &from).1, ["mine", "yours"]);
    from["socket_id"] = id.into();
    assert_eq!(resume(&mut world, "news", &from).1, ["yours"]);
}

#[test]
fn a_cache_channel_sends_its_last_event_only_to_clients_that_did_not_receive_it() {
    let mut world = Loop::new(with_history(10, &[]));
    world.publish("cache-a", "a", "1").unwrap();
    let (data, names) = resume(&mut world, "cache-a", &Value::Null);
    assert_eq!(names, ["a"]);
    let epoch = &data["resume"]["epoch"];
    assert_eq!(resume(&mut world, "cache-a", &json!({"epoch": epoch, "offset": 0})).1, ["a"]);
    assert_eq!(resume(&mut world, "cache-a", &json!({"epoch": epoch, "offset": 1})).1, [""; 0]);
    assert_eq!(resume(&mut world, "cache-a", &json!({"epoch": "0", "offset": 1})).1, ["a"]);
}

#[test]
fn a_cached_event_outlives_its_history_and_no_later_event_is_lost() {
    let mut world = Loop::new(with_history(10, &[]));
    for _ in 0..3 {
        world.publish("cache-a", "old", "1").unwrap();
    }
    let (data, _) = resume(&mut world, "cache-a", &Value::Null);
    let epoch = data["resume"]["epoch"].clone();
    // The events of the history expire; the record of the channel is kept for the cached event.
    world.pass(Duration::from_mins(2));
    for name in ["a", "b", "c", "d"] {
        world.publish("cache-a", name, "1").unwrap();
    }
    let (data, names) = resume(&mut world, "cache-a", &json!({"epoch": epoch, "offset": 3}));
    assert_eq!(data, json!({"resume": {"epoch": epoch, "offset": 7}, "recovered": true}));
    assert_eq!(names, ["a", "b", "c", "d"]);
}

#[test]
fn a_history_that_begins_again_in_the_same_record_has_a_new_epoch() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    let place = world.subscribe(socket, "news", None)[0]["data"]["resume"].clone();
    world.publish("news", "a", "1").unwrap();
    // Without history the event is not kept, and the channel's record stays.
    let history = set_history(&mut world, None);
    world.publish("news", "lost", "1").unwrap();
    set_history(&mut world, history);
    for _ in 0..2 {
        world.publish("news", "b", "1").unwrap();
    }
    let from = json!({"epoch": place["epoch"], "offset": 1});
    let (data, names) = resume(&mut world, "news", &from);
    assert_eq!((&data["recovered"], names.len()), (&json!(false), 0));
    assert_ne!(data["resume"]["epoch"], place["epoch"]);
}

/// Replaces the history settings of the application; returns the previous ones.
fn set_history(world: &mut Loop, history: Option<History>) -> Option<History> {
    let mut app = App::clone(&world.app);
    let before = std::mem::replace(&mut app.history, history);
    world.app = app.into();
    before
}

#[test]
fn a_cached_event_has_no_offset() {
    let mut world = Loop::new(with_history(10, &[]));
    let socket = world.open().unwrap();
    world.subscribe(socket, "cache-a", None);
    world.publish("cache-a", "a", "1").unwrap();
    assert_eq!(world.events(socket)[0]["offset"], 1);
    let late = world.open().unwrap();
    let answer = world.subscribe(late, "cache-a", None);
    assert_eq!(answer[0]["data"]["resume"]["offset"], 1);
    assert_eq!(answer[1], json!({"event": "a", "channel": "cache-a", "data": 1}));
}

#[test]
fn a_client_whose_queue_has_no_room_for_what_it_missed_is_not_recovered() {
    let mut world = Loop::new(with_history(10, &[]));
    world.publish("cache-a", "first", "1").unwrap();
    let (data, _) = resume(&mut world, "cache-a", &Value::Null);
    let from = data["resume"].clone();
    for _ in 0..4 {
        world.publish("cache-a", "e", &format!(r#""{}""#, "x".repeat(1000))).unwrap();
    }
    world.room = Room { bytes: 4000, messages: 10 };
    let (data, names) = resume(&mut world, "cache-a", &from);
    assert_eq!((&data["recovered"], &data["resume"]["offset"]), (&json!(false), &json!(5)));
    assert_eq!(names, ["e"], "the cached event, as for a new client");
    world.room = Room { bytes: 10_000, messages: 3 };
    assert_eq!(resume(&mut world, "cache-a", &from).0["recovered"], false);
    world.room = Room { bytes: 10_000, messages: 4 };
    let (data, names) = resume(&mut world, "cache-a", &from);
    assert_eq!((&data["recovered"], names.len()), (&json!(true), 4));
    // Without missed events no room is needed.
    world.room = Room { bytes: 0, messages: 0 };
    assert_eq!(resume(&mut world, "cache-a", &data["resume"]).0["recovered"], true);
}

#[test]
fn members_and_position_are_sent_together() {
    let mut world = Loop::new(with_history(10, &[]));
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    let data = world.subscribe(one, "presence-a", Some(r#"{"user_id":"1"}"#))[0]["data"].clone();
    assert_eq!(data["presence"]["count"], 1);
    assert_eq!(data["resume"]["offset"], 0);
    world.subscribe(other, "presence-a", Some(r#"{"user_id":"2"}"#));
    assert_eq!(
        world.events(one)[0].get("offset"),
        None,
        "comings and goings are no events of the application"
    );
    world.publish("presence-a", "a", "1").unwrap();
    assert_eq!(world.events(one)[0]["offset"], 1);
}
