//! Webhooks: sends channel events to an application's own server (Pusher Channels: "Webhooks").
//!
//! ```text
//! registry ─ Intake (an Observer) ─ Debounce ─ Queue: one order for each endpoint ─ Carrier ─ the application
//!                                     │            └ Spool: a file that outlives the process
//!                                     └ drops pairs such as a page's reload, which leaves and joins again in time
//! ```
//!
//! Invariants
//! - The source of an event never waits, neither for a file nor for the application.
//! - An endpoint receives the events of a channel in the order in which they occurred. A refused batch is retried
//!   beside the events of other channels.
//! - A batch that is not accepted is retried, with pauses that double, for [`Options::patience`]; then it is dropped
//!   and counted.
//! - Memory and file are bounded by [`Options::kept`]; beyond it the oldest events are dropped and counted.
//! - An accepted event is delivered at least once, even after a crash of the process: a batch without a response is
//!   sent again. Debounced events are lost in a crash, and a power failure may lose the last second.
//!
//! `queue`, `debounce` and the format of `spool` use neither sockets nor clocks; `run` is the task that moves the
//! bytes.

mod debounce;
mod intake;
mod queue;
mod run;
mod spool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

pub use intake::Intake;
pub use queue::{BatchId, Outcome, Queue, Report, Step};
pub use run::{Carrier, Delivery, Keeping, run};
pub use spool::{Kept, OpenError, Spool};

/// The kinds of webhook events, as Pusher defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// `channel_occupied`
    Occupied,
    /// `channel_vacated`
    Vacated,
    /// `member_added`
    MemberAdded,
    /// `member_removed`
    MemberRemoved,
    /// `client_event`
    ClientEvent,
    /// `cache_miss`
    CacheMiss,
    /// `subscription_count`
    SubscriptionCount,
}

impl Topic {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Occupied,
        Self::Vacated,
        Self::MemberAdded,
        Self::MemberRemoved,
        Self::ClientEvent,
        Self::CacheMiss,
        Self::SubscriptionCount,
    ];

    /// Returns the name used in webhooks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Occupied => "channel_occupied",
            Self::Vacated => "channel_vacated",
            Self::MemberAdded => "member_added",
            Self::MemberRemoved => "member_removed",
            Self::ClientEvent => "client_event",
            Self::CacheMiss => "cache_miss",
            Self::SubscriptionCount => "subscription_count",
        }
    }

    /// Returns the kind with this name.
    pub fn of(event: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == event)
    }

    /// Returns the kind that cancels this one when it occurs shortly before or after.
    fn opposite(self) -> Option<Self> {
        match self {
            Self::Occupied => Some(Self::Vacated),
            Self::Vacated => Some(Self::Occupied),
            Self::MemberAdded => Some(Self::MemberRemoved),
            Self::MemberRemoved => Some(Self::MemberAdded),
            Self::ClientEvent | Self::CacheMiss | Self::SubscriptionCount => None,
        }
    }
}

/// An endpoint of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The [`Carrier`]'s name for it: a URL, or another word. Together with the application's id it identifies the
    /// endpoint across restarts.
    pub target: Arc<str>,
    /// The kinds to send; empty means all except client events and subscription counts, which may be many.
    pub topics: Vec<Topic>,
    /// Prefixes of the channels whose events are sent; empty means all.
    pub channels: Vec<Arc<str>>,
}

impl Endpoint {
    /// Returns whether the endpoint subscribes to this kind of event on this channel.
    pub fn wants(&self, topic: Topic, channel: &str) -> bool {
        let of_topic = match &*self.topics {
            [] => !matches!(topic, Topic::ClientEvent | Topic::SubscriptionCount),
            topics => topics.contains(&topic),
        };
        of_topic
            && (self.channels.is_empty()
                || self.channels.iter().any(|prefix| channel.starts_with(&**prefix)))
    }
}

/// Looks up an application's endpoints. Called for each event while a channel is locked, so it must be fast.
pub trait Endpoints: fmt::Debug + Send + Sync {
    /// Returns the application's endpoints; empty for most.
    fn of(&self, app: &App) -> Arc<[Endpoint]>;
}

/// Settings of webhooks.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a channel must stay vacated, or a member away, before the event is sent. A client that returns within
    /// this time causes no event.
    pub debounce: Duration,
    /// How long the first event of a batch may wait for more.
    pub batch_delay: Duration,
    /// Maximum number of events of one batch.
    pub batch_events: usize,
    /// Maximum size of one batch in bytes; a larger event is sent alone.
    pub batch_bytes: usize,
    /// Pause after the first failure; each further one is twice as long.
    pub first_pause: Duration,
    /// Longest pause.
    pub longest_pause: Duration,
    /// How long a batch is retried.
    pub patience: Duration,
    /// Maximum number of bytes of waiting events per endpoint.
    pub kept: usize,
    /// How long a stopping process waits for responses. Unsent events are sent after the next start, if there is a
    /// spool.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            debounce: Duration::from_secs(3),
            batch_delay: Duration::from_millis(50),
            batch_events: 50,
            batch_bytes: 256 * 1024,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_mins(1),
            patience: Duration::from_mins(5),
            kept: 16 * 1024 * 1024,
            linger: Duration::from_secs(5),
        }
    }
}
