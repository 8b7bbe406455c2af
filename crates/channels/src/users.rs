//! Signed-in users, and the sockets that watch them.
//!
//! Invariants
//! - A user is online while one of its sockets is, on any node. A watcher receives one event when that begins and one
//!   when it ends.
//! - A user that is offline and not watched is removed, and its memory is freed.
//! - Users are indexed by a hash with a random key. Each shard's lock is held for one user's record and for filling
//!   inboxes.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry};

use crate::app::App;
use crate::close::Close;
use crate::delivery::{Delivery, Seat};
use crate::message;
use crate::nodes::{ClusterUpdate, NodeId, Nodes, Origin};
use crate::registry::Outlets;
use crate::statistics::{Counters, Statistics};

/// Number of separately locked parts.
const SHARDS: usize = 32;

/// All users of all applications who are online or watched.
#[derive(Debug)]
pub(crate) struct Users {
    shards: Box<[Mutex<Shard>]>,
    random: RandomState,
}

type Shard = HashTable<Box<User>>;

/// The surroundings of a user: its application, the outlets and the other nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach<'a> {
    pub(crate) app: &'a Arc<App>,
    pub(crate) outlets: &'a Outlets,
    pub(crate) nodes: Option<&'a dyn Nodes>,
    pub(crate) counters: &'a Counters,
}

#[derive(Debug)]
struct User {
    hash: u64,
    app: Arc<App>,
    id: Arc<str>,
    /// The user's sockets on this node.
    seats: HashSet<Seat>,
    /// Other nodes on which the user has sockets.
    nodes: Vec<Origin>,
    /// Sockets on this node that watch the user.
    watchers: HashSet<Seat>,
}

impl Users {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), random: RandomState::new() }
    }

    /// Assigns a socket to a user.
    pub(crate) fn sign_in(&self, reach: &Reach<'_>, id: &Arc<str>, seat: Seat) {
        self.with(reach.app, id, |user| {
            user.changing(reach, |user| user.seats.insert(seat));
        });
    }

    /// Removes a socket from a user.
    pub(crate) fn sign_out(&self, reach: &Reach<'_>, id: &Arc<str>, seat: Seat) {
        self.with(reach.app, id, |user| {
            user.changing(reach, |user| user.seats.remove(&seat));
        });
    }

    /// Adds a watcher. Returns `true` if the user is online.
    pub(crate) fn watch(&self, reach: &Reach<'_>, id: &Arc<str>, seat: Seat) -> bool {
        self.with(reach.app, id, |user| {
            user.watchers.insert(seat);
            user.is_online()
        })
    }

    /// Removes a watcher.
    pub(crate) fn unwatch(&self, reach: &Reach<'_>, id: &Arc<str>, seat: Seat) {
        self.with(reach.app, id, |user| user.watchers.remove(&seat));
    }

    /// Closes all connections of a user on this node.
    pub(crate) fn terminate(&self, reach: &Reach<'_>, id: &str) {
        let app = &reach.app.id;
        let hash = self.hash(app, id);
        let shard = self.shard(hash);
        let Some(user) = shard.find(hash, |user| user.is(app, id)) else { return };
        for seat in &user.seats {
            let Close { code, reason } = Close::TERMINATED;
            let delivery = Delivery::Close { seat: *seat, code, reason };
            reach.outlets.put(seat.event_loop, delivery, reach.counters);
        }
    }

    /// Applies an update of another node.
    pub(crate) fn apply_remote(&self, reach: &Reach<'_>, from: Origin, update: &ClusterUpdate<'_>) {
        match *update {
            ClusterUpdate::Online { user_id } => self.with(reach.app, user_id, |user| {
                user.changing(reach, |user| {
                    user.nodes.retain(|known| known.node != from.node);
                    user.nodes.push(from);
                });
            }),
            ClusterUpdate::Offline { user_id } => self.with(reach.app, user_id, |user| {
                user.changing(reach, |user| user.nodes.retain(|known| known.node != from.node));
            }),
            ClusterUpdate::Terminated { user_id } => self.terminate(reach, user_id),
            _ => {}
        }
    }

    /// Removes state that another node published only in rounds other than `round`.
    pub(crate) fn forget_node(
        &self,
        node: NodeId,
        round: Option<u32>,
        outlets: &Outlets,
        statistics: &Statistics,
    ) {
        let is_old = |known: &Origin| known.node == node && Some(known.round) != round;
        for shard in &self.shards {
            let found: Vec<_> = {
                let shard = lock(shard);
                let old = shard.iter().filter(|user| user.nodes.iter().any(is_old));
                old.map(|user| (Arc::clone(&user.app), Arc::clone(&user.id))).collect()
            };
            for (app, id) in found {
                let counters = statistics.of(&app.id);
                let reach = Reach { app: &app, outlets, nodes: None, counters: &counters };
                self.with(&app, &id, |user| {
                    user.changing(&reach, |user| user.nodes.retain(|known| !is_old(known)));
                });
            }
        }
    }

    /// Publishes the users with sockets on this node to other nodes.
    pub(crate) fn publish_state(&self, nodes: &dyn Nodes) {
        for shard in &self.shards {
            for user in lock(shard).iter().filter(|user| !user.seats.is_empty()) {
                nodes.publish(&user.app, &ClusterUpdate::Online { user_id: &user.id });
            }
        }
    }

    /// Returns the number of user records.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns the capacity of the tables.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).capacity()).sum()
    }

    fn hash(&self, app: &str, id: &str) -> u64 {
        self.random.hash_one((app, id))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table uses the lowest and the highest bits of the hash, so the shard uses others.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Calls a function with a user's record, which is created if it does not exist, and removed afterwards if it is
    /// empty.
    fn with<T>(&self, app: &Arc<App>, id: &Arc<str>, act: impl FnOnce(&mut User) -> T) -> T {
        let hash = self.hash(&app.id, id);
        let mut shard = self.shard(hash);
        let mut found = match shard.entry(hash, |user| user.is(&app.id, id), |user| user.hash) {
            Entry::Occupied(found) => found,
            Entry::Vacant(vacant) => vacant.insert(Box::new(User {
                hash,
                app: Arc::clone(app),
                id: Arc::clone(id),
                seats: HashSet::new(),
                nodes: Vec::new(),
                watchers: HashSet::new(),
            })),
        };
        let result = act(found.get_mut());
        if found.get().is_unneeded() {
            remove(found);
        }
        result
    }
}

impl User {
    fn is(&self, app: &str, id: &str) -> bool {
        *self.id == *id && *self.app.id == *app
    }

    fn is_online(&self) -> bool {
        !self.seats.is_empty() || !self.nodes.is_empty()
    }

    fn is_unneeded(&self) -> bool {
        !self.is_online() && self.watchers.is_empty()
    }

    /// Changes a user's sockets, and publishes the result to watchers and other nodes.
    fn changing<T>(&mut self, reach: &Reach<'_>, change: impl FnOnce(&mut Self) -> T) {
        let (was_here, was_online) = (!self.seats.is_empty(), self.is_online());
        change(self);
        let (is_here, is_online) = (!self.seats.is_empty(), self.is_online());
        if let Some(nodes) = reach.nodes.filter(|_| was_here != is_here) {
            let user_id = &self.id;
            let update = if is_here {
                ClusterUpdate::Online { user_id }
            } else {
                ClusterUpdate::Offline { user_id }
            };
            nodes.publish(reach.app, &update);
        }
        if was_online != is_online {
            self.notify_watchers(if is_online { "online" } else { "offline" }, reach);
        }
    }

    /// Sends one delivery to each event loop with watchers.
    fn notify_watchers(&self, name: &str, reach: &Reach<'_>) {
        if self.watchers.is_empty() {
            return;
        }
        let message = message::watchlist_event(name, std::iter::once(&*self.id));
        let mut seats: Vec<Seat> = self.watchers.iter().copied().collect();
        seats.sort_unstable();
        for of_one in seats.chunk_by(|one, other| one.event_loop == other.event_loop) {
            let Some(first) = of_one.first() else { continue };
            let delivery = Delivery::Seats { seats: of_one.to_vec(), message: message.clone() };
            reach.outlets.put(first.event_loop, delivery, reach.counters);
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a record, and shrinks a table that is mostly empty.
fn remove(found: OccupiedEntry<'_, Box<User>>) {
    let (_, vacant) = found.remove();
    let table = vacant.into_table();
    if table.capacity() > 32 && table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, |user| user.hash);
    }
}
