//! The state shared by event loops, the HTTP API and PHP.

use std::sync::Arc;

use crate::app::App;
use crate::apps::Apps;
use crate::delivery::{Delivery, Outlet};
use crate::moment::Moment;
use crate::nodes::{ClusterUpdate, NodeId, Nodes, Origin};
use crate::observer::Observer;
use crate::registry::Registry;
use crate::statistics::{Counters, Statistics};
use crate::users::{Reach, Users};

/// The channels of all applications on this node. Clones share the same state.
#[derive(Clone, Debug)]
pub struct Channels(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    apps: Arc<dyn Apps>,
    registry: Registry,
    users: Users,
    statistics: Arc<Statistics>,
}

/// Number of records in memory. It is zero once all clients are gone and all kept events have expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Channels with subscribers or kept events.
    pub channels: usize,
    /// Users who are online or watched.
    pub users: usize,
}

impl Channels {
    /// Creates the channels of these applications. `observer` receives the channel events.
    pub fn new(apps: Arc<dyn Apps>, observer: Arc<dyn Observer>) -> Self {
        let statistics = Arc::new(Statistics::default());
        let registry = Registry::new(observer, Arc::clone(&statistics));
        Self(Arc::new(Inner { apps, registry, users: Users::new(), statistics }))
    }

    /// Returns the number of a new event loop, which the [`crate::Seat`]s of its sockets carry. `None` if there are
    /// [`crate::EVENT_LOOPS`] already.
    pub fn attach(&self, inbox: Arc<dyn Outlet>) -> Option<u16> {
        self.0.registry.outlets().attach(inbox)
    }

    /// Returns the source of applications.
    pub fn apps(&self) -> &Arc<dyn Apps> {
        &self.0.apps
    }

    /// Returns the channels by application and name.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Returns the counters by application.
    pub fn statistics(&self) -> &Statistics {
        &self.0.statistics
    }

    pub(crate) fn users(&self) -> &Users {
        &self.0.users
    }

    pub(crate) fn reach<'a>(&'a self, app: &'a Arc<App>, counters: &'a Counters) -> Reach<'a> {
        let registry = &self.0.registry;
        Reach { app, outlets: registry.outlets(), nodes: registry.nodes(), counters }
    }

    /// Closes all connections of a signed-in user with 4009, on all nodes.
    pub fn terminate(&self, app: &Arc<App>, user_id: &str) {
        let counters = self.0.statistics.of(&app.id);
        let reach = self.reach(app, &counters);
        self.0.users.terminate(&reach, user_id);
        if let Some(nodes) = reach.nodes {
            nodes.publish(app, &ClusterUpdate::Terminated { user_id });
        }
    }

    /// Replaces or removes an application. Its sockets use the new settings, or are closed: with 4001 if it is gone
    /// or has another key, with 4003 if it is disabled.
    pub fn renew(&self, id: &Arc<str>, app: Option<&Arc<App>>) {
        self.0
            .registry
            .outlets()
            .put_everywhere(|| Delivery::App { id: Arc::clone(id), app: app.map(Arc::clone) });
    }

    /// Returns the number of records in memory.
    pub fn records(&self) -> Records {
        Records { channels: self.0.registry.len(), users: self.0.users.len() }
    }

    /// Performs work whose time has come. One of the hub's loops calls it about once a second.
    pub fn tick(&self, now: Moment) {
        self.0.registry.tick(now);
    }

    /// Sets the connection to other nodes. Only the first call has an effect.
    pub fn connect(&self, nodes: Arc<dyn Nodes>) {
        self.0.registry.connect(nodes);
    }

    /// Applies an update of another node. Updates of a node must be applied in the order in which it published them,
    /// and each [`ClusterUpdate::Published`] once.
    pub fn apply_remote(
        &self,
        from: Origin,
        app: &Arc<App>,
        update: &ClusterUpdate<'_>,
        now: Moment,
    ) {
        match update {
            ClusterUpdate::Published(publication) => {
                self.0.registry.apply_remote(from, app, publication.channel, update, now);
            }
            ClusterUpdate::Last { channel, .. }
            | ClusterUpdate::Subscribers { channel, .. }
            | ClusterUpdate::Member { channel, .. }
            | ClusterUpdate::NoMember { channel, .. } => {
                self.0.registry.apply_remote(from, app, channel, update, now);
            }
            ClusterUpdate::Online { .. }
            | ClusterUpdate::Offline { .. }
            | ClusterUpdate::Terminated { .. } => {
                let counters = self.0.statistics.of(&app.id);
                self.0.users.apply_remote(&self.reach(app, &counters), from, update);
            }
        }
    }

    /// Removes the state of another node that is gone.
    pub fn forget(&self, node: NodeId, now: Moment) {
        self.forget_but(node, None, now);
    }

    /// Ends a round of another node: removes its state that it did not publish in the round of `from`.
    pub fn end_round(&self, from: Origin, now: Moment) {
        self.forget_but(from.node, Some(from.round), now);
    }

    /// Publishes the whole state of this node through [`Nodes::publish`], between other updates, for a node that is
    /// new or missed an update.
    pub fn publish_state(&self, now: Moment) {
        self.0.registry.publish_state(now);
        if let Some(nodes) = self.0.registry.nodes() {
            self.0.users.publish_state(nodes);
        }
    }

    fn forget_but(&self, node: NodeId, round: Option<u32>, now: Moment) {
        self.0.registry.forget_node(node, round, now);
        let outlets = self.0.registry.outlets();
        self.0.users.forget_node(node, round, outlets, &self.0.statistics);
    }
}
