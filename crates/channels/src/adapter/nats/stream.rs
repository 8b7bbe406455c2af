//! The stream of the log, by `JetStream`'s API: requests with JSON on plain subjects.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{Client, Message};
use tracing::{debug, warn};

use super::log::ANSWER;
use crate::adapter::log::LogOptions;
use crate::hash::{SEED, hash};
use crate::json::{Raw, quoted};

/// How long NATS remembers the ids of messages, to reject repetitions. It remembers none for longer than the message.
const REPEATED: Duration = Duration::from_mins(10);

/// Marks a stream that Hearth has created.
const DESCRIPTION: &str = "Events of channels with history, created by Hearth";

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
    /// The stream's settings as JSON.
    config: String,
}

/// Why the log cannot be read now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The server answers that nothing listens at its API.
    #[error("JetStream does not answer")]
    NoJetStream,
    #[error("the stream does not exist")]
    NoStream,
    #[error("{0}")]
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
        let bounds = bounds(options).map(|(name, value)| format!(r#""{name}":{value}"#)).join(",");
        let config = format!(
            r#"{{"name":{},"description":{},"subjects":[{}],"retention":"limits","discard":"old","storage":"file",{bounds},"num_replicas":1}}"#,
            quoted(&self.name),
            quoted(DESCRIPTION),
            quoted(&self.subject),
        );
        State::of(&self.call("STREAM.CREATE", config).await?)
    }

    /// Deletes the stream, and creates an empty one with the same settings: the operator may have chosen some. If NATS does
    /// not take them, there is no stream.
    pub(super) async fn replace(&self, state: &State) -> Result<(), Failure> {
        self.call("STREAM.DELETE", String::new()).await?;
        let created = self.call("STREAM.CREATE", state.config.clone()).await;
        if let Err(failure) = created.and_then(|answer| check(&answer)) {
            debug!(reason = %failure, "the stream was not created with its previous settings");
        }
        Ok(())
    }

    /// Gives a stream that Hearth has created the bounds of the settings, and returns its state if they were others. The
    /// operator's own stays as it is.
    pub(super) async fn adjust(
        &self,
        state: &State,
        options: &LogOptions,
    ) -> Result<Option<State>, Failure> {
        let Ok(config) = Raw::new(&state.config) else { return Ok(None) };
        if config.get("description").and_then(Raw::string).is_some_and(|it| it == DESCRIPTION) {
            let Some(config) = with_bounds(config, options) else { return Ok(None) };
            return State::of(&self.call("STREAM.UPDATE", config).await?).map(Some);
        }
        // No age, or a negative size, is no bound.
        let age = number_at(config, &["max_age"]).filter(|age| *age > 0).map(Duration::from_nanos);
        let bytes = number_at(config, &["max_bytes"]);
        if age.is_some_and(|age| age < options.age) || bytes.is_some_and(|it| it < options.bytes) {
            warn!(
                stream = self.name,
                ?age,
                bytes,
                "the stream was not created by Hearth, and keeps less than `history_age` and `realtime.history_log` say"
            );
        }
        Ok(None)
    }
}

/// Returns the settings of the stream that follow those of Hearth.
fn bounds(options: &LogOptions) -> [(&'static str, u128); 3] {
    [
        ("max_age", options.age.as_nanos()),
        ("max_bytes", options.bytes.into()),
        ("duplicate_window", REPEATED.min(options.age).as_nanos()),
    ]
}

/// Returns the settings of a stream with other bounds; `None` if it has these.
fn with_bounds(config: Raw<'_>, options: &LogOptions) -> Option<String> {
    let bounds = bounds(options);
    if bounds
        .iter()
        .all(|(name, value)| number_at(config, &[*name]).map(u128::from) == Some(*value))
    {
        return None;
    }
    let is_other = |name: &str| bounds.iter().all(|(bound, _)| *bound != name);
    let others = config.members().filter(|(name, _)| is_other(name));
    let others = others.map(|(name, value)| format!("{}:{}", quoted(&name), value.text()));
    let members = others.chain(bounds.map(|(name, value)| format!(r#""{name}":{value}"#)));
    Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
}

impl State {
    fn of(answer: &Message) -> Result<Self, Failure> {
        check(answer)?;
        let read = || {
            let answer = Raw::from_bytes(&answer.payload).ok()?;
            let last = number_at(answer, &["state", "last_seq"])?;
            // An empty stream has 0, or the next one.
            let first = number_at(answer, &["state", "first_seq"])?.clamp(1, last + 1);
            let config = answer.get("config")?;
            let window = number_at(config, &["duplicate_window"]).unwrap_or(0);
            let created = answer.get("created")?.string()?;
            let epoch = hash(created.as_bytes(), SEED) | 1;
            let window = Duration::from_nanos(window);
            Some(Self { epoch, first, last, window, config: config.text().to_owned() })
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
