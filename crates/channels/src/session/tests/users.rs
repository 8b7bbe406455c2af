//! Tests users: signing in, direct messages, watchlists, terminations.

use serde_json::{Value, json};

use crate::testing::{Loop, app, subscribe};
use crate::{Close, auth};

fn online(users: &[&str]) -> Value {
    watchlist("online", users)
}

fn watchlist(name: &str, users: &[&str]) -> Value {
    json!({"event": "pusher_internal:watchlist_events", "data": {"events": [{"name": name, "user_ids": users}]}})
}

fn user(id: &str, watchlist: &[&str]) -> String {
    json!({"id": id, "user_info": {"name": id}, "watchlist": watchlist}).to_string()
}

#[test]
fn a_sign_in_is_confirmed_with_its_user_data() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    let answer = world.sign_in(socket, r#"{"id":"ann","user_info":{"name":"Ann"}}"#);
    assert_eq!(
        answer,
        [
            json!({"event": "pusher:signin_success", "data": {"user_data": r#"{"id":"ann","user_info":{"name":"Ann"}}"#}})
        ]
    );
    assert_eq!(world.closed(socket), None);
}

#[test]
fn a_wrong_signature_closes_with_4009() {
    let data = r#"{"id":"ann"}"#;
    let mut world = Loop::new(app());
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    let foreign = auth::sign_sign_in(&world.app, world.id(other), data);
    let of_a_channel = auth::sign_subscription(&world.app, world.id(one), "private-a", None);
    for auth in [foreign, of_a_channel, "key:00".to_owned(), String::new()] {
        let socket = world.open().unwrap();
        world.got(socket);
        let text = json!({"event": "pusher:signin", "data": {"auth": auth, "user_data": data}});
        world.says(socket, &text.to_string());
        assert_eq!(world.closed(socket).unwrap().code, 4009);
        assert_eq!(world.events(socket)[0]["data"]["code"], 4009);
    }
    for data in [
        "",
        "{}",
        "[]",
        r#"{"id":""}"#,
        r#"{"id":null}"#,
        r#"{"id":7}"#,
        &json!({"id": "x".repeat(129)}).to_string(),
    ] {
        let socket = world.open().unwrap();
        world.sign_in(socket, data);
        assert_eq!(world.closed(socket).unwrap().code, 4009, "{data:.20}");
    }
    for data in
        ["null", "{}", r#"{"auth":"key:00"}"#, r#"{"user_data":"{\"id\":\"ann\"}"}"#, r#""x""#]
    {
        let socket = world.open().unwrap();
        world.says(socket, &format!(r#"{{"event":"pusher:signin","data":{data}}}"#));
        assert_eq!(world.closed(socket).unwrap().code, 4009, "{data}");
    }
    assert_eq!(world.channels.records().users, 0);
}

#[test]
fn a_signed_in_user_is_a_member_without_channel_data() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.sign_in(socket, r#"{"id":"ann","user_info":{"name":"Ann"}}"#);
    let answer = world.subscribe(socket, "presence-a", None);
    assert_eq!(
        answer[0]["data"]["presence"],
        json!({"count": 1, "ids": ["ann"], "hash": {"ann": {"name": "Ann"}}})
    );
    // What the application signed for this channel takes precedence.
    let answer = world.subscribe(socket, "presence-b", Some(r#"{"user_id":"guest"}"#));
    assert_eq!(answer[0]["data"]["presence"]["ids"], json!(["guest"]));
    let mut text = world.signed_subscribe(socket, "presence-c", None);
    text["data"]["auth"] = "key:00".into();
    world.says(socket, &text.to_string());
    assert_eq!(world.events(socket)[0]["data"]["status"], 401);
}

#[test]
fn a_message_to_a_user_reaches_all_its_sockets_and_no_others() {
    let mut world = Loop::new(app());
    let (one, two, other) = (world.open().unwrap(), world.open().unwrap(), world.open().unwrap());
    world.sign_in(one, &user("ann", &[]));
    world.sign_in(two, &user("ann", &[]));
    world.sign_in(other, &user("bob", &[]));
    // Clients subscribe to their user's channel by themselves after signing in.
    world.says(one, &subscribe("#server-to-user-ann"));
    assert_eq!(world.events(one)[0]["event"], "pusher_internal:subscription_succeeded");

    world.publish("#server-to-user-ann", "hello", r#""x""#).unwrap();
    let hello = [r##"{"event":"hello","channel":"#server-to-user-ann","data":"x"}"##];
    assert_eq!(world.got(one), hello);
    assert_eq!(world.got(two), hello);
    assert_eq!(world.got(other), [""; 0]);
}

#[test]
fn a_user_channel_is_closed_to_other_users() {
    let mut world = Loop::new(app());
    let (ann, stranger) = (world.open().unwrap(), world.open().unwrap());
    world.sign_in(ann, &user("ann", &[]));
    world.got(stranger);
    // With and without a signature: the application cannot grant this.
    world.says(stranger, &subscribe("#server-to-user-ann"));
    assert_eq!(world.events(stranger)[0]["data"]["status"], 401);
    let answer = world.subscribe(stranger, "#server-to-user-ann", None);
    assert_eq!(answer[0]["event"], "pusher:subscription_error");
    world.sign_in(stranger, &user("bob", &[]));
    let answer = world.subscribe(stranger, "#server-to-user-ann", None);
    assert_eq!(answer[0]["event"], "pusher:subscription_error");
    world.publish("#server-to-user-ann", "hello", "1").unwrap();
    assert_eq!(world.got(stranger), [""; 0]);
}

#[test]
fn a_second_sign_in_on_a_socket_replaces_the_first() {
    let mut world = Loop::new(app());
    let (socket, watcher) = (world.open().unwrap(), world.open().unwrap());
    world.sign_in(watcher, &user("eve", &["ann", "bob"]));
    world.sign_in(socket, &user("ann", &[]));
    assert_eq!(world.events(watcher), [online(&["ann"])]);
    world.sign_in(socket, &user("ann", &[]));
    assert_eq!(world.events(watcher), [Value::Null; 0], "the same user again causes no event");
    world.sign_in(socket, &user("bob", &[]));
    assert_eq!(world.events(watcher), [watchlist("offline", &["ann"]), online(&["bob"])]);
    world.publish("#server-to-user-ann", "hello", "1").unwrap();
    world.publish("#server-to-user-bob", "hello", "1").unwrap();
    let heard = world.events(socket);
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0]["channel"], "#server-to-user-bob");
}

#[test]
fn a_user_whose_id_is_no_channel_name_may_sign_in() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.sign_in(socket, r#"{"id":"ann@example.com / ä"}"#);
    assert_eq!(world.closed(socket), None);
    assert_eq!(world.channels.records().channels, 0);
    world.close(socket);
    assert_eq!(world.channels.records().users, 0);
}

#[test]
fn watchers_are_notified_of_users_online_coming_and_going() {
    let mut world = Loop::new(app());
    let (ann, eve) = (world.open().unwrap(), world.open().unwrap());
    world.sign_in(ann, r#"{"id":"7"}"#);
    let answer = world.sign_in(eve, r#"{"id":"eve","watchlist":[7,"bob","7",null,{}]}"#);
    assert_eq!(answer[1..], [online(&["7"])]);

    let bobs: Vec<_> = (0..2).map(|_| world.open().unwrap()).collect();
    for bob in &bobs {
        world.sign_in(*bob, &user("bob", &[]));
    }
    assert_eq!(world.events(eve), [online(&["bob"])], "once, with the first socket");
    world.close(bobs[0]);
    assert_eq!(world.events(eve), [Value::Null; 0]);
    world.close(bobs[1]);
    world.close(ann);
    assert_eq!(world.events(eve), [watchlist("offline", &["bob"]), watchlist("offline", &["7"])]);
    world.close(eve);
    assert_eq!(world.channels.records().users, 0);
}

#[test]
fn a_watchlist_has_a_limit_and_can_be_disabled() {
    let mut world = Loop::new(app());
    let (ann, eve) = (world.open().unwrap(), world.open().unwrap());
    world.sign_in(ann, &user("0", &[]));
    let many: Vec<_> = (0..101).map(|id| id.to_string()).collect();
    let answer = world.sign_in(eve, &json!({"id": "eve", "watchlist": many}).to_string());
    assert_eq!(answer[0]["event"], "pusher:signin_success");
    assert_eq!(answer[1]["data"]["code"], 4302);
    assert_eq!(answer.len(), 2);
    assert_eq!(world.closed(eve), None);
    let answer = world.sign_in(eve, &json!({"id": "eve", "watchlist": many[..100]}).to_string());
    assert_eq!(answer[1..], [online(&["0"])]);

    let mut app = app();
    app.rights.watchlist = false;
    let mut world = Loop::new(app);
    let (ann, eve) = (world.open().unwrap(), world.open().unwrap());
    world.sign_in(ann, &user("ann", &[]));
    assert_eq!(world.sign_in(eve, &user("eve", &["ann"])).len(), 1);
}

#[test]
fn a_user_can_be_terminated_with_all_its_sockets() {
    let mut world = Loop::new(app());
    let (one, two, other) = (world.open().unwrap(), world.open().unwrap(), world.open().unwrap());
    world.sign_in(one, &user("ann", &[]));
    world.sign_in(two, &user("ann", &[]));
    world.sign_in(other, &user("bob", &[]));
    world.channels.terminate(&world.app, "ann");
    world.channels.terminate(&world.app, "unknown");
    world.turn();
    assert_eq!(world.closed(one), Some(Close::TERMINATED));
    assert_eq!(world.closed(two), Some(Close::TERMINATED));
    assert_eq!(world.closed(other), None);
}

#[test]
fn endless_sign_ins_are_rejected_and_spare_the_watchers() {
    let mut app = app();
    app.limits.subscriptions = 30;
    let mut world = Loop::new(app);
    let (watcher, socket) = (world.open().unwrap(), world.open().unwrap());
    world.sign_in(watcher, &user("ann", &["bob", "eve"]));
    world.events(watcher);
    let mut refused = 0;
    for n in 0..1000 {
        let answer = world.sign_in(socket, &user(if n % 2 == 0 { "bob" } else { "eve" }, &[]));
        refused += usize::from(answer[0]["data"]["code"] == 4302);
    }
    assert_eq!((refused, world.closed(socket)), (1000 - 1 - 30, None));
    assert_eq!(world.events(watcher).len(), 1 + 30 * 2);
}
