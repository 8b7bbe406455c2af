//! The updates that report when a subscription begins or ends.
//!
//! The node that reports the events of the members' channel publishes them: one node, for the subscribers of all.
//!
//! Invariants
//! - Reports are published one at a time between other work, and only while few arrivals wait: each comes back as an
//!   arrival, so they never fill the hub's own inbox.
//! - What waits is bounded: beyond [`MOST`] entries changes of subscriptions are not reported.
//! - What another node has to report is remembered until its report arrives. If that node is killed before, the node that
//!   reports from then on does it.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::warn;

use super::PATH;
use super::directory::Listed;
use super::hub::{Mercure, uuid};
use super::update::Update;
use crate::json::Raw;
use crate::moment::Moment;

/// How often is looked for reports that do not come.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// How long a node that lives may take to report.
const LATE: Duration = Duration::from_secs(3);

/// When an expected report is given up: the loss of a node is noticed earlier.
const GIVEN_UP: Duration = Duration::from_secs(20);

/// Reports are published while fewer arrivals than this wait.
pub(super) const FEW_ARRIVALS: usize = 64;

/// Maximum number of subscribers with reports to publish, of expected reports, and of those that nothing expected.
const MOST: usize = 20_000;

/// Work of the hub's task between arrivals, in order, and reports that it expects of other nodes.
#[derive(Debug, Default)]
pub(super) struct Reports {
    due: VecDeque<Due>,
    /// Reports were dropped since `due` was empty.
    dropped: bool,
    expected: VecDeque<Expected>,
    /// Reports that nothing expected: the broker's log may be faster than what nodes tell each other of members.
    early: VecDeque<Early>,
    random: RandomState,
}

#[derive(Debug)]
enum Due {
    /// Publishes that subscriptions of a subscriber began or ended: those to the topics with these numbers.
    Report { listed: Arc<Listed>, active: bool, topics: Range<usize> },
    /// All earlier work is done when this is dropped.
    Barrier(oneshot::Sender<()>),
}

/// A report of another node that has not arrived.
#[derive(Debug)]
struct Expected {
    listed: Arc<Listed>,
    active: bool,
    topic: usize,
    key: u64,
    since: Moment,
}

#[derive(Debug)]
struct Early {
    key: u64,
    since: Moment,
}

impl Reports {
    /// Returns whether nothing is to be published.
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Returns whether other nodes have to report something.
    pub(super) fn expects(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Drops the sender once the earlier reports are published.
    pub(super) fn barrier(&mut self, handled: oneshot::Sender<()>) {
        self.due.push_back(Due::Barrier(handled));
    }

    /// Hash of a report: its topic, and whether the subscription began.
    fn key(&self, path: &str, active: bool) -> u64 {
        self.random.hash_one((path, active))
    }

    /// Publishes that the subscriptions of a subscriber began or ended.
    fn add(&mut self, listed: &Arc<Listed>, active: bool) {
        // What is expected of the same subscriber happened before.
        let of_it = |one: &Expected| Arc::ptr_eq(&one.listed, listed);
        if self.expected.iter().any(of_it) {
            let expected = std::mem::take(&mut self.expected);
            let (before, others): (VecDeque<_>, VecDeque<_>) =
                expected.into_iter().partition(of_it);
            self.expected = others;
            for expected in before {
                self.push(expected.due());
            }
        }
        self.push(Due::Report {
            listed: Arc::clone(listed),
            active,
            topics: 0..listed.topics.len(),
        });
    }

    /// Adds reports unless too many wait. A subscription is itself known to all nodes, whether it is reported or not.
    fn push(&mut self, due: Due) {
        if self.due.len() < MOST {
            self.due.push_back(due);
        } else if !std::mem::replace(&mut self.dropped, true) {
            warn!(
                "subscriptions to Mercure begin and end faster than it can be reported: some are not reported"
            );
        }
    }

    /// Removes and returns the next work: a report of one topic, or a barrier.
    fn pop(&mut self) -> Option<Due> {
        let Some(next) = self.due.front_mut() else {
            self.dropped = false;
            return None;
        };
        if let Due::Report { listed, active, topics } = next
            && topics.len() > 1
        {
            let (listed, active, first) = (Arc::clone(listed), *active, topics.start);
            topics.start += 1;
            return Some(Due::Report { listed, active, topics: first..first + 1 });
        }
        self.due.pop_front()
    }

    /// Expects that another node publishes it.
    fn expect(&mut self, listed: &Arc<Listed>, active: bool, now: Moment) {
        for (topic, subscription) in listed.subscriptions(active).enumerate() {
            let key = self.key(&subscription.id(), active);
            if let Some(at) = self.early.iter().position(|one| one.key == key) {
                self.early.remove(at);
            } else if self.expected.len() < MOST {
                let listed = Arc::clone(listed);
                self.expected.push_back(Expected { listed, active, topic, key, since: now });
            }
        }
    }

    /// Expects nothing any more: reports may have been missed.
    pub(super) fn forget_expected(&mut self) {
        self.expected.clear();
        self.early.clear();
    }

    /// Notes an update, which may be an expected report. `others`: returns whether another node reports.
    pub(super) fn note(&mut self, update: &Update, now: Moment, others: impl FnOnce() -> bool) {
        // Only the hub publishes such topics.
        let [path] = &update.topics[..] else { return };
        if !path.starts_with(PATH) {
            return;
        }
        let Some(active) =
            Raw::new(&update.data).ok().and_then(|data| data.get("active")?.boolean())
        else {
            return;
        };
        let key = self.key(path, active);
        // They arrive about in the order in which they are expected.
        if let Some(at) = self.expected.iter().position(|one| one.key == key) {
            self.expected.remove(at);
            return;
        }
        let is_old = |one: &Early| now.since(one.since) >= GIVEN_UP;
        while self.early.len() >= MOST || self.early.front().is_some_and(is_old) {
            self.early.pop_front();
        }
        if others() {
            self.early.push_back(Early { key, since: now });
        }
    }

    /// Takes over what has not been reported for too long, if `ours` says that this node reports now.
    pub(super) fn take_over(&mut self, now: Moment, ours: impl FnOnce() -> bool) {
        while self.expected.front().is_some_and(|one| now.since(one.since) >= GIVEN_UP) {
            self.expected.pop_front();
        }
        let is_late = |one: &Expected| now.since(one.since) >= LATE;
        if !self.expected.front().is_some_and(is_late) || !ours() {
            return;
        }
        while let Some(late) = self.expected.pop_front_if(|one| is_late(one)) {
            self.push(late.due());
        }
    }
}

impl Expected {
    fn due(self) -> Due {
        let Self { listed, active, topic, .. } = self;
        Due::Report { listed, active, topics: topic..topic + 1 }
    }
}

impl Mercure {
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
        match listed {
            Some(listed) if ours => reports.add(&listed, active),
            Some(listed) if self.takes_part() => reports.expect(&listed, active, (self.clock)()),
            _ => {}
        }
    }

    /// Takes over late reports, and publishes the next one if not too many `arrivals` wait.
    pub(super) fn report(&self, reports: &mut Reports, arrivals: usize) {
        reports.take_over((self.clock)(), || self.reports());
        if arrivals >= FEW_ARRIVALS {
            return;
        }
        match reports.pop() {
            Some(Due::Report { listed, active, topics }) => {
                let Some(subscription) = listed.subscriptions(active).nth(topics.start) else {
                    return;
                };
                let update = Update {
                    id: uuid(),
                    topics: vec![subscription.id()],
                    private: true,
                    data: subscription.json(true),
                    ..Update::default()
                };
                // A broker that is away stores no event of a subscription; the subscription itself needs none.
                let _unstored = self.dispatch(&update);
            }
            Some(Due::Barrier(handled)) => drop(handled),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mercure::selector::Selector;

    fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    fn subscriber(topics: &[&str]) -> Arc<Listed> {
        let topics: Vec<Selector> = topics.iter().map(|topic| Selector::new(topic)).collect();
        Arc::new(Listed::new(&topics, None))
    }

    /// The report of another node.
    fn report(listed: &Listed, active: bool, topic: usize) -> Update {
        let subscription = listed.subscriptions(active).nth(topic).unwrap();
        Update {
            topics: vec![subscription.id()],
            data: subscription.json(true),
            ..Update::default()
        }
    }

    /// Returns the reports that are due, as pairs of the number of the topic and whether it begins.
    fn due(reports: &Reports) -> Vec<(usize, bool)> {
        let each = reports.due.iter().flat_map(|due| match due {
            Due::Report { topics, active, .. } => {
                topics.clone().map(|topic| (topic, *active)).collect()
            }
            Due::Barrier(_) => Vec::new(),
        });
        each.collect()
    }

    #[test]
    fn what_a_killed_node_has_not_reported_is_taken_over_in_order_and_once() {
        let mut reports = Reports::default();
        let one = subscriber(&["a", "b", "c"]);
        reports.expect(&one, true, at(10));
        reports.expect(&one, false, at(11));
        for (active, topic) in [(true, 0), (true, 1), (true, 2), (false, 1)] {
            reports.note(&report(&one, active, topic), at(11), || true);
        }
        // Another's updates are none.
        let data = String::from(r#"{"active":true}"#);
        let other = Update { topics: vec!["a".into()], data, ..Update::default() };
        reports.note(&other, at(11), || true);
        assert!(reports.early.is_empty());
        reports.take_over(at(13), || true);
        assert_eq!(due(&reports), [], "it may come");
        reports.take_over(at(16), || false);
        assert_eq!(due(&reports), [], "it is another's");
        reports.take_over(at(16), || true);
        assert_eq!(due(&reports), [(0, false), (2, false)]);
        reports.take_over(at(20), || true);
        assert_eq!(due(&reports).len(), 2);
        assert!(!reports.expects());
    }

    #[test]
    fn a_report_may_come_before_the_subscription_is_known() {
        let mut reports = Reports::default();
        let one = subscriber(&["a", "b"]);
        reports.note(&report(&one, true, 1), at(10), || true);
        reports.expect(&one, true, at(11));
        reports.take_over(at(15), || true);
        assert_eq!(due(&reports), [(0, true)]);
        // One that nothing expects is forgotten, and this node's own are not remembered.
        reports.note(&report(&one, true, 0), at(16), || true);
        reports.note(&report(&one, false, 0), at(16) + GIVEN_UP, || false);
        assert!(reports.early.is_empty());
    }

    #[test]
    fn the_end_of_a_subscription_is_reported_behind_its_beginning() {
        let mut reports = Reports::default();
        let (one, other) = (subscriber(&["a"]), subscriber(&["b"]));
        reports.expect(&one, true, at(10));
        reports.expect(&other, true, at(10));
        // The node that should have reported it is lost, so the end is this node's.
        reports.add(&one, false);
        assert_eq!(due(&reports), [(0, true), (0, false)]);
        assert_eq!(reports.expected.len(), 1);
    }

    #[test]
    fn reports_that_wait_are_bounded_and_published_topic_by_topic() {
        let mut reports = Reports::default();
        let one = subscriber(&["a", "b", "c"]);
        for _ in 0..=MOST {
            reports.add(&one, true);
        }
        let (handled, mut wait) = oneshot::channel();
        reports.barrier(handled);
        assert_eq!(reports.due.len(), MOST + 1, "an entry for each subscriber, and the barrier");
        assert!(reports.dropped);
        let mut published = Vec::new();
        while let Some(Due::Report { topics, .. }) = reports.pop() {
            assert!(wait.try_recv().is_err());
            published.extend(topics);
        }
        assert_eq!(published.len(), 3 * MOST);
        assert_eq!(published[..4], [0, 1, 2, 0]);
        assert!(reports.pop().is_none() && reports.is_empty());
        assert!(!reports.dropped, "the next loss has its own warning");
    }

    #[test]
    fn what_nobody_reports_is_given_up() {
        let mut reports = Reports::default();
        reports.expect(&subscriber(&["a"]), true, at(10));
        reports.take_over(at(10) + GIVEN_UP, || true);
        assert!(!reports.expects() && reports.is_empty());
        reports.expect(&subscriber(&["a"]), true, at(40));
        reports.forget_expected();
        assert!(!reports.expects());
    }
}
