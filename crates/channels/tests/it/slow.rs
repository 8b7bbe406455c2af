//! Tests clients that do not read, or read too slowly: they use at most their limit and delay no other client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use channels::hub::{Options, Reason};
use channels::{App, Limits};
use socket2::{Domain, Socket, Type};
use testkit::eventually;

use super::kit::{Client, End, PATIENCE, Server, app, head, request, server_frame, tcp};

fn server(limits: Limits, set: impl FnOnce(&mut Options)) -> Server {
    Server::with(App { limits, ..app() }, set)
}

fn small() -> Limits {
    Limits { queue_bytes: 200_000, queue_messages: 100, ..Limits::default() }
}

/// Connects a subscriber with a small receive buffer.
fn reluctant(server: &Server, channel: &str) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::upgrade(stream, "/app/key?protocol=7");
    client.greeted();
    client.subscribe(channel);
    client
}

#[test]
fn a_client_that_does_not_read_is_closed_when_its_queue_is_full_and_others_receive_everything() {
    let server = server(small(), |_| {});
    let mut slow = reluctant(&server, "news");
    let mut client = server.subscriber("news");
    let data = "x".repeat(9_000);
    let mut published = 0;
    while server.hub.figures().closed_by(Reason::TooSlow) == 0 && published < 10_000 {
        // It is closed, but counted only when the connection ends, which happens when the client reads.
        server.publish("news", &data);
        assert_eq!(client.data().len(), 9_000);
        published += 1;
        if server.hub.figures().dropped > 0 {
            break;
        }
    }
    assert!(server.hub.figures().dropped > 0, "after {published} messages none was dropped");
    let (events, end) = slow.rest();
    assert_eq!(end, End::Closed(4100));
    assert_eq!(events.last().unwrap()["data"]["code"], 4100);
    assert!(events.len() < published, "it missed some");
    eventually("it is counted", PATIENCE, || server.hub.figures().closed_by(Reason::TooSlow) == 1);
    server.publish("news", "after");
    assert_eq!(client.data(), "after");
}

#[test]
fn a_publisher_faster_than_every_reader_does_not_block_the_other_clients() {
    let server = server(small(), |options| options.close_timeout = Duration::from_secs(1));
    let _slow: Vec<_> = (0..20).map(|_| reluctant(&server, "flood")).collect();
    let mut calm = server.subscriber("calm");
    let data = "x".repeat(9_000);
    for _ in 0..3_000 {
        server.publish("flood", &data);
    }
    server.publish("calm", "still here");
    assert_eq!(calm.data(), "still here");
    eventually("all slow ones are closed", PATIENCE, || {
        let figures = server.hub.figures();
        figures.closed_by(Reason::TooSlow) == 20 && figures.sockets == 1
    });
    server.connect();
}

#[test]
fn a_client_that_accepts_no_bytes_for_too_long_is_dropped_even_with_a_short_queue() {
    let limits = Limits {
        activity_timeout: Duration::from_mins(10),
        queue_messages: 1_000_000,
        queue_bytes: 1 << 30,
        ..Limits::default()
    };
    let server = server(limits, |options| options.stall_timeout = Duration::from_secs(1));
    let _slow = reluctant(&server, "news");
    // More than the kernel buffers.
    let data = "x".repeat(9_000);
    for _ in 0..2_000 {
        server.publish("news", &data);
    }
    eventually("it is dropped, and nothing of it stays", PATIENCE, || {
        let dropped = server.hub.figures().closed_by(Reason::Stalled) == 1;
        dropped && server.channels.registry().is_empty()
    });
}

/// Returns short timeouts, for a client that never answers a ping.
fn impatient() -> Limits {
    Limits {
        activity_timeout: Duration::from_millis(200),
        pong_timeout: Duration::from_secs(4),
        ..Limits::default()
    }
}

#[test]
fn a_client_that_acknowledges_data_and_answers_no_ping_stays_connected() {
    let server = server(impatient(), |_| {});
    // The kernel acknowledges for it; it reads nothing, so it answers no ping.
    let _behind = server.subscriber("news");
    let mut idle = server.connect();
    // The idle client answers no ping either. Once it is closed, the other one has exceeded the same timeout.
    let closed = std::thread::spawn(move || idle.rest().1);
    while !closed.is_finished() {
        server.publish("news", "more");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(closed.join().unwrap(), End::Closed(4201));
    // Longer than the pong timeout.
    for _ in 0..100 {
        server.publish("news", "more");
        std::thread::sleep(Duration::from_millis(50));
    }
    let figures = server.hub.figures();
    assert_eq!((figures.closed_by(Reason::PongTimeout), figures.sockets), (1, 1));
}

#[test]
fn a_client_that_reads_again_gets_everything_in_order() {
    let limits = Limits { queue_messages: 1_000_000, queue_bytes: 1 << 30, ..Limits::default() };
    let server = server(limits, |_| {});
    let mut slow = reluctant(&server, "news");
    let padding = "x".repeat(5_000);
    // More than the kernel buffers, less than the inbox of a stalled event loop holds.
    let published = 5_000;
    for number in 0..published {
        server.publish("news", &format!("{number} {padding}"));
    }
    eventually("its socket is full", PATIENCE, || server.hub.figures().blocked > 0);
    for expected in 0..published {
        let data = slow.data();
        assert_eq!(data.split(' ').next().unwrap(), expected.to_string());
    }
}

#[test]
fn a_client_that_sends_endlessly_and_never_reads_is_closed() {
    let server = server(small(), |options| options.close_timeout = Duration::from_secs(1));
    let mut stream = tcp(server.address);
    stream.write_all(request("/app/key?protocol=7", "").as_bytes()).unwrap();
    head(&mut stream);
    server_frame(&mut stream);
    let pings = super::kit::frame(0x89, &[b'p'; 125]).repeat(1000);
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    // It is closed while it writes.
    while stream.write_all(&pings).is_ok() && server.hub.figures().closed_by(Reason::TooSlow) == 0 {
    }
    eventually("it is closed", PATIENCE, || server.hub.figures().closed_by(Reason::TooSlow) == 1);
    drop(stream.read(&mut [0; 1]));
}

#[test]
fn events_are_delivered_while_other_clients_keep_the_loop_busy() {
    let server = Server::with(app(), |options| options.event_loops = std::num::NonZeroUsize::MIN);
    let mut client = server.subscriber("news");
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut talker = server.connect();
            let busy = &busy;
            scope.spawn(move || {
                while busy.load(Ordering::Relaxed) {
                    for _ in 0..50 {
                        talker.say(r#"{"event":"pusher:ping","data":{}}"#);
                    }
                    for _ in 0..50 {
                        talker.event();
                    }
                }
            });
        }
        for count in 0..200 {
            server.publish("news", &count.to_string());
            assert_eq!(client.data(), count.to_string());
        }
        busy.store(false, Ordering::Relaxed);
    });
}

#[test]
fn half_of_the_clients_may_leave_during_publishing_and_the_others_miss_no_event() {
    let server = Server::start();
    let mut stay: Vec<_> = (0..100).map(|_| server.subscriber("news")).collect();
    let leave: Vec<_> = (0..100).map(|_| server.subscriber("news")).collect();
    let publishing = Arc::new(AtomicBool::new(true));
    let published = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut count = 0;
            while publishing.load(Ordering::Relaxed) {
                server.publish("news", &count.to_string());
                count += 1;
                std::thread::sleep(Duration::from_micros(300));
            }
            count
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(leave);
        eventually("they are gone", PATIENCE, || server.hub.figures().sockets == 100);
        publishing.store(false, Ordering::Relaxed);
        publisher.join().unwrap()
    });
    for client in &mut stay {
        for expected in 0..published {
            assert_eq!(client.data(), expected.to_string());
        }
    }
}
