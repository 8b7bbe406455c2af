//! Applies the log that all nodes share to the channels of this node.

use std::sync::Arc;

use super::channel::Channel;
use super::{Publication, Registry};
use crate::app::App;
use crate::delivery::{LOADED, RESTARTED};
use crate::moment::Moment;
use crate::name::ChannelName;
use crate::shared_log::{Logged, SharedLog};

impl Registry {
    /// Applies an event of the shared log.
    pub(crate) fn apply_logged(
        &self,
        app: &Arc<App>,
        publication: &Publication<'_>,
        logged: Logged,
        now: Moment,
    ) {
        let counters = self.statistics.of(&app.id);
        let context = self.context(app, &counters, now);
        self.with(app, publication.channel, now, |channel| {
            channel.set_app(app);
            channel.apply_logged(&context, publication, logged);
        });
    }

    /// Skips an event of the shared log whose application is not known. The channel's history ends if it has one: it is
    /// not complete before this position.
    pub(crate) fn skip_logged(&self, app: &str, name: &ChannelName, position: u64, now: Moment) {
        self.shared.remove(app, name.as_str(), position);
        let hash = self.hash(app, name.as_str());
        let shard = &mut *self.shard(hash);
        let found = shard.channels.find_entry(hash, |channel| channel.is(app, name.as_str()));
        if let Ok(found) = found {
            self.visit(&mut shard.due, found, now, Channel::end_history);
        }
    }

    /// Returns what this node knows of the shared log.
    pub(crate) fn shared(&self) -> &SharedLog {
        &self.shared
    }

    /// Starts the histories of all channels again: entries of the log up to `floor` are not known here. Subscribers
    /// are told, because they may have missed events; before [`Registry::log_loaded`] they have no position yet.
    pub(crate) fn restart_log(&self, epoch: u64, floor: u64, now: Moment) {
        self.shared.reset(epoch, floor);
        self.each(now, |_| true, Channel::restart_history);
    }

    /// Starts the positions of all subscribers: the log has been read up to its end for the first time. `gap` if events
    /// were missed on the way.
    pub(crate) fn log_loaded(&self, gap: bool, now: Moment) {
        self.shared.set_loaded();
        let why = if gap { RESTARTED } else { LOADED };
        self.each(now, |_| true, |channel, context| channel.start_positions(context, why));
    }
}
