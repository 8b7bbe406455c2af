//! The log of events in a `JetStream` stream.
//!
//! It uses `JetStream`'s API on plain subjects: a few requests with JSON, a consumer that pushes, and publishing with
//! an id. NATS numbers the messages; the time at which the stream was created is its epoch. A stream that the operator
//! has created before is used as it is.
//!
//! Invariants
//! - Entries have consecutive numbers. A reader that sees another number, or receives nothing, opens the log again. So
//!   does one that learns from a heartbeat that an entry was sent and did not arrive.
//! - A stream that lost entries which a node has applied is deleted and created again, so it has a new epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{Client, HeaderMap, Message, StatusCode, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, warn};

use super::Nats;
use crate::adapter::log::{LogEvent, LogLink, LogOptions, wait_for_broker};
use crate::hash::{SEED, hash};
use crate::json::{Raw, quoted};
use crate::nodes::NodeId;

/// Timeout for a reply.
const ANSWER: Duration = Duration::from_secs(2);

/// Interval at which the server sends something to a reader, and the time after which silence is a failure.
const HEARTBEAT: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(4);

/// Header fields of a heartbeat: the sequence of the last entry that was sent, and the question of flow control that was
/// not answered.
const LAST_STREAM: &str = "Nats-Last-Stream";
const STALLED: &str = "Nats-Consumer-Stalled";

/// Maximum size of the header of a message, which counts as its payload.
const HEADERS: usize = 256;

/// Shortest and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long a server without `JetStream` is asked. In a cluster it needs some seconds to elect a leader.
const ELECTION: Duration = Duration::from_secs(4);

/// How long NATS remembers the ids of messages, to reject repetitions.
const REPEATED: Duration = Duration::from_mins(10);

/// Starts the link to the log. Must be called within a tokio runtime.
pub fn log(nats: &Nats, me: NodeId, options: &LogOptions) -> LogLink {
    let (mut link, to_append, events) = LogLink::new();
    let stream = nats.subject.replace('.', "_");
    let subject = format!("{}.log", nats.subject);
    let of_sender = format!("{:016x}", me.0);
    let client = nats.client.clone();
    link.tasks.spawn(append_all(client, subject.clone(), of_sender, to_append, events.clone()));
    let reader = Reader {
        largest: Arc::clone(&link.largest),
        client: nats.client.clone(),
        stream,
        subject,
        options: options.clone(),
        epoch: 0,
        next: 1,
        newest: None,
    };
    link.tasks.spawn(reader.run(events));
    link
}

/// Appends packets until the sender is closed. A packet is repeated until it is stored.
async fn append_all(
    client: Client,
    subject: String,
    sender: String,
    mut packets: mpsc::Receiver<(u64, Bytes)>,
    events: mpsc::Sender<LogEvent>,
) {
    while let Some((number, packet)) = packets.recv().await {
        let mut pause = PAUSES.0;
        loop {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", format!("{sender}-{number}").as_str());
            let request =
                Request::new().headers(headers).payload(packet.clone()).timeout(Some(ANSWER));
            let answer = client.send_request(subject.clone(), request).await;
            let outcome = match &answer {
                Ok(answer) => Outcome::of(&answer.payload),
                Err(error) if error.kind() == RequestErrorKind::MaxPayloadExceeded => {
                    Outcome::TooLarge
                }
                Err(_) => Outcome::Failed,
            };
            match outcome {
                Outcome::Stored => break,
                Outcome::TooLarge => {
                    // `fits` keeps them out; the limit of the server has been lowered, or the stream has one.
                    error!(
                        bytes = packet.len(),
                        "events are lost: NATS takes no packet of this size"
                    );
                    break;
                }
                Outcome::Failed => {}
            }
            debug!(?answer, "an entry of the log was not stored; trying again");
            if !wait_for_broker(&events, &mut pause, PAUSES.1).await {
                return;
            }
        }
        if events.send(LogEvent::Stored(number)).await.is_err() {
            return;
        }
    }
}

/// Result of an attempt to append a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Stored,
    /// The stream never takes a packet of this size.
    TooLarge,
    /// It is not stored, or not known to be.
    Failed,
}

/// `JetStream`'s error code for a message that is larger than the stream allows.
const MESSAGE_TOO_LARGE: u64 = 10054;

impl Outcome {
    /// Reads an acknowledgement. It names the number of the message, of a repeated one too; a negative one has an error,
    /// and 0 as the number.
    fn of(acknowledgement: &[u8]) -> Self {
        let Ok(answer) = Raw::from_bytes(acknowledgement) else { return Self::Failed };
        if answer.get("error").is_some() {
            let code = number_at(acknowledgement, &["error", "err_code"]);
            return if code == Some(MESSAGE_TOO_LARGE) { Self::TooLarge } else { Self::Failed };
        }
        let sequence = answer.get("seq").and_then(Raw::unsigned);
        if sequence.is_some_and(|number| number > 0) { Self::Stored } else { Self::Failed }
    }
}

/// Reads the log.
struct Reader {
    /// Maximum size of a packet.
    largest: Arc<AtomicUsize>,
    client: Client,
    stream: String,
    subject: String,
    options: LogOptions,
    epoch: u64,
    /// Sequence of the next entry.
    next: u64,
    /// Hash of the last entry's packet.
    newest: Option<u64>,
}

/// Why the log cannot be read now.
enum Failure {
    /// The server answers that nothing listens at its API.
    NoJetStream,
    Other(String),
}

impl From<async_nats::RequestError> for Failure {
    fn from(error: async_nats::RequestError) -> Self {
        match error.kind() {
            RequestErrorKind::NoResponders => Self::NoJetStream,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// The state of the stream.
struct State {
    epoch: u64,
    first: u64,
    last: u64,
}

impl Reader {
    async fn run(mut self, events: mpsc::Sender<LogEvent>) {
        let mut pause = PAUSES.0;
        let mut without: Option<Instant> = None;
        let mut reason = String::new();
        while !events.is_closed() {
            let began = Instant::now();
            let why = match self.read(&events).await {
                Failure::NoJetStream => {
                    let since = *without.get_or_insert_with(Instant::now);
                    if self.epoch == 0 && since.elapsed() >= ELECTION {
                        let _closed = events.send(LogEvent::Unsupported).await;
                        return;
                    }
                    String::from("JetStream does not answer")
                }
                Failure::Other(why) => {
                    without = None;
                    why
                }
            };
            if events.send(LogEvent::Away(true)).await.is_err() {
                return;
            }
            if reason != why {
                warn!(reason = why, "cannot read the log of events; retrying");
                reason = why;
            }
            if began.elapsed() > SILENCE * 2 {
                pause = PAUSES.0;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Opens the log and reads until a failure.
    async fn read(&mut self, events: &mpsc::Sender<LogEvent>) -> Failure {
        match self.try_read(events).await {
            Err(failure) => failure,
            Ok(()) => Failure::Other(String::from("the log was interrupted")),
        }
    }

    async fn try_read(&mut self, events: &mpsc::Sender<LogEvent>) -> Result<(), Failure> {
        let mut state = self.state().await?;
        if state.epoch == self.epoch && (state.last < self.next - 1 || self.is_other(&state).await)
        {
            // The server came back with an older state. Other nodes may not have noticed it.
            self.call("STREAM.DELETE", &self.stream, String::new()).await?;
            state = self.state().await?;
        }
        if state.epoch != self.epoch || state.first > self.next {
            self.epoch = state.epoch;
            self.next = state.first;
            self.newest = None;
        }
        let inbox = self.client.new_inbox();
        let subscribed = self.client.subscribe(inbox.clone()).await;
        let mut messages = subscribed.map_err(|error| Failure::Other(error.to_string()))?;
        let consumer = format!(
            r#"{{"stream_name":{},"config":{{"deliver_subject":{},"deliver_policy":"by_start_sequence","opt_start_seq":{},"ack_policy":"none","replay_policy":"instant","idle_heartbeat":{},"flow_control":true,"inactive_threshold":{},"mem_storage":true,"num_replicas":1}}}}"#,
            quoted(&self.stream),
            quoted(&inbox),
            self.next,
            HEARTBEAT.as_nanos(),
            (SILENCE * 2).as_nanos(),
        );
        let answer = self.call("CONSUMER.CREATE", &self.stream, consumer).await?;
        if let Some(error) = error_of(&answer) {
            return Err(Failure::Other(error));
        }
        let most = self.client.server_info().max_payload.saturating_sub(HEADERS);
        self.largest.store(if most == 0 { usize::MAX } else { most }, Ordering::Relaxed);
        let State { epoch, first, last } = state;
        let opened = LogEvent::Opened { epoch, first: first.min(self.next), last };
        if events.send(opened).await.is_err() {
            return Ok(());
        }
        loop {
            let Ok(Some(message)) = timeout(SILENCE, messages.next()).await else { return Ok(()) };
            if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
                self.heartbeat(message).await?;
                continue;
            }
            let Some(event) = self.entry(message) else { return Ok(()) };
            if events.send(event).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Answers a heartbeat, or a question of flow control. Fails if the server has sent entries that did not arrive: the
    /// client reconnects by itself, and what was on its way is not sent again.
    async fn heartbeat(&self, message: Message) -> Result<(), Failure> {
        let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str());
        let sent = header(LAST_STREAM).and_then(|last| last.parse::<u64>().ok());
        if sent.is_some_and(|last| last >= self.next) {
            return Err(Failure::Other(String::from("entries were lost on their way")));
        }
        // Flow control: the server waits until this node has read so far. A heartbeat repeats a question whose answer the
        // server did not get.
        let stalled = header(STALLED).map(Subject::from);
        for question in message.reply.into_iter().chain(stalled) {
            let _unsent = self.client.publish(question, Bytes::new()).await;
        }
        Ok(())
    }

    /// Returns whether the entry that this node read last is another one now: the server came back with an older state, and
    /// others have added to it since.
    async fn is_other(&self, state: &State) -> bool {
        let (Some(newest), Some(last)) = (self.newest, self.next.checked_sub(1)) else {
            return false;
        };
        if !(state.first..=state.last).contains(&last) {
            return false;
        }
        let get = self.call("STREAM.MSG.GET", &self.stream, format!("{{\"seq\":{last}}}"));
        // A server that does not allow it tells nothing.
        let Ok(answer) = get.await else { return false };
        let data = Raw::from_bytes(&answer.payload).ok().and_then(|it| {
            let text = it.get("message")?.get("data")?.string()?;
            STANDARD.decode(&*text).ok()
        });
        // One that has been removed meanwhile tells nothing.
        data.is_some_and(|packet| hash(&packet, SEED) != newest)
    }

    /// Returns the state of the stream, which is created if it does not exist.
    async fn state(&self) -> Result<State, Failure> {
        let mut answer = self.call("STREAM.INFO", &self.stream, String::new()).await?;
        if number_at(&answer.payload, &["error", "code"]) == Some(404) {
            let create = format!(
                r#"{{"name":{},"subjects":[{}],"retention":"limits","discard":"old","storage":"file","max_age":{},"max_bytes":{},"duplicate_window":{},"num_replicas":1}}"#,
                quoted(&self.stream),
                quoted(&self.subject),
                self.options.age.as_nanos(),
                self.options.bytes,
                REPEATED.min(self.options.age).as_nanos(),
            );
            answer = self.call("STREAM.CREATE", &self.stream, create).await?;
        }
        if let Some(error) = error_of(&answer) {
            return Err(Failure::Other(error));
        }
        let payload = &answer.payload;
        let created = Raw::from_bytes(payload)
            .ok()
            .and_then(|it| it.get("created")?.string().map(std::borrow::Cow::into_owned));
        let last = number_at(payload, &["state", "last_seq"]);
        let first = number_at(payload, &["state", "first_seq"]);
        let (Some(created), Some(last), Some(first)) = (created, last, first) else {
            return Err(Failure::Other(String::from("JetStream's answer was not understood")));
        };
        // An empty stream has 0, or the next one.
        let first = first.clamp(1, last + 1);
        Ok(State { epoch: hash(created.as_bytes(), SEED) | 1, first, last })
    }

    async fn call(&self, what: &str, stream: &str, body: String) -> Result<Message, Failure> {
        let request = Request::new().payload(body.into()).timeout(Some(ANSWER));
        Ok(self.client.send_request(format!("$JS.API.{what}.{stream}"), request).await?)
    }

    /// Reads an entry; returns `None` if it is not the next one.
    fn entry(&mut self, message: Message) -> Option<LogEvent> {
        let reply = message.reply?;
        // `$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMED.TIME.PENDING`, with domain and account after `ACK` in
        // a longer form.
        let parts: Vec<&str> = reply.split('.').collect();
        let at = if parts.len() > 9 { 7 } else { 5 };
        let sequence: u64 = parts.get(at)?.parse().ok()?;
        let nanos: u64 = parts.get(at + 2)?.parse().ok()?;
        if sequence != self.next {
            return None;
        }
        self.next += 1;
        self.newest = Some(hash(&message.payload, SEED));
        let added = std::time::UNIX_EPOCH + Duration::from_nanos(nanos);
        let age = added.elapsed().unwrap_or_default();
        Some(LogEvent::Entry { sequence, age, packet: message.payload })
    }
}

fn number_at(json: &[u8], path: &[&str]) -> Option<u64> {
    let mut value = Raw::from_bytes(json).ok()?;
    for name in path {
        value = value.get(name)?;
    }
    value.unsigned()
}

fn error_of(answer: &Message) -> Option<String> {
    let error = Raw::from_bytes(&answer.payload).ok()?.get("error")?;
    Some(
        error
            .get("description")
            .and_then(Raw::string)
            .map_or_else(|| error.text().into(), Into::into),
    )
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn only_an_acknowledgement_with_a_number_and_without_an_error_means_stored() {
        for (text, outcome) in [
            (r#"{"stream":"A","seq":1}"#, Outcome::Stored),
            (r#"{"stream":"A","seq":7,"duplicate":true}"#, Outcome::Stored),
            (r#"{"stream":"A","seq":0}"#, Outcome::Failed),
            (
                r#"{"error":{"code":503,"err_code":10023,"description":"insufficient resources"},"stream":"A","seq":0}"#,
                Outcome::Failed,
            ),
            (
                r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"A","seq":0}"#,
                Outcome::TooLarge,
            ),
            (r#"{"error":{"code":500},"seq":3}"#, Outcome::Failed),
            ("", Outcome::Failed),
        ] {
            assert_eq!(Outcome::of(text.as_bytes()), outcome, "{text}");
        }
    }
}
