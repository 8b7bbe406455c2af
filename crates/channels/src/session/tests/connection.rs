//! Tests connecting, pings, invalid messages and closing.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use crate::session::Subscribed;
use crate::testing::{Loop, app, subscribe};
use crate::{AppRef, Apps, Close, FixedApps, Found, Hello, Records, Target};

#[test]
fn the_greeting_contains_the_socket_id_in_a_json_string() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    let id = world.id(socket);
    assert_eq!(
        world.got(socket),
        [format!(
            r#"{{"event":"pusher:connection_established","data":"{{\"socket_id\":\"{id}\",\"activity_timeout\":30}}"}}"#
        )]
    );
}

#[test]
fn a_ping_is_answered() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.got(socket);
    for ping in [
        r#"{"event":"pusher:ping"}"#,
        r#"{"event":"pusher:ping","data":{}}"#,
        r#"{ "data" : null, "event" : "pusher:ping" }"#,
    ] {
        world.says(socket, ping);
        assert_eq!(world.got(socket), [r#"{"event":"pusher:pong","data":{}}"#]);
    }
}

#[test]
fn a_silent_client_is_pinged_and_then_closed_with_4201() {
    let mut world = Loop::new(app());
    let (silent, lively) = (world.open().unwrap(), world.open().unwrap());
    world.got(silent);
    world.got(lively);
    world.pass(Duration::from_millis(29_999));
    assert_eq!(world.got(silent), [""; 0]);
    world.pass(Duration::from_millis(1));
    let ping = [r#"{"event":"pusher:ping","data":{}}"#];
    assert_eq!(world.got(silent), ping);
    assert_eq!(world.got(lively), ping);
    world.says(lively, r#"{"event":"pusher:pong","data":{}}"#);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.closed(silent), Some(Close::PONG_TIMEOUT));
    assert_eq!(
        world.events(silent),
        [
            json!({"event": "pusher:error", "data": {"code": 4201, "message": "pong reply not received in time"}})
        ]
    );
    assert_eq!(world.closed(lively), None);
}

#[test]
fn an_invalid_message_gets_an_error_and_the_connection_stays_open() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.got(socket);
    // The first two end the process of AnyCable 1.6.16, the third that of Sockudo 5.0.1; after the fourth AnyCable
    // ignores the client.
    let nonsense = [
        r#"{"event":"pusher:subscribe"}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":null}"#.to_owned(),
        "[".repeat(20_000),
        "{not json".to_owned(),
        "{\"a\":".repeat(20_000),
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"event":null}"#.to_owned(),
        r#"{"event":7,"data":{}}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":"news"}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":{}}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":{"channel":null}}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":{"channel":["news"]}}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":{"channel":"news","auth":7}}"#.to_owned(),
        r#"{"event":"pusher:subscribe","data":{"channel":"\ud800"}}"#.to_owned(),
        r#"{"event":"pusher:unsubscribe","data":[]}"#.to_owned(),
        r#"{"event":"pusher:connection_established","data":{}}"#.to_owned(),
        r#"{"event":"pusher_internal:member_added","channel":"presence-a","data":{}}"#.to_owned(),
        r#"{"event":"message","channel":"news","data":{}}"#.to_owned(),
        r#"{"event":"client-a","data":{}}"#.to_owned(),
    ];
    for text in nonsense {
        world.says(socket, &text);
        let answer = world.events(socket);
        let [error] = &answer[..] else { panic!("{text:.60} got {answer:?}") };
        assert_eq!(error["event"], "pusher:error", "{text:.60}");
        assert_eq!(error["data"]["code"], 4200, "{text:.60}");
        assert!(error["data"]["message"].is_string(), "{text:.60}");
    }
    world.says(socket, &subscribe("news"));
    assert_eq!(world.events(socket)[0]["event"], "pusher_internal:subscription_succeeded");
    assert_eq!(world.closed(socket), None);
}

#[test]
fn unsubscribing_from_an_unknown_channel_is_ignored() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.got(socket);
    world.unsubscribe(socket, "news");
    world.unsubscribe(socket, "");
    assert_eq!(world.got(socket), [""; 0]);
}

#[test]
fn a_connection_above_the_applications_limit_is_closed_with_4004() {
    let mut app = app();
    app.limits.connections = Some(2);
    let mut world = Loop::new(app);
    let first = world.open().unwrap();
    world.open().unwrap();
    assert_eq!(world.open(), Err(Close::OVER_QUOTA));
    assert_eq!(world.open(), Err(Close::OVER_QUOTA));
    world.close(first);
    world.open().unwrap();
    assert_eq!(world.open(), Err(Close::OVER_QUOTA));
    assert_eq!(world.channels.statistics().of(&world.app.id).connections.get(), 2);
}

#[test]
fn a_disabled_application_closes_with_4003() {
    let mut app = app();
    app.rights.enabled = false;
    assert_eq!(Loop::new(app).open().unwrap_err().code, 4003);
}

#[test]
fn an_application_that_requires_tls_closes_plain_connections_with_4000() {
    let mut app = app();
    app.rights.plain = false;
    let mut world = Loop::new(app);
    assert_eq!(world.open().unwrap_err().code, 4000);
    world.open_as(&Hello { tls: true, origin: None, without_origin: false }).unwrap();
}

#[test]
fn pages_of_other_origins_are_closed_with_4009() {
    let mut app = app();
    app.rights.origins = vec!["example.com".into(), "*.example.org".into(), "[::1]".into()];
    let mut world = Loop::new(app);
    let mut comes_in = |origin| {
        world
            .open_as(&Hello { tls: false, origin, without_origin: false })
            .map_err(|close| close.code)
    };
    for origin in [
        "https://example.com",
        "http://EXAMPLE.com:8080",
        "https://a.example.org",
        "https://a.b.example.org:1",
        "http://[::1]:3000",
        "http://[::1]",
    ] {
        assert!(comes_in(Some(origin)).is_ok(), "{origin}");
    }
    for origin in [
        "https://example.org",
        "https://notexample.com",
        "https://example.com.evil.net",
        "https://a.example.org.evil.net",
        "null",
        "",
        "example.com",
        "http://[::2]:3000",
    ] {
        assert_eq!(comes_in(Some(origin)), Err(4009), "{origin}");
    }
    assert_eq!(comes_in(None), Err(4009));
}

#[test]
fn valid_addresses_are_parsed_and_invalid_ones_closed_with_their_code() {
    let code = |target| Target::read(target).map_err(|close| close.code);
    let target = Target::read("/app/a%20b?client=js&version=8.6.0&protocol=7").unwrap();
    assert_eq!((&*target.key, target.client.as_deref()), ("a b", Some("js")));
    for target in ["/app/key?protocol=5", "/app/key/?protocol=7&flash=false"] {
        assert_eq!(&*Target::read(target).unwrap().key, "key", "{target}");
    }
    for target in
        ["/", "/app", "/app/", "/apps/key?protocol=7", "/app/a/b?protocol=7", "", "app/key"]
    {
        assert_eq!(code(target), Err(4005), "{target}");
    }
    for target in [
        "/app/key?protocol=x",
        "/app/key?protocol=-7",
        "/app/key?protocol=7.0",
        "/app/key?protocol=+7",
    ] {
        assert_eq!(code(target), Err(4006), "{target}");
    }
    for target in
        ["/app/key?protocol=4", "/app/key?protocol=8", "/app/key?protocol=99999999999999999999"]
    {
        assert_eq!(code(target), Err(4007), "{target}");
    }
    for target in ["/app/key", "/app/key?", "/app/key?protocol=", "/app/key?client=js"] {
        assert_eq!(code(target), Err(4008), "{target}");
    }
}

#[test]
fn applications_are_found_by_key_and_by_id() {
    let apps = FixedApps::new([app()]);
    assert!(matches!(apps.find(AppRef::Key("key")), Found::App(_)));
    assert!(matches!(apps.find(AppRef::Id("1")), Found::App(_)));
    assert!(matches!(apps.find(AppRef::Key("1")), Found::None));
    assert!(matches!(apps.find(AppRef::Id("key")), Found::None));
}

#[test]
fn closed_connections_leave_no_state_behind() {
    let mut world = Loop::new(app());
    let sockets: Vec<_> = (0..3).map(|_| world.open().unwrap()).collect();
    for socket in &sockets {
        world.subscribe(*socket, "news", None);
        world.subscribe(*socket, "private-a", None);
        world.subscribe(*socket, "presence-a", Some(r#"{"user_id":"1"}"#));
        world.sign_in(*socket, r#"{"id":"1","watchlist":["1","2"]}"#);
    }
    assert_eq!(world.channels.records(), Records { channels: 4, users: 2 });
    for socket in sockets {
        world.close(socket);
    }
    assert_eq!(world.channels.records(), Records::default());
    let counters = world.channels.statistics().of(&world.app.id);
    assert_eq!(counters.connections.get(), 0);
    assert_eq!(counters.subscriptions.get(), 0);
    assert_eq!(counters.subscribed.get(), 12);
}

#[test]
fn an_idle_connection_uses_little_memory() {
    assert!(size_of::<crate::Session>() <= 128, "{}", size_of::<crate::Session>());
    assert!(size_of::<Subscribed>() <= 48, "{}", size_of::<Subscribed>());
}

proptest! {
    #[test]
    fn any_text_is_handled(texts in prop::collection::vec(".{0,80}", 0..10)) {
        let mut world = Loop::new(app());
        let socket = world.open().unwrap();
        for text in &texts {
            world.says(socket, text);
        }
        world.close(socket);
        prop_assert_eq!(world.channels.records(), Records::default());
    }

    #[test]
    fn any_data_of_any_event_is_handled(
        event in prop::sample::select(vec!["pusher:subscribe", "pusher:unsubscribe", "pusher:signin", "client-a", "pusher:ping"]),
        data in r#"(\{("channel"|"auth"|"channel_data"|"user_data"|"resume"):("[a-z\\-]{0,12}"|null|\{\}|\[1\]|7)(,"channel":"(presence|private|cache)-[a-z]{0,3}")?\})|null|"x"|7"#,
        channel in r#""(presence-|private-|cache-|#server-to-user-)?[a-z]{0,3}"|null"#,
    ) {
        let mut world = Loop::new(app());
        let socket = world.open().unwrap();
        world.says(socket, &format!(r#"{{"event":"{event}","data":{data},"channel":{channel}}}"#));
        for answer in world.events(socket) {
            prop_assert!(answer["event"].is_string());
        }
        world.close(socket);
        prop_assert_eq!(world.channels.records(), Records::default());
    }
}
