//! Collects the updates of this node: written under the registry's locks, in one order, and cut into packets.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;

use super::Options;
use super::log::LogOutbox;
use super::packet::{HEADER, Header, Writer};
use crate::app::App;
use crate::hash::{SEED, hash, mixed};
use crate::moment::Moment;
use crate::nodes::{ClusterUpdate, LogWriter, NodeId, Nodes};

/// The outgoing updates of this node for all other nodes.
pub struct Outbox {
    me: NodeId,
    packet: usize,
    bound: usize,
    waiting: Mutex<Waiting>,
    /// The ready nodes, including this one once it is ready.
    ranking: RwLock<Vec<NodeId>>,
    log: OnceLock<Arc<LogOutbox>>,
    uses_log: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Waiting {
    /// Number of the open packet.
    number: u64,
    /// The round of the first record in the open packet, and the round of the next record.
    first_round: u32,
    round: u32,
    open: Vec<u8>,
    closed: VecDeque<Bytes>,
    bytes: usize,
    dropped: u64,
    terminated: u64,
    /// The latest terminations, for repetition.
    recent: VecDeque<Terminated>,
}

/// A user whose connections an application terminated through this node.
#[derive(Clone, Debug)]
struct Terminated {
    number: u64,
    app: Arc<str>,
    user: Box<str>,
    /// The time of the first check; `None` before it.
    at: Option<Moment>,
}

/// How long, and how many, terminations are repeated for nodes that may have missed them.
const RECENT: (Duration, usize) = (Duration::from_secs(30), 1000);

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Creates the outbox of the node `me`, an id drawn at random at process start. `wake` is called when there is
    /// something to send, and must not wait.
    pub fn new(me: NodeId, options: &Options, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let waiting = Waiting {
            number: 1,
            first_round: 0,
            round: 0,
            open: Vec::new(),
            closed: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            terminated: 0,
            recent: VecDeque::new(),
        };
        Self {
            me,
            packet: options.packet,
            bound: options.waiting,
            waiting: Mutex::new(waiting),
            ranking: RwLock::default(),
            log: OnceLock::new(),
            uses_log: AtomicBool::new(false),
            wake: Box::new(wake),
        }
    }

    /// Sends the events of channels with history to the log.
    pub(super) fn set_log(&self, log: Arc<LogOutbox>) {
        if self.log.set(log).is_ok() {
            self.uses_log.store(true, Ordering::Release);
        }
    }

    /// Returns the id of this node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record. A record for which there is no room leaves a gap.
    pub(super) fn write(&self, record: impl FnOnce(&mut Writer<'_>)) {
        self.put(None, record);
    }

    /// Starts a round: all following records belong to it.
    pub(super) fn begin(&self, round: u32) {
        self.put(Some(round), |out| out.begin(round));
    }

    fn put(&self, round: Option<u32>, record: impl FnOnce(&mut Writer<'_>)) {
        let mut waiting = self.lock();
        if waiting.bytes > self.bound {
            // Done once for any number of dropped records: the open packet is closed, and skipping a number makes the
            // gap visible.
            if waiting.dropped == 0 {
                waiting.close(self.me);
                waiting.number += 1;
            }
            waiting.dropped += 1;
            // A round whose beginning was dropped has begun all the same: other nodes must see that theirs is an older one.
            waiting.round = round.unwrap_or(waiting.round);
            return;
        }
        let was_empty = waiting.open.is_empty() && waiting.closed.is_empty();
        if waiting.open.is_empty() {
            waiting.open.resize(HEADER, 0);
            waiting.first_round = waiting.round;
        }
        let before = waiting.open.len();
        record(&mut Writer(&mut waiting.open));
        let added = waiting.open.len() - before;
        waiting.bytes += added;
        waiting.round = round.unwrap_or(waiting.round);
        if waiting.open.len() >= self.packet {
            waiting.close(self.me);
        }
        drop(waiting);
        if was_empty {
            (self.wake)();
        }
    }

    /// Repeats the latest user terminations, because a round contains only state, and a termination is none.
    pub(super) fn repeat(&self) {
        let recent: Vec<_> = self.lock().recent.iter().cloned().collect();
        for Terminated { number, app, user, .. } in recent {
            self.write(|out| out.terminated(&app, &user, number, true));
        }
    }

    /// Forgets terminations that are too old to be repeated.
    pub(super) fn age(&self, now: Moment) {
        self.lock()
            .recent
            .retain_mut(|terminated| now.since(*terminated.at.get_or_insert(now)) < RECENT.0);
    }

    /// Returns the packets to send, in order.
    pub(super) fn take(&self) -> Vec<Bytes> {
        let mut waiting = self.lock();
        waiting.close(self.me);
        waiting.bytes = 0;
        waiting.dropped = 0;
        mem::take(&mut waiting.closed).into()
    }

    /// Sets the nodes that report channel events.
    pub(super) fn rank(&self, nodes: Vec<NodeId>) {
        *self.ranking.write().unwrap_or_else(PoisonError::into_inner) = nodes;
    }
}

impl Waiting {
    fn close(&mut self, me: NodeId) {
        if self.open.is_empty() {
            return;
        }
        let mut packet = mem::take(&mut self.open);
        let header = Header { node: me, number: self.number, round: self.first_round };
        packet[..HEADER].copy_from_slice(&header.write());
        self.number += 1;
        self.closed.push_back(packet.into());
    }
}

impl Nodes for Outbox {
    fn publish(&self, app: &Arc<App>, update: &ClusterUpdate<'_>) {
        let ClusterUpdate::Terminated { user_id } = update else {
            return self.write(|out| out.update(&app.id, update));
        };
        let mut waiting = self.lock();
        waiting.terminated += 1;
        let number = waiting.terminated;
        let terminated =
            Terminated { number, app: Arc::clone(&app.id), user: (*user_id).into(), at: None };
        waiting.recent.push_back(terminated);
        if waiting.recent.len() > RECENT.1 {
            waiting.recent.pop_front();
        }
        drop(waiting);
        self.write(|out| out.terminated(&app.id, user_id, number, false));
    }

    /// Selects the reporting node by rendezvous hashing ("highest random weight", Thaler and Ravishankar 1998), so
    /// that a change of nodes moves only a share of the channels.
    fn reports(&self, app: &App, channel: &str) -> bool {
        let ranking = self.ranking.read().unwrap_or_else(PoisonError::into_inner);
        let of_channel = hash(app.id.as_bytes(), hash(channel.as_bytes(), SEED));
        let first = ranking.iter().max_by_key(|node| (mixed(of_channel ^ node.0), **node));
        first == Some(&self.me)
    }

    fn may_report(&self) -> bool {
        self.ranking.read().unwrap_or_else(PoisonError::into_inner).contains(&self.me)
    }

    fn log(&self) -> Option<&dyn LogWriter> {
        let log = self.log.get().filter(|_| self.uses_log.load(Ordering::Acquire))?;
        Some(&**log)
    }

    fn leave_log(&self) {
        self.uses_log.store(false, Ordering::Release);
    }
}
