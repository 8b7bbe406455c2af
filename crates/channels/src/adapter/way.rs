//! What this node tells: written down under the registry's locks, in one order, and cut into packets.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;

use super::Options;
use super::packet::{HEADER, Header, Writer};
use crate::app::App;
use crate::peers::{News, NodeId, Peers};

/// This node's way to all others.
pub struct Way {
    me: NodeId,
    packet: usize,
    bound: usize,
    waiting: Mutex<Waiting>,
    /// The nodes that report, this one too once it is ready.
    ranking: RwLock<Vec<NodeId>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Waiting {
    /// The number of the packet that is open.
    number: u64,
    /// In which its first record was told, and in which the next one will be.
    first_round: u32,
    round: u32,
    open: Vec<u8>,
    closed: VecDeque<Bytes>,
    bytes: usize,
    dropped: u64,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Way {
    /// Of the node with this id, drawn at random when its process begins. `wake` is called when there is something to be sent; it must not wait.
    pub fn new(me: NodeId, options: &Options, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let waiting = Waiting {
            number: 1,
            first_round: 0,
            round: 0,
            open: Vec::new(),
            closed: VecDeque::new(),
            bytes: 0,
            dropped: 0,
        };
        Self {
            me,
            packet: options.packet,
            bound: options.waiting,
            waiting: Mutex::new(waiting),
            ranking: RwLock::default(),
            wake: Box::new(wake),
        }
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record; one for which there is no room leaves a gap.
    pub(super) fn write(&self, record: impl FnOnce(&mut Writer<'_>)) {
        self.put(None, record);
    }

    /// From here on what is written is told in this round.
    pub(super) fn begin(&self, round: u32) {
        self.put(Some(round), |out| out.begin(round));
    }

    fn put(&self, round: Option<u32>, record: impl FnOnce(&mut Writer<'_>)) {
        let mut waiting = self.lock();
        if waiting.bytes > self.bound {
            // Once for any number of records: the packet that is open goes, and the next one is not the one others wait for.
            if waiting.dropped == 0 {
                waiting.close(self.me);
                waiting.number += 1;
            }
            waiting.dropped += 1;
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

    /// The packets that are to be sent, in order.
    pub(super) fn take(&self) -> Vec<Bytes> {
        let mut waiting = self.lock();
        waiting.close(self.me);
        waiting.bytes = 0;
        waiting.dropped = 0;
        mem::take(&mut waiting.closed).into()
    }

    /// These nodes report.
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

impl Peers for Way {
    fn tell(&self, app: &Arc<App>, news: &News<'_>) {
        self.write(|out| out.news(&app.id, news));
    }

    /// The node of the highest rank: "highest random weight" (Thaler and Ravishankar 1998), so that a node that comes or goes takes or leaves only its share.
    fn reports(&self, app: &App, channel: &str) -> bool {
        let ranking = self.ranking.read().unwrap_or_else(PoisonError::into_inner);
        let of_channel = hash(app.id.as_bytes(), hash(channel.as_bytes(), SEED));
        let first = ranking.iter().max_by_key(|node| (mixed(of_channel ^ node.0), **node));
        first == Some(&self.me)
    }
}

/// Of FNV-1a: a hash that is the same on all nodes. Names that meet on purpose meet on one node, which only costs that node.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

fn hash(bytes: &[u8], seed: u64) -> u64 {
    bytes
        .iter()
        .fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The last step of `SplitMix64`: each bit of the input changes half of the output's.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
