//! The subscribers of the hub, and the updates that it keeps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Options;
use super::directory::Directory;
use super::selector::{Cache, Matching, Selector, Templates};
use super::update::Update;
use crate::moment::Moment;
use crate::presence::Member;

/// The id that stands for everything that is kept.
pub(super) const EARLIEST: &str = "earliest";

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) subscribers: BTreeMap<u64, Connected>,
    pub(super) next: u64,
    /// The subscribers of all nodes, if there is a subscription API.
    pub(super) directory: Directory,
    /// The templates of the subscribers.
    pub(super) templates: Templates,
    /// The templates that match recent topics.
    pub(super) cache: Cache,
    pub(super) kept: VecDeque<Kept>,
    /// Memory of the kept updates in bytes.
    pub(super) memory: usize,
    /// Id of the newest update, kept or not.
    pub(super) newest: String,
    pub(super) ending: bool,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) update: Arc<Update>,
    pub(super) event: Bytes,
    pub(super) until: Moment,
}

#[derive(Debug)]
pub(super) struct Connected {
    /// The subscriber as other nodes and the subscription API see it, if there is one.
    pub(super) member: Option<Arc<Member>>,
    pub(super) interest: Arc<Interest>,
    pub(super) queue: mpsc::Sender<Bytes>,
    /// When it came, if it named no id: it could not say what it has missed.
    pub(super) opened: Option<Moment>,
}

impl Connected {
    /// Returns whether it gets an update that was stored `age` before `now`, and that this node has read late.
    pub(super) fn has_waited(&self, age: Duration, now: Moment) -> bool {
        self.opened.is_some_and(|came| now.since(came) >= age)
    }
}

/// The updates that a subscriber gets.
#[derive(Debug)]
pub(super) struct Interest {
    pub(super) topics: Vec<Selector>,
    /// Topics of private updates that its token allows.
    pub(super) private: Vec<Selector>,
}

impl Interest {
    /// Returns whether the subscriber gets an update with these topics.
    pub(super) fn takes(&self, private: bool, topics: &mut Matching<'_>) -> bool {
        topics.any(&self.topics) && (!private || topics.any(&self.private))
    }
}

impl Kept {
    fn memory(&self) -> usize {
        let topics = self.update.topics.iter().map(|topic| topic.len() + size_of::<String>());
        size_of::<Self>() + self.event.len() + self.update.id.len() + topics.sum::<usize>()
    }
}

impl State {
    /// Keeps an update and removes what is too much or too old.
    pub(super) fn keep(
        &mut self,
        mut update: Update,
        event: Bytes,
        options: &Options,
        now: Moment,
    ) {
        self.newest.clone_from(&update.id);
        // The event has the data.
        update.data = String::new();
        let kept = Kept { update: Arc::new(update), event, until: now + options.age };
        self.memory += kept.memory();
        self.kept.push_back(kept);
        while self.kept.len() > options.events || self.memory > options.memory {
            self.remove_oldest();
        }
        self.expire(now);
    }

    fn expire(&mut self, now: Moment) {
        while self.kept.front().is_some_and(|kept| kept.until <= now) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let removed = self.kept.pop_front();
        self.memory -= removed.map_or(0, |kept| kept.memory());
    }

    /// Removes all kept updates and all subscribers, and returns these.
    pub(super) fn restart(&mut self) -> Vec<Connected> {
        self.kept.clear();
        self.memory = 0;
        // An update that was lost may have come after it.
        self.newest.clear();
        std::mem::take(&mut self.subscribers).into_values().collect()
    }

    /// Removes the subscribers that came back with an id, and returns them.
    pub(super) fn end_resumed(&mut self) -> Vec<Connected> {
        self.subscribers.extract_if(.., |_, one| one.opened.is_none()).map(|(_, one)| one).collect()
    }

    /// Returns whether an update with this id has arrived, as far as that is still known.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.newest == id || self.kept.iter().any(|kept| kept.update.id == id)
    }

    /// Returns the id before the first event that a subscriber gets, and all kept events after it.
    pub(super) fn since(
        &mut self,
        wanted: Option<&str>,
        now: Moment,
    ) -> (String, Vec<(Arc<Update>, Bytes)>) {
        self.expire(now);
        let newest = if self.newest.is_empty() { EARLIEST } else { &self.newest };
        let first = match wanted {
            None => return (newest.to_owned(), Vec::new()),
            Some(EARLIEST) => 0,
            Some(id) => match self.kept.iter().position(|kept| kept.update.id == id) {
                Some(index) => index + 1,
                // It is not kept: the header tells the client that events may be missing.
                None => return (newest.to_owned(), Vec::new()),
            },
        };
        let last = wanted.unwrap_or(EARLIEST).to_owned();
        let events = self.kept.range(first..);
        (last, events.map(|kept| (Arc::clone(&kept.update), kept.event.clone())).collect())
    }
}
