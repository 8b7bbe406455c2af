//! The last event of one cache channel.

use std::time::Duration;

use crate::encoded::Encoded;
use crate::json::Raw;
use crate::moment::Moment;

/// What those who come later get.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub(crate) message: Encoded,
    pub(crate) at: Moment,
}

/// What is known of a cache channel's last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheReport {
    /// Its data: JSON, as it was published.
    pub data: Box<str>,
    /// How long it is still kept.
    pub remaining: Duration,
}

impl Last {
    /// Is it still to be given?
    pub(crate) fn is_fresh(&self, ttl: Duration, now: Moment) -> bool {
        now < self.at + ttl
    }

    pub(crate) fn report(&self, ttl: Duration, now: Moment) -> Option<CacheReport> {
        let text = self.message.text();
        let data = Raw::from_bytes(&text).ok()?.get("data")?.text().into();
        Some(CacheReport { data, remaining: ttl.saturating_sub(now.since(self.at)) })
    }
}
