//! Tests a Redis that is slow or reads nothing while it sends much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::brokers::{LIMIT, Node, redis, redis_options};
use crate::adapter::redis::QUEUE;

/// A stand-in for Redis.
struct StandIn {
    address: String,
    /// Number of subscriptions.
    subscribed: Arc<AtomicUsize>,
    /// Largest number of packets that arrived in one pipeline.
    together: Arc<AtomicUsize>,
    /// Number of packets that were answered.
    taken: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl StandIn {
    /// Starts a stand-in. With `takes` it accepts each packet after a while; otherwise it accepts none and sends
    /// without end.
    async fn start(takes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (subscribed, together, taken) = <(Arc<_>, Arc<_>, Arc<_>)>::default();
        let counts = [&subscribed, &together, &taken].map(Arc::clone);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let counts = counts.clone();
                connections.spawn(async move {
                    // An error means that the client is gone.
                    let _ended = converse(socket, takes, counts).await;
                });
            }
        });
        Self { address, subscribed, together, taken, _tasks: tasks }
    }
}

async fn converse(
    mut socket: TcpStream,
    takes: bool,
    [subscribed, together, taken]: [Arc<AtomicUsize>; 3],
) -> std::io::Result<()> {
    // A buffer this large receives a whole pipeline.
    let mut input = Vec::with_capacity(64 << 10);
    while socket.read_buf(&mut input).await? > 0 {
        let mut packets = 0;
        while let Some(command) = command(&mut input) {
            match &*command {
                [name, subject] if name == "SUBSCRIBE" => {
                    subscribed.fetch_add(1, Ordering::Relaxed);
                    let length = subject.len();
                    let answer =
                        format!("*3\r\n$9\r\nsubscribe\r\n${length}\r\n{subject}\r\n:1\r\n");
                    socket.write_all(answer.as_bytes()).await?;
                    let message =
                        format!("*3\r\n$7\r\nmessage\r\n${length}\r\n{subject}\r\n$4\r\nnone\r\n");
                    let (messages, pause) = if takes { (1, 100) } else { (64, 1) };
                    loop {
                        socket.write_all(message.repeat(messages).as_bytes()).await?;
                        sleep(Duration::from_millis(pause)).await;
                    }
                }
                [name, ..] if name == "PUBLISH" => packets += 1,
                _ => socket.write_all(b"+OK\r\n").await?,
            }
        }
        together.fetch_max(packets, Ordering::Relaxed);
        for _ in 0..if takes { packets } else { 0 } {
            sleep(Duration::from_millis(10)).await;
            socket.write_all(b":1\r\n").await?;
            taken.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Removes the next command from the input once it is complete.
fn command(input: &mut Vec<u8>) -> Option<Vec<String>> {
    let (count, mut rest) = number(input)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, after) = number(rest)?;
        words.push(String::from_utf8_lossy(after.get(..length)?).into_owned());
        rest = after.get(length + 2..)?;
    }
    let taken = input.len() - rest.len();
    input.drain(..taken);
    Some(words)
}

/// Parses a number such as `*3` or `$4`, and returns it with the rest after the line.
fn number(input: &[u8]) -> Option<(usize, &[u8])> {
    let end = input.windows(2).position(|two| two == b"\r\n")?;
    Some((str::from_utf8(&input[1..end]).unwrap().parse().unwrap(), &input[end + 2..]))
}

/// Publishes events, each in its own packet, until the condition holds.
async fn publish_until(node: &mut Node, what: &str, happened: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "not in time: {what}");
        node.publish("a", "x");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_broker_that_accepts_no_packets_is_still_received_lost_found_and_closed() {
    let server = StandIn::start(false).await;
    let mut node = Node::start(0, redis(&redis_options(&server.address)), Instant::now()).await;
    publish_until(&mut node, "the connection is given up twice", || {
        server.subscribed.load(Ordering::Relaxed) > 2
    })
    .await;
    let ended = timeout(LIMIT, node.end()).await;
    assert!(ended.is_ok(), "the node does not end");
}

#[tokio::test]
async fn packets_are_pipelined_when_replies_are_slow() {
    let server = StandIn::start(true).await;
    let mut node = Node::start(0, redis(&redis_options(&server.address)), Instant::now()).await;
    // A pipeline of the whole queue would take longer than one reply may.
    publish_until(&mut node, "more packets are taken than may wait", || {
        server.taken.load(Ordering::Relaxed) > 2 * QUEUE
    })
    .await;
    assert!(server.together.load(Ordering::Relaxed) > 5);
    assert_eq!(server.subscribed.load(Ordering::Relaxed), 1, "the connection lives");
}
