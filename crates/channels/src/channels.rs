//! Everything that event loops, the HTTP API and PHP share.

use std::sync::Arc;

use crate::app::App;
use crate::apps::Apps;
use crate::delivery::{Delivery, Outlet};
use crate::moment::Moment;
use crate::observer::Observer;
use crate::peers::{News, NodeId, Origin, Peers};
use crate::registry::Registry;
use crate::statistics::{Counters, Statistics};
use crate::users::{Reach, Users};

/// The channels of all applications on this node. A clone is the same ones.
#[derive(Clone, Debug)]
pub struct Channels(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    apps: Arc<dyn Apps>,
    registry: Registry,
    users: Users,
    statistics: Arc<Statistics>,
}

/// How many things are remembered: when all clients are gone and what was kept is too old, nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Channels that somebody hears or that keep something.
    pub channels: usize,
    /// Users who are online or watched.
    pub users: usize,
}

impl Channels {
    /// Of these applications. `observer` is told what happens.
    pub fn new(apps: Arc<dyn Apps>, observer: Arc<dyn Observer>) -> Self {
        let statistics = Arc::new(Statistics::default());
        let registry = Registry::new(observer, Arc::clone(&statistics));
        Self(Arc::new(Inner { apps, registry, users: Users::new(), statistics }))
    }

    /// Gives an event loop its number: what [`crate::Seat`]s of its sockets carry. None when there are [`crate::EVENT_LOOPS`] already.
    pub fn attach(&self, inbox: Arc<dyn Outlet>) -> Option<u16> {
        self.0.registry.outlets().attach(inbox)
    }

    /// Where applications are looked up.
    pub fn apps(&self) -> &Arc<dyn Apps> {
        &self.0.apps
    }

    /// Channels by application and name.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Numbers by application.
    pub fn statistics(&self) -> &Statistics {
        &self.0.statistics
    }

    pub(crate) fn users(&self) -> &Users {
        &self.0.users
    }

    pub(crate) fn reach<'a>(&'a self, app: &'a Arc<App>, counters: &'a Counters) -> Reach<'a> {
        let registry = &self.0.registry;
        Reach { app, outlets: registry.outlets(), peers: registry.peers(), counters }
    }

    /// Ends all connections of a user who has signed in, with 4009, on all nodes.
    pub fn terminate(&self, app: &Arc<App>, user_id: &str) {
        let counters = self.0.statistics.of(&app.id);
        let reach = self.reach(app, &counters);
        self.0.users.terminate(&reach, user_id);
        if let Some(peers) = reach.peers {
            peers.tell(app, &News::Terminated { user_id });
        }
    }

    /// An application is this from now on, or none any more: its sockets go by what it says now, or are closed with 4001 (none, or another key) or 4003.
    pub fn renew(&self, id: &Arc<str>, app: Option<&Arc<App>>) {
        self.0
            .registry
            .outlets()
            .put_everywhere(|| Delivery::App { id: Arc::clone(id), app: app.map(Arc::clone) });
    }

    /// How many things are remembered.
    pub fn records(&self) -> Records {
        Records { channels: self.0.registry.len(), users: self.0.users.len() }
    }

    /// Does what waited for its time. The hub calls it about once a second, from one of its loops.
    pub fn tick(&self, now: Moment) {
        self.0.registry.tick(now);
    }

    /// From now on there are other nodes, and this is the way to them. Only the first call counts.
    pub fn connect(&self, peers: Arc<dyn Peers>) {
        self.0.registry.connect(peers);
    }

    /// Another node told something. What it tells must come in the order in which it told it; [`News::Published`] once.
    pub fn hear(&self, from: Origin, app: &Arc<App>, news: &News<'_>, now: Moment) {
        match news {
            News::Published(publication) => {
                self.0.registry.hear(from, app, publication.channel, news, now);
            }
            News::Last { channel, .. }
            | News::Subscribers { channel, .. }
            | News::Member { channel, .. }
            | News::NoMember { channel, .. } => {
                self.0.registry.hear(from, app, channel, news, now);
            }
            News::Online { .. } | News::Offline { .. } | News::Terminated { .. } => {
                let counters = self.0.statistics.of(&app.id);
                self.0.users.hear(&self.reach(app, &counters), from, news);
            }
        }
    }

    /// Another node is gone, and all it told of is with it.
    pub fn forget(&self, node: NodeId, now: Moment) {
        self.forget_but(node, None, now);
    }

    /// Another node has told everything anew in the round of `from`: what it did not tell in it, is not any more.
    pub fn settle(&self, from: Origin, now: Moment) {
        self.forget_but(from.node, Some(from.round), now);
    }

    /// Tells other nodes everything this one knows by itself, through [`Peers::tell`], between what it tells anyway: for one that is new, or missed something.
    pub fn tell_all(&self, now: Moment) {
        self.0.registry.tell_all(now);
        if let Some(peers) = self.0.registry.peers() {
            self.0.users.tell_all(peers);
        }
    }

    fn forget_but(&self, node: NodeId, round: Option<u32>, now: Moment) {
        self.0.registry.forget_node(node, round, now);
        let outlets = self.0.registry.outlets();
        self.0.users.forget_node(node, round, outlets, &self.0.statistics);
    }
}
