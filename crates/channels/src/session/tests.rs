use std::time::Duration;

use serde_json::json;

use crate::testing::{Loop, app};
use crate::{Author, ChannelName, Publication};

fn publish(world: &Loop, channel: &str, event: &str, data: &str) {
    let channel = ChannelName::new(channel, 200).unwrap();
    let author = Author::Server { except: None };
    let publication = Publication { channel: &channel, event, data, author };
    world.channels.registry().publish(&world.app, &publication, world.now).unwrap();
}

fn subscribe(channel: &str) -> String {
    json!({"event": "pusher:subscribe", "data": {"channel": channel}}).to_string()
}

#[test]
fn a_public_channel_is_heard_from_subscribe_to_unsubscribe() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    let id = world.id(socket);
    assert_eq!(
        world.got(socket),
        [format!(
            r#"{{"event":"pusher:connection_established","data":"{{\"socket_id\":\"{id}\",\"activity_timeout\":30}}"}}"#
        )]
    );

    publish(&world, "news", "early", "\"1\"");
    world.says(socket, &subscribe("news"));
    assert_eq!(
        world.got(socket),
        [r#"{"event":"pusher_internal:subscription_succeeded","channel":"news","data":"{}"}"#]
    );
    publish(&world, "news", "now", r#""{\"a\":1}""#);
    assert_eq!(world.got(socket), [r#"{"event":"now","channel":"news","data":"{\"a\":1}"}"#]);

    world.says(socket, r#"{"event":"pusher:unsubscribe","data":{"channel":"news"}}"#);
    publish(&world, "news", "late", "\"1\"");
    assert_eq!(world.got(socket), [""; 0]);
    assert!(world.channels.registry().is_empty());
}

#[test]
fn a_silent_client_is_asked_and_then_closed_with_4201() {
    let mut world = Loop::new(app());
    let (silent, lively) = (world.open().unwrap(), world.open().unwrap());
    world.got(silent);
    world.got(lively);
    world.pass(Duration::from_secs(30));
    let ping = [r#"{"event":"pusher:ping","data":{}}"#];
    assert_eq!(world.got(silent), ping);
    assert_eq!(world.got(lively), ping);
    world.says(lively, r#"{"event":"pusher:pong","data":{}}"#);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.closed(silent).unwrap().code, 4201);
    assert_eq!(world.closed(lively), None);
}
