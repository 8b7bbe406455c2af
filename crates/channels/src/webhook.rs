//! Webhooks: what happens to channels, told to an application's own server (Pusher Channels: "Webhooks").
//!
//! ```text
//! registry ─ Intake (an Observer) ─ Settling ─ Queue: one order for each endpoint ─ Carrier ─ the application
//!                                     │            └ Spool: a file that outlives the process
//!                                     └ a page's reload is no news: who comes back in time was never gone
//! ```
//!
//! Invariants
//! - Whoever reports what happened never waits, neither for a file nor for the application.
//! - An endpoint is told in the order in which things happened, in one batch at a time.
//! - A batch that is not taken is sent again, with pauses that double, for [`Options::patience`]; then it is dropped and counted.
//! - Memory and file are bounded by [`Options::kept`]; when that is full the oldest go, counted.
//! - What was accepted is told after a crash of the process too, at least once: a batch whose answer was not seen is sent again. What
//!   waits to settle at that time is lost. A machine that loses power may lose the last second.
//!
//! `queue`, `settling` and `spool`'s format know neither sockets nor clocks; `run` is the task that moves the bytes.

mod intake;
mod queue;
mod run;
mod settling;
mod spool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

pub use intake::Intake;
pub use queue::{BatchId, Outcome, Queue, Report, Step};
pub use run::{Carrier, Delivery, run};
pub use spool::{Kept, OpenError, Spool};

/// What an endpoint can be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// `channel_occupied` and `channel_vacated`
    Existence,
    /// `member_added` and `member_removed`
    Presence,
    /// `client_event`
    ClientEvents,
    /// `cache_miss`
    CacheMisses,
    /// `subscription_count`
    SubscriptionCounts,
}

impl Topic {
    /// The topic of an event by its name in a webhook.
    pub fn of(event: &str) -> Option<Self> {
        Some(match event {
            "channel_occupied" | "channel_vacated" => Self::Existence,
            "member_added" | "member_removed" => Self::Presence,
            "client_event" => Self::ClientEvents,
            "cache_miss" => Self::CacheMisses,
            "subscription_count" => Self::SubscriptionCounts,
            _ => return None,
        })
    }
}

/// Somewhere an application wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What the [`Carrier`] knows it by: a URL, or another word. With the application's id it is what the endpoint is known by after a restart.
    pub target: Arc<str>,
    /// Of what; empty: of all but client events and subscription counts, which may be many.
    pub topics: Vec<Topic>,
    /// Only of channels whose names begin with one of these; empty: all.
    pub channels: Vec<Arc<str>>,
}

impl Endpoint {
    /// Does it want to be told?
    pub fn wants(&self, topic: Topic, channel: &str) -> bool {
        let of_topic = match &*self.topics {
            [] => !matches!(topic, Topic::ClientEvents | Topic::SubscriptionCounts),
            topics => topics.contains(&topic),
        };
        of_topic
            && (self.channels.is_empty()
                || self.channels.iter().any(|prefix| channel.starts_with(&**prefix)))
    }
}

/// Where an application's endpoints are looked up: for everything that happens, while a channel is locked, so it must be quick.
pub trait Endpoints: fmt::Debug + Send + Sync {
    /// The application's; none for most.
    fn of(&self, app: &App) -> Arc<[Endpoint]>;
}

/// How webhooks are sent.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a channel must stay vacated, or a member away, before that is told. Who is back before was never gone.
    pub settling: Duration,
    /// How long the first event of a batch may wait for more.
    pub gathering: Duration,
    /// Events of one batch.
    pub batch_events: usize,
    /// Bytes of one batch; an event that is larger goes alone.
    pub batch_bytes: usize,
    /// The pause after a first failure; each further one is twice as long.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How long a batch is tried.
    pub patience: Duration,
    /// Bytes of events kept for one endpoint.
    pub kept: usize,
    /// How long the end of the process waits for answers. What was not told by then is told after the next start, if there is a spool.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settling: Duration::from_secs(3),
            gathering: Duration::from_millis(50),
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
