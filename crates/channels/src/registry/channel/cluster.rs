//! The state that a channel shares with other nodes: numbers of subscribers, members and the last event.

use super::{Channel, Context};
use crate::cache::Last;
use crate::encoded::Encoded;
use crate::moment::Moment;
use crate::nodes::{ClusterUpdate, NodeId, Origin};

impl Channel {
    /// Applies an update of another node about this channel.
    pub(in crate::registry) fn apply_remote(
        &mut self,
        context: &Context<'_>,
        from: Origin,
        update: &ClusterUpdate<'_>,
    ) {
        match *update {
            ClusterUpdate::Published(publication) => self.emit(context, publication, None),
            ClusterUpdate::Last { message, age, .. } => {
                let at = Moment::from_millis(
                    context
                        .now
                        .millis()
                        .saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
                );
                if self.last.as_ref().is_none_or(|last| last.at < at) {
                    self.last = Some(Box::new(Last { message: Encoded::new(message), at }));
                }
            }
            ClusterUpdate::Subscribers { count, .. } => {
                let remote_counts = self.remote_counts.get_or_insert_default();
                remote_counts.set(from, count);
                if remote_counts.is_empty() {
                    self.remote_counts = None;
                }
                self.count_changed(context);
            }
            ClusterUpdate::Member { member, .. } => {
                if self.members.get_or_insert_default().add_remote(member, from) {
                    self.member_added(context, member);
                }
            }
            ClusterUpdate::NoMember { user_id, .. } => {
                self.member_departs(context, user_id, from.node);
            }
            ClusterUpdate::Online { .. }
            | ClusterUpdate::Offline { .. }
            | ClusterUpdate::Terminated { .. } => {}
        }
    }

    /// Returns whether another node published state only in rounds other than `round`.
    pub(in crate::registry) fn has_outdated(&self, node: NodeId, round: Option<u32>) -> bool {
        self.remote_counts
            .as_ref()
            .is_some_and(|remote_counts| remote_counts.has_outdated(node, round))
            || self
                .members
                .as_ref()
                .is_some_and(|members| !members.outdated_members(node, round).is_empty())
    }

    /// Removes state that another node published only in rounds other than `round`.
    pub(in crate::registry) fn forget_node(
        &mut self,
        context: &Context<'_>,
        node: NodeId,
        round: Option<u32>,
    ) {
        let old = self.members.as_ref().map(|members| members.outdated_members(node, round));
        for user_id in old.into_iter().flatten() {
            self.member_departs(context, &user_id, node);
        }
        if let Some(remote_counts) = &mut self.remote_counts {
            remote_counts.forget(node, round);
            if remote_counts.is_empty() {
                self.remote_counts = None;
            }
        }
        self.count_changed(context);
    }

    /// Publishes this node's state of the channel to other nodes.
    pub(in crate::registry) fn publish_state(&self, context: &Context<'_>) {
        let Some(nodes) = context.nodes else { return };
        let channel = &self.name;
        if self.here > 0 {
            nodes.publish(context.app, &ClusterUpdate::Subscribers { channel, count: self.here });
        }
        for member in self.members.iter().flat_map(|members| members.here()) {
            nodes.publish(context.app, &ClusterUpdate::Member { channel, member });
        }
        if let Some(last) = self.fresh(context.now) {
            let text = last.message.text();
            if let Ok(message) = str::from_utf8(&text) {
                let age = context.now.since(last.at);
                nodes.publish(context.app, &ClusterUpdate::Last { channel, message, age });
            }
        }
    }
}
