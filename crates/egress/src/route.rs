//! Calls that a client makes to one origin again and again. What they have in common is found, checked and encoded once.
//!
//! Invariants
//! - A route keeps no origin alive: one that is evicted is found again by its key.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::Method;
use http::uri::{Authority, PathAndQuery};
use tokio::time::Instant;

use crate::engine::Common;
use crate::origin::Origin;
use crate::request::{Head, SharedFields};
use crate::{CallError, Engine, Key, Limits, Ready};

/// The way to one origin, for many calls of one engine.
#[derive(Debug)]
pub struct Route {
    key: Key,
    authority: Authority,
    origin: Mutex<Weak<Origin>>,
}

/// A call without a body whose fields are shared with other calls.
#[derive(Debug)]
pub struct Plain<'a> {
    /// The way to the origin.
    pub route: &'a Route,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: PathAndQuery,
    /// The fields.
    pub fields: Arc<SharedFields>,
    /// The time limits.
    pub limits: Limits,
}

impl Route {
    /// Creates a route. `authority`: that of the URLs, without a user.
    pub fn new(key: Key, authority: &str) -> Result<Self, CallError> {
        let parsed = Authority::try_from(authority);
        let authority = parsed.map_err(|why| CallError::unsupported(why.to_string()))?;
        if authority.as_str().contains('@') {
            return Err(CallError::unsupported("The target names a user"));
        }
        Ok(Self { key, authority, origin: Mutex::default() })
    }

    /// Returns whether URLs with this authority are called on this route.
    pub fn is_to(&self, authority: &str) -> bool {
        self.authority.as_str() == authority
    }

    fn origin(&self, common: &Arc<Common>) -> Arc<Origin> {
        let mut known = self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = known.upgrade() {
            return origin;
        }
        let origin = common.origin(self.key.clone());
        *known = Arc::downgrade(&origin);
        origin
    }
}

impl Engine {
    /// Prepares a call on a route.
    pub fn ready_plain(&self, call: Plain<'_>) -> Result<Ready, CallError> {
        let begin = Instant::now();
        if self.common().closing.is_cancelled() {
            return Err(CallError::closing());
        }
        let Plain { route, method, path, fields, limits } = call;
        let head = Head::shared(method, route.authority.clone(), path, fields)?;
        let origin = route.origin(self.common());
        origin.counters.called();
        Ok(Ready { origin, scoped: None, head, body: None, limits, begin })
    }
}
