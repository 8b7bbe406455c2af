//! The record of one channel. All methods run while its shard is locked.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use super::elsewhere::Elsewhere;
use super::{
    Author, ChannelReport, Joined, Outlets, Publication, PublishRefused, Resume, SubscribeRefused,
    Subscription,
};
use crate::app::{App, History};
use crate::cache::Last;
use crate::delivery::{ChannelId, Delivery, Offset};
use crate::encoded::Encoded;
use crate::history::{Kept, Position};
use crate::message::{self, Event};
use crate::moment::Moment;
use crate::name::{Access, ChannelName};
use crate::observer::{Happening, Observer};
use crate::peers::{News, NodeId, Origin, Peers};
use crate::presence::{Change, Member, Members, TooMany};
use crate::rate::Bucket;
use crate::socket_id::SocketId;
use crate::statistics::Counters;

/// Up to this many subscribers each change of their number is published at once; beyond it at most every
/// [`COUNT_PAUSE`], as Pusher does.
const COUNT_AT_ONCE: usize = 100;
const COUNT_PAUSE: Duration = Duration::from_secs(5);
/// After this many numbers without a pause of two [`COUNT_BREATH`] in between, each waits for one. Any client may
/// subscribe and unsubscribe repeatedly.
const COUNT_OFTEN: u8 = 100;
const COUNT_BREATH: Duration = Duration::from_secs(1);

/// How long the rate limit of a channel without subscribers is remembered. It is full again by then.
const RATE_PAUSE: Duration = Duration::from_secs(1);

/// The surroundings of a channel: its application, the outlets, the other nodes and the time.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) outlets: &'a Outlets,
    pub(super) observer: &'a dyn Observer,
    pub(super) peers: Option<&'a dyn Peers>,
    pub(super) counters: &'a Counters,
    pub(super) random: &'a RandomState,
    pub(super) now: Moment,
}

#[derive(Debug)]
pub(super) struct Channel {
    id: ChannelId,
    hash: u64,
    app: Arc<App>,
    name: ChannelName,
    /// Number of deliveries so far.
    sequence: u64,
    /// Event loops of this node with subscribers, and their numbers of subscribers.
    loops: Vec<(u16, u32)>,
    /// Number of subscribers on this node.
    here: u32,
    elsewhere: Option<Box<Elsewhere>>,
    members: Option<Box<Members>>,
    last: Option<Box<Last>>,
    history: Option<Box<Kept>>,
    bucket: Option<Box<Bucket>>,
    /// The number of subscribers that was last published.
    told: usize,
    told_at: Moment,
    /// How many numbers were published without a pause of two [`COUNT_BREATH`] in between.
    told_often: u8,
    /// The next check by the shard, and the later one it replaced; both are in the shard's heap.
    wake: Option<Moment>,
    then: Option<Moment>,
}

impl Channel {
    pub(super) fn new(id: ChannelId, hash: u64, app: &Arc<App>, name: &ChannelName) -> Self {
        Self {
            id,
            hash,
            app: Arc::clone(app),
            name: name.clone(),
            sequence: 0,
            loops: Vec::new(),
            here: 0,
            elsewhere: None,
            members: None,
            last: None,
            history: None,
            bucket: None,
            told: 0,
            told_at: Moment::default(),
            told_often: 0,
            wake: None,
            then: None,
        }
    }

    /// Returns whether an event on this channel is stored even without subscribers.
    pub(super) fn keeps(app: &App, name: &ChannelName) -> bool {
        name.is_cache() || app.limits.channel_events.is_some() || history_of(app, name).is_some()
    }

    pub(super) fn id(&self) -> ChannelId {
        self.id
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn app(&self) -> &Arc<App> {
        &self.app
    }

    pub(super) fn name(&self) -> &ChannelName {
        &self.name
    }

    pub(super) fn is(&self, app: &str, name: &str) -> bool {
        self.name.as_str() == name && *self.app.id == *app
    }

    /// Replaces the application, whose limits may have changed since the channel was created.
    pub(super) fn belongs_to(&mut self, app: &Arc<App>) {
        if !Arc::ptr_eq(&self.app, app) {
            self.app = Arc::clone(app);
        }
    }

    pub(super) fn join(
        &mut self,
        around: &Around<'_>,
        subscription: &Subscription<'_>,
    ) -> Result<Joined, SubscribeRefused> {
        let change = subscription.member.map(|member| self.seat(around, member)).transpose()?;
        self.here += 1;
        if let (Some(member), Some(change)) = (subscription.member, change) {
            self.here_changed(around);
            self.member_joined(around, member, change);
        }
        // From here on deliveries include the new subscriber: it receives the number of subscribers, but not its own
        // `member_added`.
        self.count_in(subscription.event_loop);
        let after = Offset(self.sequence);
        if change.is_none() {
            self.here_changed(around);
        }
        let roster = self.members.as_mut().map(|members| members.roster());
        let (position, missed) = self.resume(around, subscription.resume);
        let cached = if missed.is_some() { None } else { self.cached(around) };
        Ok(Joined {
            channel: self.id,
            name: self.name.clone(),
            after,
            roster,
            position,
            missed,
            cached,
        })
    }

    pub(super) fn leave(&mut self, around: &Around<'_>, event_loop: u16, member: Option<&Member>) {
        let Some(index) = self.loops.iter().position(|(number, _)| *number == event_loop) else {
            debug_assert!(false, "an event loop leaves a channel it is not in");
            return;
        };
        self.loops[index].1 -= 1;
        if self.loops[index].1 == 0 {
            self.loops.swap_remove(index);
        }
        self.here -= 1;
        if let Some(member) = member {
            self.member_leaves(around, member);
        }
        self.here_changed(around);
    }

    /// Returns whether the rate limit allows `events` more events now.
    pub(super) fn admits(&self, around: &Around<'_>, events: usize) -> bool {
        let Some(limit) = around.app.limits.channel_events else { return true };
        match &self.bucket {
            Some(bucket) => bucket.has(events, limit, around.now),
            None => Bucket::full(limit, around.now).has(events, limit, around.now),
        }
    }

    /// Publishes an event. If it was `admitted` before, the rate limit does not reject it.
    pub(super) fn publish(
        &mut self,
        around: &Around<'_>,
        publication: &Publication<'_>,
        admitted: bool,
    ) -> Result<(), PublishRefused> {
        if let Err(refused) = self.check_rate(around)
            && !admitted
        {
            around.counters.rate_limited.increase();
            return Err(refused);
        }
        around.counters.published.increase();
        if let Author::Client { socket, user_id } = publication.author {
            around.counters.client_events.increase();
            let happening = Happening::ClientEvent {
                channel: self.name.shared(),
                event: publication.event,
                data: publication.data,
                socket,
                user_id,
            };
            around.observer.happened(around.app, &happening);
        }
        self.say(around, publication);
        if let Some(peers) = around.peers {
            peers.tell(around.app, &News::Published(publication));
        }
        Ok(())
    }

    /// Applies an update of another node about this channel.
    pub(super) fn hear(&mut self, around: &Around<'_>, from: Origin, news: &News<'_>) {
        match *news {
            News::Published(publication) => self.say(around, publication),
            News::Last { message, age, .. } => {
                let at = Moment::from_millis(
                    around
                        .now
                        .millis()
                        .saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
                );
                if self.last.as_ref().is_none_or(|last| last.at < at) {
                    self.last = Some(Box::new(Last { message: Encoded::new(message), at }));
                }
            }
            News::Subscribers { count, .. } => {
                let elsewhere = self.elsewhere.get_or_insert_default();
                elsewhere.set(from, count);
                if elsewhere.is_empty() {
                    self.elsewhere = None;
                }
                self.count_changed(around);
            }
            News::Member { member, .. } => {
                if self.members.get_or_insert_default().arrive(member, from) {
                    self.member_added(around, member);
                }
            }
            News::NoMember { user_id, .. } => self.member_departs(around, user_id, from.node),
            News::Online { .. } | News::Offline { .. } | News::Terminated { .. } => {}
        }
    }

    /// Returns whether another node published state only in rounds other than `round`.
    pub(super) fn has_old(&self, node: NodeId, round: Option<u32>) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.has_old(node, round))
            || self
                .members
                .as_ref()
                .is_some_and(|members| !members.left_behind(node, round).is_empty())
    }

    /// Removes state that another node published only in rounds other than `round`.
    pub(super) fn forget_node(&mut self, around: &Around<'_>, node: NodeId, round: Option<u32>) {
        let old = self.members.as_ref().map(|members| members.left_behind(node, round));
        for user_id in old.into_iter().flatten() {
            self.member_departs(around, &user_id, node);
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.forget(node, round);
            if elsewhere.is_empty() {
                self.elsewhere = None;
            }
        }
        self.count_changed(around);
    }

    /// Publishes this node's state of the channel to other nodes.
    pub(super) fn tell_all(&self, around: &Around<'_>) {
        let Some(peers) = around.peers else { return };
        let channel = &self.name;
        if self.here > 0 {
            peers.tell(around.app, &News::Subscribers { channel, count: self.here });
        }
        for member in self.members.iter().flat_map(|members| members.here()) {
            peers.tell(around.app, &News::Member { channel, member });
        }
        if let Some(last) = self.fresh(around.now) {
            let text = last.message.text();
            if let Ok(message) = str::from_utf8(&text) {
                let age = around.now.since(last.at);
                peers.tell(around.app, &News::Last { channel, message, age });
            }
        }
    }

    /// Returns the state without the cached event, which is [`Channel::last`].
    pub(super) fn report(&self) -> ChannelReport {
        ChannelReport {
            name: self.name.clone(),
            subscription_count: self.subscribers(),
            user_count: (self.name.access() == Access::Presence)
                .then(|| self.members.as_ref().map_or(0, |members| members.len())),
            cache: None,
        }
    }

    /// Returns the last event of a cache channel, and how long it is kept in total.
    pub(super) fn last(&self, now: Moment) -> Option<(Last, Duration)> {
        self.fresh(now).map(|last| (last.clone(), self.app.limits.cache))
    }

    pub(super) fn members(&self) -> Vec<Arc<str>> {
        self.members.as_ref().map(|members| members.ids().cloned().collect()).unwrap_or_default()
    }

    /// Performs the work due at `at`. The time may have been superseded since.
    pub(super) fn wake(&mut self, around: &Around<'_>, at: Moment) {
        if self.wake != Some(at) {
            return;
        }
        self.wake = self.then.take();
        self.count_changed(around);
        self.forget_old(around.now);
    }

    /// Returns whether the record holds no state and can be removed.
    pub(super) fn is_needless(&mut self, now: Moment) -> bool {
        if self.here > 0 || self.elsewhere.is_some() || self.members.is_some() {
            return false;
        }
        self.forget_old(now);
        self.last.is_none() && self.history.is_none() && self.bucket.is_none()
    }

    /// Returns when the shard must check the record next, if the shard does not know it yet.
    pub(super) fn next_wake(&mut self, now: Moment) -> Option<Moment> {
        let cache = self.last.as_ref().map(|last| last.at + self.app.limits.cache);
        let history = self.history.as_ref().and_then(|kept| kept.next_end());
        let bucket = (self.bucket.is_some() && self.here == 0).then(|| now + RATE_PAUSE);
        let count = self.subscribers();
        let count = (self.told != count).then(|| self.told_at + self.count_pause(count));
        // Never immediately: everything due is done before this call.
        let soon = now + Duration::from_millis(1);
        let next = [cache, history, bucket, count].into_iter().flatten().min()?.max(soon);
        if self.wake.is_some_and(|wake| wake <= next) {
            return None;
        }
        self.then = self.wake.replace(next);
        Some(next)
    }

    /// Returns the number of subscribers on all nodes.
    fn subscribers(&self) -> usize {
        self.here as usize + self.elsewhere.as_ref().map_or(0, |elsewhere| elsewhere.total())
    }

    fn fresh(&self, now: Moment) -> Option<&Last> {
        self.last.as_deref().filter(|last| last.is_fresh(self.app.limits.cache, now))
    }

    fn forget_old(&mut self, now: Moment) {
        if self.fresh(now).is_none() {
            self.last = None;
        }
        if let Some(bucket) = &self.bucket
            && self.app.limits.channel_events.is_none_or(|limit| bucket.is_full(limit, now))
        {
            self.bucket = None;
        }
        if let Some(kept) = &mut self.history {
            kept.expire(now);
            // While the channel has subscribers, its history keeps its epoch.
            if kept.is_empty() && self.here == 0 {
                self.history = None;
            }
        }
    }

    /// Encodes an event once, stores it if required, and adds it to the inboxes.
    fn say(&mut self, around: &Around<'_>, publication: &Publication<'_>) {
        let (except, user_id, is_clients) = match publication.author {
            Author::Server { except } => (except, None, false),
            Author::Client { socket, user_id } => (Some(socket), user_id, true),
        };
        // Client events are transient: they are neither cached, as with Pusher, nor added to the history.
        let history = history_of(around.app, &self.name).filter(|_| !is_clients);
        let offset = history.map(|_| self.begin_history(around).position().offset + 1);
        let event = Event {
            name: publication.event,
            channel: self.name.as_str(),
            data: publication.data,
            user_id: user_id.map(|id| &**id),
            offset,
        };
        let message = event.encode();
        if let (Some(history), Some(kept)) = (history, &mut self.history) {
            kept.expire(around.now);
            kept.add(message.clone(), except, history, around.now);
        }
        if self.name.is_cache() && !is_clients {
            self.last = Some(Box::new(Last { message: message.clone(), at: around.now }));
        }
        self.deliver(around, &message, except);
    }

    fn deliver(&mut self, around: &Around<'_>, message: &Encoded, except: Option<SocketId>) {
        self.sequence += 1;
        for (event_loop, _) in &self.loops {
            let delivery = Delivery::Channel {
                channel: self.id,
                offset: Offset(self.sequence),
                message: message.clone(),
                except,
            };
            around.outlets.put(*event_loop, delivery, around.counters);
        }
    }

    /// Reports an event to the observer, if this node is responsible. Events of user channels are not reported.
    fn report_to(&self, around: &Around<'_>, happening: &Happening<'_>) {
        if self.name.access() == Access::User {
            return;
        }
        let ours = around.peers.is_none_or(|peers| peers.reports(around.app, self.name.as_str()));
        if ours {
            around.observer.happened(around.app, happening);
        }
    }

    fn here_changed(&mut self, around: &Around<'_>) {
        if let Some(peers) = around.peers {
            let news = News::Subscribers { channel: &self.name, count: self.here };
            peers.tell(around.app, &news);
        }
        self.count_changed(around);
    }

    /// Publishes the number of subscribers if it changed and its pause is over.
    fn count_changed(&mut self, around: &Around<'_>) {
        let now = self.subscribers();
        let channel = self.name.shared();
        let occupied = now > 0;
        let turned = occupied != (self.told > 0);
        if turned {
            let happening = if occupied {
                Happening::Occupied { channel }
            } else {
                Happening::Vacated { channel }
            };
            self.report_to(around, &happening);
        }
        if matches!(self.name.access(), Access::Presence | Access::User) {
            self.told = now;
            return;
        }
        let waits = around.now < self.told_at + self.count_pause(now);
        if self.told == now || (waits && !turned) {
            return;
        }
        self.told = now;
        // A delayed number is published one breath after the previous one, so the gap does not count as a pause.
        let thick = around.now < self.told_at + 2 * COUNT_BREATH;
        self.told_often = if thick { self.told_often.saturating_add(1) } else { 1 };
        self.told_at = around.now;
        self.report_to(around, &Happening::SubscriptionCount { channel, count: now });
        if around.app.rights.subscription_count {
            let message = message::subscription_count(channel, now);
            self.deliver(around, &message, None);
        }
    }

    /// Returns the minimum time between two published numbers.
    fn count_pause(&self, subscribers: usize) -> Duration {
        if subscribers > COUNT_AT_ONCE {
            COUNT_PAUSE
        } else if self.told_often >= COUNT_OFTEN {
            COUNT_BREATH
        } else {
            Duration::ZERO
        }
    }

    fn count_in(&mut self, event_loop: u16) {
        if let Some((_, count)) = self.loops.iter_mut().find(|(number, _)| *number == event_loop) {
            *count += 1;
        } else {
            self.loops.reserve_exact(1);
            self.loops.push((event_loop, 1));
        }
    }

    /// Adds a socket of a member, if the limit allows it.
    fn seat(
        &mut self,
        around: &Around<'_>,
        member: &Arc<Member>,
    ) -> Result<Change, SubscribeRefused> {
        let limit = around.app.limits.members;
        let joined = self.members.get_or_insert_default().join(member, limit);
        joined.map_err(|TooMany| {
            self.members = self.members.take().filter(|members| !members.is_empty());
            SubscribeRefused::TooManyMembers { limit }
        })
    }

    fn member_joined(&mut self, around: &Around<'_>, member: &Arc<Member>, change: Change) {
        if let Some(peers) = around.peers.filter(|_| change.here) {
            peers.tell(around.app, &News::Member { channel: &self.name, member });
        }
        if change.anywhere {
            self.member_added(around, member);
        }
    }

    fn member_leaves(&mut self, around: &Around<'_>, member: &Member) {
        let Some(members) = &mut self.members else { return };
        let change = members.leave(member.id());
        if let Some(peers) = around.peers.filter(|_| change.here) {
            let news = News::NoMember { channel: &self.name, user_id: member.id() };
            peers.tell(around.app, &news);
        }
        if change.anywhere {
            self.member_removed(around, member.id());
        }
    }

    fn member_departs(&mut self, around: &Around<'_>, user_id: &str, node: NodeId) {
        let Some(members) = &mut self.members else { return };
        if members.depart(user_id, node) {
            self.member_removed(around, &user_id.into());
        }
    }

    fn member_added(&mut self, around: &Around<'_>, member: &Member) {
        let channel = self.name.shared();
        self.report_to(around, &Happening::MemberAdded { channel, user_id: member.id() });
        let message = message::member_added(channel, member);
        self.deliver(around, &message, None);
    }

    fn member_removed(&mut self, around: &Around<'_>, user_id: &Arc<str>) {
        self.members = self.members.take().filter(|members| !members.is_empty());
        let channel = self.name.shared();
        self.report_to(around, &Happening::MemberRemoved { channel, user_id });
        let message = message::member_removed(channel, user_id);
        self.deliver(around, &message, None);
    }

    fn check_rate(&mut self, around: &Around<'_>) -> Result<(), PublishRefused> {
        let Some(limit) = around.app.limits.channel_events else { return Ok(()) };
        let bucket = self.bucket.get_or_insert_with(|| Box::new(Bucket::full(limit, around.now)));
        if bucket.take(limit, around.now) {
            return Ok(());
        }
        Err(PublishRefused::TooOften { limit })
    }

    fn begin_history(&mut self, around: &Around<'_>) -> &mut Kept {
        let id = self.id;
        self.history
            .get_or_insert_with(|| Box::new(Kept::new(around.random.hash_one(("epoch", id)))))
    }

    /// Returns the position of a new subscriber in the history, and the events it missed.
    fn resume(
        &mut self,
        around: &Around<'_>,
        resume: Option<Resume>,
    ) -> (Option<Position>, Option<Vec<Encoded>>) {
        if history_of(around.app, &self.name).is_none() {
            return (None, None);
        }
        let kept = self.begin_history(around);
        kept.expire(around.now);
        let missed = resume.and_then(|resume| kept.since(resume.position, resume.socket));
        (Some(kept.position()), missed)
    }

    /// Returns the last event for a new subscriber of a cache channel.
    fn cached(&self, around: &Around<'_>) -> Option<Encoded> {
        let last = self.fresh(around.now);
        if last.is_none() && self.name.is_cache() {
            let channel = self.name.shared();
            around.observer.happened(around.app, &Happening::CacheMiss { channel });
        }
        last.map(|last| last.message.clone())
    }
}

/// Returns the application's history settings for a channel.
fn history_of<'a>(app: &'a App, name: &ChannelName) -> Option<&'a History> {
    let history = app.history.as_ref()?;
    let wanted = history.channels.is_empty()
        || history.channels.iter().any(|prefix| name.as_str().starts_with(&**prefix));
    (wanted && name.access() != Access::User).then_some(history)
}
