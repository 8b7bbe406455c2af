//! Everything that event loops, the HTTP API and PHP share.

use std::sync::Arc;

use crate::app::App;
use crate::apps::Apps;
use crate::delivery::Outlet;
use crate::moment::Moment;
use crate::observer::Observer;
use crate::registry::Registry;
use crate::statistics::Statistics;
use crate::users::Users;

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

    /// Ends all connections of a user who has signed in, with 4009.
    pub fn terminate(&self, app: &Arc<App>, user_id: &str) {
        let counters = self.0.statistics.of(&app.id);
        self.0.users.terminate(app, user_id, self.0.registry.outlets(), &counters);
    }

    /// Does what waited for its time. The hub calls it about once a second, from one of its loops.
    pub fn tick(&self, now: Moment) {
        self.0.registry.tick(now);
    }
}
