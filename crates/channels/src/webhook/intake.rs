//! Receives channel events from the registry.

use std::fmt::{self, Write as _};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Endpoint, Endpoints, Topic};
use crate::app::App;
use crate::json::{Raw, push_string, quoted};
use crate::observer::{ChannelEvent, Observer};

/// A channel event that waits for the queue.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) app: Arc<str>,
    pub(super) endpoints: Arc<[Endpoint]>,
    pub(super) channel: Arc<str>,
    pub(super) kind: NoteKind,
}

/// The kind and details of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoteKind {
    Occupied,
    Vacated,
    MemberAdded(Arc<str>),
    MemberRemoved(Arc<str>),
    Count(usize),
    CacheMiss,
    /// Members of the JSON object except name and channel.
    Client(String),
}

impl NoteKind {
    pub(super) fn topic(&self) -> Topic {
        match self {
            Self::Occupied => Topic::Occupied,
            Self::Vacated => Topic::Vacated,
            Self::MemberAdded(_) => Topic::MemberAdded,
            Self::MemberRemoved(_) => Topic::MemberRemoved,
            Self::Count(_) => Topic::SubscriptionCount,
            Self::CacheMiss => Topic::CacheMiss,
            Self::Client(_) => Topic::ClientEvent,
        }
    }

    /// Returns the webhook event as JSON.
    pub(super) fn json(&self, channel: &str) -> String {
        let name = self.topic().name();
        let mut json = format!(r#"{{"name":"{name}","channel":"#);
        push_string(&mut json, channel);
        match self {
            Self::MemberAdded(user) | Self::MemberRemoved(user) => {
                json.push_str(r#","user_id":"#);
                push_string(&mut json, user);
            }
            Self::Count(count) => {
                write!(json, r#","subscription_count":{count}"#)
                    .expect("writing to a String cannot fail");
            }
            Self::Client(members) => json.push_str(members),
            Self::Occupied | Self::Vacated | Self::CacheMiss => {}
        }
        json.push('}');
        json
    }
}

/// Maximum number of waiting events. The task that takes them does little else.
const NOTES: usize = 65_536;

/// An observer that keeps events to which an endpoint subscribes, and wakes the webhook task. When [`NOTES`] events
/// are waiting, further ones are dropped and counted.
pub struct Intake {
    endpoints: Arc<dyn Endpoints>,
    notes: Mutex<Vec<Note>>,
    dropped: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake")
            .field("endpoints", &self.endpoints)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

impl Intake {
    /// Creates the intake. `wake` is called for the first waiting event, and must not wait.
    pub fn new(endpoints: Arc<dyn Endpoints>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            endpoints,
            notes: Mutex::default(),
            dropped: AtomicU64::new(0),
            wake: Box::new(wake),
        }
    }

    /// Returns the events since the last call.
    pub(super) fn take(&self) -> Vec<Note> {
        mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of dropped events.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Observer for Intake {
    fn observe(&self, app: &Arc<App>, event: &ChannelEvent<'_>) {
        let endpoints = self.endpoints.of(app);
        if endpoints.is_empty() {
            return;
        }
        let (channel, topic) = match event {
            ChannelEvent::Occupied { channel } => (channel, Topic::Occupied),
            ChannelEvent::Vacated { channel } => (channel, Topic::Vacated),
            ChannelEvent::MemberAdded { channel, .. } => (channel, Topic::MemberAdded),
            ChannelEvent::MemberRemoved { channel, .. } => (channel, Topic::MemberRemoved),
            ChannelEvent::SubscriptionCount { channel, .. } => (channel, Topic::SubscriptionCount),
            ChannelEvent::CacheMiss { channel } => (channel, Topic::CacheMiss),
            ChannelEvent::ClientEvent { channel, .. } => (channel, Topic::ClientEvent),
        };
        // An endpoint that only subscribes to leaving members still needs the joining ones, which cancel them.
        let wanted = |endpoint: &Endpoint| {
            endpoint.wants(topic, channel)
                || topic.opposite().is_some_and(|opposite| endpoint.wants(opposite, channel))
        };
        if !endpoints.iter().any(wanted) {
            return;
        }
        let kind = match event {
            ChannelEvent::Occupied { .. } => NoteKind::Occupied,
            ChannelEvent::Vacated { .. } => NoteKind::Vacated,
            ChannelEvent::MemberAdded { user_id, .. } => NoteKind::MemberAdded(Arc::clone(user_id)),
            ChannelEvent::MemberRemoved { user_id, .. } => {
                NoteKind::MemberRemoved(Arc::clone(user_id))
            }
            ChannelEvent::SubscriptionCount { count, .. } => NoteKind::Count(*count),
            ChannelEvent::CacheMiss { .. } => NoteKind::CacheMiss,
            ChannelEvent::ClientEvent { event, data, socket, user_id, .. } => NoteKind::Client(
                client(event, data, &socket.to_string(), user_id.map(|user| &**user)),
            ),
        };
        let note = Note { app: Arc::clone(&app.id), endpoints, channel: Arc::clone(channel), kind };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= NOTES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        notes.push(note);
        let first = notes.len() == 1;
        drop(notes);
        if first {
            (self.wake)();
        }
    }
}

/// Builds a client event; `data` is a string in Pusher's webhooks, whatever the client sent.
fn client(event: &str, data: &str, socket: &str, user: Option<&str>) -> String {
    let data = match Raw::new(data) {
        Ok(raw) if raw.text().starts_with('"') => raw.text().to_owned(),
        _ => quoted(data),
    };
    let mut members = format!(r#","event":{},"data":{data},"socket_id":"{socket}""#, quoted(event));
    if let Some(user) = user {
        members.push_str(r#","user_id":"#);
        push_string(&mut members, user);
    }
    members
}
