//! Subscribers whose last update this node does not know: it may be too old, or the subscriber comes from a node that has
//! read further in the shared log.
//!
//! Such a subscriber is answered when this node has read everything that was stored before it came. Then its update is
//! known, or is not kept any more.

use std::time::Duration;

use super::hub::{Mercure, ended_stream};
use super::state::EARLIEST;
use super::{Answer, PATH, Request};
use crate::{Ticket, auth};

/// How long an answer waits at most.
const WAIT: Duration = Duration::from_secs(5);

impl Mercure {
    /// Returns what the answer to a request waits for, if this node may have read less than the one from which a subscriber
    /// comes: [`Mercure::caught_up`].
    pub fn catch_up(&self, request: &Request<'_>) -> Option<Ticket> {
        if (request.method, request.path) != ("GET", PATH) {
            return None;
        }
        let log = self.channels.registry().nodes()?.log()?;
        let wanted = last_event_id(request).filter(|id| id != EARLIEST)?;
        // Until the log is loaded, streams with an id end when it is.
        if !self.channels.registry().shared().is_loaded() || self.reader(request).is_err() {
            return None;
        }
        let state = self.lock();
        let waits = !state.ending && !state.knows(&wanted);
        drop(state);
        waits.then(|| log.catch_up())
    }

    /// Waits until this node has caught up, some seconds at most. Returns whether it has.
    pub async fn caught_up(&self, ticket: Ticket) -> bool {
        let caught_up = async {
            let read = ticket.stored().await;
            self.ready().await;
            read
        };
        tokio::time::timeout(WAIT, caught_up).await == Ok(true)
    }

    /// Answers a subscriber while this node cannot catch up: it comes back with its last update.
    pub fn answer_later(&self, request: &Request<'_>) -> Answer {
        self.for_origin(request, ended_stream())
    }
}

/// Returns the id of the last update that a client has.
pub(super) fn last_event_id(request: &Request<'_>) -> Option<String> {
    let field = (request.field)("last-event-id").filter(|id| !id.is_empty()).map(str::to_owned);
    field.or_else(|| {
        let names = ["lastEventID", "Last-Event-ID", "last-event-id"];
        let mut parameters = auth::parameters(request.query);
        parameters.find(|(name, _)| names.contains(&&**name)).map(|(_, id)| id.into_owned())
    })
}
