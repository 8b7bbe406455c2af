//! Tests how connections end, and that they leave no state behind.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use channels::Limits;
use channels::hub::{Hub, Reason};
use testkit::eventually;
use tungstenite::protocol::CloseFrame;

use super::kit::{End, PATIENCE, Server, app, frame, head, request, server_frame, tcp};

#[test]
fn a_close_is_answered_with_the_same_code_and_the_connection_ends() {
    let server = Server::start();
    let mut client = server.subscriber("news");
    client.socket.close(Some(CloseFrame { code: 3333.into(), reason: "bye".into() })).unwrap();
    assert_eq!(client.rest(), (vec![], End::Closed(3333)));
    eventually("its channel is empty", PATIENCE, || server.channels.registry().is_empty());
    assert_eq!(server.hub.figures().closed_by(Reason::Client), 1);
    eventually("and its socket gone", PATIENCE, || server.hub.figures().sockets == 0);
}

#[test]
fn a_connection_that_ends_without_close_leaves_its_channels() {
    let server = Server::start();
    let client = server.subscriber("news");
    drop(client);
    eventually("its channel is empty", PATIENCE, || server.channels.registry().is_empty());
    assert_eq!(server.hub.figures().closed_by(Reason::Gone), 1);
}

#[test]
fn a_slow_request_times_out() {
    let server = Server::with(app(), |options| options.handshake_timeout = Duration::from_secs(1));
    let mut silent = tcp(server.address);
    let mut slow = tcp(server.address);
    let running = Arc::new(AtomicBool::new(true));
    let writer = {
        let (mut slow, running) = (slow.try_clone().unwrap(), Arc::clone(&running));
        std::thread::spawn(move || {
            for byte in request("/app/key?protocol=7", "").bytes().cycle() {
                if !running.load(Ordering::Relaxed) || slow.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    };
    assert!(matches!(silent.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert!(matches!(slow.read(&mut [0; 1]), Ok(0) | Err(_)));
    running.store(false, Ordering::Relaxed);
    writer.join().unwrap();
    eventually("both are counted", PATIENCE, || {
        server.hub.figures().closed_by(Reason::HandshakeTimeout) == 2
    });
    server.connect();
}

#[test]
fn an_idle_client_is_pinged_and_closed_with_4201_without_an_answer() {
    let waiting_for = |pong_timeout| {
        let activity_timeout = Duration::from_secs(1);
        let limits = Limits { activity_timeout, pong_timeout, ..Limits::default() };
        Server::with(channels::App { limits, ..app() }, |_| {})
    };
    let server = waiting_for(Duration::from_secs(1));
    let (events, end) = server.connect().rest();
    assert_eq!(end, End::Closed(4201));
    assert_eq!(events[0]["event"], "pusher:ping");
    assert_eq!(server.hub.figures().closed_by(Reason::PongTimeout), 1);
    eventually("nothing is left", PATIENCE, || server.hub.figures().sockets == 0);

    let server = waiting_for(PATIENCE);
    let mut alive = server.connect();
    for _ in 0..4 {
        assert_eq!(alive.event()["event"], "pusher:ping");
        alive.say(r#"{"event":"pusher:pong","data":{}}"#);
    }
    assert_eq!(server.hub.figures().sockets, 1);
}

#[test]
fn a_client_that_does_not_answer_a_close_is_dropped_soon() {
    let server = Server::with(app(), |options| options.close_timeout = Duration::from_secs(1));
    let mut stream = tcp(server.address);
    stream.write_all(request("/app/unknown?protocol=7", "").as_bytes()).unwrap();
    head(&mut stream);
    assert_eq!(server_frame(&mut stream).0, 0x81);
    assert_eq!(server_frame(&mut stream).0, 0x88);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    eventually("its socket is gone", PATIENCE, || server.hub.figures().sockets == 0);
}

#[test]
fn messages_of_a_closed_client_are_discarded() {
    let server = Server::start();
    let mut stream = tcp(server.address);
    let mut bytes = request("/app/unknown?protocol=7", "").into_bytes();
    for _ in 0..100 {
        bytes.extend(frame(0x81, br#"{"event":"pusher:ping","data":{}}"#));
    }
    bytes.extend(frame(0x88, b"\x0f\xa1"));
    stream.write_all(&bytes).unwrap();
    head(&mut stream);
    assert_eq!(server_frame(&mut stream).0, 0x81);
    assert_eq!(server_frame(&mut stream).0, 0x88);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_drain_closes_a_few_at_a_time_with_4200_and_then_ends() {
    let server = Server::start();
    // A few connections would be closed faster than that.
    let mut clients: Vec<_> = (0..240).map(|_| server.subscriber("news")).collect();
    let started = std::time::SystemTime::now();
    server.hub.drain(Duration::from_secs(2));
    let mut ends: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    assert_eq!(client.rest().1, End::Closed(4200));
                    started.elapsed().unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    server.hub.wait();
    ends.sort_unstable();
    // A busy machine can delay closing, but not advance it.
    assert!(ends[120] > Duration::from_millis(700), "half were closed within {:?}", ends[120]);
    assert!(ends[239] > Duration::from_millis(1500), "all were closed within {:?}", ends[239]);
    assert_eq!(server.hub.figures().closed_by(Reason::Drained), 240);
    assert!(server.channels.registry().is_empty());
    assert!(std::net::TcpStream::connect(server.address).is_err(), "the listener is closed");
}

#[test]
fn a_drain_does_not_wait_long_for_clients_that_do_not_answer_its_close() {
    let server = Server::with(app(), |options| options.close_timeout = PATIENCE * 4);
    let mut streams: Vec<_> = (0..5)
        .map(|_| {
            let mut stream = tcp(server.address);
            stream.write_all(request("/app/key?protocol=7", "").as_bytes()).unwrap();
            head(&mut stream);
            assert_eq!(server_frame(&mut stream).0, 0x81);
            stream
        })
        .collect();
    let began = std::time::SystemTime::now();
    // The whole time would be longer than the test waits.
    server.hub.drain(PATIENCE * 4);
    server.hub.wait();
    let took = began.elapsed().unwrap();
    assert!(took < PATIENCE, "it took {took:?}");
    for stream in &mut streams {
        assert_eq!(server_frame(stream).0, 0x88, "each received a close frame");
    }
}

#[test]
fn a_new_hub_takes_over_the_address_and_no_client_is_rejected() {
    let old = Server::start();
    let running = Arc::new(AtomicBool::new(true));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (address, running) = (old.address, Arc::clone(&running));
            std::thread::spawn(move || {
                let mut count = 0;
                while running.load(Ordering::Relaxed) {
                    let mut stream = tcp(address);
                    stream.write_all(request("/app/key?protocol=7", "").as_bytes()).unwrap();
                    assert!(
                        head(&mut stream).starts_with("HTTP/1.1 101 "),
                        "a connection was lost"
                    );
                    assert!(
                        server_frame(&mut stream)
                            .1
                            .starts_with(br#"{"event":"pusher:connection_established""#)
                    );
                    count += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                count
            })
        })
        .collect();

    eventually("clients come", PATIENCE, || old.hub.figures().upgraded > 100);
    let new = Server::with(app(), |options| {
        options.listen[0].address = channels::hub::Address::Tcp(old.address);
    });
    eventually("some come to the new hub", PATIENCE, || new.hub.figures().upgraded > 50);
    old.hub.drain(Duration::from_secs(1));
    old.hub.wait();
    let before = new.hub.figures().upgraded;
    eventually("all come to the new hub", PATIENCE, || new.hub.figures().upgraded > before + 200);
    running.store(false, Ordering::Relaxed);
    let came: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let taken = |hub: &Hub| hub.figures().upgraded;
    assert_eq!(taken(&old.hub) + taken(&new.hub), came, "each came to one of the two");
}
