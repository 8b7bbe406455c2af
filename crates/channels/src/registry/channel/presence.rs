//! The members of a presence channel: who has joined or left, here or on another node.
//!
//! Invariants
//! - `member_added` and `member_removed` are sent for a member's first and last socket of all nodes.

use std::sync::Arc;

use super::super::SubscribeRefused;
use super::{Channel, Context};
use crate::message;
use crate::nodes::{ClusterUpdate, NodeId};
use crate::observer::ChannelEvent;
use crate::presence::{Change, Member, TooMany};

impl Channel {
    /// Adds a socket of a member, if the limit allows it.
    pub(super) fn seat(
        &mut self,
        context: &Context<'_>,
        member: &Arc<Member>,
    ) -> Result<Change, SubscribeRefused> {
        let limit = context.app.limits.members;
        let joined = self.members.get_or_insert_default().join(member, limit);
        joined.map_err(|TooMany| {
            self.members = self.members.take().filter(|members| !members.is_empty());
            SubscribeRefused::TooManyMembers { limit }
        })
    }

    /// Adds a member of a part of the server that is no socket and hears the channel already.
    pub(in crate::registry) fn add_member(&mut self, context: &Context<'_>, member: &Arc<Member>) {
        let joined = self.members.get_or_insert_default().join(member, usize::MAX);
        let change = joined.expect("there are fewer");
        self.member_joined(context, member, change);
    }

    /// Removes a member that [`Channel::add_member`] added.
    pub(in crate::registry) fn remove_member(&mut self, context: &Context<'_>, member: &Member) {
        self.member_leaves(context, member);
    }

    /// Publishes a member that has subscribed here.
    pub(super) fn member_joined(
        &mut self,
        context: &Context<'_>,
        member: &Arc<Member>,
        change: Change,
    ) {
        if let Some(nodes) = context.nodes.filter(|_| change.here) {
            nodes.publish(context.app, &ClusterUpdate::Member { channel: &self.name, member });
        }
        if change.anywhere {
            self.member_added(context, member);
        }
    }

    /// Removes a socket of a member, which may be its last one.
    pub(super) fn member_leaves(&mut self, context: &Context<'_>, member: &Member) {
        let Some(members) = &mut self.members else { return };
        let change = members.leave(member.id());
        if let Some(nodes) = context.nodes.filter(|_| change.here) {
            let update = ClusterUpdate::NoMember { channel: &self.name, user_id: member.id() };
            nodes.publish(context.app, &update);
        }
        if change.anywhere {
            self.member_removed(context, member.id());
        }
    }

    /// Removes a member that has left another node.
    pub(super) fn member_departs(&mut self, context: &Context<'_>, user_id: &str, node: NodeId) {
        let Some(members) = &mut self.members else { return };
        if members.remove_remote(user_id, node) {
            self.member_removed(context, &user_id.into());
        }
    }

    pub(super) fn member_added(&mut self, context: &Context<'_>, member: &Member) {
        let channel = self.name.shared();
        self.notify_observer(context, &ChannelEvent::MemberAdded { channel, user_id: member.id() });
        let message = message::member_added(channel, member);
        self.deliver(context, &message, None, 0);
    }

    fn member_removed(&mut self, context: &Context<'_>, user_id: &Arc<str>) {
        self.members = self.members.take().filter(|members| !members.is_empty());
        let channel = self.name.shared();
        self.notify_observer(context, &ChannelEvent::MemberRemoved { channel, user_id });
        let message = message::member_removed(channel, user_id);
        self.deliver(context, &message, None, 0);
    }
}
