//! Tests valid and invalid requests, frames and messages.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use channels::hub::{Address, ForwardedConnection, Handover, Listen, Reason, Stream};
use channels::websocket::{Deflater, Inflater};
use channels::{Answer, App, AppRef, Apps, Author, ChannelName, Found, Publication};
use testkit::eventually;
use tungstenite::Message;

use super::kit::{Client, End, PATIENCE, Server, app, frame, head, request, server_frame, tcp};

#[test]
fn a_client_receives_only_the_events_of_its_channels() {
    let server = Server::start();
    let mut client = server.subscriber("news");
    let mut other = server.subscriber("sports");
    server.publish("news", "one");
    server.publish("sports", "two");
    assert_eq!((client.data(), other.data()), ("one".into(), "two".into()));

    client.say(r#"{"event":"pusher:unsubscribe","data":{"channel":"news"}}"#);
    client.say(r#"{"event":"pusher:ping","data":{}}"#);
    assert_eq!(client.event()["event"], "pusher:pong");
    server.publish("news", "three");
    client.subscribe("sports");
    server.publish("sports", "four");
    assert_eq!((client.data(), other.data()), ("four".into(), "four".into()));
}

#[test]
fn pings_are_answered_with_their_payload() {
    let server = Server::start();
    let mut client = server.connect();
    client.socket.send(Message::Ping(b"payload"[..].into())).unwrap();
    assert_eq!(client.socket.read().unwrap(), Message::Pong(b"payload"[..].into()));
}

#[test]
fn a_request_may_arrive_in_pieces_and_together_with_the_first_message() {
    let server = Server::start();
    let mut stream = tcp(server.address);
    let mut bytes = request("/app/key?protocol=7", "").into_bytes();
    bytes.extend(frame(0x81, br#"{"event":"pusher:subscribe","data":{"channel":"news"}}"#));
    let (pieces, rest) = bytes.split_at(100);
    for byte in pieces {
        stream.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    stream.write_all(rest).unwrap();
    let answer = head(&mut stream);
    assert!(
        answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "{answer}"
    );
    assert!(
        server_frame(&mut stream).1.starts_with(br#"{"event":"pusher:connection_established""#)
    );
    let subscribed = server_frame(&mut stream).1;
    assert!(String::from_utf8_lossy(&subscribed).contains("subscription_succeeded"));
}

#[test]
fn fragments_are_one_message() {
    let server = Server::start();
    let mut stream = tcp(server.address);
    stream.write_all(request("/app/key?protocol=7", "").as_bytes()).unwrap();
    head(&mut stream);
    server_frame(&mut stream);
    let (one, two) = br#"{"event":"pusher:ping","data":{}}"#.split_at(9);
    for piece in [frame(0x01, one), frame(0x89, b"between"), frame(0x80, two)] {
        stream.write_all(&piece).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server_frame(&mut stream), (0x8a, b"between".to_vec()));
    assert!(server_frame(&mut stream).1.starts_with(br#"{"event":"pusher:pong""#));
}

#[test]
fn a_client_that_violates_rfc_6455_is_closed_with_the_code() {
    let server = Server::start();
    let close = |bytes: &[u8]| {
        let mut stream = tcp(server.address);
        stream.write_all(request("/app/key?protocol=7", "").as_bytes()).unwrap();
        head(&mut stream);
        server_frame(&mut stream);
        stream.write_all(bytes).unwrap();
        let (first, payload) = server_frame(&mut stream);
        assert_eq!(first, 0x88);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "and then the connection ends");
        u16::from_be_bytes([payload[0], payload[1]])
    };
    assert_eq!(close(b"\x81\x05hello"), 1002, "not masked");
    assert_eq!(close(&frame(0x83, b"")), 1002, "a reserved opcode");
    assert_eq!(close(&frame(0xc1, b"")), 1002, "compression was not agreed on");
    assert_eq!(close(&frame(0x81, b"\xff")), 1007);
    assert_eq!(close(&[0x81, 0xfe, 0x9c, 0x40, 0, 0, 0, 0]), 1009);
    eventually("the connections are gone", PATIENCE, || {
        server.hub.figures().closed_by(Reason::Violation) == 5
    });
    server.connect();
}

#[test]
fn rejected_connections_get_the_protocols_codes() {
    let server = Server::start();
    for (target, code) in [
        ("/app/unknown?protocol=7", 4001),
        ("/other?protocol=7", 4005),
        ("/app/key?protocol=x", 4006),
        ("/app/key?protocol=1", 4007),
        ("/app/key", 4008),
    ] {
        let mut client = Client::upgrade(tcp(server.address), target);
        let (events, end) = client.rest();
        assert_eq!(end, End::Closed(code), "{target}");
        assert_eq!(
            (&events[0]["event"], &events[0]["data"]["code"]),
            (&"pusher:error".into(), &code.into())
        );
    }
    eventually("they are counted", PATIENCE, || {
        server.hub.figures().closed_by(Reason::Refused) == 5
    });
}

#[test]
fn connections_above_the_limit_are_told_to_reconnect_later() {
    let server = Server::with(app(), |options| options.sockets = 2);
    let (_first, _second) = (server.connect(), server.connect());
    let mut third = Client::upgrade(tcp(server.address), "/app/key?protocol=7");
    assert_eq!(third.rest().1, End::Closed(4100));
}

#[test]
fn invalid_requests_get_an_http_error() {
    let server = Server::start();
    let answer = |request: &str| {
        let mut stream = tcp(server.address);
        stream.write_all(request.as_bytes()).unwrap();
        let answer = head(&mut stream);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "and then the connection ends");
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let good = request("/app/key?protocol=7", "");
    assert_eq!(answer(&good.replace("Version: 13", "Version: 12")), "426");
    assert_eq!(answer(&good.replace("dGhlIHNhbXBsZSBub25jZQ==", "short")), "400");
    assert_eq!(answer(&good.replace("websocket", "h2c")), "404");
    assert_eq!(answer("GET / HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(answer(&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(9000))), "431");
}

#[derive(Debug, Default)]
struct Front(Mutex<Vec<ForwardedConnection>>);

impl Handover for Front {
    fn take(&self, forwarded: ForwardedConnection) {
        self.0.lock().unwrap().push(forwarded);
    }
}

#[test]
fn other_requests_are_handed_to_the_other_front_with_all_bytes_read() {
    let front = Arc::new(Front::default());
    let server =
        Server::with(app(), |options| options.handover = Some(Arc::<Front>::clone(&front)));
    let request = "POST /apps/1/events HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let mut client = tcp(server.address);
    let (one, two) = request.split_at(30);
    client.write_all(one.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    client.write_all(two.as_bytes()).unwrap();
    eventually("it is handed over", PATIENCE, || front.0.lock().unwrap().len() == 1);
    let forwarded = front.0.lock().unwrap().pop().unwrap();
    assert_eq!(String::from_utf8(forwarded.read).unwrap(), request);
    let Stream::Tcp(mut stream) = forwarded.stream else { panic!("it came by TCP") };
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert!(head(&mut client).starts_with("HTTP/1.1 204 "));
    let figures = server.hub.figures();
    assert_eq!((figures.handed_over, figures.accepted), (1, 1));
    server.connect();
}

#[test]
fn a_unix_socket_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub");
    let server = Server::with(app(), |options| {
        options.listen = vec![Listen { address: Address::Unix(path.clone()), secure: false }];
    });
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::upgrade(stream, "/app/key?protocol=7");
    client.greeted();
    client.subscribe("news");
    server.publish("news", "one");
    assert_eq!(client.data(), "one");
}

#[test]
fn long_messages_are_compressed_for_clients_that_offer_it_and_short_ones_never() {
    let server = Server::with(app(), |options| options.deflate = Some(200));
    let mut plain = server.subscriber("news");
    let mut stream = tcp(server.address);
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    stream.write_all(request("/app/key?protocol=7", offer).as_bytes()).unwrap();
    let answer = head(&mut stream);
    assert!(
        answer.contains("Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"),
        "{answer}"
    );
    server_frame(&mut stream);

    // Compressed messages of a client are decompressed.
    let subscribe =
        Deflater::default().frame(br#"{"event":"pusher:subscribe","data":{"channel":"news"}}"#);
    stream.write_all(&frame(0xc1, &subscribe[2..])).unwrap();
    assert_eq!(server_frame(&mut stream).0, 0x81, "the answer is short");

    let long = "long ".repeat(100);
    server.publish("news", &long);
    server.publish("news", "short");
    let (first, payload) = server_frame(&mut stream);
    assert_eq!(first, 0xc1);
    assert!(payload.len() < 150, "{} bytes", payload.len());
    let text = Inflater::default().inflate(&payload, 10_000).unwrap();
    assert!(String::from_utf8(text).unwrap().contains(&long));
    let (first, payload) = server_frame(&mut stream);
    assert_eq!(first, 0x81);
    assert!(String::from_utf8(payload).unwrap().contains("short"));
    assert_eq!((plain.data(), plain.data()), (long, "short".into()));
}

/// Blocks the event loop that looks up one key, for as long as the test wants.
#[derive(Debug, Default)]
struct Stuck {
    held: AtomicBool,
    reached: AtomicBool,
}

impl Apps for Stuck {
    fn find(&self, app: AppRef<'_>) -> Found {
        if app == AppRef::Key("stuck") {
            self.reached.store(true, Ordering::Relaxed);
            eventually("it continues", PATIENCE, || !self.held.load(Ordering::Relaxed));
        }
        let (one, other) = (super::kit::app(), AppRef::Key("other"));
        let app = if app == other { App { id: "2".into(), ..one } } else { one };
        Found::App(Arc::new(app))
    }
}

#[test]
fn an_application_that_fills_an_inbox_costs_another_no_event() {
    let apps = Arc::new(Stuck { held: AtomicBool::new(true), ..Stuck::default() });
    let server = Server::of(Arc::<Stuck>::clone(&apps), |options| {
        options.event_loops = std::num::NonZeroUsize::MIN;
    });
    let mut missed = server.subscriber("news");
    let mut other = Client::connect(server.address, "/app/other?protocol=7");
    other.subscribe("news");
    let mut stream = tcp(server.address);
    stream.write_all(request("/app/stuck?protocol=7", "").as_bytes()).unwrap();
    eventually("the loop is held up", PATIENCE, || apps.reached.load(Ordering::Relaxed));

    for _ in 0..80_000 {
        server.publish("news", "too many");
    }
    let Found::App(app) = apps.find(AppRef::Key("other")) else { panic!("it is known") };
    for n in 0..1000 {
        let publication = Publication {
            channel: &ChannelName::new("news", 164).unwrap(),
            event: "event",
            data: &format!("\"{n}\""),
            author: Author::Server { except: None },
        };
        server.channels.registry().publish(&app, &publication, channels::hub::now()).unwrap();
    }
    apps.held.store(false, Ordering::Relaxed);
    assert_eq!(missed.rest().1, End::Closed(4200));
    for n in 0..1000 {
        assert_eq!(other.data(), n.to_string());
    }
    let lost = |app: &str| server.channels.statistics().of(&app.into()).inbox_full.get();
    assert!(lost("1") > 0);
    assert_eq!(lost("2"), 0);
}

#[test]
fn events_lost_by_a_full_inbox_close_only_their_recipients() {
    let apps = Arc::new(Stuck { held: AtomicBool::new(true), ..Stuck::default() });
    let server = Server::of(Arc::<Stuck>::clone(&apps), |options| {
        options.event_loops = std::num::NonZeroUsize::MIN;
    });
    let mut missed = server.subscriber("news");
    let mut other = server.subscriber("sports");
    let mut stream = tcp(server.address);
    stream.write_all(request("/app/stuck?protocol=7", "").as_bytes()).unwrap();
    eventually("the loop is held up", PATIENCE, || apps.reached.load(Ordering::Relaxed));

    server.publish("sports", "in time");
    for _ in 0..80_000 {
        server.publish("news", "too many");
    }
    apps.held.store(false, Ordering::Relaxed);
    assert_eq!(other.data(), "in time");
    assert_eq!(missed.rest().1, End::Closed(4200));
    eventually("it alone is gone", PATIENCE, || {
        let figures = server.hub.figures();
        (figures.closed_by(Reason::Lost), figures.sockets) == (1, 2)
    });
    server.publish("sports", "after");
    assert_eq!(other.data(), "after");
    let mut back = server.subscriber("news");
    server.publish("news", "after");
    assert_eq!(back.data(), "after");
}

/// A source that answers only asynchronously, from another thread, and panics for one key.
#[derive(Debug)]
struct Slowly;

impl Apps for Slowly {
    fn find(&self, app: AppRef<'_>) -> Found {
        assert_ne!(app, AppRef::Key("panic"), "as wanted");
        Found::Unknown
    }

    fn ask(&self, app: AppRef<'_>, answer: Answer) {
        let known = app == AppRef::Key("key");
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            answer(Ok(known.then(|| Arc::new(App { ..super::kit::app() }))));
        });
    }
}

#[test]
fn a_look_up_delays_only_the_clients_of_its_application() {
    let server = Server::of(Arc::new(Slowly), |_| {});
    let mut stream = tcp(server.address);
    let mut bytes = request("/app/key?protocol=7", "").into_bytes();
    bytes.extend(frame(0x89, b"early"));
    stream.write_all(&bytes).unwrap();
    head(&mut stream);
    assert!(
        server_frame(&mut stream).1.starts_with(br#"{"event":"pusher:connection_established""#)
    );
    assert_eq!(server_frame(&mut stream), (0x8a, b"early".to_vec()));
    let mut rejected = Client::upgrade(tcp(server.address), "/app/unknown?protocol=7");
    assert_eq!(rejected.rest().1, End::Closed(4001));
}

#[test]
fn a_panic_closes_only_the_socket_of_its_turn() {
    let server =
        Server::of(Arc::new(Slowly), |options| options.event_loops = std::num::NonZeroUsize::MIN);
    let mut client = server.subscriber("news");
    let mut stream = tcp(server.address);
    stream.write_all(request("/app/panic?protocol=7", "").as_bytes()).unwrap();
    let mut read = Vec::new();
    // The connection is closed, with or without what was queued before.
    drop(stream.read_to_end(&mut read));
    eventually("it is counted", PATIENCE, || server.hub.figures().closed_by(Reason::Panic) == 1);
    client.say(r#"{"event":"pusher:ping","data":{}}"#);
    assert_eq!(client.event()["event"], "pusher:pong");
    server.connect();
}
