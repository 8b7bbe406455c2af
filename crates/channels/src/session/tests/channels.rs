//! Tests channels without members: authorization and first messages.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::testing::{Diary, Loop, app, subscribe};
use crate::{PublishRefused, auth};

fn succeeded(channel: &str) -> Value {
    json!({"event": "pusher_internal:subscription_succeeded", "channel": channel, "data": {}})
}

/// Returns type and status of a subscription error, which must have a message.
fn error_of(answer: &[Value]) -> (String, u64) {
    let [error] = answer else { panic!("{answer:?}") };
    assert_eq!(error["event"], "pusher:subscription_error", "{error}");
    assert!(error["data"]["error"].is_string(), "{error}");
    (error["data"]["type"].as_str().unwrap().to_owned(), error["data"]["status"].as_u64().unwrap())
}

#[test]
fn a_public_channels_events_arrive_from_subscribe_to_unsubscribe() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.got(socket);
    world.publish("news", "early", "\"1\"").unwrap();
    world.says(socket, &subscribe("news"));
    assert_eq!(
        world.got(socket),
        [r#"{"event":"pusher_internal:subscription_succeeded","channel":"news","data":"{}"}"#]
    );
    world.publish("news", "now", r#""{\"a\":1}""#).unwrap();
    assert_eq!(world.got(socket), [r#"{"event":"now","channel":"news","data":"{\"a\":1}"}"#]);
    world.unsubscribe(socket, "news");
    world.publish("news", "late", "\"1\"").unwrap();
    assert_eq!(world.got(socket), [""; 0]);
}

#[test]
fn data_is_forwarded_byte_for_byte() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.subscribe(socket, "news", None);
    for data in ["1.50", r#"{ "b" : 1, "a" : "\u00e4" }"#, r#""\/\u0041""#, "null"] {
        world.publish("news", "e", data).unwrap();
        assert_eq!(
            world.got(socket),
            [format!(r#"{{"event":"e","channel":"news","data":{data}}}"#)]
        );
    }
    world.publish("news", "with \"quotes\"\n", "1").unwrap();
    assert_eq!(world.events(socket)[0]["event"], "with \"quotes\"\n");
}

#[test]
fn an_excluded_socket_receives_nothing_and_all_others_do() {
    let mut world = Loop::new(app());
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    world.subscribe(one, "news", None);
    world.subscribe(other, "news", None);
    world.publish_but("news", "e", "1", Some(world.id(one))).unwrap();
    assert_eq!(world.got(one), [""; 0]);
    assert_eq!(world.got(other), [r#"{"event":"e","channel":"news","data":1}"#]);
}

#[test]
fn private_and_encrypted_channels_require_the_applications_signature() {
    for channel in
        ["private-a", "private-encrypted-a", "private-cache-a", "private-encrypted-cache-a"]
    {
        let mut world = Loop::new(app());
        let (socket, other) = (world.open().unwrap(), world.open().unwrap());
        world.got(socket);

        world.says(socket, &subscribe(channel));
        assert_eq!(error_of(&world.events(socket)), ("AuthError".to_owned(), 401));

        let foreign = [
            world.signed_subscribe(other, channel, None)["data"]["auth"].clone(),
            world.signed_subscribe(socket, "private-b", None)["data"]["auth"].clone(),
            json!("key:0000"),
            json!(""),
            json!(
                auth::sign_subscription(&world.app, world.id(socket), channel, None)
                    .replace("key:", "other:")
            ),
        ];
        for auth in foreign {
            let text =
                json!({"event": "pusher:subscribe", "data": {"channel": channel, "auth": auth}});
            world.says(socket, &text.to_string());
            assert_eq!(error_of(&world.events(socket)), ("AuthError".to_owned(), 401), "{auth}");
        }
        let statistics = world.channels.statistics().of(&world.app.id);
        assert_eq!(statistics.signatures_refused.get(), 5, "a missing one is no wrong one");
        world.publish(channel, "secret", "1").unwrap();
        assert_eq!(world.events(socket), [Value::Null; 0]);

        assert_eq!(world.subscribe(socket, channel, None)[0], succeeded(channel));
        world.publish(channel, "secret", "1").unwrap();
        assert_eq!(world.events(socket).last().unwrap()["event"], "secret");
    }
}

#[test]
fn a_private_channel_accepts_channel_data_signed_or_unsigned() {
    let mut world = Loop::new(app());
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    assert_eq!(world.subscribe(one, "private-a", Some("{\"a\":1}")), [succeeded("private-a")]);
    world.got(other);
    for (channel, data) in [("private-a", "{}"), ("private-b", "whatever")] {
        let mut text = world.signed_subscribe(other, channel, None);
        text["data"]["channel_data"] = data.into();
        world.says(other, &text.to_string());
        assert_eq!(world.events(other), [succeeded(channel)]);
    }
}

/// If an application signs any socket id that a client sends, the id may contain further text before what the
/// application meant to sign.
#[test]
fn a_signature_of_another_text_is_invalid_for_a_private_channel() {
    for channel in ["private-a", "private-encrypted-a"] {
        let mut world = Loop::new(app());
        let socket = world.open().unwrap();
        world.got(socket);
        let user = json!({"id": "7", "user_info": {"name": "Ann"}}).to_string();
        let called = format!("{}:{channel}", world.id(socket));
        let stretched = format!("{called}:{{\"a\":\"");
        let tries = [
            (auth::sign_sign_in(&world.app, &called, &user), format!(":user::{user}")),
            (
                auth::sign_sign_in(&world.app, &stretched, &user),
                format!("{{\"a\":\"::user::{user}"),
            ),
            (
                auth::sign_subscription(&world.app, &called, "private-own", None),
                "private-own".to_owned(),
            ),
            (
                auth::sign_subscription(&world.app, &called, "presence-own", Some(&user)),
                format!("presence-own:{user}"),
            ),
        ];
        for (auth, data) in tries {
            let data = json!({"channel": channel, "auth": auth, "channel_data": data});
            let text = json!({"event": "pusher:subscribe", "data": data});
            world.says(socket, &text.to_string());
            assert_eq!(error_of(&world.events(socket)), ("AuthError".to_owned(), 401), "{text}");
        }
    }
}

#[test]
fn invalid_names_are_rejected_with_400() {
    let mut app = app();
    app.limits.channel_name = 10;
    let mut world = Loop::new(app);
    let socket = world.open().unwrap();
    for name in ["", "a b", "#a", "ä", "a/b", "12345678901", "a\n"] {
        let answer = world.subscribe(socket, name, None);
        assert_eq!(error_of(&answer), ("InvalidSubscription".to_owned(), 400), "{name}");
        assert_eq!(answer[0]["channel"], name);
    }
    assert_eq!(world.subscribe(socket, "1234567890", None), [succeeded("1234567890")]);
}

#[test]
fn subscribing_twice_is_an_error_that_changes_nothing() {
    let mut world = Loop::new(app());
    let socket = world.open().unwrap();
    world.subscribe(socket, "news", None);
    let answer = world.subscribe(socket, "news", None);
    assert_eq!(answer[0]["event"], "pusher:error");
    world.publish("news", "e", "1").unwrap();
    assert_eq!(world.got(socket).len(), 1);
    let report = world.channels.registry().channel(&world.app, "news", world.now).unwrap();
    assert_eq!(report.subscription_count, 1);
    world.unsubscribe(socket, "news");
    assert!(world.channels.registry().is_empty());
}

#[test]
fn a_subscription_above_the_connections_limit_is_rejected() {
    let mut app = app();
    app.limits.subscriptions = 2;
    let mut world = Loop::new(app);
    let socket = world.open().unwrap();
    world.subscribe(socket, "a", None);
    world.subscribe(socket, "b", None);
    assert_eq!(error_of(&world.subscribe(socket, "c", None)), ("LimitReached".to_owned(), 403));
    world.unsubscribe(socket, "a");
    assert_eq!(world.subscribe(socket, "c", None), [succeeded("c")]);
}

#[test]
fn public_channels_have_a_separate_limit() {
    let mut app = app();
    app.limits.public_subscriptions = 1;
    let mut world = Loop::new(app);
    let socket = world.open().unwrap();
    world.subscribe(socket, "a", None);
    assert_eq!(
        error_of(&world.subscribe(socket, "cache-b", None)),
        ("LimitReached".to_owned(), 403)
    );
    for n in 0..10 {
        // The application signed these.
        let name = format!("private-{n}");
        assert_eq!(world.subscribe(socket, &name, None), [succeeded(&name)]);
    }
    world.unsubscribe(socket, "a");
    assert_eq!(world.subscribe(socket, "b", None), [succeeded("b")]);
}

#[test]
fn a_page_may_subscribe_to_all_its_channels_at_once_and_again_after_reconnecting() {
    let mut world = Loop::new(app());
    for _ in 0..3 {
        let socket = world.open().unwrap();
        for n in 0..1000 {
            let name = format!("private-{n}");
            assert_eq!(world.subscribe(socket, &name, None), [succeeded(&name)]);
        }
        world.close(socket);
    }
}

#[test]
fn endless_subscription_changes_are_rejected_and_spare_other_subscribers() {
    const USER: &str = r#"{"user_id":"1"}"#;
    let mut world = Loop::new(app());
    let (other, socket) = (world.open().unwrap(), world.open().unwrap());
    world.subscribe(other, "presence-a", Some(r#"{"user_id":"2"}"#));
    let come_and_go = |world: &mut Loop| {
        let mut refused = 0;
        for _ in 0..2000 {
            let answer = world.subscribe(socket, "presence-a", Some(USER));
            if answer[0]["event"] == "pusher:subscription_error" {
                assert_eq!(error_of(&answer), ("LimitReached".to_owned(), 403));
                refused += 1;
            }
            world.unsubscribe(socket, "presence-a");
        }
        (refused, world.events(other).len())
    };
    // At first the client has left no channel; then it may subscribe 1000 times at once, as many as it may have.
    assert_eq!(come_and_go(&mut world), (999, 2 * 1001));
    assert_eq!(come_and_go(&mut world), (2000, 0));
    world.pass(Duration::from_secs(1));
    assert_eq!(come_and_go(&mut world), (1980, 2 * 20));
    let counters = world.channels.statistics().of(&world.app.id);
    assert_eq!(counters.rate_limited.get(), 999 + 2000 + 1980);
    // A new connection of the same user starts with full limits.
    let back = world.open().unwrap();
    assert_eq!(world.subscribe(back, "presence-a", Some(USER)).len(), 1);
}

#[test]
fn a_cache_channel_sends_its_last_event_even_if_it_had_no_subscriber() {
    for channel in ["cache-a", "private-cache-a", "private-encrypted-cache-a", "presence-cache-a"] {
        let diary = Arc::new(Diary::default());
        let mut world = Loop::observed(app(), Arc::<Diary>::clone(&diary));
        let member = channel.starts_with("presence").then_some(r#"{"user_id":"1"}"#);
        let miss = json!({"event": "pusher:cache_miss", "channel": channel});

        let first = world.open().unwrap();
        assert_eq!(world.subscribe(first, channel, member)[1..], std::slice::from_ref(&miss)[..]);
        assert!(diary.read().contains(&format!("{channel} missed")));
        world.close(first);

        world.publish(channel, "old", r#""1""#).unwrap();
        world.publish(channel, "new", r#""{\"a\":2}""#).unwrap();
        let second = world.open().unwrap();
        let cached = json!({"event": "new", "channel": channel, "data": {"a": 2}});
        assert_eq!(world.subscribe(second, channel, member)[1..], [cached]);
        assert!(!diary.read().contains(&format!("{channel} missed")));

        // Pusher keeps it for 30 minutes.
        world.close(second);
        world.now = world.now + Duration::from_mins(30);
        let third = world.open().unwrap();
        assert_eq!(world.subscribe(third, channel, member)[1..], [miss]);
    }
}

#[test]
fn a_cached_event_is_reported_and_expires() {
    let mut world = Loop::new(app());
    world.publish("cache-a", "e", r#""x""#).unwrap();
    world.pass(Duration::from_mins(1));
    let report = world.channels.registry().channel(&world.app, "cache-a", world.now).unwrap();
    let cache = report.cache.unwrap();
    assert_eq!((&*cache.data, cache.remaining), (r#""x""#, Duration::from_mins(29)));
    assert!(world.channels.registry().channels(&world.app, "").is_empty());
    world.publish("cache-a", "e", r#""y""#).unwrap();
    world.pass(Duration::from_mins(29));
    assert_eq!(world.channels.records().channels, 1);
    world.pass(Duration::from_mins(1));
    assert_eq!(world.channels.records().channels, 0);
}

#[test]
fn subscription_counts_are_sent_if_the_application_enables_them() {
    let mut app = app();
    app.rights.subscription_count = true;
    let diary = Arc::new(Diary::default());
    let mut world = Loop::observed(app, Arc::<Diary>::clone(&diary));
    let count = |count| json!({"event": "pusher_internal:subscription_count", "channel": "news", "data": {"subscription_count": count}});
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    assert_eq!(world.subscribe(one, "news", None), [succeeded("news"), count(1)]);
    assert_eq!(world.subscribe(other, "news", None), [succeeded("news"), count(2)]);
    assert_eq!(world.events(one), [count(2)]);
    world.close(other);
    assert_eq!(world.events(one), [count(1)]);
    world.close(one);
    assert_eq!(
        diary.read(),
        ["news occupied", "news 1", "news 2", "news 1", "news vacated", "news 0"]
    );
}

#[test]
fn large_subscription_counts_are_published_every_five_seconds() {
    let mut app = app();
    app.rights.subscription_count = true;
    let mut world = Loop::new(app);
    world.now = world.now + Duration::from_secs(100);
    let first = world.open().unwrap();
    world.subscribe(first, "news", None);
    for _ in 0..300 {
        let socket = world.open().unwrap();
        world.says(socket, &subscribe("news"));
    }
    let told = world.events(first);
    assert_eq!(told.len(), 100 - 1, "each up to a hundred, then none for five seconds");
    assert_eq!(told.last().unwrap()["data"]["subscription_count"], 100);
    world.pass(Duration::from_secs(5));
    let told = world.events(first);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["data"]["subscription_count"], 301);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.events(first), [Value::Null; 0]);
}

#[test]
fn endless_subscription_changes_publish_one_count_a_second() {
    let mut app = app();
    app.rights.subscription_count = true;
    let mut world = Loop::new(app);
    world.now = world.now + Duration::from_secs(100);
    let one = world.open().unwrap();
    world.subscribe(one, "news", None);
    let mut told = 0;
    for _ in 0..2500 {
        // Each uses its own client, so that no limit of a connection applies.
        let socket = world.open().unwrap();
        world.says(socket, &subscribe("news"));
        world.close(socket);
        world.pass(Duration::from_millis(2));
        told += world.events(one).len();
    }
    assert!((100..=100 + 5).contains(&told), "{told}");
    world.pass(Duration::from_secs(2));
    world.got(one);
    for _ in 0..500 {
        let socket = world.open().unwrap();
        world.says(socket, &subscribe("news"));
        world.close(socket);
    }
    let [stays, goes] = [(); 2].map(|()| world.open().unwrap());
    world.says(stays, &subscribe("news"));
    world.says(goes, &subscribe("news"));
    let told = world.events(one);
    assert_eq!(told.len(), 99);
    assert_eq!(told[98]["data"]["subscription_count"], 2);
    world.pass(Duration::from_secs(1));
    let told = world.events(one);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["data"]["subscription_count"], 3);
    world.pass(Duration::from_secs(2));
    world.close(goes);
    assert_eq!(world.events(one)[0]["data"]["subscription_count"], 2, "it is quiet again");
}

#[test]
fn events_above_the_channels_rate_limit_are_rejected() {
    let mut app = app();
    app.limits.channel_events = Some(3);
    let mut world = Loop::new(app);
    let socket = world.open().unwrap();
    world.subscribe(socket, "news", None);
    let refused = Err(PublishRefused::TooOften { limit: 3 });
    for channel in ["news", "unheard"] {
        for _ in 0..3 {
            world.publish(channel, "e", "1").unwrap();
        }
        assert_eq!(world.publish(channel, "e", "1"), refused);
    }
    assert_eq!(world.got(socket).len(), 3);
    world.now = world.now + Duration::from_secs(1);
    world.publish("news", "e", "1").unwrap();
    world.close(socket);
    world.pass(Duration::from_secs(2));
    world.pass(Duration::from_secs(2));
    assert!(world.channels.registry().is_empty());
}

#[test]
fn channels_are_listed_by_prefix_and_only_while_they_have_subscribers() {
    let mut world = Loop::new(app());
    let (one, other) = (world.open().unwrap(), world.open().unwrap());
    for (socket, channel) in [(one, "news"), (other, "news"), (one, "private-a")] {
        world.subscribe(socket, channel, None);
    }
    world.subscribe(one, "presence-a", Some(r#"{"user_id":1}"#));
    world.subscribe(other, "presence-a", Some(r#"{"user_id":"1"}"#));
    let registry = world.channels.registry();
    let mut reports: Vec<_> = registry
        .channels(&world.app, "")
        .into_iter()
        .map(|report| {
            (report.name.as_str().to_owned(), report.subscription_count, report.user_count)
        })
        .collect();
    reports.sort();
    assert_eq!(
        reports,
        [
            ("news".to_owned(), 2, None),
            ("presence-a".to_owned(), 2, Some(1)),
            ("private-a".to_owned(), 1, None)
        ]
    );
    assert_eq!(registry.channels(&world.app, "pr").len(), 2);
    assert_eq!(registry.channels(&world.app, "x").len(), 0);
    assert_eq!(registry.channel(&world.app, "x", world.now), None);
    let ids: Vec<_> = registry.members(&world.app, "presence-a", world.now);
    assert_eq!(ids, [Arc::<str>::from("1")]);
}

#[test]
fn applications_share_no_channels() {
    let mut one = Loop::new(app());
    let mut app = app();
    app.id = "2".into();
    let mut other = Loop::on(Arc::new(app), one.channels.clone());
    let (a, b) = (one.open().unwrap(), other.open().unwrap());
    one.subscribe(a, "news", None);
    other.subscribe(b, "news", None);
    one.publish("news", "e", "1").unwrap();
    assert_eq!(one.got(a).len(), 1);
    assert_eq!(other.got(b).len(), 0);
    assert_eq!(one.channels.registry().channels(&one.app, "").len(), 1);
}
