//! Scopes: calls of one caller whose connections are limited together, as a multi handle of libcurl limits its own.
//!
//! A call enters its scope before it asks its origin for a connection. Over HTTP/1.1 each call takes one connection of the limit. Over HTTP/2 calls to one
//! origin share connections: they take one of the total, however many they are. Until it is known what the origin speaks, a call counts as over HTTP/1.1.
//!
//! Invariants
//! - At most [`Scope::connections`] calls over HTTP/1.1 to one origin at once, and [`Scope::total`] to all origins.
//! - A call that could enter does not wait. Calls for one origin enter in the order in which they came.
//! - The queue holds calls that a listener has accepted, so its bound is the listener's.
//! - Nothing is kept of a scope without calls.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

/// Which calls are counted together, and how many connections they may have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scope {
    /// The caller's name for it. Callers of different users share no scope.
    pub name: Arc<str>,
    /// The most connections to the call's origin.
    pub connections: Option<NonZeroUsize>,
    /// The most connections to all origins together.
    pub total: Option<NonZeroUsize>,
}

impl Scope {
    fn connections(&self) -> usize {
        self.connections.map_or(usize::MAX, NonZeroUsize::get)
    }

    fn total(&self) -> usize {
        self.total.map_or(usize::MAX, NonZeroUsize::get)
    }

    /// With this many HTTP/2 connections to the origin, no further one is opened for this call. With a total an origin
    /// counts as one connection.
    pub(crate) fn shared(&self) -> usize {
        if self.total.is_some() { 1 } else { self.connections() }
    }
}

/// The user and the name of a scope.
type Name = (u32, Arc<str>);

/// The scopes that have calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scopes(Arc<Mutex<HashMap<Name, Weak<Members>>>>);

impl Scopes {
    /// The members of a user's scope.
    pub(crate) fn members(&self, uid: u32, scope: &Scope) -> Arc<Members> {
        let mut scopes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (uid, Arc::clone(&scope.name));
        if let Some(members) = scopes.get(&name).and_then(Weak::upgrade) {
            return members;
        }
        let members =
            Arc::new(Members { name: name.clone(), scopes: self.clone(), state: Mutex::default() });
        scopes.insert(name, Arc::downgrade(&members));
        members
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The calls of one scope.
#[derive(Debug)]
pub(crate) struct Members {
    name: Name,
    scopes: Scopes,
    state: Mutex<State>,
}

impl Drop for Members {
    fn drop(&mut self) {
        let mut scopes = self.scopes.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another one of that name may have come in the meantime.
        if scopes.get(&self.name).is_some_and(|members| members.strong_count() == 0) {
            scopes.remove(&self.name);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    origins: HashMap<Place, Here>,
    /// Connections that calls have taken, to all origins.
    taken: usize,
    waiting: VecDeque<Waiting>,
}

/// An origin's number: its address in memory, which a ticket's owner keeps.
pub(crate) type Place = usize;

/// The calls to one origin.
#[derive(Debug, Default)]
struct Here {
    /// Calls that have a connection to themselves, or may need one.
    alone: usize,
    /// Calls that share connections.
    sharing: usize,
    /// The origin speaks HTTP/2.
    http2: bool,
}

#[derive(Debug)]
struct Waiting {
    place: Place,
    scope: Scope,
    alone: bool,
    tell: oneshot::Sender<Ticket>,
}

impl State {
    /// Counts a call, if the limits allow it. Returns whether it shares a connection.
    fn admit(&mut self, place: Place, scope: &Scope, alone: bool) -> Option<bool> {
        let here = self.origins.entry(place).or_default();
        let shares = here.http2 && !alone;
        let free = self.taken < scope.total();
        let admitted = if shares {
            here.sharing > 0 || free
        } else {
            free && here.alone + usize::from(here.sharing > 0) < scope.connections()
        };
        if admitted {
            self.count(place, shares);
        }
        admitted.then_some(shares)
    }

    fn count(&mut self, place: Place, shares: bool) {
        let here = self.origins.entry(place).or_default();
        if shares {
            self.taken += usize::from(here.sharing == 0);
            here.sharing += 1;
        } else {
            here.alone += 1;
            self.taken += 1;
        }
    }

    fn uncount(&mut self, place: Place, shares: bool) {
        let Some(here) = self.origins.get_mut(&place) else { return };
        if shares {
            here.sharing -= 1;
            self.taken -= usize::from(here.sharing == 0);
        } else {
            here.alone -= 1;
            self.taken -= 1;
        }
    }
}

impl Members {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the scope's limits allow a call. `http2`: the origin is known to speak HTTP/2. `alone`: the call needs a connection to itself.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the call's place in the queue.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        place: Place,
        scope: &Scope,
        http2: bool,
        alone: bool,
    ) -> Ticket {
        let entered = {
            let mut state = self.state();
            state.origins.entry(place).or_default().http2 |= http2;
            if let Some(shares) = state.admit(place, scope, alone) {
                Ok(self.ticket(place, shares))
            } else {
                let (tell, told) = oneshot::channel();
                state.waiting.push_back(Waiting { place, scope: scope.clone(), alone, tell });
                Err(told)
            }
        };
        match entered {
            Ok(ticket) => ticket,
            Err(told) => told.await.expect("the scope lives as long as those who wait"),
        }
    }

    fn ticket(self: &Arc<Self>, place: Place, shares: bool) -> Ticket {
        Ticket { members: Arc::clone(self), place, shares }
    }

    /// Changes the counts, then admits the calls that they allow.
    fn after(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut unwanted = Vec::new();
        {
            let mut state = self.state();
            change(&mut state);
            let mut at = 0;
            // Those of the same kind behind one that may not enter may not either.
            let mut refused: Option<(Place, Scope, bool)> = None;
            while let Some(waiting) = state.waiting.get(at) {
                if waiting.tell.is_closed() {
                    state.waiting.remove(at);
                    continue;
                }
                let same = |(place, scope, alone): &(Place, Scope, bool)| {
                    *place == waiting.place && *alone == waiting.alone && *scope == waiting.scope
                };
                if refused.as_ref().is_some_and(same) {
                    at += 1;
                    continue;
                }
                let (place, scope, alone) = (waiting.place, waiting.scope.clone(), waiting.alone);
                let Some(shares) = state.admit(place, &scope, alone) else {
                    refused = Some((place, scope, alone));
                    at += 1;
                    continue;
                };
                let waiting = state.waiting.remove(at).expect("it was looked at");
                // Dropping it here would take the lock again.
                unwanted.extend(waiting.tell.send(self.ticket(place, shares)).err());
            }
            state.origins.retain(|_place, here| here.alone + here.sharing > 0);
        }
        drop(unwanted);
    }
}

/// A call's place in its scope, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    members: Arc<Members>,
    place: Place,
    shares: bool,
}

impl Ticket {
    /// Records what the call's connection speaks. `None`: the call was let in to share connections, and must enter again for one to itself.
    pub(crate) fn over(mut self, http2: bool) -> Option<Self> {
        if http2 == self.shares {
            return Some(self);
        }
        let place = self.place;
        if !http2 {
            self.members.after(|state| state.origins.entry(place).or_default().http2 = false);
            return None;
        }
        self.shares = true;
        self.members.after(|state| {
            state.uncount(place, false);
            state.count(place, true);
            state.origins.entry(place).or_default().http2 = true;
        });
        Some(self)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (place, shares) = (self.place, self.shares);
        self.members.after(|state| state.uncount(place, shares));
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn scope(connections: usize, total: usize) -> Scope {
        let (connections, total) = (NonZeroUsize::new(connections), NonZeroUsize::new(total));
        Scope { name: "multi".into(), connections, total }
    }

    /// A call that has to wait.
    struct Entering(std::pin::Pin<Box<dyn Future<Output = Ticket>>>);

    impl std::fmt::Debug for Entering {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Entering")
        }
    }

    /// A call's way into its scope, polled once.
    fn enter(
        members: &Arc<Members>,
        place: Place,
        scope: &Scope,
        http2: bool,
    ) -> Result<Ticket, Entering> {
        let (members, scope) = (Arc::clone(members), scope.clone());
        let entering = async move { members.enter(place, &scope, http2, false).await };
        let mut entering = Entering(Box::pin(entering));
        match entering.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ticket) => Ok(ticket),
            Poll::Pending => Err(entering),
        }
    }

    #[tokio::test]
    async fn over_http1_as_many_calls_as_connections() {
        let (scopes, scope) = (Scopes::default(), scope(2, 0));
        let members = scopes.members(1, &scope);
        let first = enter(&members, 1, &scope, false).expect("room");
        let _second = enter(&members, 1, &scope, false).expect("room");
        let third = enter(&members, 1, &scope, false).expect_err("no room");
        let fourth = enter(&members, 1, &scope, false).expect_err("no room");
        let _other = enter(&members, 2, &scope, false).expect("another origin");
        let other_user = scopes.members(2, &scope);
        let _theirs = enter(&other_user, 1, &scope, false).expect("another user");
        drop(first);
        let third = third.0.await;
        // One that gives up leaves its place to the next.
        let fifth = enter(&members, 1, &scope, false).expect_err("no room");
        drop(fourth);
        drop(third.over(false));
        let _fifth = fifth.0.await;
    }

    #[tokio::test]
    async fn over_http2_all_enter_as_soon_as_that_is_known() {
        let (scopes, scope) = (Scopes::default(), scope(1, 0));
        let members = scopes.members(1, &scope);
        let first = enter(&members, 1, &scope, false).expect("room");
        let second = enter(&members, 1, &scope, false).expect_err("it may be HTTP/1.1");
        let first = first.over(true).expect("it shares");
        let second = second.0.await.over(true).expect("it shares");
        let _third = enter(&members, 1, &scope, false).expect("known by now");
        drop((first, second));
        let other = scopes.members(1, &scope);
        assert!(Arc::ptr_eq(&members, &other));
    }

    #[tokio::test]
    async fn one_that_finds_http1_enters_again() {
        let (scopes, scope) = (Scopes::default(), scope(1, 0));
        let members = scopes.members(1, &scope);
        let first = enter(&members, 1, &scope, true).expect("it shares");
        let second = enter(&members, 1, &scope, true).expect("it shares");
        assert!(first.over(false).is_none());
        assert!(second.over(false).is_none());
        let first = members.enter(1, &scope, false, true).await;
        let second = enter(&members, 1, &scope, false).expect_err("no room");
        drop(first.over(false));
        drop(second.0.await);
    }

    #[tokio::test]
    async fn a_total_counts_an_origin_of_http2_once() {
        let (scopes, scope) = (Scopes::default(), scope(0, 2));
        let members = scopes.members(1, &scope);
        let shared = enter(&members, 1, &scope, true).expect("room");
        let same = enter(&members, 1, &scope, true).expect("the same connection");
        let _alone = enter(&members, 2, &scope, false).expect("room");
        let mut third = enter(&members, 3, &scope, false).expect_err("no room");
        drop(shared);
        let polled = third.0.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "the connection is still used");
        drop(same);
        drop(third.0.await);
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_scope_without_calls() {
        let (scopes, scope) = (Scopes::default(), scope(1, 1));
        let ticket = scopes.members(1, &scope).enter(1, &scope, false, false).await;
        assert_eq!(scopes.len(), 1);
        drop(ticket);
        assert_eq!(scopes.len(), 0);
    }
}
