//! Attacks on HTTP/3: what a client must not be able to do by packets, frames or fields.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use front_http::ClientLimit;
use h3::error::Code;
use http::Request;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, ReadError, VarInt};
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls_pki_types::ServerName;
use tokio::time::timeout;

use crate::http3::{Http3, connect, endpoint, server, server_with, url};
use crate::support::{LONG, Server, eventually, until};

/// A client that writes every byte of its frames itself.
struct Raw {
    quic: quinn::Connection,
    control: quinn::SendStream,
}

impl Raw {
    async fn to(server: &Server) -> Self {
        let quic = connect(server.address()).await;
        let mut control = quic.open_uni().await.unwrap();
        control.write_all(b"\x00\x04\x00").await.unwrap();
        Self { quic, control }
    }

    /// Sends the bytes of a request, and returns all that comes back.
    async fn ask(&self, bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
        let (mut send, mut receive) = self.quic.open_bi().await.unwrap();
        // The server may have seen enough before the end.
        let _whole = send.write_all(bytes).await.is_ok() && send.finish().is_ok();
        let mut answer = Vec::new();
        while let Some(chunk) = timeout(LONG, receive.read_chunk(4096, true)).await.unwrap()? {
            answer.extend_from_slice(&chunk.bytes);
        }
        Ok(answer)
    }

    /// Returns the code with which the server resets the stream of these bytes.
    async fn reset_by(&self, bytes: &[u8]) -> Code {
        match self.ask(bytes).await {
            Err(ReadError::Reset(code)) => Code::from(code.into_inner()),
            other => panic!("not reset: {other:?}"),
        }
    }
}

/// A frame.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap() | 0x8000_0000;
    [&[kind], &length.to_be_bytes()[..], payload].concat()
}

/// A field section without the tables and without Huffman's code (RFC 9204, section 4.5.6).
fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in all {
        put_text(&mut out, 0x20, 3, name);
        put_text(&mut out, 0, 7, value);
    }
    frame(1, &out)
}

fn put_text(out: &mut Vec<u8>, first: u8, bits: u32, text: &str) {
    let most = (1 << bits) - 1;
    if text.len() < most {
        out.push(first | u8::try_from(text.len()).unwrap());
    } else {
        out.push(first | u8::try_from(most).unwrap());
        let mut left = text.len() - most;
        while left >= 128 {
            out.push(u8::try_from(left % 128).unwrap() | 128);
            left /= 128;
        }
        out.push(u8::try_from(left).unwrap());
    }
    out.extend(text.as_bytes());
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/a")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "a.example"), (":path", "/upload")];

fn with<'a>(base: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<u8> {
    fields(&[base, more].concat())
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn malformed_http3_requests_are_reset() {
    let server = server().await;
    let client = Raw::to(&server).await;
    assert!(contains(&client.ask(&fields(&GET)).await.unwrap(), b"app /a"), "this one is right");
    let called = server.app.called.load(Ordering::SeqCst);
    for (what, head) in [
        ("no method", fields(&GET[1..])),
        ("no scheme", fields(&[GET[0], GET[2], GET[3]])),
        ("no host", fields(&[GET[0], GET[1], GET[3]])),
        ("no path", fields(&GET[..3])),
        ("two hosts", with(&GET, &[("host", "b.example")])),
        ("unknown pseudo-header field", with(&GET, &[(":secret", "1")])),
        ("a name in capitals", with(&GET, &[("X-Secret", "1")])),
        ("a line break in a value", with(&GET, &[("x-a", "1\r\nx-b: 2")])),
        ("connection", with(&GET, &[("connection", "close")])),
        ("keep-alive", with(&GET, &[("keep-alive", "timeout=5")])),
        ("transfer-encoding", with(&POST, &[("transfer-encoding", "chunked")])),
        ("upgrade", with(&GET, &[("upgrade", "websocket")])),
        ("te", with(&GET, &[("te", "gzip")])),
        ("two lengths", with(&POST, &[("content-length", "3"), ("content-length", "4")])),
        ("a signed length", with(&POST, &[("content-length", "+3")])),
    ] {
        assert_eq!(client.reset_by(&head).await, Code::H3_MESSAGE_ERROR, "{what}");
    }
    assert_eq!(server.app.called.load(Ordering::SeqCst), called);
    assert!(contains(&client.ask(&fields(&GET)).await.unwrap(), b"app /a"), "it goes on");
}

/// h3 keeps the last value of a pseudo-header field that comes twice, which is malformed (RFC 9114, section 4.3), and says nothing of the
/// others. No proxy can be between that would read another one: it would have to end the client's encryption.
#[tokio::test]
async fn a_repeated_pseudo_field_over_http3_has_one_value_for_all() {
    let server = server().await;
    let client = Raw::to(&server).await;
    let ask = async |more: &[(&str, &str)]| client.ask(&with(&GET, more)).await.unwrap();
    let answer = ask(&[(":path", "/b")]).await;
    assert!(contains(&answer, b"app /b") && !contains(&answer, b"app /a"));
    // A host that is not the one of the target is refused whichever of them repeats.
    for more in [
        &[(":authority", "b.example"), ("host", "a.example")][..],
        &[("host", "a.example"), (":authority", "b.example")],
    ] {
        assert_eq!(client.reset_by(&with(&GET, more)).await, Code::H3_MESSAGE_ERROR);
    }
    // The method that is used is the one that is checked.
    for (first, then, refused) in [("GET", "CONNECT", true), ("CONNECT", "GET", false)] {
        let mut head = GET.to_vec();
        head[0] = (":method", first);
        head.push((":method", then));
        let answer = client.ask(&fields(&head)).await;
        let served = answer.is_ok_and(|answer| contains(&answer, b"app /a"));
        assert_eq!(served, !refused, "{first}, {then}");
    }
}

#[tokio::test]
async fn a_body_of_another_length_than_announced_is_no_request() {
    let server = server().await;
    let client = Raw::to(&server).await;
    let body =
        |length, data: &[u8]| [with(&POST, &[("content-length", length)]), frame(0, data)].concat();
    assert!(contains(&client.ask(&body("4", b"four")).await.unwrap(), b"4 bytes"));
    let smuggled = b"fourGET /secret HTTP/1.1\r\n\r\n";
    for (length, data) in [("5", &b"four"[..]), ("4", smuggled), ("3", b"four"), ("9", b"")] {
        let answer = client.ask(&body(length, data)).await;
        let refused = match &answer {
            Err(ReadError::Reset(code)) => *code == code_of(Code::H3_MESSAGE_ERROR),
            Ok(answer) => contains(answer, b"400 Bad Request"),
            Err(_) => false,
        };
        assert!(refused, "{length}: {answer:?}");
    }
    // Its one complete request is all that the application has seen to its end.
    assert_eq!(server.app.read.load(Ordering::SeqCst), 4);
}

fn code_of(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap()
}

#[tokio::test]
async fn truncated_and_tiny_frames_are_no_other_bodies() {
    let server = server().await;
    let client = Raw::to(&server).await;
    let tiny = [&fields(&POST)[..], &frame(0, b""), &frame(0, b"a"), &frame(0, b"")].concat();
    let tiny = [&tiny[..], &frame(0x21, b"grease"), &frame(0, b"b").repeat(1000)].concat();
    assert!(contains(&client.ask(&tiny).await.unwrap(), b"1001 bytes"));
    let cut = [&fields(&POST)[..], &frame(0, b"whole"), b"\x00\x09half"].concat();
    let answer = client.ask(&cut).await;
    assert!(!matches!(&answer, Ok(answer) if contains(answer, b" bytes")), "{answer:?}");
    let client = Raw::to(&server).await;
    let head = fields(&GET);
    // The whole connection is given up for it (RFC 9114, section 7.1).
    let answer = client.ask(&head[..head.len() - 3]).await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn http3_heads_are_limited_in_size_and_number() {
    let server = server().await;
    let client = Raw::to(&server).await;
    // `:status` 431, by Huffman's code.
    let refused = b"\x5f\x09\x83\x69\x90\xff";
    let long = "x".repeat(70 << 10);
    let answer = client.ask(&with(&GET, &[("x-long", &long)])).await.unwrap();
    assert!(contains(&answer, refused) && !contains(&answer, b"app"), "{answer:?}");
    let names: Vec<String> = (0..101).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    let answer = client.ask(&with(&GET, &many)).await.unwrap();
    assert!(contains(&answer, refused), "{answer:?}");
    // A head that never ends is not collected.
    let (mut send, mut receive) = client.quic.open_bi().await.unwrap();
    send.write_all(b"\x01\xbf\xff\xff\xff").await.unwrap();
    let endless = async { while send.write_all(&[0; 4096]).await.is_ok() {} };
    timeout(LONG, endless).await.expect("it is stopped");
    let reset = timeout(LONG, receive.read_to_end(4096)).await.unwrap();
    assert!(reset.is_err() || reset.unwrap().is_empty());
    assert!(contains(&client.ask(&fields(&GET)).await.unwrap(), b"app /a"), "it goes on");
    let mut control = client.quic.open_uni().await.unwrap();
    control.write_all(b"\x21").await.unwrap();
    let endless = async { while control.write_all(&[0; 4096]).await.is_ok() {} };
    timeout(LONG, endless).await.expect("a stream of an unknown type is stopped");
    assert_eq!(server.app.called.load(Ordering::SeqCst), 2 - 1);
}

#[tokio::test]
async fn a_flood_of_given_up_http3_requests_ends_its_connection() {
    let server = server().await;
    let client = Raw::to(&server).await;
    let flood = async {
        loop {
            let Ok((mut send, mut receive)) = client.quic.open_bi().await else { break };
            let mut hanging = GET;
            hanging[3].1 = "/hang";
            if send.write_all(&fields(&hanging)).await.is_err() {
                break;
            }
            let _gone = send.reset(code_of(Code::H3_REQUEST_CANCELLED)).is_err();
            let _gone = receive.stop(code_of(Code::H3_REQUEST_CANCELLED)).is_err();
        }
        client.quic.closed().await
    };
    let closed = timeout(LONG, flood).await.expect("it is ended");
    let ConnectionError::ApplicationClosed(closed) = closed else { panic!("{closed}") };
    assert_eq!(closed.error_code, code_of(Code::H3_EXCESSIVE_LOAD));
    assert_eq!(server.limited(ClientLimit::Resets), 1);
    let (called, abandoned) = (&server.app.called, &server.app.abandoned);
    eventually("no request is left", || {
        called.load(Ordering::SeqCst) == abandoned.load(Ordering::SeqCst)
    })
    .await;
    let mut other = Http3::to(server.address()).await;
    assert_eq!(other.get("/a").await.1, b"app /a");
}

#[tokio::test]
async fn a_client_that_changes_its_mind_often_keeps_its_connection() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    for round in 0..60 {
        for _ in 0..2 {
            let called = server.app.called.load(Ordering::SeqCst);
            let mut hanging = client.send(Request::get(url("/hang")), b"").await;
            until(&server.app.called, called + 1).await;
            hanging.stop_sending(Code::H3_REQUEST_CANCELLED);
        }
        until(&server.app.abandoned, 2 * (round + 1)).await;
        for _ in 0..2 {
            assert_eq!(client.get("/a").await.1, b"app /a");
        }
    }
    assert_eq!(server.limited(ClientLimit::Resets), 0);
}

/// A `PRIORITY_UPDATE` frame for a request (RFC 9218, section 7.2), as browsers send them.
const PRIORITY_UPDATE: &[u8] = b"\x80\x0f\x07\x00\x04\x00u=1";

#[tokio::test]
async fn a_client_that_sets_priorities_keeps_its_http3_connection() {
    let server = server().await;
    let mut client = Raw::to(&server).await;
    for number in 0..100 {
        client.control.write_all(&PRIORITY_UPDATE.repeat(2)).await.unwrap();
        let answer = client.ask(&fields(&GET)).await;
        let answered = answer.as_ref().is_ok_and(|answer| contains(answer, b"app /a"));
        assert!(answered, "request {number}: {answer:?}");
    }
    // Other frames without a meaning still have a bound.
    client.control.write_all(&frame(0x21, b"").repeat(65)).await.unwrap();
    let closed = timeout(LONG, client.quic.closed()).await.expect("it is ended");
    let ConnectionError::ApplicationClosed(closed) = closed else { panic!("{closed}") };
    assert_eq!(closed.error_code, code_of(Code::H3_CLOSED_CRITICAL_STREAM));
}

/// Tickets of a client that sends early data, whatever the server has said about it.
#[derive(Debug, Default)]
struct EagerTickets(Mutex<Vec<Tls13ClientSessionValue>>);

impl ClientSessionStore for EagerTickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, mut ticket: Tls13ClientSessionValue) {
        ticket._private_set_max_early_data_size(u32::MAX);
        self.0.lock().unwrap().push(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().unwrap().pop()
    }
}

#[tokio::test]
async fn a_request_in_early_data_is_rejected() {
    let server = server().await;
    let tickets = Arc::new(EagerTickets::default());
    let (config, _) = testkit::credulous(&["h3"]);
    let mut config = rustls::ClientConfig::clone(&config);
    config.enable_early_data = true;
    config.resumption = Resumption::store(Arc::<EagerTickets>::clone(&tickets));
    let config = QuicClientConfig::try_from(config).unwrap();
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    let connecting = || endpoint.connect(server.address(), "localhost").unwrap();
    let first = timeout(LONG, connecting()).await.unwrap().unwrap();
    eventually("a ticket comes", || !tickets.0.lock().unwrap().is_empty()).await;
    first.close(0_u32.into(), b"");

    let Ok((quic, accepted)) = connecting().into_0rtt() else { panic!("no early data is sent") };
    quic.open_uni().await.unwrap().write_all(b"\x00\x04\x00").await.unwrap();
    let (mut send, mut receive) = quic.open_bi().await.unwrap();
    send.write_all(&fields(&GET)).await.unwrap();
    send.finish().unwrap();
    assert!(!timeout(LONG, accepted).await.unwrap(), "the server rejects it");
    let answer = timeout(LONG, receive.read_to_end(4096)).await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(server.app.called.load(Ordering::SeqCst), 0);
    // The same client may ask again once the handshake has ended.
    let (mut send, mut receive) = quic.open_bi().await.unwrap();
    send.write_all(&fields(&GET)).await.unwrap();
    send.finish().unwrap();
    let answer = timeout(LONG, receive.read_to_end(4096)).await.unwrap().unwrap();
    assert!(contains(&answer, b"app /a"));
}

#[tokio::test]
async fn garbage_packets_are_not_answered() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut number = 1_u64;
    for length in (0..1400).step_by(7) {
        let garbage: Vec<u8> = (0..length)
            .map(|_| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Without the bit of a long head: those ask for a version, which is answered once.
                u8::try_from(number >> 57).unwrap()
            })
            .collect();
        stranger.send_to(&garbage, server.address()).unwrap();
        if length % 70 == 0 {
            assert_eq!(client.get("/a").await.1, b"app /a");
        }
    }
    assert_eq!(client.get("/a").await.1, b"app /a");
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 1500]).is_err(), "nothing came back");
    assert_eq!(server.connections.len(), 1);
}

/// Returns first packets of as many clients, which never hear of a server.
async fn first_packets(count: usize) -> Vec<Vec<u8>> {
    let nowhere = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = nowhere.local_addr().unwrap();
    let client = endpoint();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut connecting = Vec::new();
    while packets.len() < count {
        connecting.push(client.connect(address, "localhost").unwrap());
        let mut packet = vec![0; 1500];
        let length = timeout(LONG, nowhere.recv(&mut packet)).await.unwrap().unwrap();
        packet.truncate(length);
        // It may be another one of a client that is known, with the same id behind the first byte, which is encrypted.
        if packets.iter().all(|known| known[1..20] != packet[1..20]) {
            packets.push(packet);
        }
    }
    packets
}

#[tokio::test]
async fn a_flood_of_first_packets_is_bounded_and_not_amplified() {
    let server = server_with(|options, _| options.max_connections = 256).await;
    let packets = first_packets(200).await;
    let mut client = Http3::to(server.address()).await;
    let mut spoofed = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        if number % 8 == 0 {
            // It has read what came before.
            assert_eq!(client.get("/a").await.1, b"app /a");
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(packet, server.address()).unwrap();
        socket.set_nonblocking(true).unwrap();
        spoofed.push((socket, packet.len(), 0_usize, false));
    }
    // An honest client is served in the meantime: it shows its address.
    let mut client = Http3::to(server.address()).await;
    assert_eq!(client.get("/a").await.1, b"app /a");
    let most = 16 + 2;
    let open = server.connections.len();
    assert!(open <= most, "{open} connections are open");
    // Two seconds of retransmissions.
    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    while tokio::time::Instant::now() < until {
        for (socket, _, received, retry) in &mut spoofed {
            let mut packet = [0; 1500];
            while let Ok(length) = socket.recv(&mut packet) {
                *received += length;
                *retry |= packet[0] & 0xf0 == 0xf0;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let retries = spoofed.iter().filter(|(_, _, _, retry)| *retry).count();
    assert!(retries >= 200 - most, "{retries} clients were asked to show their address");
    for (_, sent, received, retry) in &spoofed {
        assert!(*received <= 3 * sent, "{received} bytes for {sent}");
        if *retry {
            assert!(received * 4 < *sent, "a retry is small: {received} bytes for {sent}");
        }
    }
    assert_eq!(client.get("/b").await.1, b"app /b");
}
