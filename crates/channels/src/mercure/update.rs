//! An update: read from a publisher's form, kept as JSON in the channel, written as a server-sent event.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::auth;
use crate::json::{Kind, Raw, push_string};

/// Maximum number of topics of an update.
const TOPICS: usize = 1000;

/// Maximum length of all topics of an update together, in bytes: subscribers' templates are matched with them.
const TOPICS_LENGTH: usize = 64 * 1024;

/// One update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) id: String,
    /// The first one is canonical.
    pub(super) topics: Vec<String>,
    pub(super) private: bool,
    pub(super) kind: String,
    /// Reconnection time in milliseconds; 0 for none.
    pub(super) retry: u64,
    pub(super) data: String,
}

/// Returns whether a text has no control characters, so that it can add no field to an event.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

impl Update {
    /// Reads the form of a publisher; the error is for it.
    pub(super) fn read(form: &str) -> Result<Self, &'static str> {
        let mut update = Self::default();
        for (name, value) in auth::parameters(form) {
            match &*name {
                "topic" => update.topics.push(value.into_owned()),
                "data" => update.data = value.into_owned(),
                "private" => update.private = true,
                "id" => update.id = value.into_owned(),
                "type" => update.kind = value.into_owned(),
                "retry" if value.is_empty() => {}
                "retry" => {
                    update.retry =
                        value.parse().map_err(|_no_number| "Invalid \"retry\" parameter")?;
                }
                _ => {}
            }
        }
        if update.topics.is_empty() {
            return Err("Missing \"topic\" parameter");
        }
        if update.topics.len() > TOPICS {
            return Err("Too many topics");
        }
        if update.topics.iter().map(String::len).sum::<usize>() > TOPICS_LENGTH {
            return Err("The topics are too long");
        }
        if !update.topics.iter().all(|topic| is_plain(topic)) {
            return Err("Invalid \"topic\" parameter");
        }
        if !is_plain(&update.id)
            || update.id.starts_with('#')
            || update.id == super::state::EARLIEST
        {
            return Err("Invalid \"id\" parameter");
        }
        if !is_plain(&update.kind) {
            return Err("Invalid \"type\" parameter");
        }
        Ok(update)
    }

    /// Writes the update as JSON.
    pub(super) fn json(&self) -> String {
        let mut text = String::with_capacity(self.data.len() + 256);
        text.push_str(r#"{"id":"#);
        push_string(&mut text, &self.id);
        text.push_str(r#","topics":["#);
        for (index, topic) in self.topics.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            push_string(&mut text, topic);
        }
        write!(text, r#"],"private":{},"retry":{},"type":"#, self.private, self.retry)
            .expect("writing to a String cannot fail");
        push_string(&mut text, &self.kind);
        text.push_str(r#","data":"#);
        push_string(&mut text, &self.data);
        text.push('}');
        text
    }

    /// Reads what [`Update::json`] wrote, in the message of the channel.
    pub(super) fn of_message(message: &[u8]) -> Option<Self> {
        let update = Raw::from_bytes(message).ok()?.get("data")?;
        let text = |name| update.get(name).and_then(Raw::string).map(std::borrow::Cow::into_owned);
        let topics = update.get("topics").filter(|topics| topics.kind() == Kind::Array)?;
        Some(Self {
            id: text("id")?,
            topics: topics.elements().filter_map(Raw::string).map(Into::into).collect(),
            private: update.get("private")?.boolean()?,
            kind: text("type")?,
            retry: update.get("retry")?.unsigned()?,
            data: text("data")?,
        })
    }

    /// Writes the update as a server-sent event.
    pub(super) fn event(&self) -> Bytes {
        let mut text = String::with_capacity(self.data.len() + self.id.len() + 64);
        if !self.kind.is_empty() {
            writeln!(text, "event: {}", self.kind).expect("writing to a String cannot fail");
        }
        if self.retry > 0 {
            writeln!(text, "retry: {}", self.retry).expect("writing to a String cannot fail");
        }
        writeln!(text, "id: {}", self.id).expect("writing to a String cannot fail");
        let data = self.data.replace("\r\n", "\n");
        for line in data.split(['\n', '\r']) {
            writeln!(text, "data: {line}").expect("writing to a String cannot fail");
        }
        text.push('\n');
        text.into_bytes().into()
    }
}
