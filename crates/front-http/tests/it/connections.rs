//! Tests the connection limit: which clients get a place when all are taken, and which connections are closed for
//! them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use channels::hub::{Adopted, AdoptedStream};
use front_http::{
    Address, Answering, Certificate, Certificates, ClientLimit, Front, Listen, Options, Place,
    Realtime, TlsFiles,
};
use http::request::Parts;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::http2::Http2;
use crate::support::{App, Client, LONG, Server, eventually, until};

const GET: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

/// Returns a client that has received a response and keeps its connection.
async fn idle(server: &Server) -> Client<TcpStream> {
    let mut client = server.connect().await;
    client.send(GET).await;
    assert_eq!(client.reply().await.status, 200);
    client
}

#[tokio::test]
async fn the_longest_idle_connection_is_closed_for_a_client_that_waits() {
    let server = Server::with(|options, _| options.max_connections = 3).await;
    let mut first = idle(&server).await;
    // The clock that orders idle connections advances every few milliseconds.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut second = idle(&server).await;
    let mut third = idle(&server).await;
    let reply = server.get("/b").await;
    assert_eq!(reply.text(), "app /b");
    assert_eq!(first.rest().await, b"");
    for client in [&mut second, &mut third] {
        client.send(GET).await;
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(server.limited(ClientLimit::Idle), 1);
}

#[tokio::test]
async fn idle_connections_stay_while_no_client_waits() {
    let server = Server::with(|options, _| options.max_connections = 2).await;
    let mut clients = [idle(&server).await, idle(&server).await];
    tokio::time::sleep(Duration::from_millis(200)).await;
    for client in &mut clients {
        client.send(GET).await;
        assert_eq!(client.reply().await.status, 200);
    }
    assert_eq!(server.limited(ClientLimit::Idle), 0);
}

#[tokio::test]
async fn a_connection_with_a_request_under_way_is_never_closed_for_another() {
    let server = Server::with(|options, _| options.max_connections = 2).await;
    let mut held = server.connect().await;
    held.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut busy = server.connect().await;
    busy.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&server.app.called, 2).await;
    let mut third = server.connect().await;
    third.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.app.called.load(Ordering::SeqCst), 2, "it waits in the kernel's queue");
    server.app.release.notify_one();
    assert_eq!(held.reply().await.text(), "held");
    // It is idle now, so it makes room.
    assert_eq!(third.reply().await.text(), "app /b");
    assert_eq!(held.rest().await, b"");
    drop(busy);
}

#[tokio::test]
async fn silent_clients_and_half_heads_do_not_block_others() {
    const LATE: Duration = Duration::from_mins(10);
    let server = Server::with(|options, _| {
        options.max_connections = 6;
        options.header_timeout = LATE;
        options.handshake_timeout = LATE;
    })
    .await;
    let mut slow = Vec::new();
    for head in ["", "GET /a HTTP/1.1\r\nHo", "PRI * HTTP/2.0\r\n", "", "G", "GET"] {
        let mut client = server.connect().await;
        client.send(head).await;
        slow.push(client);
    }
    eventually("all are taken", || server.connections.report().unfinished == 6).await;
    for _ in 0..6 {
        assert_eq!(server.get("/b").await.text(), "app /b");
    }
    assert!(server.limited(ClientLimit::Idle) >= 1);
}

#[tokio::test]
async fn a_stalled_tls_handshake_does_not_block_others() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates");
    let files =
        TlsFiles { certificate: folder.join("localhost.pem"), key: folder.join("localhost.key") };
    let certificates = Certificates::new();
    certificates.show(Place::Files, vec![Certificate::read(&files).unwrap()]);
    let server = Server::with(|options, _| {
        options.max_connections = 2;
        options.handshake_timeout = Duration::from_mins(10);
        options.tls = Some(certificates);
        options.listen[0].tls = true;
    })
    .await;
    // Type and length of a record that never arrives.
    let mut stuck = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.send(b"\x16\x03\x01\x01\x00\x01").await;
        stuck.push(client);
    }
    eventually("both are taken", || server.connections.report().unfinished == 2).await;
    let (config, _) = testkit::credulous(&["http/1.1"]);
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let connect = tokio_rustls::TlsConnector::from(config).connect(name, stream);
    let stream = tokio::time::timeout(LONG, connect).await.unwrap().unwrap();
    let mut client = Client::new(stream);
    client.send(GET).await;
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn an_idle_http2_connection_gets_goaway_and_a_busy_one_stays() {
    let server = Server::with(|options, _| options.max_connections = 2).await;
    let mut idle = Http2::to(&server).await;
    assert_eq!(idle.get("/a").await.1, b"app /a");
    let mut busy = Http2::to(&server).await;
    let held = http::Request::get("http://a.example/held").body(()).unwrap();
    let (held, _) = busy.requests.send_request(held, true).unwrap();
    until(&server.app.called, 2).await;
    assert_eq!(server.get("/b").await.text(), "app /b");
    // GOAWAY without an error ends a client's connection without one.
    let ended = tokio::time::timeout(LONG, idle.connection.join_next()).await.unwrap();
    assert!(ended.unwrap().unwrap().is_ok());
    server.app.release.notify_one();
    let held = tokio::time::timeout(LONG, held).await.unwrap().unwrap();
    assert_eq!(held.status(), 200);
}

/// Returns a client whose address is stated by a balancer.
async fn from(server: &Server, address: &str) -> Client<TcpStream> {
    let mut client = server.connect().await;
    let family = if address.contains(':') { "TCP6" } else { "TCP4" };
    client.send(format!("PROXY {family} {address} {address} 1000 80\r\n")).await;
    client
}

async fn behind_a_balancer(share: usize, trusted: &str) -> Server {
    Server::with(|options, _| {
        options.max_connections = 64;
        options.connections_per_client = Some(share);
        options.proxy_protocol = true;
        options.trusted_proxies = vec![trusted.parse().unwrap()];
    })
    .await
}

/// Opens connections with endless requests from these addresses, as many as possible.
async fn hog(server: &Server, addresses: &[&str]) -> Vec<Client<TcpStream>> {
    let mut clients = Vec::new();
    for number in 0..64 {
        if server.limited(ClientLimit::Share) > 0 {
            break;
        }
        let mut client = from(server, addresses[number % addresses.len()]).await;
        let _refused = client.send_if_taken("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n").await;
        clients.push(client);
        eventually("it is taken, refused or waits", || {
            let report = server.connections.report();
            server.app.called.load(Ordering::SeqCst) > number
                || report.refused.is_some()
                || report.open == 64
        })
        .await;
    }
    clients
}

#[tokio::test]
async fn one_address_cannot_take_the_last_connection_slots() {
    let server = behind_a_balancer(20, "192.0.2.1").await;
    let _hogs = hog(&server, &["198.51.100.7"]).await;
    let report = server.connections.report();
    assert!((56..62).contains(&report.busy), "{report:?}");
    assert_eq!(report.refused.map(|(client, _)| client).as_deref(), Some("198.51.100.7"));
    assert_eq!(report.most, [("198.51.100.7".to_owned(), report.busy)]);
    let mut other = from(&server, "203.0.113.9").await;
    other.send(GET).await;
    assert_eq!(other.reply().await.text(), "app /a");
}

#[tokio::test]
async fn the_addresses_of_an_ipv6_client_are_one() {
    let server = behind_a_balancer(20, "192.0.2.1").await;
    let addresses = ["2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:1:a:b:c:d"];
    let _hogs = hog(&server, &addresses).await;
    let report = server.connections.report();
    assert_eq!(report.refused.map(|(client, _)| client).as_deref(), Some("2001:db8:0:1::/64"));
    let mut other = from(&server, "2001:db8:0:2::1").await;
    other.send(GET).await;
    assert_eq!(other.reply().await.text(), "app /a");
}

#[tokio::test]
async fn a_trusted_proxy_has_no_share() {
    let server = behind_a_balancer(20, "192.0.2.1").await;
    let _many = hog(&server, &["192.0.2.1"]).await;
    let report = server.connections.report();
    assert_eq!((report.busy, server.limited(ClientLimit::Share)), (64, 0), "{report:?}");
}

#[tokio::test]
async fn an_address_above_its_share_replaces_its_own_idle_connections() {
    let server = behind_a_balancer(20, "192.0.2.1").await;
    let mut others = Vec::new();
    for number in 1..=4 {
        let mut client = from(&server, &format!("203.0.113.{number}")).await;
        client.send(GET).await;
        assert_eq!(client.reply().await.status, 200);
        others.push(client);
    }
    let mut own = Vec::new();
    for _ in 0..80 {
        let mut client = from(&server, "198.51.100.7").await;
        client.send(GET).await;
        assert_eq!(client.reply().await.status, 200);
        own.push(client);
    }
    assert_eq!(server.limited(ClientLimit::Share), 0);
    assert!(server.limited(ClientLimit::Idle) >= 15);
    // The others were idle for longer, but within their share.
    for client in &mut others {
        client.send(GET).await;
        assert_eq!(client.reply().await.status, 200);
    }
}

#[tokio::test]
async fn file_responses_leave_reserved_descriptors() {
    let server = Server::with(|options, _| options.descriptor_ceiling = Some(0)).await;
    server.write("app.css", "body{}");
    let mut client = server.connect().await;
    client.send("GET /app.css HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.field("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(server.limited(ClientLimit::Descriptors), 1);
    client.send(GET).await;
    assert_eq!(client.reply().await.status, 200);
    // That connection has one already; further ones wait.
    let mut second = server.connect().await;
    second.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.app.called.load(Ordering::SeqCst), 1);
}

/// Stores what it receives.
#[derive(Debug, Default)]
struct Keeps(Mutex<Vec<Adopted>>);

impl Realtime for Keeps {
    fn takes(&self, _path: &str) -> bool {
        false
    }

    fn body_limit(&self) -> u64 {
        0
    }

    fn call<'a>(&'a self, _head: &'a Parts, _body: Bytes) -> Answering<'a> {
        unreachable!("it takes no path")
    }

    fn deflates(&self) -> bool {
        false
    }

    fn adopt(&self, socket: Adopted) {
        self.0.lock().unwrap().push(socket);
    }

    fn streams(&self, _path: &str) -> bool {
        false
    }

    fn adopt_stream(&self, _socket: AdoptedStream) {}
}

#[tokio::test]
async fn an_upgraded_websocket_takes_no_connection_slot() {
    let root = tempfile::tempdir().unwrap();
    let mut options = Options::new(root.path());
    options.listen = vec![Listen::plain(Address::Tcp("127.0.0.1:0".to_owned()))];
    options.max_connections = 2;
    let mut front = Front::bind(options, App::default()).await.unwrap();
    let hub = Arc::new(Keeps::default());
    front.realtime(Arc::<Keeps>::clone(&hub));
    let connections = front.connections();
    let url = front.addresses()[0].to_string();
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let mut tasks = JoinSet::new();
    tasks.spawn(front.serve(std::future::pending()));
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = Client::new(TcpStream::connect(&*address).await.unwrap());
        client
            .send(
                "GET /app/key HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .await;
        assert_eq!(client.reply().await.status, 101);
        clients.push(client);
    }
    eventually("all places are free again", || connections.is_empty()).await;
    assert_eq!(hub.0.lock().unwrap().len(), 5);
}
