//! Members of one presence channel.
//!
//! Invariants
//! - One member for each user's id, however many sockets it comes with and whichever nodes they are on.
//! - What a member tells of itself is what its first socket brought; it stays while the member stays.

use std::collections::HashMap;
use std::sync::Arc;

use crate::json::push_string;

/// Who subscribes to a presence channel.
#[derive(Debug, PartialEq, Eq)]
pub struct Member {
    id: Arc<str>,
    info: Option<Box<str>>,
}

impl Member {
    /// A user's id, and what it tells of itself: JSON.
    pub fn new(id: &str, info: Option<&str>) -> Self {
        Self { id: id.into(), info: info.map(Into::into) }
    }

    /// The user's id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// JSON, as the application signed it.
    pub fn info(&self) -> Option<&str> {
        self.info.as_deref()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    by_id: HashMap<Arc<str>, Entry>,
    /// For those who come next, until somebody comes or goes.
    roster: Option<Arc<str>>,
}

#[derive(Debug)]
struct Entry {
    member: Arc<Member>,
    /// Sockets on this node.
    sockets: usize,
}

/// One more would be too many.
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

    /// A socket of a user comes. True when it is the user's first.
    pub(crate) fn join(&mut self, member: &Arc<Member>, limit: usize) -> Result<bool, TooMany> {
        if let Some(entry) = self.by_id.get_mut(&member.id) {
            entry.sockets += 1;
            return Ok(false);
        }
        if self.by_id.len() >= limit {
            return Err(TooMany);
        }
        let entry = Entry { member: Arc::clone(member), sockets: 1 };
        self.by_id.insert(Arc::clone(&member.id), entry);
        self.roster = None;
        Ok(true)
    }

    /// A socket of a user goes. True when it was the user's last.
    pub(crate) fn leave(&mut self, id: &str) -> bool {
        let Some(entry) = self.by_id.get_mut(id) else { return false };
        entry.sockets -= 1;
        if entry.sockets > 0 {
            return false;
        }
        self.by_id.remove(id);
        self.roster = None;
        true
    }

    /// The value of `presence` in what a new subscriber is told.
    pub(crate) fn roster(&mut self) -> Arc<str> {
        if let Some(roster) = &self.roster {
            return Arc::clone(roster);
        }
        let roster: Arc<str> = roster(self.by_id.values().map(|entry| &*entry.member)).into();
        self.roster = Some(Arc::clone(&roster));
        roster
    }
}

fn roster<'a>(members: impl Iterator<Item = &'a Member> + Clone) -> String {
    let mut text = format!(r#"{{"count":{},"ids":["#, members.clone().count());
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
