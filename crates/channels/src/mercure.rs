//! A Mercure hub (draft-dunglas-mercure-07): publishers POST updates on topics, subscribers receive them as
//! Server-Sent Events.
//!
//! Updates are events of one internal channel with history. So nodes share them as they share any channel, in one
//! order, and each node can answer `Last-Event-ID`.
//!
//! Invariants
//! - A subscriber gets each update once and in the order of all nodes. If its queue is full it is disconnected; it
//!   comes back with the id of its last update.
//! - A private update reaches only subscribers whose token allows one of its topics.
//! - The algorithm of a token is that of the settings, never that of its header.
//! - Fan-out happens in one task, never under a lock of the registry.

mod authorization;
mod behind;
mod directory;
mod hub;
mod positions;
mod reports;
mod selector;
mod state;
mod subscriber;
mod subscriptions;
mod token;
mod update;

use std::time::Duration;

pub use hub::Mercure;
pub use subscriber::Subscriber;
pub use token::{Algorithm, InvalidKey, Key};

/// Path of the hub.
pub const PATH: &str = "/.well-known/mercure";

/// The id of the application that holds the updates. No client can connect to it.
pub const APP: &str = "hearth-mercure";

/// Maximum size of a published update in bytes.
pub const BODY: usize = 512 * 1024;

/// Settings of the hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Verifies the tokens of publishers; without it nothing can be published over HTTP.
    pub publisher: Option<Key>,
    /// Verifies the tokens of subscribers.
    pub subscriber: Option<Key>,
    /// Subscribers without a token receive public updates.
    pub anonymous: bool,
    /// Name of the cookie with a token.
    pub cookie: String,
    /// Origins of pages that may publish with a cookie; `*` allows all.
    pub publish_origins: Vec<String>,
    /// Origins of pages that may use the hub from another origin; `*` allows all.
    pub cors_origins: Vec<String>,
    /// Publishes an update when a subscription begins or ends, and offers the subscription API.
    pub subscriptions: bool,
    /// Interval of comments on a silent stream; zero for none.
    pub heartbeat: Duration,
    /// Maximum number of subscribers; more get 503.
    pub connections: usize,
    /// Maximum number of updates that wait for one subscriber.
    pub queue: usize,
    /// Maximum number of updates that are kept.
    pub events: usize,
    /// Maximum memory of the updates that are kept, in bytes.
    pub memory: usize,
    /// How long an update is kept.
    pub age: Duration,
}

/// A request to the hub.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "it holds a function")]
pub struct Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Path as in the request line.
    pub path: &'a str,
    /// Query without the question mark.
    pub query: &'a str,
    /// Returns the value of a header field.
    pub field: &'a (dyn Fn(&str) -> Option<&'a str> + Sync),
    /// Body of a POST.
    pub body: &'a [u8],
}

/// The response to a request.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub fields: Vec<(&'static str, String)>,
    /// The part that follows the head.
    pub body: Body,
}

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(String),
    /// All of it, once the update is stored.
    Stored(String, Option<crate::Ticket>),
    /// Updates as they come.
    Stream(Subscriber),
}

impl Answer {
    fn text(status: u16, text: &str) -> Self {
        let fields = vec![("content-type", String::from("text/plain; charset=utf-8"))];
        Self { status, fields, body: Body::Whole(format!("{text}\n")) }
    }
}

#[cfg(any(test, fuzzing))]
mod fuzz;
#[cfg(fuzzing)]
pub use fuzz::fuzz;
#[cfg(test)]
mod tests;
