//! Tests client events and their permissions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::testing::{Diary, Loop, app};

fn says(world: &mut Loop, socket: u32, channel: &str, event: &str, data: &Value) -> Vec<Value> {
    let text = json!({"event": event, "channel": channel, "data": data}).to_string();
    world.says(socket, &text);
    world.events(socket)
}

#[track_caller]
fn assert_refused(answer: &[Value]) {
    let [error] = answer else { panic!("{answer:?}") };
    assert_eq!((&error["event"], &error["data"]["code"]), (&json!("pusher:error"), &json!(4301)));
}

/// Opens two subscribed clients.
fn pair(world: &mut Loop, channel: &str, members: bool) -> (u32, u32) {
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    let data = |id| members.then_some(id);
    world.subscribe(one, channel, data(r#"{"user_id":"ann"}"#));
    world.subscribe(other, channel, data(r#"{"user_id":"bob"}"#));
    world.got(one);
    (one, other)
}

#[test]
fn all_subscribers_except_the_author_receive_a_client_event() {
    let diary = Arc::new(Diary::default());
    let mut world = Loop::observed(app(), Arc::<Diary>::clone(&diary));
    let (one, other) = pair(&mut world, "private-a", false);
    world.says(one, r#"{"event":"client-typing","channel":"private-a","data":{ "x" : 1.0 }}"#);
    assert_eq!(world.got(one), [""; 0]);
    assert_eq!(
        world.got(other),
        [r#"{"event":"client-typing","channel":"private-a","data":{ "x" : 1.0 }}"#]
    );
    let id = world.id(one);
    assert_eq!(
        *diary.read().last().unwrap(),
        format!(r#"private-a client-typing {{ "x" : 1.0 }} {id} None"#)
    );
}

#[test]
fn data_may_be_anything_or_missing() {
    let mut world = Loop::new(app());
    let (one, other) = pair(&mut world, "private-a", false);
    for data in ["\"text\"", "7", "[1]", "null", "true"] {
        world.says(one, &format!(r#"{{"event":"client-a","channel":"private-a","data":{data}}}"#));
        assert_eq!(
            world.got(other),
            [format!(r#"{{"event":"client-a","channel":"private-a","data":{data}}}"#)]
        );
    }
    world.says(one, r#"{"event":"client-a","channel":"private-a"}"#);
    assert_eq!(world.got(other), [r#"{"event":"client-a","channel":"private-a","data":null}"#]);
    assert_eq!(world.got(one), [""; 0]);
}

#[test]
fn on_a_presence_channel_a_client_event_carries_its_author() {
    let mut world = Loop::new(app());
    let (one, other) = pair(&mut world, "presence-a", true);
    assert_eq!(says(&mut world, one, "presence-a", "client-a", &json!(1)), [Value::Null; 0]);
    assert_eq!(
        world.got(other),
        [r#"{"event":"client-a","channel":"presence-a","data":1,"user_id":"ann"}"#]
    );
}

#[test]
fn channels_without_client_events_reject_them_with_4301() {
    for channel in ["news", "cache-news", "private-encrypted-a", "private-encrypted-cache-a"] {
        let mut world = Loop::new(app());
        let (one, other) = pair(&mut world, channel, false);
        assert_refused(&says(&mut world, one, channel, "client-a", &json!(1)));
        assert_eq!(world.got(other), [""; 0]);
    }
    let mut world = Loop::new(app());
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    for socket in [one, other] {
        world.sign_in(socket, r#"{"id":"7"}"#);
    }
    assert_refused(&says(&mut world, one, "#server-to-user-7", "client-a", &json!(1)));
    assert_eq!(world.got(other), [""; 0]);
}

#[test]
fn a_client_event_without_a_subscription_is_rejected() {
    let mut world = Loop::new(app());
    let (one, other) = pair(&mut world, "private-a", false);
    let stranger = world.open().unwrap();
    world.got(stranger);
    assert_refused(&says(&mut world, stranger, "private-a", "client-a", &json!(1)));
    world.unsubscribe(one, "private-a");
    assert_refused(&says(&mut world, one, "private-a", "client-a", &json!(1)));
    assert_eq!(world.got(other), [""; 0]);
}

#[test]
fn an_application_may_have_none() {
    let mut app = app();
    app.rights.client_events = false;
    let mut world = Loop::new(app);
    let (one, other) = pair(&mut world, "private-a", false);
    assert_refused(&says(&mut world, one, "private-a", "client-a", &json!(1)));
    assert_eq!(world.got(other), [""; 0]);
}

#[test]
fn more_than_ten_client_events_a_second_are_rejected() {
    let mut world = Loop::new(app());
    let (one, other) = pair(&mut world, "private-a", false);
    let refused: usize =
        (0..25).map(|_| says(&mut world, one, "private-a", "client-a", &json!(1)).len()).sum();
    assert_eq!((refused, world.got(other).len()), (15, 10));
    assert_refused(&says(&mut world, one, "private-a", "client-a", &json!(1)));
    // The limit is per connection.
    assert_eq!(says(&mut world, other, "private-a", "client-a", &json!(1)), [Value::Null; 0]);
    world.now = world.now + Duration::from_secs(1);
    assert_eq!(
        says(&mut world, one, "private-a", "client-a", &json!(1)).len(),
        1,
        "it hears the other's"
    );
    assert_eq!(world.got(other).len(), 1);
    assert_eq!(world.channels.statistics().of(&world.app.id).rate_limited.get(), 16);
}

#[test]
fn names_and_data_have_limits() {
    let mut world = Loop::new(app());
    let (one, other) = pair(&mut world, "private-a", false);
    let name = |length: usize| format!("client-{}", "n".repeat(length - 7));
    let long = Value::from("\"".repeat(10 * 1024));
    assert_eq!(says(&mut world, one, "private-a", &name(200), &json!(1)), [Value::Null; 0]);
    assert_eq!(says(&mut world, one, "private-a", "client-a", &long), [Value::Null; 0]);
    assert_eq!(world.got(other).len(), 2);
    assert_refused(&says(&mut world, one, "private-a", &name(201), &json!(1)));
    assert_refused(&says(
        &mut world,
        one,
        "private-a",
        "client-a",
        &"x".repeat(10 * 1024 + 1).into(),
    ));
    assert_refused(&says(
        &mut world,
        one,
        "private-a",
        "client-a",
        &json!({"x": "x".repeat(10 * 1024)}),
    ));
    assert_eq!(world.got(other), [""; 0]);
}

#[test]
fn client_events_are_not_cached() {
    let mut world = Loop::new(app());
    let (one, _) = pair(&mut world, "private-cache-a", false);
    assert_eq!(says(&mut world, one, "private-cache-a", "client-a", &json!(1)), [Value::Null; 0]);
    let late = world.open().unwrap();
    assert_eq!(world.subscribe(late, "private-cache-a", None)[1]["event"], "pusher:cache_miss");
}
