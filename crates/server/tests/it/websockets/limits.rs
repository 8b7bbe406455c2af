//! Limits, and how clients and handlers that break them are answered.

use std::io::{Read as _, Write as _};

use testkit::eventually;
use tungstenite::Message;

use super::lives::events;
use super::{Client, serve, site};
use crate::hearth::{LIMIT, of_tier};

#[test]
fn failures_of_the_handler_close_with_1011_and_tell_nothing() {
    for model in of_tier(["request", "snapshot"]) {
        let site = site();
        let hearth = serve(&site, model).workers(1).start();
        for message in ["fail", "throw", "not-text"] {
            let mut client = Client::open(&hearth, "/chat");
            client.send(message);
            assert_eq!(client.closed(), (1011, "the application failed".to_owned()), "{message}");
        }
        assert_eq!(Client::open_with(&hearth, "/chat?refuse=500", &[]).unwrap_err(), 500);
        let mut client = Client::open(&hearth, "/chat");
        let text = client.ask("errors");
        assert!(text.contains("must be UTF-8, or be sent as binary"), "{text}");
        assert!(text.contains("must be a close code"), "{text}");
        assert!(text.ends_with("[false,false,false]"), "{text}");
        client.send("close");
        assert_eq!(client.closed(), (4001, "enough".to_owned()), "{model}");
        assert_eq!(events(&site, "close 4001").last().unwrap(), "close 4001 enough");
    }
}

#[test]
fn violations_and_messages_that_are_too_large_close_with_their_codes() {
    let site = site();
    let hearth =
        serve(&site, "request").set("HEARTH_WEBSOCKETS_MESSAGE_LIMIT", "1000").workers(1).start();
    let mut client = Client::open(&hearth, "/chat");
    assert_eq!(client.ask(&"x".repeat(1000)), "x".repeat(1000));
    client.send(&"x".repeat(1001));
    assert_eq!(client.closed().0, 1009);

    // A text that is not UTF-8, after a message that is still answered.
    let mut client = Client::open(&hearth, "/chat");
    client.send("before");
    client.0.get_mut().write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xff]).unwrap();
    assert_eq!(client.next(), "before");
    assert_eq!(client.closed().0, 1007);

    let mut client = Client::open(&hearth, "/chat");
    client.0.get_mut().write_all(&[0x81, 0x01, b'x']).unwrap();
    assert_eq!(client.closed().0, 1002, "a frame without a mask");
    assert_eq!(
        events(&site, "close 1002").iter().filter(|event| event.starts_with("close")).count(),
        3
    );
}

#[test]
fn bytes_after_a_close_or_a_violation_take_no_memory() {
    let site = site();
    let hearth = serve(&site, "request").workers(1).start();
    let junk = vec![0; 1 << 20];
    for first in [&[0x88, 0x80, 0, 0, 0, 0][..], &[0x81, 0x01, b'x']] {
        let mut client = Client::open(&hearth, "/chat");
        assert_eq!(client.ask("hi"), "hi");
        let before = anonymous(hearth.process.pid());
        let stream = client.0.get_mut();
        stream.write_all(first).unwrap();
        let mut sent = 0;
        while sent < 64 && stream.write_all(&junk).is_ok() {
            sent += 1;
            let more = anonymous(hearth.process.pid()).saturating_sub(before);
            assert!(more < 8 << 20, "{more} bytes of memory for {sent} MiB after {first:?}");
        }
        assert!(sent > 16, "the server reads on: {sent} MiB");
    }
}

#[test]
fn connections_are_limited_in_all_and_by_address() {
    let site = site();
    let hearth = serve(&site, "request")
        .set("HEARTH_WEBSOCKETS_CONNECTION_LIMIT", "3")
        .set("HEARTH_WEBSOCKETS_CONNECTIONS_PER_CLIENT", "2")
        .set("HEARTH_HTTP_TRUSTED_PROXIES", "127.0.0.1")
        .workers(1)
        .start();
    let open = |client: &str| Client::open_with(&hearth, "/chat", &[("x-forwarded-for", client)]);
    let (one, _two) = (open("192.0.2.1").unwrap().0, open("192.0.2.1").unwrap().0);
    assert_eq!(open("192.0.2.1").unwrap_err(), 429);
    let _three = open("192.0.2.2").unwrap().0;
    assert_eq!(open("192.0.2.3").unwrap_err(), 503);
    drop(one);
    events(&site, "close 1006");
    eventually("its place is free", LIMIT, || hearth.status()["websockets"][0]["open"] == 2);
    open("192.0.2.3").unwrap();
}

#[test]
fn a_client_that_does_not_read_is_closed_and_one_that_sends_too_fast_is_not_read_from() {
    let site = site();
    let hearth = serve(&site, "snapshot").workers(2).start();
    let (mut slow, mut other) = (Client::open(&hearth, "/chat"), Client::open(&hearth, "/chat"));
    let id = slow.ask("id");
    // The queue is bounded: PHP learns that no more is taken, and the client is closed.
    assert_eq!(other.ask(&format!("flood {id} 65536")), "full");
    assert_eq!(slow.closed(), (1013, "the client does not read".to_owned()));
    assert_eq!(hearth.status()["websockets"][0]["overflowed"], 1);

    // While PHP handles a message, a bounded number of further ones is taken from the client.
    let mut fast = Client::open(&hearth, "/chat");
    fast.send("wait go");
    let stream = fast.0.get_mut();
    stream.set_nonblocking(true).unwrap();
    let frame = [&[0x82, 0xfe, 0xff, 0xff, 0, 0, 0, 0][..], &vec![7; 65_535]].concat();
    let (mut whole, mut part) = (0, 0);
    let mut quiet = 0;
    while quiet < 20 {
        match stream.write(&frame[part..]) {
            Ok(written) => {
                (part, quiet) = (part + written, 0);
                if part == frame.len() {
                    (whole, part) = (whole + 1, 0);
                }
            }
            Err(_full) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
                quiet += 1;
            }
        }
        assert!(whole < 1000, "64 MB were taken from a client whose messages wait");
    }
    // One message is handled, and as many wait as `message_limit` allows: three of 64 KiB. Two came before.
    let received = || hearth.status()["websockets"][0]["received"].as_u64();
    eventually("what may wait is taken", LIMIT, || received() == Some(6));
    site.write("go", "");
    stream.set_nonblocking(false).unwrap();
    if part > 0 {
        stream.write_all(&frame[part..]).unwrap();
        whole += 1;
    }
    assert_eq!(fast.next(), "waited go");
    for _ in 0..whole {
        assert!(matches!(fast.0.read().unwrap(), Message::Binary(bytes) if bytes.len() == 65_535));
    }
}

#[test]
fn too_many_messages_in_a_second_and_idle_or_silent_clients_are_closed() {
    let site = site();
    let hearth = serve(&site, "request")
        .set("HEARTH_WEBSOCKETS_MESSAGE_RATE", "5")
        .set("HEARTH_WEBSOCKETS_PING_INTERVAL", "200ms")
        .set("HEARTH_WEBSOCKETS_PONG_TIMEOUT", "2s")
        .workers(1)
        .start();
    let mut client = Client::open(&hearth, "/chat");
    for number in 0..40 {
        if client.0.send(Message::text(number.to_string())).is_err() {
            break;
        }
    }
    assert_eq!(client.closed(), (1008, "too many messages per second".to_owned()));

    // One that answers pings stays, one that is silent is cut.
    let mut client = Client::open(&hearth, "/chat");
    for _ in 0..3 {
        assert!(matches!(client.0.read().unwrap(), Message::Ping(_)));
    }
    let mut bytes = Vec::new();
    client.0.get_mut().read_to_end(&mut bytes).unwrap();
    assert_eq!(events(&site, "close 1006").last().unwrap(), "close 1006 no pong");
}

#[test]
fn an_interval_of_zero_sends_no_pings() {
    let site = site();
    let hearth =
        serve(&site, "request").set("HEARTH_WEBSOCKETS_PING_INTERVAL", "0s").workers(1).start();
    let mut client = Client::open(&hearth, "/chat");
    client.send("wait go");
    events(&site, "message wait go");
    site.write("go", "");
    assert!(matches!(client.0.read().unwrap(), Message::Text(text) if text == "waited go"));
}

#[test]
fn messages_are_compressed_for_clients_that_offer_it() {
    let site = site();
    let hearth = serve(&site, "request").set("HEARTH_WEBSOCKETS_DEFLATE", "100").workers(1).start();
    let offer = [("sec-websocket-extensions", "permessage-deflate; client_max_window_bits")];
    let (mut client, answer) = Client::open_with(&hearth, "/chat", &offer).unwrap();
    assert!(answer["sec-websocket-extensions"].to_str().unwrap().starts_with("permessage-deflate"));
    client.send("large 5000");
    // tungstenite knows no compression: the frame is read by hand.
    let mut head = [0; 2];
    client.0.get_mut().read_exact(&mut head).unwrap();
    assert_eq!(head[0], 0xc1, "a final text with RSV1");
    assert!(head[1] < 126, "5000 letters of one kind in {} bytes", head[1]);
}

#[test]
fn an_idle_connection_holds_a_few_kilobytes_of_the_server() {
    let site = site();
    let hearth = serve(&site, "request").workers(1).start();
    let open = |count: usize| -> Vec<Client> {
        let fields =
            [("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"), ("cookie", "session=0123456789")];
        let mut open: Vec<Client> =
            (0..count).map(|_| Client::open_with(&hearth, "/chat", &fields).unwrap().0).collect();
        for client in &mut open {
            assert_eq!(client.ask("hi"), "hi");
        }
        open
    };
    // The first ones pay for what all share.
    let _first = open(50);
    let before = anonymous(hearth.process.pid());
    let _more = open(250);
    let each = (anonymous(hearth.process.pid()) - before) / 250;
    assert!(each < 10 << 10, "{each} bytes for each idle connection");
}

/// Returns the anonymous memory of a process in bytes (proc(5)).
fn anonymous(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn an_overload_closes_connections_with_1013_and_writes_one_line_of_the_log() {
    let site = site();
    let hearth = serve(&site, "request").set("HEARTH_PHP_BACKLOG", "0").workers(1).start();
    let mut busy = Client::open(&hearth, "/chat");
    let mut others: Vec<Client> = (0..8).map(|_| Client::open(&hearth, "/chat")).collect();
    busy.send("wait go");
    events(&site, "message wait go");
    for client in &mut others {
        client.send("no worker is free");
        assert_eq!(client.closed(), (1013, "the server is busy".to_owned()));
    }
    // Their close events find no worker either.
    eventually("all is counted", LIMIT, || hearth.status()["websockets"][0]["failed"] == 16);
    site.write("go", "");
    assert_eq!(busy.next(), "waited go");
    let log = hearth.log().text();
    assert_eq!(log.matches("WebSocket event not handled").count(), 1, "{log}");
}
