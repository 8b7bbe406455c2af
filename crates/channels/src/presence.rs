//! The members of a presence channel.
//!
//! Invariants
//! - A user id has one member, however many sockets it has and whichever nodes they are on.
//! - A member's `user_info` is the one of its first socket, and stays the same while the member stays.

use std::collections::HashMap;
use std::sync::Arc;

use crate::json::push_string;
use crate::nodes::{NodeId, Origin};

/// A member of a presence channel.
#[derive(Debug, PartialEq, Eq)]
pub struct Member {
    id: Arc<str>,
    info: Option<Box<str>>,
}

impl Member {
    /// Creates a member from its user id and its `user_info` in JSON.
    pub fn new(id: &str, info: Option<&str>) -> Self {
        Self { id: id.into(), info: info.map(Into::into) }
    }

    /// Returns the user id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns the `user_info`: JSON as the application signed it.
    pub fn info(&self) -> Option<&str> {
        self.info.as_deref()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    by_id: HashMap<Arc<str>, Entry>,
    /// Cached list for new subscribers, until a member joins or leaves.
    roster: Option<Arc<str>>,
}

#[derive(Debug)]
struct Entry {
    member: Arc<Member>,
    /// Number of sockets on this node.
    sockets: usize,
    /// Other nodes on which the member has sockets.
    nodes: Vec<Origin>,
}

/// The effect of a socket's subscription or unsubscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Whether this was the user's first or last socket on this node.
    pub(crate) here: bool,
    /// Whether this was the user's first or last socket on any node.
    pub(crate) anywhere: bool,
}

/// The error returned when the channel has the maximum number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_id.keys()
    }

    /// Iterates over the members with sockets on this node.
    pub(crate) fn here(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.by_id.values().filter(|entry| entry.sockets > 0).map(|entry| &entry.member)
    }

    /// Adds a socket of a user on this node.
    pub(crate) fn join(&mut self, member: &Arc<Member>, limit: usize) -> Result<Change, TooMany> {
        if let Some(entry) = self.by_id.get_mut(&member.id) {
            entry.sockets += 1;
            return Ok(Change { here: entry.sockets == 1, anywhere: false });
        }
        if self.by_id.len() >= limit {
            return Err(TooMany);
        }
        self.insert(Entry { member: Arc::clone(member), sockets: 1, nodes: Vec::new() });
        Ok(Change { here: true, anywhere: true })
    }

    /// Removes a socket of a user on this node.
    pub(crate) fn leave(&mut self, id: &str) -> Change {
        let Some(entry) = self.by_id.get_mut(id).filter(|entry| entry.sockets > 0) else {
            debug_assert!(false, "a socket leaves that had not joined");
            return Change { here: false, anywhere: false };
        };
        entry.sockets -= 1;
        Change { here: entry.sockets == 0, anywhere: self.remove_if_gone(id) }
    }

    /// Adds a user with sockets on another node. Returns `true` if the user had none on any node.
    pub(crate) fn add_remote(&mut self, member: &Arc<Member>, from: Origin) -> bool {
        if let Some(entry) = self.by_id.get_mut(&member.id) {
            entry.nodes.retain(|known| known.node != from.node);
            entry.nodes.push(from);
            return false;
        }
        self.insert(Entry { member: Arc::clone(member), sockets: 0, nodes: vec![from] });
        true
    }

    /// Removes a user's sockets on another node. Returns `true` if the user has none on any node now.
    pub(crate) fn remove_remote(&mut self, id: &str, node: NodeId) -> bool {
        let Some(entry) = self.by_id.get_mut(id) else { return false };
        entry.nodes.retain(|known| known.node != node);
        self.remove_if_gone(id)
    }

    /// Returns the members that another node published only in rounds other than `round`.
    pub(crate) fn outdated_members(&self, node: NodeId, round: Option<u32>) -> Vec<Arc<str>> {
        let is_old = |known: &Origin| known.node == node && Some(known.round) != round;
        let old = self.by_id.values().filter(|entry| entry.nodes.iter().any(is_old));
        old.map(|entry| Arc::clone(&entry.member.id)).collect()
    }

    /// Returns the value of `presence` in `subscription_succeeded`.
    pub(crate) fn roster(&mut self) -> Arc<str> {
        let by_id = &self.by_id;
        let write = || roster(by_id.values().map(|entry| &*entry.member)).into();
        Arc::clone(self.roster.get_or_insert_with(write))
    }

    fn insert(&mut self, entry: Entry) {
        self.by_id.insert(Arc::clone(&entry.member.id), entry);
        self.roster = None;
    }

    fn remove_if_gone(&mut self, id: &str) -> bool {
        if self.by_id.get(id).is_none_or(|entry| entry.sockets > 0 || !entry.nodes.is_empty()) {
            return false;
        }
        self.by_id.remove(id);
        self.roster = None;
        if self.by_id.capacity() > 32 && self.by_id.len() * 8 < self.by_id.capacity() {
            self.by_id.shrink_to(self.by_id.len() * 2);
        }
        true
    }
}

fn roster<'a>(members: impl ExactSizeIterator<Item = &'a Member> + Clone) -> String {
    let mut text = format!(r#"{{"count":{},"ids":["#, members.len());
    for (index, member) in members.clone().enumerate() {
        if index > 0 {
            text.push(',');
        }
        push_string(&mut text, &member.id);
    }
    text.push_str(r#"],"hash":{"#);
    for (index, member) in members.enumerate() {
        if index > 0 {
            text.push(',');
        }
        push_string(&mut text, &member.id);
        text.push(':');
        text.push_str(member.info().unwrap_or("null"));
    }
    text.push_str("}}");
    text
}
