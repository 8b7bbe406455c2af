//! The log of events in a `JetStream` stream.
//!
//! It uses `JetStream`'s API on plain subjects: a few requests with JSON, a consumer that pushes, and publishing with
//! an id. NATS numbers the messages; the time at which the stream was created is its epoch. A node that starts gives the
//! stream the bounds of its settings; one that the operator has created is used as it is.
//!
//! Invariants
//! - Entries have consecutive numbers. A reader that sees another number, or receives nothing, opens the log again. So
//!   does one that learns from a heartbeat that an entry was sent and did not arrive.
//! - A stream that lost entries which a node has applied is deleted and created again, so it has a new epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_nats::{Client, Message, StatusCode, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep, timeout};
use tracing::warn;

use super::Nats;
use super::append::{Appender, Progress};
use super::stream::{Failure, State, Stream, check};
use crate::adapter::log::{LogEvent, LogLink, LogOptions};
use crate::adapter::packet::Header;
use crate::hash::{SEED, hash};
use crate::json::{Raw, quoted};
use crate::nodes::NodeId;

/// Timeout for a reply.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// Interval at which the server sends something to a reader, and the time after which silence is a failure.
const HEARTBEAT: Duration = Duration::from_secs(1);
pub(super) const SILENCE: Duration = Duration::from_secs(4);

/// Header fields of a heartbeat: the sequence of the last entry that was sent, and the question of flow control that was
/// not answered.
const LAST_STREAM: &str = "Nats-Last-Stream";
const STALLED: &str = "Nats-Consumer-Stalled";

/// Maximum size of the header of a message, which counts as its payload.
const HEADERS: usize = 256;

/// Shortest and longest pause after a failure.
pub(super) const PAUSES: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(2));

/// How long a server without `JetStream` is asked. In a cluster it needs some seconds to elect a leader.
const ELECTION: Duration = Duration::from_secs(4);

/// Starts the link to the log. Must be called within a tokio runtime.
pub fn log(nats: &Nats, me: NodeId, options: &LogOptions) -> LogLink {
    let (mut link, to_append, events) = LogLink::new();
    let stream = Stream {
        client: nats.client.clone(),
        name: nats.subject.replace('.', "_"),
        subject: format!("{}.log", nats.subject),
    };
    let (progress, read) = watch::channel(Progress::default());
    let appender = Appender {
        client: nats.client.clone(),
        stream: stream.clone(),
        sender: format!("{:016x}", me.0),
        progress: read,
    };
    link.tasks.spawn(appender.run(to_append, events.clone()));
    let reader = Reader {
        largest: Arc::clone(&link.largest),
        client: nats.client.clone(),
        stream,
        options: options.clone(),
        adjusted: false,
        me,
        epoch: 0,
        next: 1,
        newest: None,
        progress,
    };
    link.tasks.spawn(reader.run(events));
    link
}

/// Reads the log.
struct Reader {
    /// Maximum size of a packet.
    largest: Arc<AtomicUsize>,
    client: Client,
    stream: Stream,
    options: LogOptions,
    /// The stream has the bounds of the settings. Only a node that has just started sees to that: another one may have
    /// newer settings.
    adjusted: bool,
    me: NodeId,
    epoch: u64,
    /// Sequence of the next entry.
    next: u64,
    /// Hash of the last entry's packet.
    newest: Option<u64>,
    progress: watch::Sender<Progress>,
}

impl Reader {
    async fn run(mut self, events: mpsc::Sender<LogEvent>) {
        let mut pause = PAUSES.0;
        let mut without: Option<Instant> = None;
        let mut reason = String::new();
        while !events.is_closed() {
            let began = Instant::now();
            let failure = self.read(&events).await;
            if let Failure::NoJetStream = failure {
                let since = *without.get_or_insert_with(Instant::now);
                if self.epoch == 0 && since.elapsed() >= ELECTION {
                    let _closed = events.send(LogEvent::Unsupported).await;
                    return;
                }
            } else {
                without = None;
            }
            let why = failure.to_string();
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
        if !self.adjusted {
            match self.stream.adjust(&state, &self.options).await {
                Ok(changed) => {
                    self.adjusted = true;
                    state = changed.unwrap_or(state);
                }
                Err(failure) => warn!(
                    reason = %failure,
                    "the stream does not have the bounds of `history_age` and `realtime.history_log`"
                ),
            }
        }
        if state.epoch == self.epoch && (state.last < self.next - 1 || self.is_other(&state).await)
        {
            // The server came back with an older state. Other nodes may not have noticed it.
            self.stream.replace(&state).await?;
            state = self.state().await?;
        }
        let mut progress = *self.progress.borrow();
        let is_new = state.epoch != self.epoch;
        if is_new || state.first > self.next {
            let expected = if is_new { 1 } else { self.next };
            // What was there before this node came is not missing.
            progress.gaps += u64::from(self.epoch != 0 && state.first > expected);
            progress.own = if is_new { 0 } else { progress.own };
            self.epoch = state.epoch;
            self.next = state.first;
            self.newest = None;
        }
        progress.epoch = self.epoch;
        progress.sequence = self.next - 1;
        progress.window = state.window;
        self.progress.send_replace(progress);
        let inbox = self.client.new_inbox();
        let subscribed = self.client.subscribe(inbox.clone()).await;
        let mut messages = subscribed.map_err(|error| Failure::Other(error.to_string()))?;
        let consumer = format!(
            r#"{{"stream_name":{},"config":{{"deliver_subject":{},"deliver_policy":"by_start_sequence","opt_start_seq":{},"ack_policy":"none","replay_policy":"instant","idle_heartbeat":{},"flow_control":true,"inactive_threshold":{},"mem_storage":true,"num_replicas":1}}}}"#,
            quoted(&self.stream.name),
            quoted(&inbox),
            self.next,
            HEARTBEAT.as_nanos(),
            (SILENCE * 2).as_nanos(),
        );
        check(&self.stream.call("CONSUMER.CREATE", consumer).await?)?;
        let most = self.client.server_info().max_payload.saturating_sub(HEADERS);
        self.largest.store(if most == 0 { usize::MAX } else { most }, Ordering::Relaxed);
        let State { epoch, first, last, .. } = state;
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
        let get = self.stream.call("STREAM.MSG.GET", format!("{{\"seq\":{last}}}"));
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
        match self.stream.info().await {
            Err(Failure::NoStream) => self.stream.create(&self.options).await,
            state => state,
        }
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
        let own = Header::of(&message.payload).filter(|header| header.node == self.me);
        self.progress.send_modify(|progress| {
            progress.sequence = sequence;
            progress.own = own.map_or(progress.own, |own| own.number);
        });
        let added = std::time::UNIX_EPOCH + Duration::from_nanos(nanos);
        let age = added.elapsed().unwrap_or_default();
        Some(LogEvent::Entry { sequence, age, packet: message.payload })
    }
}
