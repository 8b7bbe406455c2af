use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::app::{Limits, Rights};
use crate::socket_id::SocketId;
use crate::testing::{Loop, app};

const UNIX: UnixTime = UnixTime::from_millis(1_700_000_000_000);

fn md5(body: &str) -> String {
    use md5::Digest as _;
    auth::hexadecimal(&md5::Md5::digest(body))
}

/// Builds the signed query that the application's server would send.
fn query(
    server: &Loop,
    method: &str,
    path: &str,
    parameters: &[(&str, &str)],
    body: &str,
) -> String {
    let md5 = md5(body);
    let mut all: Vec<(&str, &str)> =
        vec![("auth_key", "key"), ("auth_timestamp", "1700000000"), ("auth_version", "1.0")];
    if !body.is_empty() {
        all.push(("body_md5", &md5));
    }
    all.extend(parameters);
    all.sort_unstable();
    let text: Vec<_> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = text.join("&");
    let signature = auth::sign(&server.app.secret, format!("{method}\n{path}\n{text}").as_bytes());
    format!("{text}&auth_signature={signature}")
}

fn ask(
    server: &Loop,
    method: &str,
    path: &str,
    parameters: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let query = query(server, method, path, parameters, body);
    let call = Call { method, path, query: &query, body: body.as_bytes() };
    let answer = answer(&server.channels, &call, server.now, UNIX);
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

fn post(server: &Loop, path: &str, body: &Value) -> (u16, Value) {
    ask(server, "POST", path, &[], &body.to_string())
}

fn get(server: &Loop, path: &str, parameters: &[(&str, &str)]) -> (u16, Value) {
    ask(server, "GET", path, parameters, "")
}

/// Opens a client that is subscribed to these channels.
fn client(server: &mut Loop, channels: &[&str]) -> u32 {
    let socket = server.open().unwrap();
    for channel in channels {
        let member =
            channel.starts_with("presence-").then(|| format!(r#"{{"user_id":"u{socket}"}}"#));
        let auth =
            auth::sign_subscription(&server.app, server.id(socket), channel, member.as_deref());
        let subscribe = json!({"event": "pusher:subscribe", "data": {"channel": channel, "auth": auth, "channel_data": member}});
        server.says(socket, &subscribe.to_string());
    }
    let got = server.got(socket);
    assert!(!got.iter().any(|text| text.contains("error")), "{got:?}");
    socket
}

fn done() -> (u16, Value) {
    (200, json!({}))
}

fn error(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"].as_str().unwrap())
}

#[test]
fn an_event_is_published_once_per_channel_with_its_data_unchanged() {
    let mut server = Loop::new(app());
    let both = client(&mut server, &["a", "b"]);
    let other = client(&mut server, &["c"]);
    let body = r#"{"name":"n","channels":["a","b","a"],"data":"{\"x\" : \"\u00e4\\u00e4\"}"}"#;
    assert_eq!(ask(&server, "POST", "/apps/1/events", &[], body), done());
    let data = r#""{\"x\" : \"\u00e4\\u00e4\"}""#;
    let expected =
        ["a", "b"].map(|channel| format!(r#"{{"event":"n","channel":"{channel}","data":{data}}}"#));
    assert_eq!(server.got(both), expected);
    assert_eq!(server.got(other), [""; 0]);
}

#[test]
fn data_of_other_types_reaches_clients_as_a_string() {
    let mut server = Loop::new(app());
    let socket = client(&mut server, &["a"]);
    assert_eq!(
        post(&server, "/apps/1/events", &json!({"name": "n", "channel": "a", "data": {"x": [1]}})),
        done()
    );
    assert_eq!(server.got(socket), [r#"{"event":"n","channel":"a","data":"{\"x\":[1]}"}"#]);
}

#[test]
fn a_socket_can_be_excluded() {
    let mut server = Loop::new(app());
    let (author, other) = (client(&mut server, &["a"]), client(&mut server, &["a"]));
    let id = server.id(author).to_string();
    assert_eq!(
        post(
            &server,
            "/apps/1/events",
            &json!({"name": "n", "channel": "a", "data": "1", "socket_id": id})
        ),
        done()
    );
    assert_eq!((server.got(author).len(), server.got(other).len()), (0, 1));
    for invalid in [json!("123.456"), json!("99999999999.1"), json!(null)] {
        assert_eq!(
            post(
                &server,
                "/apps/1/events",
                &json!({"name": "n", "channel": "a", "data": "1", "socket_id": invalid})
            ),
            done()
        );
    }
    assert_eq!((server.got(author).len(), server.got(other).len()), (3, 3));
    for wrong in [json!("1.2.3"), json!("1"), json!(""), json!("1.a"), json!(7)] {
        let answer = post(
            &server,
            "/apps/1/events",
            &json!({"name": "n", "channel": "a", "data": "1", "socket_id": wrong}),
        );
        assert_eq!(answer.0, 400, "{wrong}");
    }
}

#[test]
fn a_response_contains_channel_info_on_request() {
    let mut server = Loop::new(app());
    client(&mut server, &["presence-a", "b"]);
    client(&mut server, &["presence-a"]);
    let body = json!({"name": "n", "channels": ["presence-a", "b", "unused"], "data": "1", "info": "subscription_count,user_count"});
    let expected = json!({"channels": {
        "presence-a": {"user_count": 2, "subscription_count": 2},
        "b": {"subscription_count": 1},
        "unused": {"subscription_count": 0},
    }});
    assert_eq!(post(&server, "/apps/1/events", &body), (200, expected));
    let body = json!({"batch": [
        {"name": "n", "channel": "presence-a", "data": "1", "info": "user_count"},
        {"name": "n", "channel": "b", "data": "1"},
        {"name": "n", "channel": "b", "data": "1", "info": "user_count,subscription_count"},
    ]});
    assert_eq!(
        post(&server, "/apps/1/batch_events", &body),
        (200, json!({"batch": [{"user_count": 2}, {}, {"subscription_count": 1}]}))
    );
}

#[test]
fn a_batch_is_published_in_order_or_not_at_all() {
    let mut server = Loop::new(app());
    let socket = client(&mut server, &["a", "b"]);
    let event = |name: &str, channel: &str| json!({"name": name, "channel": channel, "data": "1"});
    assert_eq!(
        post(
            &server,
            "/apps/1/batch_events",
            &json!({"batch": [event("x", "a"), event("y", "b"), event("z", "a")]})
        ),
        done()
    );
    let names: Vec<_> = server.events(socket).iter().map(|event| event["event"].clone()).collect();
    assert_eq!(names, ["x", "y", "z"]);

    let wrong =
        post(&server, "/apps/1/batch_events", &json!({"batch": [event("x", "a"), event("", "b")]}));
    assert_eq!(error(&wrong), (400, "event 1 of the batch: name is missing"));
    let large = post(
        &server,
        "/apps/1/batch_events",
        &json!({"batch": [event("x", "a"), {"name": "n", "channel": "a", "data": "a".repeat(10_241)}]}),
    );
    assert_eq!(large.0, 413);
    let many = post(&server, "/apps/1/batch_events", &json!({"batch": vec![event("x", "a"); 11]}));
    assert_eq!(error(&many), (400, "a batch has at most 10 events"));
    assert_eq!(server.got(socket), [""; 0]);
    assert_eq!(
        post(&server, "/apps/1/batch_events", &json!({"batch": vec![event("x", "a"); 10]})),
        done()
    );
    assert_eq!(post(&server, "/apps/1/batch_events", &json!({"batch": []})), done());
    for wrong in [
        json!({}),
        json!({"batch": {}}),
        json!({"batch": [1]}),
        json!([]),
        json!({"batch": [{"name": "n", "channels": ["a"], "data": "1"}]}),
    ] {
        assert_eq!(post(&server, "/apps/1/batch_events", &wrong).0, 400, "{wrong}");
    }
}

#[test]
fn an_invalid_event_is_rejected_with_the_reason() {
    let server = Loop::new(app());
    let refusals = [
        (json!({"channel": "a", "data": "1"}), "name is missing"),
        (json!({"name": "", "channel": "a", "data": "1"}), "name is missing"),
        (json!({"name": 1, "channel": "a", "data": "1"}), "name must be a string"),
        (
            json!({"name": "n".repeat(201), "channel": "a", "data": "1"}),
            "name has at most 200 characters",
        ),
        (json!({"name": "n", "channel": "a"}), "data is missing"),
        (json!({"name": "n", "channel": "a", "data": null}), "data is missing"),
        (json!({"name": "n", "data": "1"}), "channel is missing"),
        (json!({"name": "n", "channels": [], "data": "1"}), "channels is empty"),
        (json!({"name": "n", "channels": "a", "data": "1"}), "channels must be an array of names"),
        (
            json!({"name": "n", "channels": ["a", 1], "data": "1"}),
            "channels must be an array of names",
        ),
        (
            json!({"name": "n", "channel": "a b", "data": "1"}),
            "a channel's name has only letters, digits and _-=@,.;",
        ),
        (json!({"name": "n", "channel": "", "data": "1"}), "a channel's name is missing"),
        (
            json!({"name": "n", "channel": "a".repeat(165), "data": "1"}),
            "a channel's name has at most 164 characters",
        ),
        (
            json!({"name": "n", "channels": vec!["a"; 101], "data": "1"}),
            "an event goes to at most 100 channels",
        ),
        (
            json!({"name": "n", "channels": ["a", "private-encrypted-b"], "data": "1"}),
            "an event for an encrypted channel goes to no other channel",
        ),
        (
            json!({"name": "n", "channel": "a", "data": "1", "info": "x"}),
            "info has no attribute x: user_count, subscription_count, cache",
        ),
        (json!([]), "the body must be a JSON object"),
    ];
    for (body, why) in refusals {
        assert_eq!(error(&post(&server, "/apps/1/events", &body)), (400, why), "{body}");
    }
    assert_eq!(
        error(&ask(&server, "POST", "/apps/1/events", &[], "{")),
        (400, "the body cannot be parsed: invalid JSON at byte 1")
    );
    assert_eq!(
        error(&ask(&server, "POST", "/apps/1/events", &[], &"[".repeat(20_000))),
        (400, "the body cannot be parsed: JSON nested deeper than 512")
    );
    for fine in [
        json!({"name": "n".repeat(200), "channels": vec!["a"; 100], "data": ""}),
        json!({"name": "ä".repeat(200), "channels": ["private-encrypted-b"], "data": "1"}),
    ] {
        assert_eq!(post(&server, "/apps/1/events", &fine), done());
    }
}

#[test]
fn the_size_of_data_is_measured_unescaped() {
    let server = Loop::new(app());
    let send = |data: &str| {
        ask(
            &server,
            "POST",
            "/apps/1/events",
            &[],
            &format!(r#"{{"name":"n","channel":"a","data":"{data}"}}"#),
        )
    };
    assert_eq!(send(&"a".repeat(10_240)), done());
    assert_eq!(send(&r"\u0061".repeat(10_240)), done());
    assert_eq!(send(&r"\u00e4".repeat(5120)), done());
    let why = "The data content of this event exceeds the allowed maximum (10240 bytes)";
    for large in [
        "a".repeat(10_241),
        r"\u0061".repeat(10_241),
        r"\u00e4".repeat(5121),
        r"\ud800".repeat(5000),
    ] {
        assert_eq!(error(&send(&large)), (413, why));
    }
}

#[test]
fn parameters_may_be_in_the_query() {
    let mut server = Loop::new(app());
    let socket = client(&mut server, &["a", "b"]);
    assert_eq!(
        ask(
            &server,
            "POST",
            "/apps/1/events",
            &[("name", "n"), ("channel", "a"), ("data", "1")],
            ""
        ),
        done()
    );
    assert_eq!(
        ask(
            &server,
            "POST",
            "/apps/1/events",
            &[("channels[]", "a"), ("channels[]", "b"), ("data", "1"), ("name", "n")],
            ""
        ),
        done()
    );
    assert_eq!(server.got(socket).len(), 3);
    assert_eq!(error(&ask(&server, "POST", "/apps/1/events", &[], "")), (400, "name is missing"));
}

#[test]
fn channels_are_listed_by_prefix() {
    let mut server = Loop::new(app());
    client(&mut server, &["presence-a", "presence-b", "c"]);
    let last = client(&mut server, &["presence-a", "d"]);
    let all = json!({"channels": {"c": {}, "d": {}, "presence-a": {}, "presence-b": {}}});
    assert_eq!(get(&server, "/apps/1/channels", &[]), (200, all));
    let presence = json!({"channels": {"presence-a": {"user_count": 2, "subscription_count": 2}, "presence-b": {"user_count": 1, "subscription_count": 1}}});
    let asked = [("filter_by_prefix", "presence-"), ("info", "user_count,subscription_count")];
    assert_eq!(get(&server, "/apps/1/channels", &asked), (200, presence));
    assert_eq!(
        get(&server, "/apps/1/channels", &[("filter_by_prefix", "x")]),
        (200, json!({"channels": {}}))
    );
    assert_eq!(get(&server, "/apps/1/channels", &[("info", "user_count")]).0, 400);
    assert_eq!(
        get(&server, "/apps/1/channels", &[("info", "user_count"), ("filter_by_prefix", "pre")]).0,
        400
    );
    assert_eq!(get(&server, "/apps/1/channels", &[("info", "cache")]).0, 400);
    server.close(last);
    assert_eq!(
        get(&server, "/apps/1/channels", &[("filter_by_prefix", "d")]),
        (200, json!({"channels": {}}))
    );
}

#[test]
fn a_channel_is_reported() {
    let mut server = Loop::new(app());
    client(&mut server, &["presence-a"]);
    assert_eq!(get(&server, "/apps/1/channels/presence-a", &[]), (200, json!({"occupied": true})));
    let counts = [("info", "user_count,subscription_count")];
    assert_eq!(
        get(&server, "/apps/1/channels/presence-a", &counts),
        (200, json!({"occupied": true, "user_count": 1, "subscription_count": 1}))
    );
    assert_eq!(
        get(&server, "/apps/1/channels/presence-x", &counts),
        (200, json!({"occupied": false, "user_count": 0, "subscription_count": 0}))
    );
    assert_eq!(
        error(&get(&server, "/apps/1/channels/b", &counts)),
        (400, "user_count may only be requested for presence channels")
    );
    assert_eq!(
        error(&get(&server, "/apps/1/channels/b", &[("info", "cache")])),
        (400, "cache may only be requested for cache channels")
    );
    assert_eq!(get(&server, "/apps/1/channels/a%20b", &[]).0, 400);
    assert_eq!(
        get(&server, "/apps/1/channels/presence%2Da", &[]),
        (200, json!({"occupied": true}))
    );
}

#[test]
fn the_last_event_of_a_cache_channel_is_reported_with_its_remaining_time() {
    let mut server = Loop::new(app());
    let asked = [("info", "cache")];
    assert_eq!(
        get(&server, "/apps/1/channels/cache-a", &asked),
        (200, json!({"occupied": false, "cache": null}))
    );
    assert_eq!(
        post(
            &server,
            "/apps/1/events",
            &json!({"name": "n", "channel": "cache-a", "data": "{\"x\":1}"})
        ),
        done()
    );
    server.pass(Duration::from_mins(1));
    let cached = json!({"occupied": false, "cache": {"data": "{\"x\":1}", "ttl": 1740}});
    assert_eq!(get(&server, "/apps/1/channels/cache-a", &asked), (200, cached));
}

#[test]
fn members_are_listed_by_their_ids() {
    let mut server = Loop::new(app());
    client(&mut server, &["presence-a"]);
    client(&mut server, &["presence-a"]);
    assert_eq!(
        get(&server, "/apps/1/channels/presence-a/users", &[]),
        (200, json!({"users": [{"id": "u0"}, {"id": "u1"}]}))
    );
    assert_eq!(get(&server, "/apps/1/channels/presence-x/users", &[]), (200, json!({"users": []})));
    assert_eq!(
        error(&get(&server, "/apps/1/channels/a/users", &[])),
        (400, "users may only be requested for presence channels")
    );
}

#[test]
fn connections_are_counted() {
    let mut server = Loop::new(app());
    client(&mut server, &[]);
    assert_eq!(get(&server, "/apps/1/connections", &[]), (200, json!({"connections": 1})));
}

#[test]
fn terminating_an_absent_user_succeeds() {
    let server = Loop::new(app());
    assert_eq!(
        ask(&server, "POST", "/apps/1/users/a%40b/terminate_connections", &[], "{}"),
        done()
    );
    assert_eq!(ask(&server, "POST", "/apps/1/users/7/terminate_connections", &[], ""), done());
}

#[test]
fn requests_without_signature_application_or_path_are_rejected() {
    let mut server = Loop::new(app());
    let socket = client(&mut server, &["a"]);
    let body = br#"{"name":"n","channel":"a","data":"1"}"#;
    let send = |method, path, query: &str| {
        let answer =
            answer(&server.channels, &Call { method, path, query, body }, server.now, UNIX);
        (answer.status, answer.allow)
    };
    let query = query(&server, "POST", "/apps/1/events", &[], str::from_utf8(body).unwrap());
    assert_eq!(send("POST", "/apps/1/events", ""), (401, None));
    assert_eq!(
        send("POST", "/apps/1/events", &query.replace("auth_key=key", "auth_key=other")),
        (401, None)
    );
    assert_eq!(send("POST", "/apps/1/batch_events", &query), (401, None));
    assert_eq!(send("POST", "/apps/2/events", &query), (404, None));
    assert_eq!(send("GET", "/apps/1/events", &query), (405, Some("POST")));
    assert_eq!(send("POST", "/apps/1/channels", &query), (405, Some("GET")));
    for path in [
        "/",
        "/apps",
        "/apps/",
        "/apps/1",
        "/apps/1/",
        "/apps/1/x",
        "/apps//events",
        "/apps/1/channels/",
        "/apps/1/users//terminate_connections",
        "/apps/1/events/x",
    ] {
        assert_eq!(send("POST", path, &query), (404, None), "{path}");
    }
    assert_eq!(server.got(socket), [""; 0]);
    let mut server = server;
    assert_eq!(
        post(&server, "/apps/1/events", &json!({"name": "n", "channel": "a", "data": "1"})),
        done()
    );
    assert_eq!(server.got(socket).len(), 1);
}

#[test]
fn a_request_is_rejected_before_its_body_is_received() {
    let server = Loop::new(app());
    let counters = server.channels.statistics().of(&server.app.id);
    let head = |method, path: &str, query: &str| {
        let app = (app_id(path).as_deref() == Some("1")).then_some(&server.app);
        let call = Call { method, path, query, body: b"" };
        let answer = refuse_head(app, &server.channels, &call, UNIX);
        answer.map(|answer| (answer.status, answer.allow))
    };
    let query = query(&server, "POST", "/apps/1/events", &[], "a body");
    assert_eq!(head("POST", "/apps/1/events", &query), None, "its body is needed");
    assert_eq!(head("POST", "/apps/1/events", ""), Some((401, None)));
    assert_eq!(head("POST", "/apps/1/batch_events", &query), Some((401, None)));
    assert_eq!(counters.signatures_refused.get(), 2);
    assert_eq!(head("POST", "/apps/2/events", &query), Some((404, None)));
    assert_eq!(head("POST", "/x", &query), Some((404, None)));
    assert_eq!(head("GET", "/apps/1/events", &query), Some((405, Some("POST"))));
    // The digest that was signed is that of another body.
    let call = Call { method: "POST", path: "/apps/1/events", query: &query, body: b"another" };
    assert_eq!(answer(&server.channels, &call, server.now, UNIX).status, 401);
}

#[test]
fn a_disabled_application_and_a_full_channel_are_rejected() {
    let off = Loop::new(App { rights: Rights { enabled: false, ..Rights::default() }, ..app() });
    assert_eq!(error(&get(&off, "/apps/1/channels", &[])), (403, "application disabled"));
    let mut slow =
        Loop::new(App { limits: Limits { channel_events: Some(2), ..Limits::default() }, ..app() });
    client(&mut slow, &["a"]);
    let body = json!({"name": "n", "channel": "a", "data": "1"});
    let statuses: Vec<_> = (0..3).map(|_| post(&slow, "/apps/1/events", &body).0).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn if_one_channel_is_at_its_limit_no_channel_receives_a_part_of_the_batch() {
    let limits = Limits { channel_events: Some(2), ..Limits::default() };
    let mut server = Loop::new(App { limits, ..app() });
    let socket = client(&mut server, &["a", "b"]);
    let event = |channel: &str| json!({"name": "n", "channel": channel, "data": "1"});
    assert_eq!(post(&server, "/apps/1/events", &event("b")), done());
    assert_eq!(server.got(socket).len(), 1);
    let batch = json!({"batch": [event("a"), event("b"), event("b")]});
    for _ in 0..3 {
        let refused = post(&server, "/apps/1/batch_events", &batch);
        assert_eq!(refused.0, 429);
        assert!(error(&refused).1.starts_with("b: "), "{refused:?}");
    }
    assert_eq!(server.got(socket), [""; 0]);
    // A rejected request uses up nothing of the rate limit.
    let both = json!({"name": "n", "channels": ["a", "b"], "data": "1"});
    assert_eq!(post(&server, "/apps/1/events", &both), done());
    assert_eq!(post(&server, "/apps/1/events", &both).0, 429);
    assert_eq!(server.got(socket).len(), 2);
    server.now = server.now + Duration::from_secs(1);
    assert_eq!(post(&server, "/apps/1/batch_events", &batch), done());
    assert_eq!(server.got(socket).len(), 3);
    let unheard = json!({"batch": [event("c"), event("c"), event("c")]});
    assert_eq!(post(&server, "/apps/1/batch_events", &unheard).0, 429);
}

#[test]
fn an_id_in_a_path_is_unescaped() {
    assert_eq!(app_id("/apps/a%20b/events").as_deref(), Some("a b"));
    assert_eq!(app_id("/apps/1/users/a%2Fb/terminate_connections").as_deref(), Some("1"));
    assert_eq!(
        Resource::read("/apps/1/users/a%2Fb/terminate_connections"),
        Some(("1".into(), Resource::Terminate("a/b".into())))
    );
    assert_eq!(app_id("/app/key"), None);
}

proptest! {
    #[test]
    fn any_signed_call_is_answered(body in "\\PC{0,60}", members in prop::collection::hash_map(prop::sample::select(vec!["name", "channel", "channels", "data", "socket_id", "info", "batch"]), prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!([])), Just(json!(["a"])), Just(json!([{}])), "\\PC{0,9}".prop_map(Value::from)], 0..7)) {
        let server = Loop::new(app());
        for path in ["/apps/1/events", "/apps/1/batch_events"] {
            let (status, _) = ask(&server, "POST", path, &[], &body);
            prop_assert!(status == 400 || status == 200);
            let (status, _) = post(&server, path, &json!(members));
            prop_assert!(status == 400 || status == 200);
        }
    }

    #[test]
    fn a_valid_socket_id_is_excluded(random: u64) {
        let mut server = Loop::new(app());
        let socket = client(&mut server, &["a"]);
        let id = SocketId::from_random(random);
        let body = json!({"name": "n", "channel": "a", "data": "1", "socket_id": id.to_string()});
        prop_assert_eq!(post(&server, "/apps/1/events", &body), done());
        prop_assert_eq!(server.got(socket).len(), usize::from(id != server.id(socket)));
    }
}
