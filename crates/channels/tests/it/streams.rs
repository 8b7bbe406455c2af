//! Tests Server-Sent Events: the same channels and permissions, for receiving only.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use channels::hub::{AdoptedStream, Stream};
use channels::{App, History, Limits, Rights, auth};
use serde_json::Value;
use testkit::eventually;

use super::kit::{Client, End, PATIENCE, Server, app, head, tcp};

/// A client that reads an event stream.
struct Listener<S: Read = TcpStream>(BufReader<S>);

/// An event: its id, name and data.
type Event = (Option<String>, String, Value);

impl Listener {
    fn open(server: &Server, target: &str, more: &str) -> Self {
        let mut stream = tcp(server.address);
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n{more}\r\n"
        )
        .unwrap();
        let head = head(&mut stream);
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"),
            "{head}"
        );
        Self(BufReader::new(stream))
    }
}

impl<S: Read> Listener<S> {
    /// Returns the lines of the next block; empty at the end.
    fn block(&mut self) -> Vec<String> {
        let lines = self.0.by_ref().lines().map(|line| line.unwrap());
        lines.take_while(|line| !line.is_empty()).collect()
    }

    fn event(&mut self) -> Event {
        let (mut id, mut name, mut data) = (None, String::new(), String::new());
        for line in self.block() {
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("event", value)) => value.clone_into(&mut name),
                Some(("data", value)) => value.clone_into(&mut data),
                _ => panic!("{line:?} is of no event"),
            }
        }
        (id, name, serde_json::from_str(&data).unwrap())
    }

    /// Skips the greeting and `subscription_succeeded`, and returns the id of the latter.
    fn subscribed(&mut self) -> Option<String> {
        assert_eq!(self.event().1, "pusher:connection_established");
        let (id, name, _) = self.event();
        assert_eq!(name, "pusher_internal:subscription_succeeded");
        id
    }
}

#[test]
fn a_stream_receives_the_same_events_as_a_socket() {
    let server = Server::start();
    let mut socket = server.subscriber("news");
    let mut stream = Listener::open(
        &server,
        "/app/key/sse?channels=news,sports",
        "Origin: https://a.example\r\n",
    );
    stream.subscribed();
    assert_eq!(stream.event().1, "pusher_internal:subscription_succeeded");
    server.publish("news", "one");
    server.publish("sports", "two");
    let (id, name, data) = stream.event();
    assert_eq!((id, name.as_str()), (None, "event"), "without a history there is no place in it");
    assert_eq!(data, socket.event());
    assert_eq!(stream.event().2["data"], "two");
    drop(stream);
    eventually("it is gone", PATIENCE, || server.hub.figures().sockets == 1);
}

/// Returns head and body of the response to a request that is not for a stream.
fn answer(server: &Server, target: &str, more: &str) -> (String, String) {
    let mut stream = tcp(server.address);
    write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\n{more}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn status(server: &Server, target: &str) -> String {
    answer(server, target, "").0.split(' ').nth(1).unwrap().to_owned()
}

/// Returns an id for a stream.
fn id(server: &Server) -> String {
    let (head, body) = answer(server, "/app/key/sse/id", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("no-store"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["socket_id"].as_str().unwrap().to_owned()
}

#[test]
fn private_channels_require_the_same_signature_as_for_a_socket() {
    let server = Server::start();
    let (id, other) = (id(&server), id(&server));
    assert_ne!(id, other);
    let signature = auth::sign_subscription(&app(), &id, "private-a", None);
    let target = format!("/app/key/sse?channels=private-a&socket_id={id}&auth={signature}");
    let mut stream = Listener::open(&server, &target, "");
    stream.subscribed();
    server.publish("private-a", "secret");
    assert_eq!(stream.event().2["data"], "secret");
    drop(stream);
    let mut back = Listener::open(&server, &target, "");
    back.subscribed();

    let status = |target: &str| status(&server, target);
    assert_eq!(
        status(&format!("/app/key/sse?channels=private-a&socket_id={other}&auth={signature}")),
        "403"
    );
    assert_eq!(status(&format!("/app/key/sse?channels=private-a&auth={signature}")), "403");
    assert_eq!(status("/app/key/sse?channels=private-a"), "403");
    assert_eq!(status("/app/key/sse"), "403");
    assert_eq!(status("/app/unknown/sse?channels=news"), "404");
    assert_eq!(status("/app/unknown/sse/id"), "404");
    drop(back);
    eventually("nothing is left", PATIENCE, || server.channels.registry().is_empty());
}

#[test]
fn a_sockets_signature_is_invalid_for_a_stream_even_after_the_socket_closed() {
    let server = Server::start();
    let mut socket = Client::upgrade(tcp(server.address), "/app/key?protocol=7");
    let hello: Value = serde_json::from_str(socket.event()["data"].as_str().unwrap()).unwrap();
    let id = hello["socket_id"].as_str().unwrap();
    let target = |channel: &str, id: &str, data: Option<&str>| {
        let auth = auth::sign_subscription(&app(), id, channel, data);
        format!("/app/key/sse?channels=news,{channel}&socket_id={id}&auth=,{auth}")
    };
    let user = r#"{"user_id":"1"}"#;
    for id in [id, "1.2"] {
        let refused = |target: &str| {
            let (head, body) = answer(&server, target, "");
            assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
            assert!(body.contains("socket_id is not one"), "{body}");
        };
        refused(&target("private-a", id, None));
        let presence = target("presence-a", id, Some(user));
        refused(&format!("{presence}&channel_data=%7B%22user_id%22:%221%22%7D"));
    }
    let old = target("private-a", id, None);
    drop(socket);
    eventually("it is gone", PATIENCE, || server.hub.figures().sockets == 0);
    assert_eq!(status(&server, &old), "403");
}

#[test]
fn ids_are_issued_only_to_pages_of_the_applications_origins() {
    let rights = Rights { origins: vec!["a.example".into()], ..Rights::default() };
    let server = Server::with(App { rights, ..app() }, |_| {});
    let (head, body) = answer(&server, "/app/key/sse/id", "Origin: https://a.example\r\n");
    assert!(head.contains("Access-Control-Allow-Origin: https://a.example\r\n"), "{head}");
    assert!(body.starts_with(r#"{"socket_id":""#), "{body}");
    let (head, body) = answer(&server, "/app/key/sse/id", "Origin: https://b.example\r\n");
    assert!(head.starts_with("HTTP/1.1 403 ") && body.contains("4009"), "{head}{body}");
    let stream = "/app/key/sse?channels=news";
    assert!(answer(&server, stream, "Origin: https://b.example\r\n").0.contains(" 403 "));
    // No page, an old browser, or a page of the same origin.
    id(&server);
    for site in ["", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
        Listener::open(&server, stream, site).subscribed();
    }
    // For example an image with this address.
    for site in ["cross-site", "same-site"] {
        for target in ["/app/key/sse/id", stream] {
            let head = answer(&server, target, &format!("Sec-Fetch-Site: {site}\r\n")).0;
            assert!(head.contains(" 403 "), "{head}");
        }
    }
}

#[test]
fn a_stream_of_one_channel_with_a_history_resumes() {
    let history = History { events: 10, age: Duration::from_mins(1), channels: vec![] };
    let server = Server::with(App { history: Some(history), ..app() }, |_| {});
    let mut stream = Listener::open(&server, "/app/key/sse?channels=news", "");
    let start = stream.subscribed().unwrap();
    server.publish("news", "one");
    let (place, _, data) = stream.event();
    assert_eq!(data["data"], "one");
    drop(stream);
    server.publish("news", "two");
    server.publish("news", "three");

    let mut stream = Listener::open(
        &server,
        "/app/key/sse?channels=news",
        &format!("Last-Event-ID: {}\r\n", place.unwrap()),
    );
    stream.subscribed();
    assert_eq!(
        (stream.event().2["data"].as_str(), stream.event().2["data"].as_str()),
        (Some("two"), Some("three"))
    );
    let mut stream = Listener::open(
        &server,
        "/app/key/sse?channels=news",
        &format!("Last-Event-ID: {start}\r\n"),
    );
    stream.subscribed();
    assert_eq!(stream.event().2["data"], "one");
}

#[test]
fn a_stream_that_missed_more_than_its_queue_holds_goes_on_without_it() {
    let history = History { events: 100, age: Duration::from_mins(1), channels: vec![] };
    let limits = Limits { queue_bytes: 100_000, ..Limits::default() };
    let server = Server::with(App { history: Some(history), limits, ..app() }, |_| {});
    let mut stream = Listener::open(&server, "/app/key/sse?channels=news", "");
    let place = stream.subscribed().unwrap();
    drop(stream);
    for _ in 0..20 {
        server.publish("news", &"x".repeat(9_000));
    }
    let place = format!("Last-Event-ID: {place}\r\n");
    let mut stream = Listener::open(&server, "/app/key/sse?channels=news", &place);
    assert_eq!(stream.event().1, "pusher:connection_established");
    let (id, _, data) = stream.event();
    assert!(data["data"].as_str().unwrap().contains(r#""recovered":false"#), "{data}");
    assert!(id.unwrap().ends_with(":20"));
    server.publish("news", "new");
    assert_eq!(stream.event().2["data"], "new");
}

#[test]
fn a_quiet_stream_is_kept_alive_and_a_drain_ends_it() {
    let limits = Limits { activity_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = Server::with(App { limits, ..app() }, |_| {});
    let mut stream = Listener::open(&server, "/app/key/sse?channels=news", "");
    stream.subscribed();
    assert_eq!(stream.block(), [":"]);
    assert_eq!(stream.block(), [":"]);
    server.hub.drain(Duration::ZERO);
    while stream.block() == [":"] {}
    assert_eq!(stream.block(), Vec::<String>::new(), "and then the connection ends");
    server.hub.wait();
}

#[test]
fn a_stream_answered_by_another_front_continues_without_a_head() {
    let server = Server::start();
    let (near, far) = UnixStream::pair().unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    server.hub.adopt_stream(AdoptedStream {
        stream: Stream::Unix(far),
        tls: None,
        answered: true,
        target: "/app/key/sse?channels=news".into(),
        origin: None,
        site: None,
        last_event_id: None,
        beside: 0,
        secure: true,
    });
    let mut stream = Listener(BufReader::new(near));
    stream.subscribed();
    server.publish("news", "one");
    assert_eq!(stream.event().2["data"], "one");
}

#[test]
fn a_stream_that_is_not_read_is_closed_like_a_socket() {
    let limits = Limits { queue_bytes: 100_000, queue_messages: 50, ..Limits::default() };
    let server = Server::with(App { limits, ..app() }, |_| {});
    let mut stream = Listener::open(&server, "/app/key/sse?channels=news", "");
    stream.subscribed();
    let mut socket = server.subscriber("news");
    let data = "x".repeat(9_000);
    for _ in 0..10_000 {
        if server.hub.figures().dropped > 0 {
            break;
        }
        server.publish("news", &data);
        socket.data();
    }
    assert!(server.hub.figures().dropped > 0);
    let mut rest = String::new();
    stream.0.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains(r#""code":4100"#) && rest.ends_with("retry: 1000\n\n"),
        "{:?}",
        rest.lines().last()
    );
    drop(socket.socket.close(None));
    assert_eq!(socket.rest().1, End::Closed(1005));
}
