//! The last event of a cache channel.

use std::time::Duration;

use crate::encoded::Encoded;
use crate::json::Raw;
use crate::moment::Moment;

/// The event that later subscribers receive.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub(crate) message: Encoded,
    pub(crate) at: Moment,
}

/// State of a cache channel's last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheReport {
    /// Data of the event: JSON, as published.
    pub data: Box<str>,
    /// How long the event is still kept.
    pub remaining: Duration,
}

impl Last {
    /// Returns whether the event is not expired.
    pub(crate) fn is_fresh(&self, ttl: Duration, now: Moment) -> bool {
        now < self.at + ttl
    }

    pub(crate) fn report(&self, ttl: Duration, now: Moment) -> Option<CacheReport> {
        let text = self.message.text();
        let data = Raw::from_bytes(&text).ok()?.get("data")?.text().into();
        Some(CacheReport { data, remaining: ttl.saturating_sub(now.since(self.at)) })
    }
}
