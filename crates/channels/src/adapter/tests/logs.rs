//! Tests the log of events alone: packets within the broker's limit, and brokers that come back with an older state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::brokers::{LIMIT, nats_server, redis_options, redis_server};
use crate::adapter::log::LogOutbox;
use crate::adapter::nats::{self, Nats};
use crate::adapter::packet::Header;
use crate::adapter::{LogEvent, LogLink, LogOptions, Options, redis};
use crate::moment::Moment;
use crate::nodes::{LogWriter as _, NodeId};
use crate::testing::app;
use crate::{Author, ChannelName, Publication};

pub(super) fn log_options() -> LogOptions {
    LogOptions { age: Duration::from_mins(5), bytes: 1 << 20, wait: Duration::from_secs(3) }
}

#[test]
fn no_packet_is_larger_than_the_broker_takes() {
    const MOST: usize = 2000;
    let largest = Arc::new(MOST.into());
    let shared = (Arc::new(Notify::new()), Arc::clone(&largest));
    let outbox = LogOutbox::new(
        NodeId(1),
        &Options::default(),
        Duration::ZERO,
        shared,
        Moment::from_millis(0),
    );
    let (app, channel) = (Arc::new(app()), ChannelName::new("news", 30).unwrap());
    let publication = |data| Publication {
        channel: &channel,
        event: "event",
        data,
        author: Author::Server { except: None },
    };
    let (small, large) = ("x".repeat(600), "x".repeat(MOST));
    assert!(outbox.fits(&app, &publication(&small)));
    assert!(!outbox.fits(&app, &publication(&large)));
    for _ in 0..10 {
        outbox.append(&app, &publication(&small));
    }
    let packets: Vec<(u64, Bytes)> = std::iter::from_fn(|| outbox.take()).collect();
    let numbers: Vec<u64> = packets.iter().map(|(number, _)| *number).collect();
    assert!(numbers.len() > 1 && numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?}");
    assert!(packets.iter().all(|(_, packet)| packet.len() <= MOST));
    let found: usize = packets
        .iter()
        .map(|(_, packet)| {
            packet.windows(small.len()).filter(|part| *part == small.as_bytes()).count()
        })
        .sum();
    assert_eq!(found, 10);
    assert!(outbox.is_empty());
    // A broker without a limit.
    largest.store(usize::MAX, Ordering::Relaxed);
    assert!(outbox.fits(&app, &publication(&large)));
}

#[test]
fn an_entry_without_events_tells_when_this_node_has_caught_up() {
    let shared = (Arc::new(Notify::new()), Arc::new(usize::MAX.into()));
    let now = Moment::from_millis(0);
    let outbox = LogOutbox::new(NodeId(1), &Options::default(), Duration::ZERO, shared, now);
    let tickets = [outbox.catch_up(), outbox.catch_up()];
    let are_ready =
        || tickets.clone().map(|ticket| ticket.stored().now_or_never().is_some_and(|read| read));
    let (number, packet) = outbox.take().unwrap();
    assert!(outbox.take().is_none(), "one entry is enough for both");
    outbox.stored(number);
    let header = Header::of(&packet).unwrap();
    outbox.read(&Header { node: NodeId(2), ..header });
    assert_eq!(are_ready(), [false, false]);
    outbox.read(&header);
    assert_eq!(are_ready(), [true, true]);
    assert!(outbox.catch_up().stored().now_or_never().is_none(), "later entries may follow");
}

/// Returns the next event of a kind.
pub(super) async fn next<T>(
    link: &mut LogLink,
    mut wanted: impl FnMut(&LogEvent) -> Option<T>,
) -> T {
    let found = async {
        loop {
            let event = link.events.recv().await.expect("the link reads");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    };
    timeout(LIMIT, found).await.expect("in time")
}

pub(super) fn epoch(event: &LogEvent) -> Option<u64> {
    if let LogEvent::Opened { epoch, .. } = event { Some(*epoch) } else { None }
}

/// Appends a packet and waits until it is stored.
pub(super) async fn append(link: &mut LogLink, number: u64, packet: impl Into<Bytes>) {
    link.packets.send((number, packet.into())).await.unwrap();
    next(link, |event| {
        matches!(event, LogEvent::Stored(stored) if *stored == number).then_some(())
    })
    .await;
}

/// Waits until the reader has this entry.
pub(super) async fn entry(link: &mut LogLink, wanted: u64) -> Bytes {
    next(link, |event| match event {
        LogEvent::Entry { sequence, packet, .. } if *sequence == wanted => Some(packet.clone()),
        _ => None,
    })
    .await
}

/// Waits until the log is opened in another epoch.
async fn another_epoch(link: &mut LogLink, before: u64) {
    next(link, |event| epoch(event).filter(|epoch| *epoch != before)).await;
}

#[tokio::test]
async fn an_older_redis_to_which_others_have_added_has_another_epoch() {
    let server = redis_server("");
    let options = redis_options(&format!("127.0.0.1:{}", server.port));
    let mut reader = redis::log(&options, NodeId(1), &log_options()).unwrap();
    let before = next(&mut reader, epoch).await;
    let mut other = redis::log(&options, NodeId(2), &log_options()).unwrap();
    append(&mut other, 1, "one").await;
    append(&mut other, 2, "two").await;
    assert_eq!(entry(&mut reader, 2).await, "two");
    // A replica that did not have the last entry has become the server.
    let client = ::redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut fail_over = ::redis::pipe();
    fail_over.atomic();
    fail_over.cmd("XTRIM").arg("{hearth-test}:log").arg(&["MAXLEN", "0"]).ignore();
    fail_over.cmd("HSET").arg("{hearth-test}:state").arg(&["n", "1"]).ignore();
    let () = fail_over.query_async(&mut connection).await.unwrap();
    append(&mut other, 3, "another two").await;
    let after = next(&mut reader, |event| epoch(event).filter(|epoch| *epoch != before)).await;
    // It stays while nothing is added.
    let again = another_epoch(&mut reader, after);
    assert!(timeout(Duration::from_secs(3), again).await.is_err(), "a second new epoch");
    append(&mut other, 4, "another").await;
    next(&mut reader, |event| match event {
        LogEvent::Entry { packet, .. } => (packet == "another").then_some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn an_older_jetstream_to_which_others_have_added_has_another_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    let mut server = nats_server(&format!("-js -sd {store}"));
    let options = nats::Options {
        servers: vec![format!("nats://127.0.0.1:{}", server.port)],
        subject: "hearth.test".into(),
        authorities: None,
    };
    let nats = Nats::new(&options).await.unwrap();
    let mut reader = nats::log(&nats, NodeId(1), &log_options());
    let before = next(&mut reader, epoch).await;
    append(&mut reader, 1, "one").await;
    let copy = |from: &str, to: &str| {
        let status = std::process::Command::new("cp").args(["-a", from, to]).status().unwrap();
        assert!(status.success());
    };
    // What a machine that crashes may have of it.
    server.kill();
    let older = folder.path().join("older").display().to_string();
    copy(&store, &older);
    server.restart();
    append(&mut reader, 2, "two").await;
    assert_eq!(entry(&mut reader, 2).await, "two");
    server.kill();
    std::fs::remove_dir_all(&store).unwrap();
    copy(&older, &store);
    server.restart();
    let other = Nats::new(&options).await.unwrap();
    let mut other = nats::log(&other, NodeId(2), &log_options());
    append(&mut other, 1, "another two").await;
    another_epoch(&mut reader, before).await;
}

#[tokio::test]
async fn an_event_that_a_full_jetstream_refuses_is_not_stored_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (store, settings) = (folder.path().join("store"), folder.path().join("nats.conf"));
    let text = format!(
        "jetstream {{ store_dir: \"{}\", max_memory_store: 8MB, max_file_store: 2MB }}",
        store.display()
    );
    std::fs::write(&settings, text).unwrap();
    let server = nats_server(&format!("-c {}", settings.display()));
    let address = format!("nats://127.0.0.1:{}", server.port);
    let options = nats::Options {
        servers: vec![address.clone()],
        subject: "hearth.test".into(),
        authorities: None,
    };
    let nats = Nats::new(&options).await.unwrap();
    let mut link = nats::log(&nats, NodeId(1), &log_options());
    next(&mut link, epoch).await;
    append(&mut link, 1, "one").await;
    // Another stream takes the rest of the disk that the server may use.
    let other = async_nats::connect(address).await.unwrap();
    let request = async |subject: &str, payload: Bytes| {
        let answer = timeout(LIMIT, other.request(subject.to_owned(), payload)).await;
        String::from_utf8(answer.unwrap().unwrap().payload.to_vec()).unwrap()
    };
    let create = r#"{"name":"other","subjects":["other"],"storage":"file"}"#;
    let created = request("$JS.API.STREAM.CREATE.other", create.into()).await;
    assert!(!created.contains("error"), "{created}");
    let large = Bytes::from(vec![b'x'; 100_000]);
    let mut answer = String::new();
    for _ in 0..50 {
        answer = request("other", large.clone()).await;
        if answer.contains("error") {
            break;
        }
    }
    assert!(answer.contains("10023"), "the store is full: {answer}");

    link.packets.send((2, Bytes::from_static(b"two"))).await.unwrap();
    let is_away = next(&mut link, |event| match event {
        LogEvent::Away(away) => Some(*away),
        LogEvent::Stored(_) => Some(false),
        _ => None,
    });
    assert!(is_away.await, "a refused packet counts as stored");
    request("$JS.API.STREAM.DELETE.other", Bytes::new()).await;
    let mut sequence = None;
    let stored = next(&mut link, |event| {
        if let LogEvent::Entry { sequence: number, packet, .. } = event
            && packet == "two"
        {
            sequence = Some(*number);
        }
        matches!(event, LogEvent::Stored(2)).then_some(())
    });
    stored.await;
    if sequence.is_none() {
        assert_eq!(entry(&mut link, 2).await, "two");
    }
}
