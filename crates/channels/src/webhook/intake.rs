//! Where the registry leaves what happened.

use std::fmt::{self, Write as _};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Endpoint, Endpoints, Topic};
use crate::app::App;
use crate::json::{Raw, push_string, quoted};
use crate::observer::{Happening, Observer};

/// Something that happened, as it waits for the queue.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) app: Arc<str>,
    pub(super) endpoints: Arc<[Endpoint]>,
    pub(super) channel: Arc<str>,
    pub(super) what: What,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Occupied,
    Vacated,
    MemberAdded(Arc<str>),
    MemberRemoved(Arc<str>),
    Count(usize),
    CacheMiss,
    /// Everything of the event but its name and channel, as members of a JSON object.
    Client(String),
}

impl What {
    pub(super) fn topic(&self) -> Topic {
        match self {
            Self::Occupied | Self::Vacated => Topic::Existence,
            Self::MemberAdded(_) | Self::MemberRemoved(_) => Topic::Presence,
            Self::Count(_) => Topic::SubscriptionCounts,
            Self::CacheMiss => Topic::CacheMisses,
            Self::Client(_) => Topic::ClientEvents,
        }
    }

    /// The event of a webhook.
    pub(super) fn json(&self, channel: &str) -> String {
        let name = match self {
            Self::Occupied => "channel_occupied",
            Self::Vacated => "channel_vacated",
            Self::MemberAdded(_) => "member_added",
            Self::MemberRemoved(_) => "member_removed",
            Self::Count(_) => "subscription_count",
            Self::CacheMiss => "cache_miss",
            Self::Client(_) => "client_event",
        };
        let mut json = format!(r#"{{"name":"{name}","channel":"#);
        push_string(&mut json, channel);
        match self {
            Self::MemberAdded(user) | Self::MemberRemoved(user) => {
                json.push_str(r#","user_id":"#);
                push_string(&mut json, user);
            }
            Self::Count(count) => {
                write!(json, r#","subscription_count":{count}"#).expect("a String takes all");
            }
            Self::Client(members) => json.push_str(members),
            Self::Occupied | Self::Vacated | Self::CacheMiss => {}
        }
        json.push('}');
        json
    }
}

/// Notes that may wait here: the task that takes them away does little else.
const NOTES: usize = 65_536;

/// An observer that keeps what an endpoint wants to be told, and wakes whoever tells it. With [`NOTES`] waiting, what comes is dropped and counted.
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
    /// `wake` is called when the first note comes; it must not wait.
    pub fn new(endpoints: Arc<dyn Endpoints>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            endpoints,
            notes: Mutex::default(),
            dropped: AtomicU64::new(0),
            wake: Box::new(wake),
        }
    }

    /// What came since the last time.
    pub(super) fn take(&self) -> Vec<Note> {
        mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes for which there was no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Observer for Intake {
    fn happened(&self, app: &Arc<App>, happening: &Happening<'_>) {
        let endpoints = self.endpoints.of(app);
        if endpoints.is_empty() {
            return;
        }
        let (channel, topic) = match happening {
            Happening::Occupied { channel } | Happening::Vacated { channel } => {
                (channel, Topic::Existence)
            }
            Happening::MemberAdded { channel, .. } | Happening::MemberRemoved { channel, .. } => {
                (channel, Topic::Presence)
            }
            Happening::SubscriptionCount { channel, .. } => (channel, Topic::SubscriptionCounts),
            Happening::CacheMiss { channel } => (channel, Topic::CacheMisses),
            Happening::ClientEvent { channel, .. } => (channel, Topic::ClientEvents),
        };
        if !endpoints.iter().any(|endpoint| endpoint.wants(topic, channel)) {
            return;
        }
        let what = match happening {
            Happening::Occupied { .. } => What::Occupied,
            Happening::Vacated { .. } => What::Vacated,
            Happening::MemberAdded { user_id, .. } => What::MemberAdded(Arc::clone(user_id)),
            Happening::MemberRemoved { user_id, .. } => What::MemberRemoved(Arc::clone(user_id)),
            Happening::SubscriptionCount { count, .. } => What::Count(*count),
            Happening::CacheMiss { .. } => What::CacheMiss,
            Happening::ClientEvent { event, data, socket, user_id, .. } => {
                What::Client(client(event, data, &socket.to_string(), user_id.map(|user| &**user)))
            }
        };
        let note = Note { app: Arc::clone(&app.id), endpoints, channel: Arc::clone(channel), what };
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

/// `data` is a string in Pusher's webhooks, whatever the client sent.
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
