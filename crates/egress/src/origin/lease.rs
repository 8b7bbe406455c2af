//! A connection that one call uses, and what the plan asks of connections.
//!
//! Invariants
//! - A dropped lease returns its connection or its stream to the origin.
//! - The place in a scope lasts as long as the use of the connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Origin;
use super::plan::{Condition, Id, Idle, Shared, Taken};
use crate::connect::Birth;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::request::Head;
use crate::scope::Ticket;
use crate::upload::Upload;
use crate::{CallError, Key, Secured};

/// A connection for one call. It is free again if the lease is dropped unused.
#[derive(Debug)]
pub(crate) enum Lease {
    Http1(Lease1),
    /// Boxed, because leases are moved.
    Http2(Box<Http2>, StreamGuard),
}

#[derive(Debug)]
pub(crate) struct Lease1(Option<Box<Http1>>);

impl Lease1 {
    pub(crate) fn take(mut self) -> Box<Http1> {
        self.0.take().expect("it is taken once, here")
    }

    /// Queues the head of a request for sending.
    pub(crate) fn put(&mut self, head: &Head, key: &Key, upload: &Upload) -> Result<(), CallError> {
        self.0.as_mut().expect("it is not taken yet").put(head, key, upload)
    }

    /// The queued head, in its final form.
    pub(crate) fn head(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |connection| connection.head())
    }
}

impl Drop for Lease1 {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take()
            && let Some(home) = connection.home()
        {
            home.put_back(connection);
        }
    }
}

impl Lease {
    /// Keeps the call's place in its scope for as long as the call uses the connection.
    pub(crate) fn hold(&mut self, ticket: Ticket) {
        match self {
            Self::Http1(lease) => {
                if let Some(connection) = &mut lease.0 {
                    connection.hold(ticket);
                }
            }
            Self::Http2(_, guard) => guard.ticket = Some(ticket),
        }
    }

    /// Returns whether the connection has carried a call before.
    pub(crate) fn kept(&self) -> bool {
        match self {
            Self::Http1(lease) => lease.0.as_ref().is_some_and(|connection| connection.kept()),
            Self::Http2(connection, _) => connection.kept(),
        }
    }

    /// The outcome of the TLS handshake, if it is recorded.
    pub(crate) fn secured(&self) -> Option<Arc<Secured>> {
        match self {
            Self::Http1(lease) => lease.0.as_ref().and_then(|connection| connection.secured()),
            Self::Http2(connection, _) => connection.secured(),
        }
        .cloned()
    }

    /// When the connection was opened. It is never `None`, because the lease holds the connection.
    pub(crate) fn birth(&self) -> Option<Birth> {
        match self {
            Self::Http1(lease) => lease.0.as_ref().map(|connection| connection.birth()),
            Self::Http2(connection, _) => Some(connection.birth()),
        }
    }
}

/// Counts one stream of an HTTP/2 connection as used while it exists.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    home: Arc<Origin>,
    id: Id,
    /// The call's place in its scope. It is free after the stream.
    ticket: Option<Ticket>,
}

impl StreamGuard {
    pub(crate) fn home(&self) -> &Arc<Origin> {
        &self.home
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let id = self.id;
        self.home.after(|state| state.plan.release(id, Instant::now()));
        self.home.make_room();
    }
}

impl Origin {
    /// Leases a connection that the plan has taken for a call.
    pub(super) fn lease(self: &Arc<Self>, taken: Taken<Box<Http1>, Http2>) -> Lease {
        match taken {
            Taken::Http1(mut connection) => {
                connection.leave(Arc::clone(self));
                Lease::Http1(Lease1(Some(connection)))
            }
            Taken::Http2(id, connection) => Lease::Http2(
                Box::new(connection),
                StreamGuard { home: Arc::clone(self), id, ticket: None },
            ),
        }
    }
}

impl Idle for Box<Http1> {
    fn look(&mut self) -> Condition {
        Http1::look(self)
    }
    fn probe(&mut self, now: Instant, repeatable: bool) -> Condition {
        Http1::probe(self, now, repeatable)
    }
    fn calls(&self) -> u64 {
        Http1::calls(self)
    }
    fn announced(&self) -> bool {
        Http1::announced(self)
    }
    fn born(&self) -> Instant {
        Http1::born(self)
    }
    fn kept_for(&self) -> Option<Duration> {
        Http1::kept_for(self)
    }
}

impl Shared for Http2 {
    fn room(&mut self) -> Option<usize> {
        // Its streams go on; new ones use another connection until it has answered.
        Self::room(self).map(|room| if self.suspected() { 0 } else { room })
    }
    fn born(&self) -> Instant {
        Self::born(self)
    }
}
