//! The subscribers of all nodes.
//!
//! Each subscriber is a member of one internal presence channel, so nodes know each other's as they know the members of
//! any channel, and learn when a node is gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::hub::{Mercure, uuid};
use super::selector::Selector;
use super::state::Connected;
use super::subscriptions::Subscription;
use crate::json::{Raw, push_string};
use crate::presence::Member;

/// One subscriber of any node.
#[derive(Debug)]
pub(super) struct Listed {
    id: String,
    pub(super) topics: Vec<String>,
    /// JSON.
    payload: Option<String>,
}

impl Listed {
    pub(super) fn new(topics: &[Selector], payload: Option<&str>) -> Self {
        let topics = topics.iter().map(|topic| topic.text().to_owned()).collect();
        Self { id: uuid(), topics, payload: payload.map(str::to_owned) }
    }

    /// Returns the member as which other nodes know it.
    pub(super) fn member(&self) -> Member {
        let mut info = String::from(r#"{"topics":["#);
        for (index, topic) in self.topics.iter().enumerate() {
            if index > 0 {
                info.push(',');
            }
            push_string(&mut info, topic);
        }
        info.push(']');
        if let Some(payload) = &self.payload {
            // As text: it may be nested as deep as JSON may be here.
            info.push_str(r#","payload":"#);
            push_string(&mut info, payload);
        }
        info.push('}');
        Member::new(&self.id, Some(&info))
    }

    /// Reads the data of `member_added`.
    pub(super) fn of_member(data: Raw<'_>) -> Option<Self> {
        let info = data.get("user_info")?;
        let text = |value: Raw<'_>| value.string().map(std::borrow::Cow::into_owned);
        let topics = info.get("topics")?.elements().map(text).collect::<Option<_>>()?;
        let payload = info.get("payload").and_then(text);
        Some(Self { id: data.get("user_id").and_then(text)?, topics, payload })
    }

    pub(super) fn subscriptions(&self, active: bool) -> impl Iterator<Item = Subscription<'_>> {
        self.topics.iter().map(move |topic| Subscription {
            topic,
            subscriber: &self.id,
            active,
            payload: self.payload.as_deref(),
        })
    }
}

/// The subscribers, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Directory {
    subscribers: BTreeMap<u64, Arc<Listed>>,
    numbers: HashMap<String, u64>,
    next: u64,
}

impl Directory {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.subscribers.values().map(|listed| &**listed)
    }

    /// Adds a subscriber unless it is known, and returns it.
    pub(super) fn insert(&mut self, listed: Listed) -> Arc<Listed> {
        let known = self.numbers.get(&listed.id).and_then(|number| self.subscribers.get(number));
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let (number, listed) = (self.next, Arc::new(listed));
        self.next += 1;
        self.numbers.insert(listed.id.clone(), number);
        self.subscribers.insert(number, Arc::clone(&listed));
        listed
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<Arc<Listed>> {
        self.subscribers.remove(&self.numbers.remove(id)?)
    }

    fn retain(&mut self, ids: &HashSet<Arc<str>>) {
        self.subscribers.retain(|_, listed| ids.contains(&*listed.id));
        self.numbers.retain(|id, _| ids.contains(&**id));
    }
}

impl Mercure {
    /// Adds a subscriber to the members that all nodes know. The caller holds the lock of the state, so that nothing
    /// removes it meanwhile.
    pub(super) fn add_member(&self, directory: &mut Directory, listed: Listed) -> Arc<Member> {
        let member = Arc::new(listed.member());
        directory.insert(listed);
        let registry = self.channels.registry();
        registry.add_member(&self.app, &self.members, &member, (self.clock)());
        member
    }

    /// Removes subscribers that are gone from the members.
    pub(super) fn remove_members(&self, gone: &[Connected]) {
        for member in gone.iter().filter_map(|one| one.member.as_ref()) {
            let registry = self.channels.registry();
            registry.remove_member(&self.app, &self.members, member, (self.clock)());
        }
    }

    /// Removes subscribers that are no members, after messages were lost.
    pub(super) fn correct_directory(&self) {
        let registry = self.channels.registry();
        let ids = registry.members(&self.app, self.members.as_str(), (self.clock)());
        self.lock().directory.retain(&ids.into_iter().collect());
    }
}
