//! Channels by application and name: their subscribers, members and last events.
//!
//! Invariants
//! - Deliveries of one channel have the same order in every event loop's inbox, and a subscriber receives exactly
//!   those published after its subscription.
//! - A lock is held for a few lines: over one channel's record and over filling inboxes, never over a socket or a
//!   clock, nor while another channel is locked.
//! - No operation costs more when a channel has more subscribers, except sending the list of members to a new one.
//! - A channel without subscribers and kept events is removed, and its memory is freed; with a history up to its age later.
//! - Clients choose names, so shards and tables are indexed by a hash with a random key.

mod channel;
mod logged;
mod members;
mod outlets;
pub(crate) mod places;
mod remote_counts;
mod types;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry};

use crate::app::App;
use crate::delivery::ChannelId;
use crate::moment::Moment;
use crate::name::{Access, ChannelName};
use crate::nodes::{ClusterUpdate, NodeId, Nodes, Origin};
use crate::observer::Observer;
use crate::presence::Member;
use crate::shared_log::{SharedLog, Ticket};
use crate::statistics::{Counters, Statistics};
use channel::{Channel, Context};
pub use outlets::EVENT_LOOPS;
pub(crate) use outlets::Outlets;
use places::Places;
pub use types::{
    Author, ChannelReport, Joined, Publication, PublishRefused, Resume, SubscribeRefused,
    Subscription,
};

/// Number of separately locked parts of the registry.
const SHARDS: usize = 64;

/// All channels of all applications on this node.
pub struct Registry {
    shards: Box<[Mutex<Shard>]>,
    random: RandomState,
    next_id: AtomicU64,
    outlets: Outlets,
    observer: Arc<dyn Observer>,
    nodes: OnceLock<Arc<dyn Nodes>>,
    shared: SharedLog,
    places: Places,
    statistics: Arc<Statistics>,
}

#[derive(Debug, Default)]
struct Shard {
    channels: HashTable<Box<Channel>>,
    due: Due,
}

/// Records to check, by time and location. Entries whose record no longer exists are skipped.
type Due = BinaryHeap<Reverse<(Moment, u64, ChannelId)>>;

impl Shard {
    /// Removes and returns the next due entry.
    fn next_due(&mut self, now: Moment) -> Option<(Moment, u64, ChannelId)> {
        let Reverse(next) = *self.due.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.due.pop();
        Some(next)
    }
}

/// Shrinks a table that is mostly empty.
fn shrink(table: &mut HashTable<Box<Channel>>) {
    if table.capacity() > 32 && table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, |channel| channel.hash());
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("channels", &self.len()).finish_non_exhaustive()
    }
}

impl Registry {
    /// Creates an empty registry.
    pub(crate) fn new(observer: Arc<dyn Observer>, statistics: Arc<Statistics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            random: RandomState::new(),
            next_id: AtomicU64::new(1),
            outlets: Outlets::new(),
            observer,
            nodes: OnceLock::new(),
            shared: SharedLog::new(),
            places: Places::default(),
            statistics,
        }
    }

    /// Sets the connection to other nodes. Only the first call has an effect.
    pub(crate) fn connect(&self, nodes: Arc<dyn Nodes>) {
        let _connected_before = self.nodes.set(nodes);
    }

    pub(crate) fn nodes(&self) -> Option<&dyn Nodes> {
        self.nodes.get().map(|nodes| &**nodes)
    }

    pub(crate) fn outlets(&self) -> &Outlets {
        &self.outlets
    }

    /// Adds a subscriber to a channel. The event loop must add the socket to its audience before it reads its inbox
    /// again.
    pub fn subscribe(
        &self,
        app: &Arc<App>,
        subscription: &Subscription<'_>,
        now: Moment,
    ) -> Result<Joined, SubscribeRefused> {
        let counters = self.statistics.of(&app.id);
        self.with(app, subscription.channel, now, |channel| {
            channel.set_app(app);
            channel.join(&self.context(app, &counters, now), subscription)
        })
    }

    /// Removes a subscriber; `member` is the one it subscribed with.
    pub fn unsubscribe(
        &self,
        app: &Arc<App>,
        channel: &ChannelName,
        event_loop: u16,
        member: Option<&Member>,
        now: Moment,
    ) {
        let counters = self.statistics.of(&app.id);
        self.with_known(app, channel.as_str(), now, |channel| {
            channel.leave(&self.context(app, &counters, now), event_loop, member);
        });
    }

    /// Publishes an event to all subscribers of a channel. With a shared log it returns a ticket: subscribers get the
    /// event once it is stored.
    pub fn publish(
        &self,
        app: &Arc<App>,
        publication: &Publication<'_>,
        now: Moment,
    ) -> Result<Option<Ticket>, PublishRefused> {
        let counters = self.statistics.of(&app.id);
        self.emit(&self.context(app, &counters, now), publication, false)
    }

    /// Publishes all events in order, or none if a channel would exceed its rate limit; the error names the event. A
    /// rejected caller may retry, and no event is delivered twice. The ticket is that of the last event which goes
    /// through the shared log.
    pub fn publish_all<'a>(
        &self,
        app: &Arc<App>,
        publications: &[Publication<'a>],
        now: Moment,
    ) -> Result<Option<Ticket>, (&'a ChannelName, PublishRefused)> {
        let counters = self.statistics.of(&app.id);
        let context = self.context(app, &counters, now);
        if let Some(log) = context.nodes.and_then(Nodes::log) {
            for logged in publications.iter().filter(|one| channel::is_logged(app, one)) {
                if !log.fits(app, logged) {
                    return Err((logged.channel, PublishRefused::TooLarge));
                }
                if !log.is_open(now) {
                    return Err((logged.channel, PublishRefused::NotStored));
                }
            }
        }
        if let Some(limit) = app.limits.channel_events {
            for (index, Publication { channel, .. }) in publications.iter().enumerate() {
                let before = publications[..index].iter().filter(|one| one.channel == *channel);
                let events = before.count() + 1;
                let known = self.with_known(app, channel.as_str(), now, |channel| {
                    channel.admits(&context, events)
                });
                if !known.unwrap_or(events <= limit as usize) {
                    counters.rate_limited.increase();
                    return Err((channel, PublishRefused::TooOften { limit }));
                }
            }
        }
        let mut last = None;
        for publication in publications {
            let stored = self.emit(&context, publication, true);
            last = stored.map_err(|why| (publication.channel, why))?.or(last);
        }
        Ok(last)
    }

    fn emit(
        &self,
        context: &Context<'_>,
        publication: &Publication<'_>,
        admitted: bool,
    ) -> Result<Option<Ticket>, PublishRefused> {
        let (app, now) = (context.app, context.now);
        let publish = |channel: &mut Channel| {
            channel.set_app(app);
            channel.publish(context, publication, admitted)
        };
        if Channel::keeps(app, publication.channel) || context.nodes.is_some() {
            self.with(app, publication.channel, now, publish)
        } else {
            // A channel without subscribers and kept events needs no record. Other nodes may have subscribers, so
            // they always get the event.
            let said = self.with_known(app, publication.channel.as_str(), now, publish);
            said.unwrap_or_else(|| {
                context.counters.published.increase();
                Ok(None)
            })
        }
    }

    /// Returns the state of a channel; `None` if it has no subscribers and no kept events.
    pub fn channel(&self, app: &App, name: &str, now: Moment) -> Option<ChannelReport> {
        let (mut report, last) =
            self.with_known(app, name, now, |channel| (channel.report(), channel.last(now)))?;
        report.cache = last.and_then(|(last, ttl)| last.report(ttl, now));
        Some(report)
    }

    /// Returns the state of all channels with subscribers whose names start with `prefix`. User channels are included
    /// only if the prefix is theirs.
    pub fn channels(&self, app: &App, prefix: &str) -> Vec<ChannelReport> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let ours = shard.channels.iter().filter(|channel| {
                channel.app().id == app.id
                    && channel.name().as_str().starts_with(prefix)
                    && (channel.name().access() != Access::User || prefix.starts_with('#'))
            });
            found.extend(ours.map(|channel| channel.report()).filter(ChannelReport::is_occupied));
        }
        found
    }

    /// Returns the user ids of a presence channel's members.
    pub fn members(&self, app: &App, name: &str, now: Moment) -> Vec<Arc<str>> {
        self.with_known(app, name, now, |channel| channel.members()).unwrap_or_default()
    }

    /// Applies an update of another node.
    pub(crate) fn apply_remote(
        &self,
        from: Origin,
        app: &Arc<App>,
        name: &ChannelName,
        update: &ClusterUpdate<'_>,
        now: Moment,
    ) {
        let counters = self.statistics.of(&app.id);
        let context = self.context(app, &counters, now);
        let apply_remote = |channel: &mut Channel| {
            channel.set_app(app);
            channel.apply_remote(&context, from, update);
        };
        let makes_a_record = match update {
            ClusterUpdate::Published(_) => Channel::keeps(app, name),
            ClusterUpdate::Last { .. } | ClusterUpdate::Member { .. } => true,
            ClusterUpdate::Subscribers { count, .. } => *count > 0,
            _ => false,
        };
        if makes_a_record {
            self.with(app, name, now, apply_remote);
        } else {
            self.with_known(app, name.as_str(), now, apply_remote);
        }
    }

    /// Removes state that another node published only in rounds other than `round`.
    pub(crate) fn forget_node(&self, node: NodeId, round: Option<u32>, now: Moment) {
        self.each(
            now,
            |channel| channel.has_outdated(node, round),
            |channel, context| {
                channel.forget_node(context, node, round);
            },
        );
    }

    /// Publishes the whole state of this node's channels to other nodes.
    pub(crate) fn publish_state(&self, now: Moment) {
        self.each(now, |_| true, |channel, context| channel.publish_state(context));
    }

    /// Removes expired state. One of the hub's loops calls it about once a second.
    pub fn tick(&self, now: Moment) {
        for shard in &self.shards {
            let shard = &mut *lock(shard);
            while let Some((at, hash, id)) = shard.next_due(now) {
                self.with_id(shard, hash, id, now, |channel, context| channel.wake(context, at));
            }
            if shard.due.len() * 8 < shard.due.capacity() {
                let room = shard.due.len() * 2;
                shard.due.shrink_to(room);
            }
        }
    }

    /// Returns the number of channel records.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).channels.len()).sum()
    }

    /// Returns whether there are no channels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity of the tables and heaps.
    #[cfg(test)]
    fn room(&self) -> usize {
        let room = |shard: &Shard| shard.channels.capacity() + shard.due.capacity();
        self.shards.iter().map(|shard| room(&lock(shard))).sum()
    }

    fn context<'a>(
        &'a self,
        app: &'a Arc<App>,
        counters: &'a Counters,
        now: Moment,
    ) -> Context<'a> {
        Context {
            app,
            outlets: &self.outlets,
            observer: &*self.observer,
            nodes: self.nodes(),
            shared: &self.shared,
            places: &self.places,
            counters,
            random: &self.random,
            now,
        }
    }

    fn hash(&self, app: &str, name: &str) -> u64 {
        self.random.hash_one((app, name))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table uses the lowest and the highest bits of the hash, so the shard uses others.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Calls a function with a channel's record, which is created if it does not exist.
    fn with<T>(
        &self,
        app: &Arc<App>,
        name: &ChannelName,
        now: Moment,
        act: impl FnOnce(&mut Channel) -> T,
    ) -> T {
        let hash = self.hash(&app.id, name.as_str());
        let mut shard = self.shard(hash);
        let shard = &mut *shard;
        let entry = shard.channels.entry(
            hash,
            |channel| channel.is(&app.id, name.as_str()),
            |channel| channel.hash(),
        );
        let found = match entry {
            Entry::Occupied(found) => found,
            Entry::Vacant(vacant) => {
                let id = ChannelId(self.next_id.fetch_add(1, Ordering::Relaxed));
                self.statistics.of(&app.id).records.increase();
                vacant.insert(Box::new(Channel::new(id, hash, app, name)))
            }
        };
        self.visit(&mut shard.due, found, now, act)
    }

    /// Calls a function with a channel's record if it exists.
    fn with_known<T>(
        &self,
        app: &App,
        name: &str,
        now: Moment,
        act: impl FnOnce(&mut Channel) -> T,
    ) -> Option<T> {
        let hash = self.hash(&app.id, name);
        let mut shard = self.shard(hash);
        let shard = &mut *shard;
        let found = shard.channels.find_entry(hash, |channel| channel.is(&app.id, name)).ok()?;
        Some(self.visit(&mut shard.due, found, now, act))
    }

    /// Calls a function with all records that match `wanted`, each under its own lock.
    fn each(
        &self,
        now: Moment,
        wanted: impl Fn(&Channel) -> bool,
        act: impl Fn(&mut Channel, &Context<'_>),
    ) {
        for shard in &self.shards {
            let found: Vec<_> = {
                let shard = lock(shard);
                let wanted = shard.channels.iter().filter(|channel| wanted(channel));
                wanted.map(|channel| (channel.hash(), channel.id())).collect()
            };
            for (hash, id) in found {
                self.with_id(&mut lock(shard), hash, id, now, &act);
            }
        }
    }

    /// Calls a function with the record of this id if it still exists.
    fn with_id(
        &self,
        shard: &mut Shard,
        hash: u64,
        id: ChannelId,
        now: Moment,
        act: impl FnOnce(&mut Channel, &Context<'_>),
    ) {
        let Ok(found) = shard.channels.find_entry(hash, |channel| channel.id() == id) else {
            return;
        };
        self.visit(&mut shard.due, found, now, |channel| {
            let app = Arc::clone(channel.app());
            let counters = self.statistics.of(&app.id);
            act(channel, &self.context(&app, &counters, now));
        });
    }

    /// Calls a function with a record, then removes an unneeded record and schedules the next check.
    fn visit<T>(
        &self,
        due: &mut Due,
        mut found: OccupiedEntry<'_, Box<Channel>>,
        now: Moment,
        act: impl FnOnce(&mut Channel) -> T,
    ) -> T {
        let channel = found.get_mut();
        let result = act(channel);
        if channel.is_unneeded(now, &self.shared) {
            let (removed, vacant) = found.remove();
            self.statistics.of(&removed.app().id).records.decrease();
            shrink(vacant.into_table());
        } else if let Some(at) = channel.next_wake(now) {
            due.push(Reverse((at, channel.hash(), channel.id())));
        }
        result
    }
}

#[cfg(test)]
mod tests;
