use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::*;

const ESTABLISHED: &str = r#"{"event":"pusher:connection_established","data":"{\"socket_id\":\"12.34\",\"activity_timeout\":30}"}"#;
const SUCCEEDED: &str =
    r#"{"event":"pusher_internal:subscription_succeeded","channel":"private-a","data":"{}"}"#;

/// A connection that a test answers by hand.
struct Peer(TcpStream);

impl Peer {
    fn text(&mut self, text: &str) {
        self.bytes(&server_frame(0x81, text.as_bytes()));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The head of the upgrade request.
    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    fn accept(&mut self) -> String {
        let head = self.head();
        self.bytes(
            b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        head
    }

    /// The next short frame of the client without its mask, with its first byte.
    fn frame(&mut self) -> (u8, String) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).unwrap();
        assert!(head[1] & 0x80 != 0, "a client's frame is masked");
        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).unwrap();
                usize::from(u16::from_be_bytes(length))
            }
            length => usize::from(length),
        };
        let mut mask = [0; 4];
        self.0.read_exact(&mut mask).unwrap();
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).unwrap();
        let payload: Vec<u8> =
            payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m).collect();
        (head[0], String::from_utf8_lossy(&payload).into_owned())
    }

    fn subscribe(&mut self) -> String {
        self.accept();
        self.text(ESTABLISHED);
        let asked = self.frame().1;
        self.text(SUCCEEDED);
        asked
    }
}

fn server_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u8::try_from(payload.len()) {
        Ok(length) if length < 126 => frame.push(length),
        _ => {
            frame.push(126);
            frame.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// Clients of a server that treats its one connection as `serve` says.
fn clients<T: Send + 'static>(
    serve: impl FnOnce(Peer) -> T + Send + 'static,
) -> (Clients, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    let server = thread::spawn(move || serve(Peer(listener.accept().unwrap().0)));
    (Clients::new(target(address, Duration::from_secs(30))).unwrap(), server)
}

fn target(address: SocketAddrV4, patience: Duration) -> Arc<Target> {
    Arc::new(Target {
        address,
        app: App::parse("1:key:secret").unwrap(),
        channels: vec!["private-a".to_owned()],
        receive_buffer: None,
        patience,
        senders: 2,
    })
}

/// Turns until `done`, for at most half a minute.
fn turn_until(clients: &mut Clients, done: impl Fn(&Clients) -> bool) {
    let deadline = clock::now() + 30_000_000_000;
    while !done(clients) {
        assert!(clock::now() < deadline, "it never came to that: {:?}", clients.tally);
        clients.turn(Duration::from_millis(10)).unwrap();
    }
}

fn stamped(sender: u8, count: u32) -> String {
    let stamp = Stamp { at: clock::now(), sender, count };
    format!(r#"{{"event":"e","channel":"private-a","data":"{{\"at\":\"{}\"}}"}}"#, stamp.text())
}

#[test]
fn a_client_subscribes_with_a_signature_over_its_socket_id() {
    let (mut clients, server) = clients(|mut peer| {
        let asked = peer.subscribe();
        (asked, peer)
    });

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.opening() == 0);

    let (asked, _peer) = server.join().unwrap();
    let auth = App::parse("1:key:secret").unwrap().channel("12.34", "private-a", None);
    assert_eq!(
        asked,
        format!(
            r#"{{"event":"pusher:subscribe","data":{{"channel":"private-a","auth":"{auth}"}}}}"#
        )
    );
    assert_eq!(clients.live(), 1);
    assert_eq!(clients.readers(), [1]);
    assert_eq!(clients.tally.subscribed.count(), 1);
}

#[test]
fn deliveries_are_counted_however_they_are_cut_and_joined() {
    let (mut clients, server) = clients(|mut peer| {
        peer.subscribe();
        let mut all: Vec<u8> = Vec::new();
        for count in 0..50 {
            all.extend(server_frame(0x81, stamped(1, count).as_bytes()));
        }
        for (number, piece) in all.chunks(97).enumerate() {
            peer.bytes(piece);
            if number % 8 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        peer
    });

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.tally.delivered == 50);

    let _peer = server.join().unwrap();
    assert_eq!(clients.tally.latency.count(), 50);
    assert_eq!((clients.tally.skipped, clients.tally.out_of_order), (0, 0));
    assert!(clients.last_delivery() > 0);
}

#[test]
fn what_is_missing_twice_or_late_is_told_apart() {
    let (mut clients, server) = clients(|mut peer| {
        peer.subscribe();
        for (sender, count) in [(0, 0), (1, 0), (0, 3), (0, 2), (0, 3), (1, 1)] {
            peer.text(&stamped(sender, count));
        }
        peer
    });

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.tally.delivered == 6);

    let _peer = server.join().unwrap();
    assert_eq!(clients.tally.skipped, 2, "1 and 2 of sender 0 were skipped over");
    assert_eq!(clients.tally.out_of_order, 2, "2 came late and 3 came twice");
}

#[test]
fn pings_of_both_kinds_are_answered() {
    let (mut clients, server) = clients(|mut peer| {
        peer.subscribe();
        peer.bytes(&server_frame(0x89, b"hi"));
        peer.text(r#"{"event":"pusher:ping","data":{}}"#);
        let answers = (peer.frame(), peer.frame());
        peer.text(&stamped(0, 0));
        (answers, peer)
    });

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.tally.delivered == 1);

    let ((control, event), _peer) = server.join().unwrap();
    assert_eq!(control, (0x8a, "hi".to_owned()));
    assert_eq!(event.1, r#"{"event":"pusher:pong","data":{}}"#);
}

#[test]
fn an_error_event_is_counted_by_its_code() {
    let (mut clients, server) = clients(|mut peer| {
        peer.subscribe();
        peer.text(r#"{"event":"pusher:error","data":{"message":"code red","code":4301}}"#);
        peer.text(r#"{"event":"pusher:error","data":{"code":null,"message":"9 lives"}}"#);
        peer.text(&stamped(0, 0));
        peer
    });

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.tally.delivered == 1);

    let _peer = server.join().unwrap();
    let counted: Vec<_> = clients.tally.errors.iter().collect();
    assert_eq!(counted.len(), 2, "{counted:?}");
    assert_eq!(clients.tally.errors["pusher:error"], 1);
    assert_eq!(clients.tally.errors["pusher:error 4301"], 1);
}

#[test]
fn every_way_to_fail_has_its_name() {
    type Serve = fn(Peer) -> Peer;
    let ways: [(&str, Serve); 6] = [
        ("upgrade answered with 404", |mut peer| {
            peer.head();
            peer.bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            peer
        }),
        ("upgrade with a wrong Sec-WebSocket-Accept", |mut peer| {
            peer.head();
            peer.bytes(b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n");
            peer
        }),
        ("close 4001", |mut peer| {
            peer.accept();
            peer.bytes(&server_frame(0x88, &4001_u16.to_be_bytes()));
            peer
        }),
        ("a malformed frame", |mut peer| {
            peer.accept();
            peer.bytes(&[0xff, 0xff]);
            peer
        }),
        ("a binary frame", |mut peer| {
            peer.accept();
            peer.bytes(&server_frame(0x82, b"x"));
            peer
        }),
        ("end of stream", |mut peer| {
            peer.accept();
            peer.0.shutdown(std::net::Shutdown::Write).unwrap();
            peer
        }),
    ];
    for (name, serve) in ways {
        let (mut clients, server) = clients(serve);

        clients.open(Role::Reader, 0);
        turn_until(&mut clients, |clients| clients.opening() == 0);

        let _peer = server.join().unwrap();
        assert_eq!(clients.live(), 0);
        assert_eq!(clients.tally.failures.get(name), Some(&1), "{:?}", clients.tally.failures);
    }
}

#[test]
fn a_port_where_nobody_listens_is_a_failure_and_not_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    drop(listener);
    let mut clients = Clients::new(target(address, Duration::from_secs(30))).unwrap();

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.opening() == 0);

    assert_eq!(clients.tally.failed(), 1);
    assert!(
        clients.tally.failures.keys().all(|why| why.contains("refused")),
        "{:?}",
        clients.tally
    );
}

#[test]
fn a_silent_server_fails_a_client_when_its_patience_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    let mut clients = Clients::new(target(address, Duration::ZERO)).unwrap();

    clients.open(Role::Reader, 0);
    turn_until(&mut clients, |clients| clients.tally.connected.count() == 1);
    clients.expire();

    assert_eq!(clients.opening(), 0);
    assert_eq!(clients.tally.failures["timeout: no answer to the upgrade"], 1);
}

#[test]
fn a_passer_says_goodbye_and_is_not_live() {
    let (mut clients, server) = clients(|mut peer| {
        peer.subscribe();
        peer.frame().0
    });

    clients.open(Role::Passer, 0);
    turn_until(&mut clients, |clients| clients.opening() == 0);

    assert_eq!(server.join().unwrap(), 0x88);
    assert_eq!(clients.live(), 0);
    assert_eq!(clients.tally.subscribed.count(), 1);
    assert!(clients.tally.dropped.is_empty());
}

#[test]
fn a_slow_client_reads_nothing_until_it_is_woken() {
    let (mut clients, server) = clients(|mut peer| {
        peer.subscribe();
        peer.text(&stamped(0, 0));
        peer
    });

    clients.open(Role::Slow, 0);
    turn_until(&mut clients, |clients| clients.opening() == 0);
    let peer = server.join().unwrap();
    for _ in 0..5 {
        clients.turn(Duration::from_millis(5)).unwrap();
    }
    assert_eq!(clients.tally.kept_for_slow, 0, "it read something");
    assert_eq!(clients.readers(), [0], "nobody expects it to receive");

    clients.wake_slow().unwrap();
    turn_until(&mut clients, |clients| clients.tally.kept_for_slow == 1);
    assert_eq!(clients.slow_left(), 1);
    assert_eq!(clients.tally.delivered, 0, "what nobody expected is no delivery");
    drop(peer);
    turn_until(&mut clients, |clients| clients.live() == 0);
    assert_eq!(clients.tally.dropped.len(), 1);
    assert!(clients.tally.dropped.keys().all(|why| why.starts_with("slow: ")));
}
