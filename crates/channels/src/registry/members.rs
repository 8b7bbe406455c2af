//! Members that have no socket: parts of the server that other nodes know by a channel's members.

use std::sync::Arc;

use super::Registry;
use crate::app::App;
use crate::moment::Moment;
use crate::name::ChannelName;
use crate::presence::Member;

impl Registry {
    /// Adds a member that has no socket. Unlike a subscriber it costs the same however many there are.
    pub(crate) fn add_member(
        &self,
        app: &Arc<App>,
        channel: &ChannelName,
        member: &Arc<Member>,
        now: Moment,
    ) {
        let counters = self.statistics.of(&app.id);
        let context = self.context(app, &counters, now);
        self.with(app, channel, now, |channel| channel.add_member(&context, member));
    }

    /// Removes a member that [`Registry::add_member`] added.
    pub(crate) fn remove_member(
        &self,
        app: &Arc<App>,
        channel: &ChannelName,
        member: &Member,
        now: Moment,
    ) {
        let counters = self.statistics.of(&app.id);
        let context = self.context(app, &counters, now);
        self.with_known(app, channel.as_str(), now, |channel| {
            channel.remove_member(&context, member);
        });
    }
}
