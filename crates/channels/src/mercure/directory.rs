//! The subscribers of all nodes, and the updates that report when a subscription begins or ends.
//!
//! Each subscriber is a member of one internal presence channel, so nodes know each other's as they know the members of
//! any channel, and learn when a node is gone. The node that reports the channel's events publishes the updates: one
//! node, for the subscribers of all.
//!
//! Invariants
//! - Reports are published one at a time between other work, so that they never fill the hub's own inbox.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::hub::{Mercure, uuid};
use super::selector::Selector;
use super::state::Connected;
use super::subscriptions::Subscription;
use super::update::Update;
use crate::json::{Raw, push_string};
use crate::presence::Member;

/// One subscriber of any node.
#[derive(Debug)]
pub(super) struct Listed {
    id: String,
    topics: Vec<String>,
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
    fn of_member(data: Raw<'_>) -> Option<Self> {
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

    fn remove(&mut self, id: &str) -> Option<Arc<Listed>> {
        self.subscribers.remove(&self.numbers.remove(id)?)
    }

    fn retain(&mut self, ids: &HashSet<Arc<str>>) {
        self.subscribers.retain(|_, listed| ids.contains(&*listed.id));
        self.numbers.retain(|id, _| ids.contains(&**id));
    }
}

/// What the hub's task has to do between arrivals, in order.
#[derive(Debug, Default)]
pub(super) struct Reports(VecDeque<Due>);

#[derive(Debug)]
enum Due {
    /// Publishes that the subscriptions from this one on began or ended.
    Report { listed: Arc<Listed>, active: bool, next: usize },
    /// All earlier work is done when this is dropped.
    Barrier(oneshot::Sender<()>),
}

impl Reports {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the sender once the earlier reports are published.
    pub(super) fn barrier(&mut self, handled: oneshot::Sender<()>) {
        self.0.push_back(Due::Barrier(handled));
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

    /// Applies a message of the channel of members. `ours` if this node reports it.
    pub(super) fn apply_member(&self, message: &[u8], ours: bool, reports: &mut Reports) {
        let Ok(message) = Raw::from_bytes(message) else { return };
        let (Some(event), Some(data)) =
            (message.get("event").and_then(Raw::string), message.get("data").and_then(Raw::string))
        else {
            return;
        };
        let Ok(data) = Raw::new(&data) else { return };
        let active = event == "pusher_internal:member_added";
        let listed = if active {
            Listed::of_member(data).map(|listed| self.lock().directory.insert(listed))
        } else if event == "pusher_internal:member_removed" {
            let id = data.get("user_id").and_then(Raw::string);
            id.and_then(|id| self.lock().directory.remove(&id))
        } else {
            None
        };
        if let Some(listed) = listed.filter(|_| ours) {
            reports.0.push_back(Due::Report { listed, active, next: 0 });
        }
    }

    /// Removes subscribers that are no members, after messages were lost.
    pub(super) fn correct_directory(&self) {
        let registry = self.channels.registry();
        let ids = registry.members(&self.app, self.members.as_str(), (self.clock)());
        self.lock().directory.retain(&ids.into_iter().collect());
    }

    /// Publishes the next report.
    pub(super) fn report(&self, reports: &mut Reports) {
        match reports.0.pop_front() {
            Some(Due::Report { listed, active, next }) => {
                let Some(subscription) = listed.subscriptions(active).nth(next) else { return };
                let update = Update {
                    id: uuid(),
                    topics: vec![subscription.id()],
                    private: true,
                    data: subscription.json(true),
                    ..Update::default()
                };
                // A broker that is away stores no event of a subscription; the subscription itself needs none.
                let _unstored = self.dispatch(&update);
                if next + 1 < listed.topics.len() {
                    reports.0.push_front(Due::Report { listed, active, next: next + 1 });
                }
            }
            Some(Due::Barrier(handled)) => drop(handled),
            None => {}
        }
    }
}
