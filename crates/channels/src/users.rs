//! Users who have signed in, and who wants to know of them.
//!
//! Invariants
//! - A user is online while one of its sockets is; whoever watches it is told once when that begins and once when it ends.
//! - A user that is not online and that nobody watches is gone, and its memory with it.
//! - Users are found by a hash with a random key; each shard's lock is held for one user's record and for putting deliveries into inboxes.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry};

use crate::app::App;
use crate::close::Close;
use crate::delivery::{Delivery, Seat};
use crate::encoded::Encoded;
use crate::message;
use crate::registry::Outlets;
use crate::statistics::Counters;

/// Parts that are locked apart from each other.
const SHARDS: usize = 32;

/// All users of all applications who are online or watched.
#[derive(Debug)]
pub(crate) struct Users {
    shards: Box<[Mutex<HashTable<Box<User>>>]>,
    random: RandomState,
}

#[derive(Debug)]
struct User {
    hash: u64,
    app: Arc<str>,
    id: Arc<str>,
    /// Its sockets on this node.
    seats: HashSet<Seat>,
    /// Sockets on this node of users who watch it.
    watchers: HashSet<Seat>,
}

impl Users {
    /// Nobody.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), random: RandomState::new() }
    }

    /// A socket is this user's from now on.
    pub(crate) fn sign_in(
        &self,
        app: &App,
        user: &Arc<str>,
        seat: Seat,
        outlets: &Outlets,
        counters: &Counters,
    ) {
        self.with(app, user, |user| {
            user.seats.insert(seat);
            if user.seats.len() == 1 {
                user.tell_watchers("online", outlets, counters);
            }
        });
    }

    /// A socket is this user's no more.
    pub(crate) fn sign_out(
        &self,
        app: &App,
        user: &Arc<str>,
        seat: Seat,
        outlets: &Outlets,
        counters: &Counters,
    ) {
        self.with(app, user, |user| {
            if user.seats.remove(&seat) && user.seats.is_empty() {
                user.tell_watchers("offline", outlets, counters);
            }
        });
    }

    /// A socket wants to know of this user from now on. True when the user is online.
    pub(crate) fn watch(&self, app: &App, user: &Arc<str>, seat: Seat) -> bool {
        self.with(app, user, |user| {
            user.watchers.insert(seat);
            !user.seats.is_empty()
        })
    }

    /// A socket does not want to know of this user any more.
    pub(crate) fn unwatch(&self, app: &App, user: &Arc<str>, seat: Seat) {
        self.with(app, user, |user| user.watchers.remove(&seat));
    }

    /// Ends all connections of a user.
    pub(crate) fn terminate(&self, app: &App, user: &str, outlets: &Outlets, counters: &Counters) {
        let hash = self.hash(&app.id, user);
        let mut shard = self.shard(hash);
        let Ok(found) = shard.find_entry(hash, |found| found.is(&app.id, user)) else { return };
        for seat in &found.get().seats {
            let Close { code, reason } = Close::TERMINATED;
            outlets.put(seat.event_loop, Delivery::Close { seat: *seat, code, reason }, counters);
        }
    }

    /// How many users there are a record of.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn hash(&self, app: &str, user: &str) -> u64 {
        self.random.hash_one((app, user))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Box<User>>> {
        // The table uses the lowest and the highest bits.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Does something with a user's record, which is made if there is none, and is gone when nothing needs it after that.
    fn with<T>(&self, app: &App, id: &Arc<str>, act: impl FnOnce(&mut User) -> T) -> T {
        let hash = self.hash(&app.id, id);
        let mut shard = self.shard(hash);
        let is_it = |user: &Box<User>| user.is(&app.id, id);
        let mut found = match shard.entry(hash, is_it, |user| user.hash) {
            Entry::Occupied(found) => found,
            Entry::Vacant(vacant) => vacant.insert(Box::new(User {
                hash,
                app: Arc::clone(&app.id),
                id: Arc::clone(id),
                seats: HashSet::new(),
                watchers: HashSet::new(),
            })),
        };
        let result = act(found.get_mut());
        if found.get().is_needless() {
            forget(found);
        }
        result
    }
}

impl User {
    fn is(&self, app: &str, id: &str) -> bool {
        *self.id == *id && *self.app == *app
    }

    fn is_needless(&self) -> bool {
        self.seats.is_empty() && self.watchers.is_empty()
    }

    /// One delivery for each event loop with watchers.
    fn tell_watchers(&self, name: &str, outlets: &Outlets, counters: &Counters) {
        if self.watchers.is_empty() {
            return;
        }
        let message: Encoded = message::watchlist_event(name, std::iter::once(&*self.id));
        let mut seats: Vec<Seat> = self.watchers.iter().copied().collect();
        seats.sort_unstable();
        for of_one in seats.chunk_by(|one, other| one.event_loop == other.event_loop) {
            let Some(first) = of_one.first() else { continue };
            let delivery = Delivery::Seats { seats: of_one.to_vec(), message: message.clone() };
            outlets.put(first.event_loop, delivery, counters);
        }
    }
}

fn lock(shard: &Mutex<HashTable<Box<User>>>) -> MutexGuard<'_, HashTable<Box<User>>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a record out, and gives memory back when most of the table is not used.
fn forget(found: OccupiedEntry<'_, Box<User>>) {
    let (_, vacant) = found.remove();
    let table = vacant.into_table();
    if table.capacity() > 32 && table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, |user| user.hash);
    }
}
