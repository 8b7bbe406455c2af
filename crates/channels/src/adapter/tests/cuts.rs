//! Tests the log in NATS over connections that break while something is on its way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::brokers::{LIMIT, Server, nats_server};
use super::logs::{append, entry, epoch, log_options, next};
use crate::adapter::nats::{self, Nats};
use crate::adapter::packet::Header;
use crate::adapter::{LogEvent, LogLink, LogOptions};
use crate::nodes::NodeId;

/// What a relay throws away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// What the broker sends.
    Answers,
    /// What the node sends.
    Requests,
}

/// A relay to a broker.
struct Relay {
    port: u16,
    lost: watch::Sender<Lost>,
    /// What was thrown away.
    dropped: Arc<Mutex<Vec<u8>>>,
    /// Connections of an earlier number are closed.
    number: watch::Sender<u64>,
    _tasks: JoinSet<()>,
}

impl Relay {
    async fn start(broker: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (lost, number) = (watch::Sender::new(Lost::Nothing), watch::Sender::new(0));
        let dropped = Arc::<Mutex<Vec<u8>>>::default();
        let (of_all, ends, kept) = (lost.subscribe(), number.subscribe(), Arc::clone(&dropped));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((node, _)) = listener.accept().await {
                let Ok(broker) = TcpStream::connect(("127.0.0.1", broker)).await else { continue };
                let (lost, dropped, mut ends) = (of_all.clone(), Arc::clone(&kept), ends.clone());
                ends.mark_unchanged();
                connections.spawn(async move {
                    tokio::select! {
                        () = forward([node, broker], &lost, &dropped) => {}
                        _ended = ends.changed() => {}
                    }
                });
            }
        });
        Self { port, lost, dropped, number, _tasks: tasks }
    }

    fn lose(&self, lost: Lost) {
        self.lost.send_replace(lost);
    }

    /// Waits until a text has been thrown away.
    async fn has_lost(&self, text: &str) {
        let is_lost = || {
            let dropped = self.dropped.lock().unwrap();
            dropped.windows(text.len()).any(|part| part == text.as_bytes())
        };
        let all = async {
            while !is_lost() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, all).await.expect("in time");
    }

    /// Closes all connections, and forwards everything on those that follow.
    fn reset(&self) {
        self.number.send_modify(|number| *number += 1);
        self.lose(Lost::Nothing);
    }
}

async fn forward(
    [mut node, mut broker]: [TcpStream; 2],
    lost: &watch::Receiver<Lost>,
    dropped: &Mutex<Vec<u8>>,
) {
    let (mut requests, mut answers) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let (read, from, to) = tokio::select! {
            read = node.read(&mut requests) => (read, Lost::Requests, &mut broker),
            read = broker.read(&mut answers) => (read, Lost::Answers, &mut node),
        };
        let Ok(length @ 1..) = read else { return };
        let buffer = if from == Lost::Requests { &requests } else { &answers };
        if *lost.borrow() == from {
            dropped.lock().unwrap().extend(&buffer[..length]);
        } else if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// A node's link to the log, and its connection.
async fn link(port: u16, node: u64, options: &LogOptions) -> (Nats, LogLink) {
    let servers = vec![format!("nats://127.0.0.1:{port}")];
    let nats = nats::Options { servers, subject: "hearth.test".into(), authorities: None };
    let nats = Nats::new(&nats).await.unwrap();
    let mut link = nats::log(&nats, NodeId(node), options);
    next(&mut link, epoch).await;
    (nats, link)
}

fn jetstream(folder: &tempfile::TempDir) -> Server {
    nats_server(&format!("-js -sd {}", folder.path().display()))
}

#[tokio::test]
async fn an_entry_that_was_lost_with_a_connection_to_nats_is_read_without_a_later_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = jetstream(&folder);
    let relay = Relay::start(server.port).await;
    let (_near, mut writer) = link(server.port, 1, &log_options()).await;
    let (_far, mut reader) = link(relay.port, 2, &log_options()).await;
    append(&mut writer, 1, "one").await;
    assert_eq!(entry(&mut reader, 1).await, "one");
    relay.lose(Lost::Answers);
    append(&mut writer, 2, "on its way").await;
    relay.has_lost("on its way").await;
    relay.reset();
    assert_eq!(entry(&mut reader, 2).await, "on its way");
}

#[tokio::test]
async fn a_consumer_whose_flow_control_was_not_answered_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = jetstream(&folder);
    let relay = Relay::start(server.port).await;
    let options = LogOptions { bytes: 64 << 20, ..log_options() };
    let (_near, mut writer) = link(server.port, 1, &options).await;
    let (_far, mut reader) = link(relay.port, 2, &options).await;
    relay.lose(Lost::Requests);
    // The server sends some megabytes without an answer.
    let entries = 12;
    for number in 1..=entries {
        append(&mut writer, number, vec![b'x'; 600_000]).await;
    }
    relay.has_lost("$JS.FC.").await;
    relay.reset();
    assert_eq!(entry(&mut reader, entries).await.len(), 600_000);
}

/// A packet of a node without events, and a text.
fn packet(node: u64, number: u64, text: &str) -> Bytes {
    let header = Header { node: NodeId(node), number, round: 0 }.write();
    [&header[..], text.as_bytes()].concat().into()
}

/// Stores a packet whose acknowledgement is lost, with all that NATS sends for a time. Returns the entries that another
/// node has read when the next packet is stored.
async fn entries_after_a_cut(server: &Server, age: Duration, cut: Duration) -> Vec<Bytes> {
    let relay = Relay::start(server.port).await;
    let options = LogOptions { age, ..log_options() };
    let (_near, mut reader) = link(server.port, 1, &options).await;
    let (_far, mut writer) = link(relay.port, 2, &options).await;
    relay.lose(Lost::Answers);
    writer.packets.send((1, packet(2, 1, "one"))).await.unwrap();
    let mut entries = vec![entry(&mut reader, 1).await];
    // It is NATS' own time that passes.
    sleep(cut).await;
    relay.reset();
    next(&mut writer, |event| matches!(event, LogEvent::Stored(1)).then_some(())).await;
    append(&mut writer, 2, packet(2, 2, "two")).await;
    while !entries.last().unwrap().ends_with(b"two") {
        let entry = next(&mut reader, |event| match event {
            LogEvent::Entry { packet, .. } => Some(packet.clone()),
            _ => None,
        });
        entries.push(entry.await);
    }
    entries
}

#[tokio::test]
async fn a_packet_whose_id_nats_has_forgotten_is_found_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = jetstream(&folder);
    // A stream of an operator, which forgets ids sooner than Hearth's.
    let client = async_nats::connect(format!("127.0.0.1:{}", server.port)).await.unwrap();
    let create =
        r#"{"name":"hearth_test","subjects":["hearth.test.log"],"duplicate_window":1000000000}"#;
    let created = client.request("$JS.API.STREAM.CREATE.hearth_test", create.into()).await.unwrap();
    let created = String::from_utf8_lossy(&created.payload).into_owned();
    assert!(!created.contains("error"), "{created}");
    let cut = Duration::from_secs(3);
    let entries = entries_after_a_cut(&server, log_options().age, cut).await;
    assert_eq!(entries, [packet(2, 1, "one"), packet(2, 2, "two")]);
}

#[tokio::test]
async fn a_packet_that_nats_may_have_removed_is_not_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = jetstream(&folder);
    let age = Duration::from_secs(4);
    let entries = entries_after_a_cut(&server, age, 2 * age).await;
    assert_eq!(entries, [packet(2, 1, "one"), packet(2, 2, "two")]);
}

#[tokio::test]
async fn a_packet_that_did_not_reach_nats_is_stored_after_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = jetstream(&folder);
    let relay = Relay::start(server.port).await;
    let options = LogOptions { age: Duration::from_secs(1), ..log_options() };
    let (_far, mut writer) = link(relay.port, 2, &options).await;
    relay.lose(Lost::Requests);
    writer.packets.send((1, packet(2, 1, "one"))).await.unwrap();
    relay.has_lost("one").await;
    // NATS would have forgotten it.
    sleep(2 * options.age).await;
    relay.reset();
    assert_eq!(entry(&mut writer, 1).await, packet(2, 1, "one"));
}
