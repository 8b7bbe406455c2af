//! Which other nodes live, what is missing of what they told, and when to say what: packets and the time in, decisions out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Options;
use super::packet::{Header, Packet, Record, Told};
use super::way::Way;
use crate::moment::Moment;
use crate::peers::{NodeId, Origin};

/// What this node does with what it hears.
pub(super) trait Local {
    /// News of an application.
    fn hear(&mut self, from: Origin, app: &str, told: &Told<'_>, now: Moment);
    /// All of this round was heard: what is older is not any more.
    fn settle(&mut self, from: Origin, now: Moment);
    /// A node is gone.
    fn forget(&mut self, node: NodeId, now: Moment);
    /// Tells everything, into the [`Way`].
    fn tell_all(&mut self, now: Moment);
    /// Could all of the last packet be heard? Not when nobody can say whether an application exists that it tells of.
    fn has_heard_all(&self) -> bool {
        true
    }
}

/// A round that another node asks for waits this long after the last one began: it serves all who asked meanwhile.
const ROUNDS_APART: Duration = Duration::from_secs(1);

/// After so long without the round that was asked for it is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// So long a node that is gone is remembered: its last packets may still be on their way, or come again.
const PAST: Duration = Duration::from_mins(10);

/// A new node takes its part after so long even when it could not hear everything.
const JOIN_AT_LAST: Duration = Duration::from_secs(10);

/// So long after a node has said that it reports all others know: nodes that start together do not all think that they are the only one.
const ANNOUNCED: Duration = Duration::from_millis(500);

/// What this node knows of the others.
#[derive(Debug)]
pub struct Cluster {
    way: Arc<Way>,
    options: Options,
    nodes: BTreeMap<NodeId, Node>,
    past: BTreeMap<NodeId, Past>,
    began: Moment,
    /// It reports, and says so.
    ready: bool,
    /// Since when.
    since: Moment,
    /// All others know that it does.
    open: bool,
    next_beat: Moment,
    /// Since when the broker cannot be reached.
    blind: Option<Moment>,
    round: u32,
    round_began: Option<Moment>,
    /// Somebody needs everything from the beginning.
    wanted: bool,
    report: Report,
}

/// Another node.
#[derive(Debug)]
struct Node {
    heard: Moment,
    /// The number of the next packet.
    next: u64,
    /// In which round it tells.
    round: u32,
    telling: Telling,
    /// The last round all of which was heard, with nothing missing since.
    settled: bool,
    asked: Option<Moment>,
    /// Something of the round was told of an application that could not be looked up.
    lacking: bool,
    ready: bool,
    /// All it told was heard once: what it repeats and was not heard was missed, and is not from before this node began.
    known: bool,
    /// The number of the last user whose connections it wished to be ended.
    terminated: u64,
}

/// A node that is not there any more, or only silent: what it said before is not heard again if it comes back.
#[derive(Debug)]
struct Past {
    next: u64,
    at: Moment,
    known: bool,
    terminated: u64,
    /// It will not come back.
    goodbye: bool,
}

/// The round that is being heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// None, or one of which a part is missing.
    Nothing,
    /// This one, and nothing is missing so far.
    Whole(u32),
}

/// Numbers for whoever looks after the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Other nodes that live.
    pub nodes: u64,
    /// Is the broker there?
    pub connected: bool,
    /// Does this node take its part, and do the others know? Before that it lets no clients in, because what happens to their channels might be reported
    /// twice or not at all.
    pub ready: bool,
    /// Packets heard.
    pub packets: u64,
    /// Packets heard again, or late.
    pub repeated: u64,
    /// Packets that never came.
    pub missed: u64,
    /// Packets that made no sense.
    pub malformed: u64,
    /// Nodes that died without a word.
    pub died: u64,
}

impl Cluster {
    /// Of a node that begins now.
    pub fn new(way: Arc<Way>, options: Options, now: Moment) -> Self {
        Self {
            way,
            options,
            nodes: BTreeMap::new(),
            past: BTreeMap::new(),
            began: now,
            ready: false,
            since: now,
            open: false,
            next_beat: now,
            blind: None,
            round: 0,
            round_began: None,
            wanted: false,
            report: Report::default(),
        }
    }

    /// Numbers.
    pub fn report(&self) -> Report {
        Report {
            nodes: self.nodes.len() as u64,
            connected: self.blind.is_none(),
            ready: self.open,
            ..self.report
        }
    }

    /// The broker cannot be reached any more.
    pub fn lost(&mut self, now: Moment) {
        self.blind.get_or_insert(now);
    }

    /// It can be reached again.
    pub fn found(&mut self, now: Moment) {
        self.blind = None;
        self.next_beat = now;
        for node in self.nodes.values_mut() {
            node.heard = now;
        }
    }

    /// A packet made no sense.
    pub(super) fn malformed(&mut self) {
        self.report.malformed += 1;
    }

    /// Takes a packet, also one of this node's own.
    pub(super) fn receive(&mut self, packet: Packet<'_>, now: Moment, local: &mut impl Local) {
        let Packet { header: Header { node: id, number, round }, records } = packet;
        let past = self.past.get(&id);
        if id == self.way.me() || past.is_some_and(|past| past.goodbye || number < past.next) {
            return;
        }
        let past = self.past.remove(&id).filter(|past| past.known);
        let is_new = !self.nodes.contains_key(&id);
        let node = self.nodes.entry(id).or_insert_with(|| Node {
            heard: now,
            next: number,
            round,
            telling: Telling::Nothing,
            settled: false,
            asked: None,
            lacking: false,
            ready: false,
            known: past.is_some(),
            terminated: past.map_or(0, |past| past.terminated),
        });
        node.heard = now;
        if number < node.next {
            self.report.repeated += 1;
            return;
        }
        self.report.packets += 1;
        if number > node.next {
            self.report.missed += number - node.next;
            node.telling = Telling::Nothing;
            node.settled = false;
        }
        node.next = number + 1;
        node.round = round;
        if is_new {
            // It cannot know what this node has told before.
            self.wanted = true;
            self.next_beat = now;
        }
        for record in records {
            self.record(id, record, now, local);
        }
        if !local.has_heard_all()
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.lacking = true;
            node.settled = false;
        }
    }

    fn record(&mut self, id: NodeId, record: Record<'_>, now: Moment, local: &mut impl Local) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        match record {
            Record::Told { app, told } => {
                if let Told::Terminated { number, again, .. } = told {
                    let missed = number > node.terminated;
                    node.terminated = node.terminated.max(number);
                    if !missed || (again && !node.known) {
                        return;
                    }
                }
                local.hear(Origin { node: id, round: node.round }, app, &told, now);
            }
            Record::Beat { ready } => {
                if node.ready != ready {
                    node.ready = ready;
                    self.rank();
                }
            }
            Record::Ask { to, seen } => self.wanted |= to == self.way.me() && seen >= self.round,
            Record::Begin { round } => {
                node.round = round;
                node.telling = Telling::Whole(round);
                node.lacking = false;
            }
            Record::End { round } => {
                if node.telling == Telling::Whole(round) {
                    node.telling = Telling::Nothing;
                    node.settled = !node.lacking;
                    node.known = true;
                    node.asked = None;
                    local.settle(Origin { node: id, round }, now);
                }
            }
            Record::Bye => self.leave(id, true, now, local),
        }
    }

    /// A node is gone. Who reports in its place is settled first, so that what its end brings about is reported.
    fn leave(&mut self, id: NodeId, goodbye: bool, now: Moment, local: &mut impl Local) {
        if let Some(node) = self.nodes.remove(&id) {
            self.past.insert(
                id,
                Past {
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
        self.way.rank(others.chain(self.ready.then_some(self.way.me())).collect());
    }

    /// Does what is due, and says when to come again.
    pub(super) fn poll(&mut self, now: Moment, local: &mut impl Local) -> Moment {
        self.way.age(now);
        self.bury(now, local);
        self.ask(now);
        if self.wanted && self.round_began.is_none_or(|began| began + ROUNDS_APART <= now) {
            self.wanted = false;
            self.round += 1;
            self.round_began = Some(now);
            self.way.begin(self.round);
            local.tell_all(now);
            self.way.repeat();
            let round = self.round;
            self.way.write(|out| out.end(round));
        }
        self.join(now);
        if self.next_beat <= now {
            let ready = self.ready;
            self.way.write(|out| out.beat(ready));
            self.next_beat = now + self.options.beat;
        }
        // Everything else is no more urgent than a part of a beat.
        let round = self
            .round_began
            .filter(|_| self.wanted)
            .map_or(self.next_beat, |began| began + ROUNDS_APART);
        self.next_beat.min(round).min(now + self.options.beat / 4)
    }

    /// Forgets nodes that are silent; while the broker is away all are, and that says nothing of them for a while.
    fn bury(&mut self, now: Moment, local: &mut impl Local) {
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
            self.leave(id, false, now, local);
        }
        self.past.retain(|_, past| now.since(past.at) < PAST);
    }

    /// Asks nodes of which something is missing to tell everything.
    fn ask(&mut self, now: Moment) {
        for (id, node) in &mut self.nodes {
            let lately = node.asked.is_some_and(|asked| now.since(asked) < ASK_AGAIN);
            if node.settled || lately || node.telling != Telling::Nothing {
                continue;
            }
            node.asked = Some(now);
            let (to, seen) = (*id, node.round);
            self.way.write(|out| out.ask(to, seen));
        }
    }

    fn join(&mut self, now: Moment) {
        if self.ready {
            self.open |= now.since(self.since) >= ANNOUNCED;
            return;
        }
        let since = now.since(self.began);
        let heard_all = since >= self.options.join && self.nodes.values().all(|node| node.known);
        if heard_all || since >= JOIN_AT_LAST {
            self.ready = true;
            self.since = now;
            self.rank();
            self.next_beat = now;
        }
    }

    /// The node ends: others need not wait to find out.
    pub fn end(&self) {
        self.way.write(|out| {
            out.bye();
        });
    }
}
