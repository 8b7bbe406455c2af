//! One channel's record. Everything here happens while its shard is locked.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

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
use crate::presence::{Member, Members, TooMany};
use crate::rate::Bucket;
use crate::socket_id::SocketId;
use crate::statistics::Counters;

/// Up to so many subscribers each change of their number is told at once, and beyond at most every [`COUNT_PAUSE`], as Pusher does.
const COUNT_AT_ONCE: usize = 100;
const COUNT_PAUSE: Duration = Duration::from_secs(5);

/// What a channel needs to know of where it is.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) outlets: &'a Outlets,
    pub(super) observer: &'a dyn Observer,
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
    /// Deliveries so far.
    sequence: u64,
    /// Subscribers in all event loops of this node.
    here: usize,
    /// Event loops with subscribers, and how many each has.
    loops: Vec<(u16, u32)>,
    members: Option<Box<Members>>,
    last: Option<Box<Last>>,
    history: Option<Box<Kept>>,
    bucket: Option<Box<Bucket>>,
    counted: Option<Box<Counted>>,
    /// When the shard looks at it again.
    wake: Option<Moment>,
}

/// What subscribers were told of their number.
#[derive(Debug)]
struct Counted {
    told: usize,
    at: Moment,
}

impl Channel {
    pub(super) fn new(id: ChannelId, hash: u64, app: &Arc<App>, name: &ChannelName) -> Self {
        Self {
            id,
            hash,
            app: Arc::clone(app),
            name: name.clone(),
            sequence: 0,
            here: 0,
            loops: Vec::new(),
            members: None,
            last: None,
            history: None,
            bucket: None,
            counted: None,
            wake: None,
        }
    }

    /// Does what is published there leave something behind, also when nobody hears it?
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

    pub(super) fn is(&self, app: &str, name: &str) -> bool {
        self.name.as_str() == name && *self.app.id == *app
    }

    pub(super) fn name(&self) -> &ChannelName {
        &self.name
    }

    /// An application may have other limits than when the channel came to be.
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
        if let Some(member) = subscription.member {
            self.member_joins(around, member)?;
        }
        match self.loops.iter_mut().find(|(event_loop, _)| *event_loop == subscription.event_loop) {
            Some((_, count)) => *count += 1,
            None => {
                self.loops.reserve_exact(1);
                self.loops.push((subscription.event_loop, 1));
            }
        }
        self.here += 1;
        if self.here == 1 {
            self.tell(around, &Happening::Occupied { channel: self.name.shared() });
        }
        // From here on everything is for the new subscriber too.
        let after = Offset(self.sequence);
        let roster = self.members.as_mut().map(|members| members.roster());
        let (position, missed) = self.resume(around, subscription.resume);
        let cached = self.cached(around);
        self.count_changed(around);
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
        self.count_changed(around);
        if self.here == 0 {
            self.tell(around, &Happening::Vacated { channel: self.name.shared() });
        }
    }

    pub(super) fn publish(
        &mut self,
        around: &Around<'_>,
        publication: &Publication<'_>,
    ) -> Result<(), PublishRefused> {
        self.check_rate(around)?;
        let (except, user_id, from_client) = match publication.author {
            Author::Server { except } => (except, None, false),
            Author::Client { socket, user_id } => (Some(socket), user_id, true),
        };
        let keeps = history_of(around.app, &self.name).filter(|_| !from_client);
        if keeps.is_some() {
            self.begin_history(around);
        }
        let offset =
            self.history.as_ref().filter(|_| keeps.is_some()).map(|kept| kept.next_offset());
        let event = Event {
            event: publication.event,
            channel: self.name.as_str(),
            data: publication.data,
            user_id: user_id.map(|id| &**id),
            offset,
        };
        let message = event.encode();
        if let (Some(history), Some(kept)) = (keeps, &mut self.history) {
            kept.add(message.clone(), except, history.events, around.now);
            kept.expire(history.age, around.now);
        }
        if self.name.is_cache() && !from_client {
            self.last = Some(Box::new(Last { message: message.clone(), at: around.now }));
        }
        self.deliver(around, &message, except);
        around.counters.published.increase();
        if let Author::Client { socket, user_id } = publication.author {
            around.counters.client_events.increase();
            self.tell(
                around,
                &Happening::ClientEvent {
                    channel: self.name.shared(),
                    event: publication.event,
                    data: publication.data,
                    socket,
                    user_id,
                },
            );
        }
        Ok(())
    }

    pub(super) fn report(&self, now: Moment) -> ChannelReport {
        let last = self.last.as_ref().filter(|last| last.is_fresh(self.app.limits.cache, now));
        ChannelReport {
            name: self.name.clone(),
            subscription_count: self.here,
            user_count: (self.name.access() == Access::Presence)
                .then(|| self.members.as_ref().map_or(0, |members| members.len())),
            cache: last.and_then(|last| last.report(self.app.limits.cache, now)),
        }
    }

    pub(super) fn members(&self) -> Vec<Arc<str>> {
        self.members.as_ref().map(|members| members.ids().cloned().collect()).unwrap_or_default()
    }

    /// Does what waited for its time.
    pub(super) fn wake(&mut self, around: &Around<'_>) {
        self.wake = None;
        self.count_changed(around);
        self.forget(around.now);
    }

    /// Has it nothing that anybody could ask for?
    pub(super) fn is_needless(&mut self, now: Moment) -> bool {
        if self.here > 0 {
            return false;
        }
        self.forget(now);
        self.last.is_none() && self.history.is_none() && self.bucket.is_none()
    }

    /// When the shard has to look at it again, if that is not known there yet.
    pub(super) fn next_wake(&mut self, now: Moment) -> Option<Moment> {
        let limits = &self.app.limits;
        let cache = self.last.as_ref().map(|last| last.at + limits.cache);
        let history = match (&self.history, history_of(&self.app, &self.name)) {
            (Some(kept), Some(history)) => kept.ends(history.age),
            _ => None,
        };
        // A bucket only matters again when nobody is there to keep the record.
        let bucket =
            (self.bucket.is_some() && self.here == 0).then(|| now + Duration::from_secs(1));
        let counted = self.counted.as_ref().filter(|counted| counted.told != self.here);
        let count = counted.map(|counted| counted.at + COUNT_PAUSE);
        let next = [cache, history, bucket, count].into_iter().flatten().min()?;
        if self.wake.is_some_and(|wake| wake <= next) {
            return None;
        }
        self.wake = Some(next);
        Some(next)
    }

    fn forget(&mut self, now: Moment) {
        let limits = &self.app.limits;
        if self.last.as_ref().is_some_and(|last| !last.is_fresh(limits.cache, now)) {
            self.last = None;
        }
        if let (Some(bucket), limit) = (&self.bucket, limits.channel_events)
            && limit.is_none_or(|limit| bucket.is_full(limit, now))
        {
            self.bucket = None;
        }
        let age = history_of(&self.app, &self.name).map(|history| history.age);
        if let Some(kept) = &mut self.history {
            kept.expire(age.unwrap_or_default(), now);
            // With subscribers the place in it goes on.
            if kept.is_empty() && self.here == 0 {
                self.history = None;
            }
        }
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

    fn tell(&self, around: &Around<'_>, happening: &Happening<'_>) {
        around.observer.happened(around.app, happening);
    }

    fn member_joins(
        &mut self,
        around: &Around<'_>,
        member: &Arc<Member>,
    ) -> Result<(), SubscribeRefused> {
        let limit = around.app.limits.members;
        let members = self.members.get_or_insert_default();
        let first = members
            .join(member, limit)
            .map_err(|TooMany| SubscribeRefused::TooManyMembers { limit })?;
        if first {
            let channel = self.name.shared();
            self.tell(around, &Happening::MemberAdded { channel, user_id: member.id() });
            // The one who joins is not a subscriber yet: nobody is told about itself.
            let message = message::member_added(channel, member);
            self.deliver(around, &message, None);
        }
        Ok(())
    }

    fn member_leaves(&mut self, around: &Around<'_>, member: &Member) {
        let Some(members) = &mut self.members else { return };
        let last = members.leave(member.id());
        if members.is_empty() {
            self.members = None;
        }
        if last {
            let channel = self.name.shared();
            self.tell(around, &Happening::MemberRemoved { channel, user_id: member.id() });
            let message = message::member_removed(channel, member.id());
            self.deliver(around, &message, None);
        }
    }

    /// Tells subscribers how many they are, when that changed and it is time.
    fn count_changed(&mut self, around: &Around<'_>) {
        if self.name.access() == Access::Presence {
            return;
        }
        let told = self.counted.as_ref();
        let waits = self.here > COUNT_AT_ONCE
            && told.is_some_and(|counted| around.now < counted.at + COUNT_PAUSE);
        if waits || told.map_or(0, |counted| counted.told) == self.here {
            return;
        }
        self.counted = Some(Box::new(Counted { told: self.here, at: around.now }));
        let channel = self.name.shared();
        self.tell(around, &Happening::SubscriptionCount { channel, count: self.here });
        if around.app.rights.subscription_count {
            let message = message::subscription_count(self.name.as_str(), self.here);
            self.deliver(around, &message, None);
        }
    }

    fn check_rate(&mut self, around: &Around<'_>) -> Result<(), PublishRefused> {
        let Some(limit) = around.app.limits.channel_events else { return Ok(()) };
        let bucket = self.bucket.get_or_insert_with(|| Box::new(Bucket::full(limit, around.now)));
        if bucket.take(limit, around.now) {
            return Ok(());
        }
        around.counters.rate_limited.increase();
        Err(PublishRefused::TooOften { limit })
    }

    fn begin_history(&mut self, around: &Around<'_>) -> &mut Kept {
        let id = self.id;
        self.history
            .get_or_insert_with(|| Box::new(Kept::new(around.random.hash_one(("epoch", id)))))
    }

    /// Where a new subscriber is in the history, and what it missed.
    fn resume(
        &mut self,
        around: &Around<'_>,
        resume: Option<Resume>,
    ) -> (Option<Position>, Option<Vec<Encoded>>) {
        let Some(history) = history_of(around.app, &self.name) else { return (None, None) };
        let age = history.age;
        let kept = self.begin_history(around);
        kept.expire(age, around.now);
        let missed = resume.and_then(|resume| kept.since(resume.position, resume.socket));
        (Some(kept.position()), missed)
    }

    /// The last event for a new subscriber of a cache channel.
    fn cached(&self, around: &Around<'_>) -> Option<Encoded> {
        let ttl = around.app.limits.cache;
        let last = self.last.as_ref().filter(|last| last.is_fresh(ttl, around.now));
        if last.is_none() && self.name.is_cache() {
            self.tell(around, &Happening::CacheMiss { channel: self.name.shared() });
        }
        last.map(|last| last.message.clone())
    }
}

/// What an application wants kept of a channel.
fn history_of<'a>(app: &'a App, name: &ChannelName) -> Option<&'a History> {
    let history = app.history.as_ref()?;
    let wanted = history.channels.is_empty()
        || history.channels.iter().any(|prefix| name.as_str().starts_with(&**prefix));
    (wanted && name.access() != Access::User).then_some(history)
}
