//! The hub with real channels: publishers, subscribers, tokens, and what comes back after a broken stream.
//! The cases of the Go hub's own tests are here in our words.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::{App, Channels, FixedApps, History, Limits, Moment, NoObserver, Rights, Secret};

const SECRET: &str = "a secret of publishers and subscribers";

fn token(claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", part(r#"{"alg":"HS256","typ":"JWT"}"#), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

fn publisher(topics: &str) -> String {
    token(&format!(r#"{{"mercure":{{"publish":{topics}}}}}"#))
}

fn options() -> Options {
    let key = Key::new(Algorithm::HS256, SECRET).unwrap();
    fuzz::options(&key)
}

#[expect(clippy::disallowed_methods, reason = "the runtime of the test ends the task")]
fn hub(options: Options) -> Arc<Mercure> {
    let (hub, run) = idle_hub(options);
    tokio::spawn(run);
    hub
}

/// Returns a hub whose task does not run yet.
fn idle_hub(options: Options) -> (Arc<Mercure>, impl Future<Output = ()> + Send) {
    let app = App {
        id: APP.into(),
        key: "unknown".into(),
        secret: Secret::new("unknown"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: Some(History { events: 1, age: Duration::from_mins(1), channels: Vec::new() }),
    };
    let apps = FixedApps::new([app]);
    let app = Arc::clone(&apps.all()[0]);
    let channels = Channels::new(Arc::new(apps), Arc::new(NoObserver));
    Mercure::start(options, &channels, &app, || Moment::from_millis(1)).unwrap()
}

/// Sends a request; `fields` are header fields in lower case.
fn ask(
    hub: &Arc<Mercure>,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let field =
        |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    hub.answer(&Request { method, path, query, field: &field, body: body.as_bytes() })
}

fn publish(hub: &Arc<Mercure>, token: &str, form: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    ask(hub, "POST", PATH, &[("authorization", &bearer)], form)
}

fn told(answer: Answer) -> String {
    match answer.body {
        Body::Whole(text) | Body::Stored(text, _) => text.trim().to_owned(),
        Body::Stream(_) => panic!("a stream"),
    }
}

/// Opens a stream; returns the answer's fields and its reader.
#[expect(clippy::disallowed_methods, reason = "the runtime of the test ends the task")]
fn open(
    hub: &Arc<Mercure>,
    query: &str,
    fields: &[(&str, &str)],
) -> (Vec<(&'static str, String)>, tokio::io::DuplexStream) {
    let answer = ask(hub, "GET", &format!("{PATH}?{query}"), fields, "");
    let Body::Stream(subscriber) = answer.body else { panic!("{}: no stream", answer.status) };
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(subscriber.write(theirs));
    (answer.fields, ours)
}

/// Reads a stream until it contains a text.
async fn read(stream: &mut tokio::io::DuplexStream, until: &str) -> String {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(until) {
        let length = stream.read_buf(&mut text).await.unwrap();
        assert_ne!(length, 0, "it ended: {}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn an_update_reaches_subscribers_of_its_topics_only() {
    let hub = hub(options());
    let (_, mut one) = open(&hub, "topic=https://example.com/books/1", &[]);
    let (_, mut all) = open(&hub, "topic=*", &[]);
    let (_, mut template) = open(&hub, "topic=https://example.com/%7Bkind%7D/1&topic=other", &[]);
    let all_topics = publisher(r#"["*"]"#);
    publish(&hub, &all_topics, "topic=https://example.com/users/1&data=user&id=u");
    publish(
        &hub,
        &all_topics,
        "topic=https://example.com/books/2&topic=https://example.com/books/1&data=a%0Ab&id=b&type=t&retry=5",
    );
    assert_eq!(
        read(&mut one, "data: b\n\n").await,
        ":\nevent: t\nretry: 5\nid: b\ndata: a\ndata: b\n\n"
    );
    assert!(read(&mut all, "id: b").await.contains("id: u\ndata: user\n\n"));
    assert!(read(&mut template, "id: b").await.contains("id: u\n"));
}

#[tokio::test]
async fn publishing_needs_a_token_with_the_claim() {
    let hub = hub(options());
    let publish_with = |token: &str, form: &str| publish(&hub, token, form).status;
    let fine = publisher("[]");
    assert_eq!(ask(&hub, "POST", PATH, &[], "topic=a").status, 401);
    assert_eq!(publish_with("nonsense", "topic=a"), 401);
    assert_eq!(publish_with(&format!("{}x", publisher("[]")), "topic=a"), 401);
    assert_eq!(publish_with(&token(r#"{"mercure":{"subscribe":["*"]}}"#), "topic=a"), 401);
    assert_eq!(publish_with(&token(r#"{"exp":1,"mercure":{"publish":["*"]}}"#), "topic=a"), 401);
    assert_eq!(
        publish_with(&token(r#"{"nbf":99999999999,"mercure":{"publish":["*"]}}"#), "topic=a"),
        401
    );
    let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let claims = URL_SAFE_NO_PAD.encode(r#"{"mercure":{"publish":["*"]}}"#);
    assert_eq!(publish_with(&format!("{unsigned}.{claims}."), "topic=a"), 401);
    assert_eq!(publish_with(&fine, "topic=a"), 200);
    assert_eq!(publish_with(&fine, "topic=a&private=on"), 401, "no topic is allowed");
    assert_eq!(publish_with(&publisher(r#"["a"]"#), "topic=a&private=on"), 200);
    assert_eq!(publish_with(&publisher(r#"["a"]"#), "topic=a&topic=b&private=on"), 401);
    // A token with topics allows public updates of these only; the hub's own events come from the hub only.
    assert_eq!(publish_with(&publisher(r#"["a"]"#), "topic=a"), 200);
    assert_eq!(publish_with(&publisher(r#"["a"]"#), "topic=a&topic=b"), 401);
    let subscription = format!("topic={PATH}/subscriptions/a/b");
    for form in [subscription.clone(), format!("topic=a&{subscription}")] {
        assert_eq!(publish_with(&publisher(r#"["*"]"#), &form), 401, "{form}");
    }
    assert_eq!(told(publish(&hub, &fine, "data=x")), "Missing \"topic\" parameter");
    assert_eq!(told(publish(&hub, &fine, "topic=a&retry=x")), "Invalid \"retry\" parameter");
    assert_eq!(publish_with(&fine, "topic=a&id=%23x"), 400);
    assert_eq!(publish_with(&fine, "topic=a&type=a%0Ab"), 400);
    assert!(told(publish(&hub, &fine, "topic=a")).starts_with("urn:uuid:"));
    assert_eq!(told(publish(&hub, &fine, "topic=a&id=mine")), "mine");
}

#[tokio::test]
async fn tokens_come_by_header_cookie_or_query() {
    let hub = hub(Options { anonymous: false, ..options() });
    let token = token(r#"{"mercure":{"publish":["*"],"subscribe":["*"]}}"#);
    let cookie = format!("a=b; mercureAuthorization={token}");
    let target = format!("{PATH}?topic=a");
    let status = |method: &str, target: &str, fields: &[(&str, &str)]| {
        ask(&hub, method, target, fields, "topic=a").status
    };
    assert_eq!(status("GET", &target, &[]), 401);
    assert_eq!(status("GET", &target, &[("authorization", &format!("Bearer {token}"))]), 200);
    assert_eq!(status("GET", &target, &[("authorization", &format!("Basic {token}"))]), 401);
    assert_eq!(status("GET", &format!("{target}&authorization={token}"), &[]), 200);
    assert_eq!(status("GET", &target, &[("cookie", &cookie)]), 200);
    // A cookie on a POST needs an origin that may publish.
    assert_eq!(status("POST", PATH, &[("cookie", &cookie)]), 401);
    assert_eq!(
        status("POST", PATH, &[("cookie", &cookie), ("origin", "https://evil.example")]),
        401
    );
    assert_eq!(
        status("POST", PATH, &[("cookie", &cookie), ("origin", "https://example.com")]),
        200
    );
    assert_eq!(
        status("POST", PATH, &[("cookie", &cookie), ("referer", "https://example.com/page")]),
        200
    );
    assert_eq!(status("GET", PATH, &[("cookie", &cookie)]), 400, "no topic");
}

#[tokio::test]
async fn private_updates_reach_only_subscribers_whose_token_allows_them() {
    let hub = hub(options());
    let allowed = token(r#"{"mercure":{"subscribe":["https://example.com/{id}"]}}"#);
    let (_, mut anonymous) = open(&hub, "topic=*", &[]);
    let (_, mut reader) = open(&hub, &format!("topic=*&authorization={allowed}"), &[]);
    let all_topics = publisher(r#"["*"]"#);
    publish(&hub, &all_topics, "topic=https://example.com/1&data=secret&private=on");
    publish(&hub, &all_topics, "topic=https://other.example/1&data=foreign&private=on");
    publish(&hub, &all_topics, "topic=a&data=public");
    assert!(!read(&mut anonymous, "public").await.contains("secret"));
    let text = read(&mut reader, "public").await;
    assert!(text.contains("secret") && !text.contains("foreign"), "{text}");
}

#[tokio::test]
async fn missed_updates_follow_the_last_event_id() {
    let hub = hub(options());
    let (_, mut first) = open(&hub, "topic=*", &[]);
    let all_topics = publisher(r#"["*"]"#);
    for number in 1..=12 {
        publish(&hub, &all_topics, &format!("topic=a&id=n{number}&data=d"));
    }
    read(&mut first, "id: n12\n").await;
    let last = |fields: &[(&'static str, String)]| {
        fields.iter().find(|(name, _)| *name == "last-event-id").map(|(_, id)| id.clone())
    };
    let (fields, mut stream) = open(&hub, "topic=a", &[("last-event-id", "n10")]);
    assert_eq!(last(&fields).as_deref(), Some("n10"));
    let text = read(&mut stream, "n12").await;
    assert!(text.contains("id: n11\n") && !text.contains("n10"), "{text}");
    let (fields, mut stream) = open(&hub, "topic=a&lastEventID=earliest", &[]);
    assert_eq!(last(&fields).as_deref(), Some("earliest"));
    let text = read(&mut stream, "n12").await;
    assert!(text.contains("id: n3\n") && !text.contains("id: n2\n"), "ten are kept: {text}");
    // It is not kept any more: the header says where the stream begins.
    let (fields, _) = open(&hub, "topic=a&lastEventID=n1", &[]);
    assert_eq!(last(&fields).as_deref(), Some("n12"));
    let (fields, _) = open(&hub, "topic=a", &[]);
    assert_eq!(last(&fields), None);
}

#[tokio::test]
async fn subscriptions_are_listed_and_reported() {
    let hub = hub(Options { subscriptions: true, ..options() });
    let all = token(r#"{"mercure":{"subscribe":["*"],"payload":{"name":"ann"}}}"#);
    let (_, mut watcher) = open(
        &hub,
        &format!("topic={PATH}/subscriptions/%7Btopic%7D/%7Bid%7D&authorization={all}"),
        &[],
    );
    let (_, stream) = open(&hub, &format!("topic=https://example.com/1&authorization={all}"), &[]);
    let text = read(&mut watcher, "https%3A%2F%2Fexample.com%2F1").await;
    assert!(text.contains(r#""active":true"#), "{text}");
    let bearer = format!("Bearer {all}");
    let list =
        ask(&hub, "GET", &format!("{PATH}/subscriptions"), &[("authorization", &bearer)], "");
    let list: serde_json::Value = serde_json::from_str(&told(list)).unwrap();
    assert_eq!(list["type"], "Subscriptions");
    let of_book = &list["subscriptions"][1];
    assert_eq!(
        (&of_book["topic"], &of_book["payload"]["name"]),
        (&"https://example.com/1".into(), &"ann".into())
    );
    let id = of_book["id"].as_str().unwrap();
    let one = ask(&hub, "GET", id, &[("authorization", &bearer)], "");
    assert_eq!(one.status, 200);
    assert_eq!(ask(&hub, "GET", id, &[], "").status, 401);
    drop(stream);
    read(&mut watcher, r#""active":false"#).await;
    assert_eq!(ask(&hub, "GET", id, &[("authorization", &bearer)], "").status, 404);
}

#[tokio::test]
async fn a_slow_subscriber_is_disconnected_and_resumes() {
    let hub = hub(Options { queue: 2, ..options() });
    let answer = ask(&hub, "GET", &format!("{PATH}?topic=a"), &[], "");
    let Body::Stream(slow) = answer.body else { panic!("no stream") };
    let (_, mut quick) = open(&hub, "topic=a", &[]);
    for number in 0..5 {
        publish(&hub, &publisher("[]"), &format!("topic=a&id=n{number}"));
        read(&mut quick, &format!("id: n{number}\n")).await;
    }
    let (subscribers, published, disconnected) = hub.figures();
    assert_eq!((subscribers, published, disconnected), (1, 5, 1));
    // It gets what it had been sent, and then the end.
    let (mut ours, theirs) = tokio::io::duplex(1024);
    slow.write(theirs).await;
    let mut text = String::new();
    ours.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("id: n1\n") && !text.contains("id: n2\n"), "{text}");
    let (_, mut again) = open(&hub, "topic=a&lastEventID=n1", &[]);
    assert!(read(&mut again, "id: n4\n").await.contains("id: n2\n"));
}

#[tokio::test]
async fn other_origins_need_permission() {
    let hub = hub(options());
    let origin = |origin: &str| {
        let answer = ask(&hub, "OPTIONS", PATH, &[("origin", origin)], "");
        answer
            .fields
            .iter()
            .any(|(name, value)| *name == "access-control-allow-origin" && value == origin)
    };
    assert!(origin("https://example.com"));
    assert!(!origin("https://evil.example"));
    assert_eq!(ask(&hub, "PUT", PATH, &[], "").status, 405);
}

#[tokio::test]
async fn a_subscriber_that_leaves_a_silent_stream_is_noticed() {
    let hub = hub(options());
    let (_, mut stream) = open(&hub, "topic=a", &[]);
    read(&mut stream, ":\n").await;
    assert_eq!(hub.figures().0, 1);
    drop(stream);
    while hub.figures().0 > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn there_is_no_room_for_more_subscribers_than_the_limit() {
    let hub = hub(Options { connections: 2, ..options() });
    let (_, one) = open(&hub, "topic=a", &[]);
    let (_, _two) = open(&hub, "topic=a", &[]);
    let refused = ask(&hub, "GET", &format!("{PATH}?topic=a"), &[], "");
    assert_eq!(refused.status, 503);
    assert!(refused.fields.iter().any(|(name, _)| *name == "retry-after"));
    drop(one);
    while hub.figures().0 > 1 {
        tokio::task::yield_now().await;
    }
    open(&hub, "topic=a", &[]);
}

#[tokio::test]
async fn kept_updates_are_bounded_in_memory() {
    let hub = hub(Options { memory: 2000, ..options() });
    for number in 0..6 {
        publish(&hub, &publisher("[]"), &format!("topic=a&id=n{number}&data={:0500}", 0));
    }
    hub.ready().await;
    let (_, mut stream) = open(&hub, "topic=a&lastEventID=earliest", &[]);
    let text = read(&mut stream, "id: n5\n").await;
    assert!(text.contains("id: n4\n") && !text.contains("id: n2\n"), "{text}");
    let large = format!("topic=a&data={}", "x".repeat(BODY));
    assert_eq!(publish(&hub, &publisher("[]"), &large).status, 413);
}

#[tokio::test]
async fn a_drain_ends_streams_and_browsers_come_back() {
    let hub = hub(Options { subscriptions: true, ..options() });
    let (_, mut stream) = open(&hub, "topic=a", &[]);
    hub.drain(Duration::ZERO).await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, ":\n");
    let late = ask(&hub, "GET", &format!("{PATH}?topic=a"), &[], "");
    assert_eq!((late.status, told(late).as_str()), (200, ":"), "an error would end an EventSource");
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_reports_without_end() {
    let (hub, _run) = idle_hub(Options { subscriptions: true, ..options() });
    open(&hub, "topic=a", &[]);
    let drained = tokio::time::timeout(Duration::from_mins(5), hub.drain(Duration::from_secs(3)));
    assert!(drained.await.is_ok());
}

#[tokio::test]
async fn reports_of_subscriptions_wait_while_updates_do() {
    // The runtime ends a poll after 128 turns.
    const POLLS: usize = 10;
    let (hub, run) = idle_hub(Options { subscriptions: true, connections: 100, ..options() });
    let topics = |number: usize| {
        let topic = |topic: usize| format!("topic={number}-{topic}");
        (0..100).map(topic).collect::<Vec<_>>().join("&")
    };
    let streams: Vec<_> = (0..40).map(|number| open(&hub, &topics(number), &[])).collect();
    for number in 0..500 {
        publish(&hub, &publisher("[]"), &format!("topic=a&id=n{number}"));
    }
    assert_eq!(hub.waiting(), 540);
    // One turn takes one arrival; each of the 4,000 reports brings another one.
    let mut run = std::pin::pin!(run);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..POLLS {
        assert!(run.as_mut().poll(&mut context).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(hub.waiting() <= 64, "{} arrivals wait", hub.waiting());
    drop(streams);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let hub = hub(options());
    let soon = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 1;
    let token = token(&format!(r#"{{"exp":{soon},"mercure":{{"subscribe":["*"]}}}}"#));
    let (_, mut stream) = open(&hub, &format!("topic=a&authorization={token}"), &[]);
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, ":\n");
}

#[tokio::test]
async fn the_header_of_a_token_chooses_no_algorithm_and_no_extension() {
    let claims = r#"{"mercure":{"publish":["*"]}}"#;
    let signed = |header: &str| {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", part(header), part(claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
    };
    let hub = hub(options());
    let status = |header: &str| publish(&hub, &signed(header), "topic=a").status;
    assert_eq!(status(r#"{"alg":"HS256"}"#), 200);
    for header in [
        r#"{"alg":"HS384"}"#,
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"typ":"JWT"}"#,
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        "[]",
        "{",
    ] {
        assert_eq!(status(header), 401, "{header}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_clients_send_is_read_safely(
        token in "[a-zA-Z0-9_.=; -]*", query in "([a-z]=[{}a-z+#?/*,.:%0-9]*&?)*", form in "(topic=.{0,9}&|data=.{0,9}&|id=.{0,9}&)*",
    ) {
        fuzz::fuzz(format!("{token}\n{query}\n{form}").as_bytes());
    }
}

#[tokio::test]
async fn after_lost_updates_no_id_counts_as_the_newest() {
    let hub = hub(options());
    publish(&hub, &publisher("[]"), "topic=a&id=n1");
    hub.ready().await;
    let header = |id: &str| {
        let (fields, _stream) = open(&hub, "topic=a", &[("last-event-id", id)]);
        fields.into_iter().find(|(name, _)| *name == "last-event-id").unwrap().1
    };
    assert_eq!(header("n1"), "n1");
    hub.restart();
    assert_eq!(header("n1"), "earliest", "n2 may have come and be lost");
}

#[tokio::test]
async fn updates_from_before_a_node_knew_its_log_are_kept_and_not_sent() {
    let hub = hub(options());
    let registry = hub.channels.registry();
    let now = Moment::from_millis(1);
    let channel = crate::ChannelName::new("updates", 30).unwrap();
    let apply = |sequence: u64, age: Duration| {
        let data = update::Update::read(&format!("topic=a&id=n{sequence}")).unwrap().json();
        let author = crate::Author::Server { except: None };
        let publication =
            crate::Publication { channel: &channel, event: "update", data: &data, author };
        let position = crate::shared_log::position(sequence, 0);
        let logged = crate::shared_log::Logged { position, age };
        registry.apply_logged(&hub.app, &publication, logged, now);
    };
    registry.shared().set_active(true);
    // It comes while the broker is away.
    let (_, mut early) = open(&hub, "topic=a", &[("last-event-id", "n1")]);
    registry.restart_log(7, 0, now);
    hub.ready().await;
    let (_, mut fresh) = open(&hub, "topic=a", &[]);
    for sequence in [1, 2] {
        apply(sequence, Duration::from_hours(1));
    }
    // Stored after the second subscriber had come.
    apply(3, Duration::ZERO);
    hub.ready().await;
    registry.log_loaded(false, now);
    let mut text = String::new();
    early.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, ":\n", "its stream ends");
    let (_, mut back) = open(&hub, "topic=a", &[("last-event-id", "n1")]);
    apply(4, Duration::ZERO);
    let text = read(&mut back, "id: n4\n").await;
    assert!(text.contains("id: n2\n") && text.contains("id: n3\n"), "{text}");
    assert!(!text.contains("id: n1\n"), "{text}");
    // It named no id, so that it could not ask again.
    let text = read(&mut fresh, "id: n4\n").await;
    assert!(text.contains("id: n3\n") && !text.contains("id: n2\n"), "{text}");
}

#[tokio::test]
async fn a_token_that_expires_after_the_end_of_time_is_valid() {
    let hub = hub(options());
    let claims = format!(r#"{{"exp":{},"mercure":{{"subscribe":["*"]}}}}"#, u64::MAX);
    let bearer = format!("Bearer {}", token(&claims));
    let (_, mut stream) = open(&hub, "topic=a", &[("authorization", &bearer)]);
    publish(&hub, &publisher("[]"), "topic=a&id=n1");
    read(&mut stream, "id: n1").await;
}

#[tokio::test]
async fn a_page_of_any_origin_reads_without_its_visitors_cookie() {
    for (allowed, origin, credentials) in
        [("https://a.test", "https://a.test", Some("true")), ("*", "https://a.test", None)]
    {
        let hub = hub(Options { cors_origins: vec![allowed.into()], ..options() });
        let (fields, _stream) = open(&hub, "topic=a", &[("origin", origin)]);
        let field = |wanted: &str| {
            fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| &**value)
        };
        assert_eq!(field("access-control-allow-origin"), Some(origin));
        assert_eq!(field("access-control-allow-credentials"), credentials, "{allowed}");
    }
}

#[tokio::test]
async fn a_body_is_needed_only_of_publishers_with_a_valid_token() {
    let hub = hub(options());
    let needs = |method: &str, target: &str, authorization: &str| {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let field = |name: &str| (name == "authorization").then_some(authorization);
        hub.needs_body(&Request { method, path, query, field: &field, body: b"" })
    };
    let valid = format!("Bearer {}", publisher(r#"["a"]"#));
    let reader = format!("Bearer {}", token(r#"{"mercure":{"subscribe":["*"]}}"#));
    assert!(needs("POST", PATH, &valid));
    assert!(!needs("POST", PATH, &reader), "it may not publish");
    assert!(!needs("POST", PATH, &format!("{valid}AA")), "another signature");
    assert!(!needs("POST", PATH, ""));
    assert!(!needs("GET", &format!("{PATH}?topic=a"), &valid));
    assert!(!needs("POST", &format!("{PATH}/subscriptions"), &valid));
}
