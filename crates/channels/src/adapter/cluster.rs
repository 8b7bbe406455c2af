//! Tracks the other nodes: which are alive, which of their updates are missing, and when to send. Takes packets and
//! the time, returns decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Options;
use super::outbox::Outbox;
use super::packet::{Header, Packet, PacketUpdate, Record};
use crate::moment::Moment;
use crate::nodes::{NodeId, Origin};

/// Applies updates from other nodes to the channels of this node.
pub(super) trait Local {
    /// Applies one update of an application.
    fn apply_remote(&mut self, from: Origin, app: &str, update: &PacketUpdate<'_>, now: Moment);
    /// Removes state of `from.node` that it did not publish in the round `from.round`.
    fn end_round(&mut self, from: Origin, now: Moment);
    /// Removes all state of a node that is gone.
    fn forget(&mut self, node: NodeId, now: Moment);
    /// Publishes the whole state of this node into the [`Outbox`].
    fn publish_state(&mut self, now: Moment);
    /// Returns `false` if the last packet contained updates of an application that could not be looked up.
    fn is_resolved(&self) -> bool {
        true
    }
}

/// Minimum time between two rounds. One round serves all nodes that asked for it in between.
const ROUNDS_APART: Duration = Duration::from_secs(1);

/// Time after which an unanswered request for a round is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// How long a removed node is remembered. Its last packets may still be on their way or be repeated.
const FORMER_NODE_LIFETIME: Duration = Duration::from_mins(10);

/// A new node becomes ready after this time even if it has not received the state of all others.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between announcing readiness and the assumption that all others know it. Without it, nodes that start
/// together would all report.
const ANNOUNCED: Duration = Duration::from_millis(500);

/// The state of the other nodes as this node knows it.
#[derive(Debug)]
pub struct Cluster {
    outbox: Arc<Outbox>,
    options: Options,
    nodes: BTreeMap<NodeId, Node>,
    former: BTreeMap<NodeId, FormerNode>,
    began: Moment,
    /// Whether this node reports channel events, and announces that in its beats.
    ready: bool,
    /// When `ready` became true.
    since: Moment,
    /// All other nodes know that this node is ready.
    open: bool,
    next_beat: Moment,
    /// When the connection to the broker was lost.
    blind: Option<Moment>,
    round: u32,
    round_began: Option<Moment>,
    /// Another node needs the whole state.
    state_requested: bool,
    report: Report,
}

/// One other live node.
#[derive(Debug)]
struct Node {
    heard: Moment,
    /// Number of the next expected packet.
    next: u64,
    /// The round to which the node's updates belong.
    round: u32,
    progress: RoundProgress,
    /// The last round arrived completely, and nothing is missing since.
    settled: bool,
    asked: Option<Moment>,
    /// The round contained updates of an application that could not be looked up.
    unresolved: bool,
    ready: bool,
    /// The whole state of the node arrived once. A repeated record that was not received before was therefore missed;
    /// it is not older than this node.
    known: bool,
    /// Number of the last user termination that the node sent.
    terminated: u64,
}

/// A node that was removed. If it was only silent and comes back, packets it sent before are not applied again.
#[derive(Debug)]
struct FormerNode {
    next: u64,
    at: Moment,
    known: bool,
    terminated: u64,
    /// The node said goodbye and does not come back.
    goodbye: bool,
}

/// Progress of the round being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundProgress {
    /// No round is being received, or a part of it is missing.
    Idle,
    /// The round with this number is being received, with nothing missing so far.
    Receiving(u32),
}

/// Cluster counters for metrics and the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of other live nodes.
    pub nodes: u64,
    /// The broker is connected.
    pub connected: bool,
    /// This node is ready and the others know it. Until then it accepts no clients, because events of their
    /// channels might be reported twice or not at all.
    pub ready: bool,
    /// The log of events was read up to its end, or histories are not shared. Until then the node accepts no clients.
    pub loaded: bool,
    /// Packets received.
    pub packets: u64,
    /// Packets received twice or too late.
    pub repeated: u64,
    /// Packets that never arrived.
    pub missed: u64,
    /// Packets that could not be parsed.
    pub malformed: u64,
    /// Nodes that disappeared without a goodbye.
    pub died: u64,
}

impl Cluster {
    /// Creates the state of a node that starts at `now`.
    pub fn new(outbox: Arc<Outbox>, options: Options, now: Moment) -> Self {
        Self {
            outbox,
            options,
            nodes: BTreeMap::new(),
            former: BTreeMap::new(),
            began: now,
            ready: false,
            since: now,
            open: false,
            next_beat: now,
            blind: None,
            round: 0,
            round_began: None,
            state_requested: false,
            report: Report::default(),
        }
    }

    /// Returns the counters.
    pub fn report(&self) -> Report {
        Report {
            nodes: self.nodes.len() as u64,
            connected: self.blind.is_none(),
            ready: self.open,
            ..self.report
        }
    }

    /// Records that the broker connection was lost.
    pub fn lost(&mut self, now: Moment) {
        self.blind.get_or_insert(now);
    }

    /// Records that the broker is connected again.
    pub fn found(&mut self, now: Moment) {
        self.blind = None;
        self.next_beat = now;
        for node in self.nodes.values_mut() {
            node.heard = now;
        }
    }

    /// Counts a packet that could not be parsed.
    pub(super) fn malformed(&mut self) {
        self.report.malformed += 1;
    }

    /// Applies a packet. Packets of this node itself are skipped.
    pub(super) fn receive(&mut self, packet: Packet<'_>, now: Moment, local: &mut impl Local) {
        let Packet { header: Header { node: id, number, round }, records } = packet;
        let former = self.former.get(&id);
        if id == self.outbox.me()
            || former.is_some_and(|former| former.goodbye || number < former.next)
        {
            return;
        }
        let former = self.former.remove(&id).filter(|former| former.known);
        let is_new = !self.nodes.contains_key(&id);
        let node = self.nodes.entry(id).or_insert_with(|| Node {
            heard: now,
            next: number,
            round,
            progress: RoundProgress::Idle,
            settled: false,
            asked: None,
            unresolved: false,
            ready: false,
            known: former.is_some(),
            terminated: former.map_or(0, |former| former.terminated),
        });
        node.heard = now;
        if number < node.next {
            self.report.repeated += 1;
            return;
        }
        self.report.packets += 1;
        if number > node.next {
            self.report.missed += number - node.next;
            node.progress = RoundProgress::Idle;
            node.settled = false;
        }
        node.next = number + 1;
        node.round = round;
        if is_new {
            // A new node has not seen the state of this node.
            self.state_requested = true;
            self.next_beat = now;
        }
        for record in records {
            self.record(id, record, now, local);
        }
        if !local.is_resolved()
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.unresolved = true;
            node.settled = false;
        }
    }

    fn record(&mut self, id: NodeId, record: Record<'_>, now: Moment, local: &mut impl Local) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        match record {
            Record::Update { app, update } => {
                if let PacketUpdate::Terminated { number, again, .. } = update {
                    let missed = number > node.terminated;
                    node.terminated = node.terminated.max(number);
                    if !missed || (again && !node.known) {
                        return;
                    }
                }
                local.apply_remote(Origin { node: id, round: node.round }, app, &update, now);
            }
            Record::Beat { ready } => {
                if node.ready != ready {
                    node.ready = ready;
                    self.rank();
                }
            }
            Record::Ask { to, seen } => {
                self.state_requested |= to == self.outbox.me() && seen >= self.round;
            }
            Record::Begin { round } => {
                node.round = round;
                node.progress = RoundProgress::Receiving(round);
                node.unresolved = false;
            }
            Record::End { round } => {
                if node.progress == RoundProgress::Receiving(round) {
                    node.progress = RoundProgress::Idle;
                    node.settled = !node.unresolved;
                    node.known = true;
                    node.asked = None;
                    local.end_round(Origin { node: id, round }, now);
                }
            }
            Record::Bye => self.remove_node(id, true, now, local),
        }
    }

    /// Removes a node. The ranking of reporting nodes is updated first, so that the resulting channel events are
    /// reported.
    fn remove_node(&mut self, id: NodeId, goodbye: bool, now: Moment, local: &mut impl Local) {
        if let Some(node) = self.nodes.remove(&id) {
            self.former.insert(
                id,
                FormerNode {
                    next: node.next,
                    at: now,
                    known: node.known,
                    terminated: node.terminated,
                    goodbye,
                },
            );
            self.rank();
            local.forget(id, now);
        }
    }

    fn rank(&self) {
        let others = self.nodes.iter().filter(|(_, node)| node.ready).map(|(id, _)| *id);
        self.outbox.rank(others.chain(self.ready.then_some(self.outbox.me())).collect());
    }

    /// Performs all due work and returns when to call it again.
    pub(super) fn poll(&mut self, now: Moment, local: &mut impl Local) -> Moment {
        self.outbox.age(now);
        self.remove_silent_nodes(now, local);
        self.request_state(now);
        if self.state_requested && self.round_began.is_none_or(|began| began + ROUNDS_APART <= now)
        {
            self.state_requested = false;
            self.round += 1;
            self.round_began = Some(now);
            self.outbox.begin(self.round);
            local.publish_state(now);
            self.outbox.repeat();
            let round = self.round;
            self.outbox.write(|out| out.end(round));
        }
        self.join(now);
        if self.next_beat <= now {
            let ready = self.ready;
            self.outbox.write(|out| out.beat(ready));
            self.next_beat = now + self.options.beat;
        }
        // No other deadline is more precise than a quarter of a beat.
        let round = self
            .round_began
            .filter(|_| self.state_requested)
            .map_or(self.next_beat, |began| began + ROUNDS_APART);
        self.next_beat.min(round).min(now + self.options.beat / 4)
    }

    /// Removes silent nodes. While the broker is unreachable all nodes are silent, so they are kept for
    /// [`Options::blind`].
    fn remove_silent_nodes(&mut self, now: Moment, local: &mut impl Local) {
        let dead: Vec<NodeId> = match self.blind {
            Some(since) if now.since(since) < self.options.blind => Vec::new(),
            Some(_) => self.nodes.keys().copied().collect(),
            None => {
                let silent = |node: &Node| now.since(node.heard) >= self.options.patience;
                self.nodes.iter().filter(|(_, node)| silent(node)).map(|(id, _)| *id).collect()
            }
        };
        for id in dead {
            self.report.died += 1;
            self.remove_node(id, false, now, local);
        }
        self.former.retain(|_, former| now.since(former.at) < FORMER_NODE_LIFETIME);
    }

    /// Requests a full round from each node whose state is incomplete.
    fn request_state(&mut self, now: Moment) {
        for (id, node) in &mut self.nodes {
            let lately = node.asked.is_some_and(|asked| now.since(asked) < ASK_AGAIN);
            if node.settled || lately || node.progress != RoundProgress::Idle {
                continue;
            }
            node.asked = Some(now);
            let (to, seen) = (*id, node.round);
            self.outbox.write(|out| out.request_state(to, seen));
        }
    }

    fn join(&mut self, now: Moment) {
        if self.ready {
            self.open |= now.since(self.since) >= ANNOUNCED;
            return;
        }
        let since = now.since(self.began);
        let heard_all = since >= self.options.join && self.nodes.values().all(|node| node.known);
        if heard_all || since >= JOIN_TIMEOUT {
            self.ready = true;
            self.since = now;
            self.rank();
            self.next_beat = now;
        }
    }

    /// Announces that this node stops, so that the others need not wait for a timeout.
    pub fn end(&self) {
        self.outbox.write(|out| {
            out.bye();
        });
    }
}
