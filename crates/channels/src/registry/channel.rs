//! The record of one channel. All methods run while its shard is locked.

mod cluster;
mod count;
mod presence;
mod recovery;

use std::collections::hash_map::RandomState;
use std::sync::Arc;
use std::time::Duration;

use self::recovery::history_of;
use super::places::Places;
use super::remote_counts::RemoteCounts;
use super::{
    Author, ChannelReport, Joined, Outlets, Publication, PublishRefused, SubscribeRefused,
    Subscription,
};
use crate::app::App;
use crate::cache::Last;
use crate::delivery::{ChannelId, Delivery, Offset, starts_positions};
use crate::encoded::Encoded;
use crate::history::Kept;
use crate::message::Event;
use crate::moment::Moment;
use crate::name::{Access, ChannelName};
use crate::nodes::{ClusterUpdate, Nodes};
use crate::observer::{ChannelEvent, Observer};
use crate::presence::{Member, Members};
use crate::rate::Bucket;
use crate::shared_log::{Logged, SharedLog, Ticket};
use crate::socket_id::SocketId;
use crate::statistics::Counters;

/// How long the rate limit of a channel without subscribers is remembered. It is full again by then.
const RATE_PAUSE: Duration = Duration::from_secs(1);

/// The surroundings of a channel: its application, the outlets, the other nodes and the time.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) outlets: &'a Outlets,
    pub(super) observer: &'a dyn Observer,
    pub(super) nodes: Option<&'a dyn Nodes>,
    pub(super) shared: &'a SharedLog,
    pub(super) places: &'a Places,
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
    remote_counts: Option<Box<RemoteCounts>>,
    members: Option<Box<Members>>,
    last: Option<Box<Last>>,
    history: Option<Box<Kept>>,
    bucket: Option<Box<Bucket>>,
    /// The number of subscribers that was last published.
    sent_count: usize,
    sent_at: Moment,
    /// How many numbers were published without a pause of two [`COUNT_BREATH`] in between.
    frequent_counts: u8,
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
            remote_counts: None,
            members: None,
            last: None,
            history: None,
            bucket: None,
            sent_count: 0,
            sent_at: Moment::default(),
            frequent_counts: 0,
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
    pub(super) fn set_app(&mut self, app: &Arc<App>) {
        if !Arc::ptr_eq(&self.app, app) {
            self.app = Arc::clone(app);
        }
    }

    pub(super) fn join(
        &mut self,
        context: &Context<'_>,
        subscription: &Subscription<'_>,
    ) -> Result<Joined, SubscribeRefused> {
        let change = subscription.member.map(|member| self.seat(context, member)).transpose()?;
        self.here += 1;
        if let Some(kept) = &mut self.history {
            kept.end_wait();
        }
        if let (Some(member), Some(change)) = (subscription.member, change) {
            self.here_changed(context);
            self.member_joined(context, member, change);
        }
        // From here on deliveries include the new subscriber: it receives the number of subscribers, but not its own
        // `member_added`.
        self.count_in(subscription.event_loop);
        let after = Offset(self.sequence);
        if change.is_none() {
            self.here_changed(context);
        }
        let roster = self.members.as_mut().map(|members| members.roster());
        let (position, missed, ahead) = self.resume(context, subscription.resume);
        let cached = if missed.is_some() { None } else { self.cached(context) };
        Ok(Joined {
            channel: self.id,
            name: self.name.clone(),
            after,
            roster,
            position,
            ahead,
            missed,
            cached,
        })
    }

    pub(super) fn leave(
        &mut self,
        context: &Context<'_>,
        event_loop: u16,
        member: Option<&Member>,
    ) {
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
            self.member_leaves(context, member);
        }
        self.wait_for_subscribers(context);
        self.here_changed(context);
    }

    /// Returns whether the rate limit allows `events` more events now.
    pub(super) fn admits(&self, context: &Context<'_>, events: usize) -> bool {
        let Some(limit) = context.app.limits.channel_events else { return true };
        match &self.bucket {
            Some(bucket) => bucket.has(events, limit, context.now),
            None => Bucket::full(limit, context.now).has(events, limit, context.now),
        }
    }

    /// Publishes an event. If it was `admitted` before, the rate limit does not reject it.
    pub(super) fn publish(
        &mut self,
        context: &Context<'_>,
        publication: &Publication<'_>,
        admitted: bool,
    ) -> Result<Option<Ticket>, PublishRefused> {
        if let Err(refused) = self.check_rate(context)
            && !admitted
        {
            context.counters.rate_limited.increase();
            return Err(refused);
        }
        context.counters.published.increase();
        if let Author::Client { socket, user_id } = publication.author {
            context.counters.client_events.increase();
            let event = ChannelEvent::ClientEvent {
                channel: self.name.shared(),
                event: publication.event,
                data: publication.data,
                socket,
                user_id,
            };
            context.observer.observe(context.app, &event);
        }
        if let Some(log) = context.nodes.and_then(Nodes::log)
            && is_logged(context.app, publication)
        {
            return Ok(Some(log.append(context.app, publication)));
        }
        self.emit(context, publication, None);
        if let Some(nodes) = context.nodes {
            nodes.publish(context.app, &ClusterUpdate::Published(publication));
        }
        Ok(None)
    }

    /// Applies an event of the shared log. It records the position under the channel's lock, so that a subscriber
    /// gets each event either by its position or as a delivery.
    pub(super) fn apply_logged(
        &mut self,
        context: &Context<'_>,
        publication: &Publication<'_>,
        logged: Logged,
    ) {
        context.shared.set_age(logged.age);
        self.emit(context, publication, Some(logged));
        context.shared.set_applied(logged.position);
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
    pub(super) fn wake(&mut self, context: &Context<'_>, at: Moment) {
        if self.wake != Some(at) {
            return;
        }
        self.wake = self.then.take();
        self.count_changed(context);
        self.forget_old(context.now, context.shared);
    }

    /// Returns whether the record holds no state and can be removed.
    pub(super) fn is_unneeded(&mut self, now: Moment, shared: &SharedLog) -> bool {
        if self.here > 0 || self.remote_counts.is_some() || self.members.is_some() {
            return false;
        }
        self.forget_old(now, shared);
        self.last.is_none() && self.history.is_none() && self.bucket.is_none()
    }

    /// Returns when the shard must check the record next, if the shard does not know it yet.
    pub(super) fn next_wake(&mut self, now: Moment) -> Option<Moment> {
        let cache = self.last.as_ref().map(|last| last.at + self.app.limits.cache);
        let history = self.history.as_ref().and_then(|kept| kept.next_end());
        let bucket = (self.bucket.is_some() && self.here == 0).then(|| now + RATE_PAUSE);
        let count = self.subscribers();
        let count = (self.sent_count != count).then(|| self.sent_at + self.count_pause(count));
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
        self.here as usize
            + self.remote_counts.as_ref().map_or(0, |remote_counts| remote_counts.total())
    }

    fn fresh(&self, now: Moment) -> Option<&Last> {
        self.last.as_deref().filter(|last| last.is_fresh(self.app.limits.cache, now))
    }

    fn forget_old(&mut self, now: Moment, shared: &SharedLog) {
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
            // While the record is needed anyway, the history keeps its epoch: clients can resume without a loss.
            let is_needed = self.here > 0 || self.remote_counts.is_some() || self.last.is_some();
            if kept.next_end().is_none() && !is_needed {
                if shared.epoch() == Some(kept.position().epoch) {
                    shared.remove(&self.app.id, self.name.as_str(), kept.complete_after());
                }
                self.history = None;
            }
        }
    }

    /// Encodes an event once, stores it if required, and adds it to the inboxes.
    /// With a shared log only its own events are stored, with their positions in it.
    fn emit(
        &mut self,
        context: &Context<'_>,
        publication: &Publication<'_>,
        logged: Option<Logged>,
    ) {
        let (except, user_id, is_clients) = match publication.author {
            Author::Server { except } => (except, None, false),
            Author::Client { socket, user_id } => (Some(socket), user_id, true),
        };
        // Client events are transient: they are neither cached, as with Pusher, nor added to the history.
        let history = history_of(context.app, &self.name).filter(|_| !is_clients);
        if history.is_none() && !is_clients {
            // The settings have changed. A history without this event must not go on.
            self.history = None;
        }
        let history = history.filter(|_| logged.is_some() || !context.shared.is_active());
        let offset = history.map(|_| {
            let next = self.begin_history(context).position().offset + 1;
            logged.map_or(next, |logged| logged.position)
        });
        let event = Event {
            name: publication.event,
            channel: self.name.as_str(),
            data: publication.data,
            user_id: user_id.map(|id| &**id),
            offset,
        };
        let message = event.encode();
        if self.name.is_cache() && !is_clients {
            // A later subscriber's position may be in another epoch, so the stored event has no offset.
            let plain = Event { offset: None, ..event };
            let message = if offset.is_some() { plain.encode() } else { message.clone() };
            self.last = Some(Box::new(Last { message, at: context.now }));
        }
        if let (Some(history), Some(kept), Some(offset)) = (history, &mut self.history, offset) {
            let age = logged.map_or(Duration::ZERO, |logged| logged.age);
            kept.expire(context.now);
            let until = context.now + history.age.saturating_sub(age);
            kept.add(offset, message.clone(), except, history, until);
        }
        let position = logged.map_or(0, |logged| logged.position);
        self.deliver(context, &message, except, position);
    }

    fn deliver(
        &mut self,
        context: &Context<'_>,
        message: &Encoded,
        except: Option<SocketId>,
        position: u64,
    ) {
        self.sequence += 1;
        let for_all = position == 0
            || starts_positions(position)
            || context.shared.is_loaded()
            || context.shared.has_resumed_early();
        let loops = self.loops.iter();
        let loops = loops.filter(|(number, _)| for_all || context.outlets.takes_old(*number));
        for (event_loop, _) in loops {
            let delivery = Delivery::Channel {
                channel: self.id,
                offset: Offset(self.sequence),
                message: message.clone(),
                position,
                except,
            };
            context.outlets.put(*event_loop, delivery, context.counters);
        }
    }

    /// Reports an event to the observer, if this node is responsible. Events of user channels are not reported.
    fn notify_observer(&self, context: &Context<'_>, event: &ChannelEvent<'_>) {
        if self.name.access() == Access::User {
            return;
        }
        let ours = context.nodes.is_none_or(|nodes| nodes.reports(context.app, self.name.as_str()));
        if ours {
            context.observer.observe(context.app, event);
        }
    }

    fn here_changed(&mut self, context: &Context<'_>) {
        if let Some(nodes) = context.nodes {
            let update = ClusterUpdate::Subscribers { channel: &self.name, count: self.here };
            nodes.publish(context.app, &update);
        }
        self.count_changed(context);
    }

    fn count_in(&mut self, event_loop: u16) {
        if let Some((_, count)) = self.loops.iter_mut().find(|(number, _)| *number == event_loop) {
            *count += 1;
        } else {
            self.loops.reserve_exact(1);
            self.loops.push((event_loop, 1));
        }
    }

    fn check_rate(&mut self, context: &Context<'_>) -> Result<(), PublishRefused> {
        let Some(limit) = context.app.limits.channel_events else { return Ok(()) };
        let bucket = self.bucket.get_or_insert_with(|| Box::new(Bucket::full(limit, context.now)));
        if bucket.take(limit, context.now) {
            return Ok(());
        }
        Err(PublishRefused::TooOften { limit })
    }

    /// Returns the last event for a new subscriber of a cache channel.
    fn cached(&self, context: &Context<'_>) -> Option<Encoded> {
        let last = self.fresh(context.now);
        if last.is_none() && self.name.is_cache() {
            let channel = self.name.shared();
            context.observer.observe(context.app, &ChannelEvent::CacheMiss { channel });
        }
        last.map(|last| last.message.clone())
    }
}

/// Returns whether an event goes through the shared log: those of the application on channels with history.
pub(super) fn is_logged(app: &App, publication: &Publication<'_>) -> bool {
    matches!(publication.author, Author::Server { .. })
        && history_of(app, publication.channel).is_some()
}
