//! The stream of the log, by `JetStream`'s API: requests with JSON on plain subjects.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{Client, Message};

use super::log::ANSWER;
use crate::adapter::log::LogOptions;
use crate::hash::{SEED, hash};
use crate::json::{Raw, quoted};

/// How long NATS remembers the ids of messages, to reject repetitions. It remembers none for longer than the message.
const REPEATED: Duration = Duration::from_mins(10);

/// The stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) subject: String,
}

/// The state of the stream.
#[derive(Debug)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    /// How long it remembers the ids of messages.
    pub(super) window: Duration,
}

/// Why the log cannot be read now.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answers that nothing listens at its API.
    NoJetStream,
    /// There is no such stream.
    NoStream,
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

impl Stream {
    /// Sends a request for this stream.
    pub(super) async fn call(&self, what: &str, body: String) -> Result<Message, Failure> {
        let request = Request::new().payload(body.into()).timeout(Some(ANSWER));
        let subject = format!("$JS.API.{what}.{}", self.name);
        Ok(self.client.send_request(subject, request).await?)
    }

    /// Returns the state of the stream.
    pub(super) async fn info(&self) -> Result<State, Failure> {
        State::of(&self.call("STREAM.INFO", String::new()).await?)
    }

    /// Creates the stream.
    pub(super) async fn create(&self, options: &LogOptions) -> Result<State, Failure> {
        let config = format!(
            r#"{{"name":{},"subjects":[{}],"retention":"limits","discard":"old","storage":"file","max_age":{},"max_bytes":{},"duplicate_window":{},"num_replicas":1}}"#,
            quoted(&self.name),
            quoted(&self.subject),
            options.age.as_nanos(),
            options.bytes,
            REPEATED.min(options.age).as_nanos(),
        );
        State::of(&self.call("STREAM.CREATE", config).await?)
    }
}

impl State {
    fn of(answer: &Message) -> Result<Self, Failure> {
        check(answer)?;
        let read = || {
            let answer = Raw::from_bytes(&answer.payload).ok()?;
            let last = number_at(answer, &["state", "last_seq"])?;
            // An empty stream has 0, or the next one.
            let first = number_at(answer, &["state", "first_seq"])?.clamp(1, last + 1);
            let window = number_at(answer, &["config", "duplicate_window"]).unwrap_or(0);
            let created = answer.get("created")?.string()?;
            let epoch = hash(created.as_bytes(), SEED) | 1;
            Some(Self { epoch, first, last, window: Duration::from_nanos(window) })
        };
        read().ok_or_else(|| Failure::Other(String::from("JetStream's answer was not understood")))
    }
}

/// Returns a number in nested objects.
pub(super) fn number_at(json: Raw<'_>, path: &[&str]) -> Option<u64> {
    path.iter().try_fold(json, |value, name| value.get(name))?.unsigned()
}

/// Fails if an answer has an error.
pub(super) fn check(answer: &Message) -> Result<(), Failure> {
    let error = || Raw::from_bytes(&answer.payload).ok()?.get("error");
    let Some(error) = error() else { return Ok(()) };
    if number_at(error, &["code"]) == Some(404) {
        return Err(Failure::NoStream);
    }
    let description = error.get("description").and_then(Raw::string);
    Err(Failure::Other(description.map_or_else(|| error.text().into(), Into::into)))
}
