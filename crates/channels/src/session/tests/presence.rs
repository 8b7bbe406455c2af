//! Tests the members of presence channels.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::testing::{Diary, Loop, app};

const ANN: &str = r#"{"user_id":"ann","user_info":{"name":"Ann"}}"#;
const BOB: &str = r#"{"user_id":"bob"}"#;

fn presence(answer: &[Value]) -> &Value {
    assert_eq!(answer[0]["event"], "pusher_internal:subscription_succeeded", "{answer:?}");
    &answer[0]["data"]["presence"]
}

fn added(member: &Value) -> Value {
    json!({"event": "pusher_internal:member_added", "channel": "presence-a", "data": member})
}

fn removed(user_id: &str) -> Value {
    json!({"event": "pusher_internal:member_removed", "channel": "presence-a", "data": {"user_id": user_id}})
}

fn status(answer: &[Value]) -> u64 {
    assert_eq!(answer[0]["event"], "pusher:subscription_error", "{answer:?}");
    answer[0]["data"]["status"].as_u64().unwrap()
}

#[test]
fn a_new_member_receives_the_members_and_they_are_notified_of_it() {
    let diary = Arc::new(Diary::default());
    let mut world = Loop::observed(app(), Arc::<Diary>::clone(&diary));
    let (ann, bob) = (world.open().unwrap(), world.open().unwrap());
    let answer = world.subscribe(ann, "presence-a", Some(ANN));
    assert_eq!(
        presence(&answer),
        &json!({"count": 1, "ids": ["ann"], "hash": {"ann": {"name": "Ann"}}})
    );
    assert_eq!(answer.len(), 1, "a member receives no event about itself");

    let answer = world.subscribe(bob, "presence-a", Some(BOB));
    let there = presence(&answer);
    assert_eq!(there["count"], 2);
    assert_eq!(there["hash"], json!({"ann": {"name": "Ann"}, "bob": null}));
    let ids: BTreeSet<_> =
        there["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(ids, BTreeSet::from(["ann", "bob"]));
    assert_eq!(answer.len(), 1);
    assert_eq!(world.events(ann), [added(&json!({"user_id": "bob"}))]);

    world.unsubscribe(ann, "presence-a");
    assert_eq!(world.events(bob), [removed("ann")]);
    assert_eq!(world.events(ann), [Value::Null; 0]);
    world.close(bob);
    assert_eq!(
        diary.read(),
        [
            "presence-a occupied",
            "presence-a +ann",
            "presence-a +bob",
            "presence-a -ann",
            "presence-a -bob",
            "presence-a vacated"
        ]
    );
}

#[test]
fn a_broken_connection_removes_its_member() {
    let mut world = Loop::new(app());
    let (ann, bob) = (world.open().unwrap(), world.open().unwrap());
    world.subscribe(ann, "presence-a", Some(ANN));
    world.subscribe(bob, "presence-a", Some(BOB));
    world.got(ann);
    world.close(bob);
    assert_eq!(world.events(ann), [removed("bob")]);
}

#[test]
fn a_user_with_several_tabs_joins_once_and_leaves_once() {
    let mut world = Loop::new(app());
    let watcher = world.open().unwrap();
    world.subscribe(watcher, "presence-a", Some(BOB));
    let tabs: Vec<_> = (0..3).map(|_| world.open().unwrap()).collect();
    for (index, tab) in tabs.iter().enumerate() {
        // Later sockets do not change the member's `user_info`.
        let data = json!({"user_id": "ann", "user_info": {"tab": index}}).to_string();
        let answer = world.subscribe(*tab, "presence-a", Some(&data));
        assert_eq!(presence(&answer)["count"], 2);
        assert_eq!(presence(&answer)["hash"]["ann"], json!({"tab": 0}));
    }
    assert_eq!(world.events(watcher), [added(&json!({"user_id": "ann", "user_info": {"tab": 0}}))]);
    for tab in &tabs[1..] {
        world.close(*tab);
    }
    assert_eq!(world.events(watcher), [Value::Null; 0]);
    world.close(tabs[0]);
    assert_eq!(world.events(watcher), [removed("ann")]);
}

#[test]
fn a_users_id_may_be_a_number_and_user_info_anything_or_nothing() {
    for (data, id, info) in [
        (r#"{"user_id":7,"user_info":{"name":"Ann"}}"#, "7", json!({"name": "Ann"})),
        (r#"{"user_id":"7"}"#, "7", Value::Null),
        (r#"{"user_id":7.0,"user_info":null}"#, "7", Value::Null),
        (r#"{"user_id":"ä \"q\"","user_info":"text"}"#, "ä \"q\"", json!("text")),
        (r#"{"user_info":[1,[2]],"user_id":"x"}"#, "x", json!([1, [2]])),
    ] {
        let mut world = Loop::new(app());
        let socket = world.open().unwrap();
        let answer = world.subscribe(socket, "presence-a", Some(data));
        assert_eq!(
            presence(&answer),
            &json!({"count": 1, "ids": [id], "hash": {id: info}}),
            "{data}"
        );
    }
}

#[test]
fn a_presence_channel_requires_signed_channel_data() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    // Signed, but without data: Reverb accepts it, and a task of Sockudo panics.
    assert_eq!(status(&world.subscribe(socket, "presence-a", None)), 401);
    // Data that were not signed.
    let mut text = world.signed_subscribe(socket, "presence-a", None);
    text["data"]["channel_data"] = ANN.into();
    world.says(socket, &text.to_string());
    assert_eq!(status(&world.events(socket)), 401);
    let mut text = world.signed_subscribe(socket, "presence-a", Some(ANN));
    text["data"]["channel_data"] = BOB.into();
    world.says(socket, &text.to_string());
    assert_eq!(status(&world.events(socket)), 401);
    assert!(world.channels.registry().is_empty());
}

#[test]
fn channel_data_without_a_user_is_rejected() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    let deep = "[".repeat(20_000);
    for data in [
        "",
        "x",
        "{}",
        "[]",
        "7",
        r#"{"user_id":null}"#,
        r#"{"user_id":""}"#,
        r#"{"user_id":{}}"#,
        r#"{"user_id":true}"#,
        &deep,
    ] {
        assert_eq!(status(&world.subscribe(socket, "presence-a", Some(data))), 400, "{data:.20}");
    }
    assert!(world.channels.registry().is_empty());
}

#[test]
fn user_ids_and_user_infos_have_limits() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    let member = |id: usize, info: usize| {
        json!({"user_id": "ä".repeat(id), "user_info": "x".repeat(info - 2)}).to_string()
    };
    assert_eq!(status(&world.subscribe(socket, "presence-a", Some(&member(129, 9)))), 403);
    assert_eq!(status(&world.subscribe(socket, "presence-a", Some(&member(9, 1025)))), 403);
    presence(&world.subscribe(socket, "presence-a", Some(&member(128, 1024))));
}

#[test]
fn a_member_above_the_limit_is_rejected_but_another_tab_of_a_member_is_not() {
    let mut app = app();
    app.limits.members = 2;
    let mut world = Loop::new(app);
    let sockets: Vec<_> = (0..4).map(|_| world.open().unwrap()).collect();
    let data = |id: u32| json!({"user_id": id}).to_string();
    presence(&world.subscribe(sockets[0], "presence-a", Some(&data(1))));
    presence(&world.subscribe(sockets[1], "presence-a", Some(&data(2))));
    assert_eq!(status(&world.subscribe(sockets[2], "presence-a", Some(&data(3)))), 403);
    presence(&world.subscribe(sockets[3], "presence-a", Some(&data(2))));
    world.got(sockets[0]);
    world.close(sockets[1]);
    world.close(sockets[3]);
    assert_eq!(world.events(sockets[0]), [removed("2")]);
    presence(&world.subscribe(sockets[2], "presence-a", Some(&data(3))));
}

#[test]
fn a_rejected_subscription_leaves_no_channel_record() {
    let mut app = app();
    app.limits.members = 0;
    let mut world = Loop::new(app);
    let socket = world.open().unwrap();
    assert_eq!(status(&world.subscribe(socket, "presence-a", Some(ANN))), 403);
    assert!(world.channels.registry().is_empty());
}
