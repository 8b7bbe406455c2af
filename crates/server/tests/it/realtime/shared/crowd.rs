//! Clients that reconnect to any node and resume, and the comparison of what they got with what was published.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::cluster::Cluster;

/// A busy machine serves thousands of clients.
const LIMIT: Duration = Duration::from_mins(1);

const CHANNEL: &str = "news";

/// The published events.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// All of them, with the answer.
    events: Vec<u16>,
}

impl Told {
    /// Publishes the next event through a node.
    pub(super) fn publish(&mut self, cluster: &Cluster, node: usize) -> u16 {
        let status = cluster.publish(node, CHANNEL, &self.events.len().to_string());
        self.events.push(status);
        status
    }

    fn confirmed(&self) -> impl Iterator<Item = usize> {
        self.events
            .iter()
            .enumerate()
            .filter(|(_, status)| **status == 200)
            .map(|(number, _)| number)
    }
}

/// What one client got.
#[derive(Debug, Default)]
struct Got {
    events: Vec<usize>,
    /// How often it was told that events may be missing.
    gaps: usize,
}

/// All clients.
pub(super) struct Crowd {
    got: Vec<Arc<Mutex<Got>>>,
    reconnect: watch::Sender<u64>,
    connected: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Crowd {
    /// Starts clients, spread over the nodes, and waits until all are subscribed.
    pub(super) fn start(cluster: &Cluster, clients: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (reconnect, asked) = watch::channel(0);
        let connected = Arc::new(AtomicUsize::new(0));
        let next = Arc::new(AtomicU64::new(0));
        let got: Vec<Arc<Mutex<Got>>> = (0..clients).map(|_| Arc::default()).collect();
        for got in &got {
            let client = Client {
                addresses: Arc::clone(&cluster.addresses),
                next: Arc::clone(&next),
                got: Arc::clone(got),
                connected: Arc::clone(&connected),
                reconnect: asked.clone(),
                place: None,
                subscribed: false,
            };
            runtime.spawn(client.run());
        }
        let crowd = Self { got, reconnect, connected, _runtime: runtime };
        eventually("all are subscribed", LIMIT, || {
            crowd.connected.load(Ordering::Relaxed) == clients
        });
        crowd
    }

    /// Has all clients reconnect, and waits until they have.
    pub(super) fn reconnect_all(&self) {
        self.connected.store(0, Ordering::Relaxed);
        self.reconnect.send_modify(|count| *count += 1);
        eventually("all are subscribed again", LIMIT, || {
            self.connected.load(Ordering::Relaxed) >= self.got.len()
        });
    }

    /// Waits until all clients have the last confirmed event.
    pub(super) fn wait(&self, told: &Told) {
        let last = told.confirmed().last().unwrap();
        let missing =
            || self.got.iter().filter(|got| !got.lock().unwrap().events.contains(&last)).count();
        let end = std::time::Instant::now() + LIMIT;
        while missing() > 0 {
            assert!(
                std::time::Instant::now() < end,
                "{} of {} clients never got event {last}",
                missing(),
                self.got.len()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks that every client got every confirmed event, each once, and all in one order. Returns how often clients
    /// were told of gaps.
    pub(super) fn check(&self, told: &Told) -> usize {
        self.wait(told);
        let first = self.got[0].lock().unwrap().events.clone();
        let mut places = BTreeMap::new();
        for (place, event) in first.iter().enumerate() {
            assert_eq!(places.insert(*event, place), None, "event {event} came twice");
        }
        for event in told.confirmed() {
            assert!(places.contains_key(&event), "event {event} was lost");
        }
        let mut gaps = 0;
        for (client, got) in self.got.iter().enumerate() {
            let got = got.lock().unwrap();
            // The order of the first client is the order of all. The last events may still be on their way.
            let common = got.events.len().min(first.len());
            assert_eq!(got.events[..common], first[..common], "client {client}");
            gaps += got.gaps;
        }
        gaps
    }
}

struct Client {
    addresses: Arc<RwLock<Vec<Option<SocketAddr>>>>,
    next: Arc<AtomicU64>,
    got: Arc<Mutex<Got>>,
    connected: Arc<AtomicUsize>,
    reconnect: watch::Receiver<u64>,
    /// Epoch and offset.
    place: Option<(String, u64)>,
    subscribed: bool,
}

impl Client {
    #[expect(clippy::infinite_loop, reason = "its task is aborted at the end of the test")]
    async fn run(mut self) {
        loop {
            let address = {
                let addresses = self.addresses.read().unwrap();
                let there: Vec<_> = addresses.iter().flatten().copied().collect();
                let next = self.next.fetch_add(1, Ordering::Relaxed);
                usize::try_from(next)
                    .ok()
                    .and_then(|next| there.get(next % there.len().max(1)).copied())
            };
            let Some(address) = address else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            // A broken connection is a reason to open the next one.
            let _broken = self.converse(address).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn converse(&mut self, address: SocketAddr) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /app/key?protocol=7 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n").await?;
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        bytes.drain(..end);
        let mut data = json!({"channel": CHANNEL});
        if let Some((epoch, offset)) = &self.place {
            data["resume"] = json!({"epoch": epoch, "offset": offset});
        }
        send(&mut stream, &json!({"event": "pusher:subscribe", "data": data})).await?;
        self.reconnect.mark_unchanged();
        loop {
            while let Some((opcode, text)) = frame(&mut bytes) {
                if opcode != 1 {
                    return Ok(());
                }
                if self.message(&text) {
                    send(&mut stream, &json!({"event": "pusher:pong", "data": {}})).await?;
                }
            }
            tokio::select! {
                read = stream.read_buf(&mut bytes) => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
                _ = self.reconnect.changed() => return Ok(()),
            }
        }
    }

    /// Handles a message; returns whether it wants a pong.
    fn message(&mut self, text: &[u8]) -> bool {
        let message: Value = serde_json::from_slice(text).unwrap();
        match message["event"].as_str().unwrap() {
            "pusher:ping" => return true,
            name @ ("pusher_internal:subscription_succeeded" | "hearth:resume") => {
                let data: Value = serde_json::from_str(message["data"].as_str().unwrap()).unwrap();
                let recovered = data["recovered"].as_bool();
                // What was missed advances the offset itself.
                if recovered != Some(true)
                    && let Some(epoch) = data["resume"]["epoch"].as_str()
                {
                    self.place = Some((epoch.into(), data["resume"]["offset"].as_u64().unwrap()));
                }
                self.got.lock().unwrap().gaps += usize::from(recovered == Some(false));
                if name != "hearth:resume" {
                    self.connected.fetch_add(1, Ordering::Relaxed);
                    self.subscribed = true;
                }
            }
            "n" => {
                let event = message["data"].as_str().unwrap().parse().unwrap();
                self.got.lock().unwrap().events.push(event);
                if let (Some((_, offset)), Some(new)) =
                    (&mut self.place, message["offset"].as_u64())
                {
                    *offset = new;
                }
            }
            _ => {}
        }
        false
    }
}

/// Sends a text with a mask of zeros.
async fn send(stream: &mut TcpStream, message: &Value) -> std::io::Result<()> {
    let text = message.to_string();
    let mut frame = vec![0x81];
    if let Ok(short @ ..126) = u8::try_from(text.len()) {
        frame.push(0x80 | short);
    } else {
        frame.push(0x80 | 0x7e);
        frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
    }
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    stream.write_all(&frame).await
}

/// Removes the first whole frame of a server.
fn frame(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (start, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))),
        127 => (
            10,
            usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap())).unwrap(),
        ),
        short => (2, usize::from(short)),
    };
    let text = bytes.get(start..start + length)?.to_vec();
    let opcode = bytes[0] & 0x0f;
    bytes.drain(..start + length);
    Some((opcode, text))
}
