//! Channels by application and name: who hears them, how many there are, what was said last.
//!
//! Invariants
//! - Deliveries of one channel stand in every event loop's inbox in one order, and who subscribes hears exactly those published after it.
//! - A lock is held for lines: over one channel's record and over putting deliveries into inboxes, never over a socket or a clock, nor while another channel is locked.
//! - Nothing costs more when a channel has more subscribers, but for telling a new member of the others.
//! - A channel that nobody hears and that keeps nothing is gone, and its memory with it.
//! - Names are attackers' choice: shards and tables are found by a hash with a random key.

mod channel;
mod elsewhere;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry};

use crate::app::App;
use crate::cache::CacheReport;
use crate::delivery::{AppNumber, ChannelId, Delivery, Offset, Outlet};
use crate::encoded::Encoded;
use crate::history::Position;
use crate::moment::Moment;
use crate::name::{Access, ChannelName};
use crate::observer::Observer;
use crate::peers::{News, NodeId, Origin, Peers};
use crate::presence::Member;
use crate::socket_id::SocketId;
use crate::statistics::{Counters, Statistics};
use channel::{Around, Channel};

/// Parts of the registry that are locked apart from each other.
const SHARDS: usize = 64;

/// Event loops there may be.
pub const EVENT_LOOPS: usize = 256;

/// All channels of all applications on this node.
pub struct Registry {
    shards: Box<[Mutex<Shard>]>,
    random: RandomState,
    next_id: AtomicU64,
    outlets: Outlets,
    observer: Arc<dyn Observer>,
    peers: OnceLock<Arc<dyn Peers>>,
    statistics: Arc<Statistics>,
}

#[derive(Debug, Default)]
struct Shard {
    channels: HashTable<Box<Channel>>,
    due: Due,
}

/// Records to look at again, by when and by where they are. One that is gone meanwhile is passed over.
type Due = BinaryHeap<Reverse<(Moment, u64, ChannelId)>>;

impl Shard {
    /// Takes out the next record whose time has come.
    fn next_due(&mut self, now: Moment) -> Option<(Moment, u64, ChannelId)> {
        let Reverse(next) = *self.due.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.due.pop();
        Some(next)
    }
}

/// Gives memory back when most of it is not used.
fn shrink(table: &mut HashTable<Box<Channel>>) {
    if table.capacity() > 32 && table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, |channel| channel.hash());
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The inboxes of event loops.
#[derive(Debug)]
pub(crate) struct Outlets {
    taken: AtomicU16,
    all: Box<[OnceLock<Arc<dyn Outlet>>]>,
}

impl Outlets {
    fn new() -> Self {
        Self { taken: AtomicU16::new(0), all: (0..EVENT_LOOPS).map(|_| OnceLock::new()).collect() }
    }

    /// Gives an event loop its number. None when there are [`EVENT_LOOPS`] already.
    pub(crate) fn attach(&self, outlet: Arc<dyn Outlet>) -> Option<u16> {
        let last = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        let next = |number| (number < last).then_some(number + 1);
        let number = self.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.all.get(usize::from(number))?.set(outlet).ok().map(|()| number)
    }

    /// Puts a delivery that no inbox refuses into all of them.
    pub(crate) fn put_everywhere(&self, delivery: impl Fn() -> Delivery) {
        for outlet in self.all.iter().map_while(OnceLock::get) {
            let taken = outlet.put(AppNumber::default(), delivery());
            debug_assert!(taken.is_ok(), "what is not counted has room");
        }
    }

    /// Puts a delivery into an inbox. One that is full is the event loop's to deal with: it knows that it lost something, and ends the sockets concerned.
    pub(crate) fn put(&self, event_loop: u16, delivery: Delivery, counters: &Counters) {
        let outlet = self.all.get(usize::from(event_loop)).and_then(OnceLock::get);
        if let Some(outlet) = outlet
            && outlet.put(counters.app(), delivery).is_err()
        {
            counters.inbox_full.increase();
        }
    }
}

/// A socket that wants to hear a channel, and may.
#[derive(Clone, Copy, Debug)]
pub struct Subscription<'a> {
    /// Which channel.
    pub channel: &'a ChannelName,
    /// The event loop the socket belongs to.
    pub event_loop: u16,
    /// Who it is, on a presence channel; none on all others.
    pub member: Option<&'a Arc<Member>>,
    /// Where it was before its connection broke.
    pub resume: Option<Resume>,
}

/// Where a client was in a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Up to here it has heard everything.
    pub position: Position,
    /// The socket it had: what that one published without wanting to hear it is not new to it.
    pub socket: Option<SocketId>,
}

/// A subscription that was made.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The channel's id from now on, until nobody hears it.
    pub channel: ChannelId,
    /// Its name, shared by all its subscribers.
    pub name: ChannelName,
    /// Deliveries up to this one are not for the new subscriber.
    pub after: Offset,
    /// On a presence channel its members, the new one too: the value of `presence` in `subscription_succeeded`.
    pub roster: Option<Arc<str>>,
    /// On a channel with history: where it is.
    pub position: Option<Position>,
    /// What was missed; none when that cannot be told, or was not asked.
    pub missed: Option<Vec<Encoded>>,
    /// On a cache channel the last event, if it has one.
    pub cached: Option<Encoded>,
}

/// Why a subscription is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeRefused {
    /// The presence channel has as many members as it may.
    #[error("the channel has {limit} members, which is as many as it may have")]
    TooManyMembers {
        /// How many that are.
        limit: usize,
    },
}

/// Something to be said on a channel.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// Where.
    pub channel: &'a ChannelName,
    /// The event's name.
    pub event: &'a str,
    /// JSON, which goes to clients as it is: what the HTTP API and PHP are given is a string, so this is a string with its quotes.
    pub data: &'a str,
    /// Who says it.
    pub author: Author<'a>,
}

/// Who says something.
#[derive(Clone, Copy, Debug)]
pub enum Author<'a> {
    /// The application.
    Server {
        /// A socket that is not to hear it.
        except: Option<SocketId>,
    },
    /// A client, which does not hear itself.
    Client {
        /// Which.
        socket: SocketId,
        /// Which member, on a presence channel.
        user_id: Option<&'a Arc<str>>,
    },
}

/// Why something is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishRefused {
    /// More events a second than the channel may have.
    #[error("the channel has more than {limit} events per second, which is as many as it may have")]
    TooOften {
        /// How many that are.
        limit: u32,
    },
}

/// What is known of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// Its name.
    pub name: ChannelName,
    /// Sockets that hear it.
    pub subscription_count: usize,
    /// Members, if it is a presence channel.
    pub user_count: Option<usize>,
    /// The last event, if it is a cache channel that has one; never in a list of channels.
    pub cache: Option<CacheReport>,
}

impl ChannelReport {
    /// Does anybody hear it?
    pub fn is_occupied(&self) -> bool {
        self.subscription_count > 0
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("channels", &self.len()).finish_non_exhaustive()
    }
}

impl Registry {
    /// Without channels.
    pub(crate) fn new(observer: Arc<dyn Observer>, statistics: Arc<Statistics>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            random: RandomState::new(),
            next_id: AtomicU64::new(1),
            outlets: Outlets::new(),
            observer,
            peers: OnceLock::new(),
            statistics,
        }
    }

    /// From now on there are other nodes. Only the first call counts.
    pub(crate) fn connect(&self, peers: Arc<dyn Peers>) {
        let _connected_before = self.peers.set(peers);
    }

    pub(crate) fn peers(&self) -> Option<&dyn Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    pub(crate) fn outlets(&self) -> &Outlets {
        &self.outlets
    }

    /// Counts a socket among a channel's subscribers. The event loop adds it to its own list before it looks into its inbox again.
    pub fn subscribe(
        &self,
        app: &Arc<App>,
        subscription: &Subscription<'_>,
        now: Moment,
    ) -> Result<Joined, SubscribeRefused> {
        let counters = self.statistics.of(&app.id);
        self.with(app, subscription.channel, now, |channel| {
            channel.belongs_to(app);
            channel.join(&self.around(app, &counters, now), subscription)
        })
    }

    /// A socket hears a channel no more: it said so, or is gone. `member` is who it was there.
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
            channel.leave(&self.around(app, &counters, now), event_loop, member);
        });
    }

    /// Says something to all who hear a channel now.
    pub fn publish(
        &self,
        app: &Arc<App>,
        publication: &Publication<'_>,
        now: Moment,
    ) -> Result<(), PublishRefused> {
        let counters = self.statistics.of(&app.id);
        self.say(&self.around(app, &counters, now), publication, false)
    }

    /// Says all of these in their order, or none where a channel would have too many: that one is given with the reason. Whoever is refused may say the same
    /// again, and nobody hears anything twice.
    pub fn publish_all<'a>(
        &self,
        app: &Arc<App>,
        publications: &[Publication<'a>],
        now: Moment,
    ) -> Result<(), (&'a ChannelName, PublishRefused)> {
        let counters = self.statistics.of(&app.id);
        let around = self.around(app, &counters, now);
        if let Some(limit) = app.limits.channel_events {
            for (index, Publication { channel, .. }) in publications.iter().enumerate() {
                let before = publications[..index].iter().filter(|one| one.channel == *channel);
                let events = before.count() + 1;
                let known = self.with_known(app, channel.as_str(), now, |channel| {
                    channel.admits(&around, events)
                });
                if !known.unwrap_or(events <= limit as usize) {
                    counters.rate_limited.increase();
                    return Err((channel, PublishRefused::TooOften { limit }));
                }
            }
        }
        for publication in publications {
            self.say(&around, publication, true).map_err(|why| (publication.channel, why))?;
        }
        Ok(())
    }

    fn say(
        &self,
        around: &Around<'_>,
        publication: &Publication<'_>,
        admitted: bool,
    ) -> Result<(), PublishRefused> {
        let (app, now) = (around.app, around.now);
        let publish = |channel: &mut Channel| {
            channel.belongs_to(app);
            channel.publish(around, publication, admitted)
        };
        if Channel::keeps(app, publication.channel) || around.peers.is_some() {
            self.with(app, publication.channel, now, publish)
        } else {
            // What nobody hears and nothing keeps leaves no trace. Other nodes may hear it, whatever is known of them.
            let said = self.with_known(app, publication.channel.as_str(), now, publish);
            said.unwrap_or_else(|| {
                around.counters.published.increase();
                Ok(())
            })
        }
    }

    /// What is known of one channel; none when nobody hears it and it keeps nothing.
    pub fn channel(&self, app: &App, name: &str, now: Moment) -> Option<ChannelReport> {
        let (mut report, last) =
            self.with_known(app, name, now, |channel| (channel.report(), channel.last(now)))?;
        report.cache = last.and_then(|(last, ttl)| last.report(ttl, now));
        Some(report)
    }

    /// What is known of all channels of an application that somebody hears and whose names begin so. The channels of users are only among them when the
    /// prefix asks for them.
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

    /// The ids of a presence channel's members.
    pub fn members(&self, app: &App, name: &str, now: Moment) -> Vec<Arc<str>> {
        self.with_known(app, name, now, |channel| channel.members()).unwrap_or_default()
    }

    /// Another node told of a channel.
    pub(crate) fn hear(
        &self,
        from: Origin,
        app: &Arc<App>,
        name: &ChannelName,
        news: &News<'_>,
        now: Moment,
    ) {
        let counters = self.statistics.of(&app.id);
        let around = self.around(app, &counters, now);
        let hear = |channel: &mut Channel| {
            channel.belongs_to(app);
            channel.hear(&around, from, news);
        };
        let makes_a_record = match news {
            News::Published(_) => Channel::keeps(app, name),
            News::Last { .. } | News::Member { .. } => true,
            News::Subscribers { count, .. } => *count > 0,
            _ => false,
        };
        if makes_a_record {
            self.with(app, name, now, hear);
        } else {
            self.with_known(app, name.as_str(), now, hear);
        }
    }

    /// Forgets what another node told in other rounds than `round`.
    pub(crate) fn forget_node(&self, node: NodeId, round: Option<u32>, now: Moment) {
        self.each(
            now,
            |channel| channel.has_old(node, round),
            |channel, around| {
                channel.forget_node(around, node, round);
            },
        );
    }

    /// Tells other nodes all that this one knows of channels by itself.
    pub(crate) fn tell_all(&self, now: Moment) {
        self.each(now, |_| true, |channel, around| channel.tell_all(around));
    }

    /// Forgets what is too old. The hub calls it about once a second, from one of its loops.
    pub fn tick(&self, now: Moment) {
        for shard in &self.shards {
            let shard = &mut *lock(shard);
            while let Some((at, hash, id)) = shard.next_due(now) {
                self.with_id(shard, hash, id, now, |channel, around| channel.wake(around, at));
            }
            if shard.due.len() * 8 < shard.due.capacity() {
                let room = shard.due.len() * 2;
                shard.due.shrink_to(room);
            }
        }
    }

    /// How many channels there are a record of.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).channels.len()).sum()
    }

    /// Is there no channel?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places for records and for times to look at them again, taken or not.
    #[cfg(test)]
    fn room(&self) -> usize {
        let room = |shard: &Shard| shard.channels.capacity() + shard.due.capacity();
        self.shards.iter().map(|shard| room(&lock(shard))).sum()
    }

    fn around<'a>(&'a self, app: &'a Arc<App>, counters: &'a Counters, now: Moment) -> Around<'a> {
        Around {
            app,
            outlets: &self.outlets,
            observer: &*self.observer,
            peers: self.peers(),
            counters,
            random: &self.random,
            now,
        }
    }

    fn hash(&self, app: &str, name: &str) -> u64 {
        self.random.hash_one((app, name))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table uses the lowest and the highest bits.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Does something with a channel's record, which is made if there is none.
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
                vacant.insert(Box::new(Channel::new(id, hash, app, name)))
            }
        };
        visit(&mut shard.due, found, now, act)
    }

    /// Does something with a channel's record, if there is one.
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
        Some(visit(&mut shard.due, found, now, act))
    }

    /// Does something with all records for which `wanted` holds, each with a lock of its own.
    fn each(
        &self,
        now: Moment,
        wanted: impl Fn(&Channel) -> bool,
        act: impl Fn(&mut Channel, &Around<'_>),
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

    /// Does something with the record of this id, if it still is there.
    fn with_id(
        &self,
        shard: &mut Shard,
        hash: u64,
        id: ChannelId,
        now: Moment,
        act: impl FnOnce(&mut Channel, &Around<'_>),
    ) {
        let Ok(found) = shard.channels.find_entry(hash, |channel| channel.id() == id) else {
            return;
        };
        visit(&mut shard.due, found, now, |channel| {
            let app = Arc::clone(channel.app());
            let counters = self.statistics.of(&app.id);
            act(channel, &self.around(&app, &counters, now));
        });
    }
}

/// Does something with a record, and sees to what follows: that it is gone when nothing needs it, and looked at again when it is time.
fn visit<T>(
    due: &mut Due,
    mut found: OccupiedEntry<'_, Box<Channel>>,
    now: Moment,
    act: impl FnOnce(&mut Channel) -> T,
) -> T {
    let channel = found.get_mut();
    let result = act(channel);
    if channel.is_needless(now) {
        let (_, vacant) = found.remove();
        shrink(vacant.into_table());
    } else if let Some(at) = channel.next_wake(now) {
        due.push(Reverse((at, channel.hash(), channel.id())));
    }
    result
}

#[cfg(test)]
mod tests;
