//! The log of the events of channels with history: what this node adds to it, and the link to the broker that stores it.
//!
//! A node puts events into packets and appends one packet after the other; the next one when the broker has
//! acknowledged the last. The broker numbers the packets, and every node reads them in that order.
//!
//! Invariants
//! - A packet is in the log at most once, even if its acknowledgement is lost: the broker knows sender and number.
//! - A node's packets are in the log in the order of their numbers.
//! - A reader gets each entry once and in order, or [`LogEvent::Opened`] with a gap.
//! - What waits is bounded: beyond the bound, and while the broker is away for longer than
//!   [`LogOptions::wait`], events are rejected.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::Options;
use super::packet::{HEADER, Header, Writer};
use crate::app::App;
use crate::moment::Moment;
use crate::nodes::{ClusterUpdate, LogWriter, NodeId};
use crate::registry::Publication;
use crate::shared_log::{EVENTS, Ticket};

/// Bounds of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// How long the broker keeps an entry. It is the longest age of a history.
    pub age: Duration,
    /// How many bytes of packets the broker keeps.
    pub bytes: u64,
    /// How long the broker may be away before events are rejected.
    pub wait: Duration,
}

/// Reports that the broker is away, and waits before the next attempt: each time twice as long, up to `longest`. Returns
/// false if nothing receives the events any more.
pub(super) async fn wait_for_broker(
    events: &mpsc::Sender<LogEvent>,
    pause: &mut Duration,
    longest: Duration,
) -> bool {
    if events.send(LogEvent::Away(true)).await.is_err() {
        return false;
    }
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(longest);
    true
}

/// An event of the link to the log.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// The log is open. Entries follow from where the last ones ended, or from `first` if that is later, or if the
    /// epoch is another one.
    Opened {
        /// Identifies the log. It is not 0.
        epoch: u64,
        /// Sequence of the oldest entry; that of the next one if there is none.
        first: u64,
        /// Sequence of the newest entry; 0 if there never was one.
        last: u64,
    },
    /// The next entry.
    Entry {
        /// Sequence in the epoch; it starts at 1 and increases by one.
        sequence: u64,
        /// Time since it was added.
        age: Duration,
        /// The packet.
        packet: Bytes,
    },
    /// The broker cannot be reached, or can be again. The link reconnects by itself.
    Away(bool),
    /// This node's packet with this number is stored.
    Stored(u64),
    /// The broker has no log. Nothing more follows.
    Unsupported,
}

/// The link to a log: tasks that append and read.
#[derive(Debug)]
pub struct LogLink {
    pub(super) packets: mpsc::Sender<(u64, Bytes)>,
    pub(super) events: mpsc::Receiver<LogEvent>,
    pub(super) tasks: JoinSet<()>,
    /// Maximum size of a packet in bytes, which the link learns from the broker.
    pub(super) largest: Arc<AtomicUsize>,
}

/// Maximum size of what an event has in a packet beside its texts: lengths, a socket, a user.
const AROUND: usize = 512;

/// Capacity of the queue of events. A link waits while it is full.
const QUEUED: usize = 256;

impl LogLink {
    /// Creates a link whose tasks the caller adds. One packet is on its way at a time.
    pub(super) fn new() -> (Self, mpsc::Receiver<(u64, Bytes)>, mpsc::Sender<LogEvent>) {
        let (packets, to_append) = mpsc::channel(1);
        let (send, events) = mpsc::channel(QUEUED);
        let largest = Arc::new(AtomicUsize::new(usize::MAX));
        (Self { packets, events, tasks: JoinSet::new(), largest }, to_append, send)
    }
}

/// The events of this node for the log.
pub(super) struct LogOutbox {
    me: NodeId,
    packet: usize,
    bound: usize,
    wait: Duration,
    waiting: Mutex<Waiting>,
    /// When the broker was last known to be there, in milliseconds; `u64::MAX` while it is.
    there: AtomicU64,
    stored: watch::Sender<u64>,
    /// Number of the last packet of this node that it has read.
    read: watch::Sender<u64>,
    wake: Arc<Notify>,
    /// Maximum size of a packet.
    largest: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Waiting {
    /// Number of the open packet.
    number: u64,
    open: Vec<u8>,
    events: u64,
    closed: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl fmt::Debug for LogOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOutbox").field("me", &self.me).finish_non_exhaustive()
    }
}

impl LogOutbox {
    pub(super) fn new(
        me: NodeId,
        options: &Options,
        wait: Duration,
        (wake, largest): (Arc<Notify>, Arc<AtomicUsize>),
        now: Moment,
    ) -> Self {
        let waiting =
            Waiting { number: 1, open: Vec::new(), events: 0, closed: VecDeque::new(), bytes: 0 };
        Self {
            me,
            packet: options.packet,
            bound: options.waiting,
            wait,
            waiting: Mutex::new(waiting),
            there: AtomicU64::new(now.millis()),
            stored: watch::Sender::new(0),
            read: watch::Sender::new(0),
            wake,
            largest,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records whether the broker can be reached.
    pub(super) fn away(&self, away: bool, now: Moment) {
        let was_there = self.there.load(Ordering::Relaxed) == u64::MAX;
        if !away {
            self.there.store(u64::MAX, Ordering::Relaxed);
        } else if was_there {
            self.there.store(now.millis(), Ordering::Relaxed);
        }
    }

    /// Returns the oldest packet with its number.
    pub(super) fn take(&self) -> Option<(u64, Bytes)> {
        let mut waiting = self.lock();
        if waiting.closed.is_empty() {
            waiting.close(self.me);
        }
        let (number, packet) = waiting.closed.pop_front()?;
        waiting.bytes -= packet.len();
        Some((number, packet))
    }

    /// Returns whether events wait.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.open.is_empty() && waiting.closed.is_empty()
    }

    /// Records that all packets up to this number are stored.
    pub(super) fn stored(&self, number: u64) {
        self.stored.send_if_modified(|stored| mem::replace(stored, number) < number);
    }

    /// Records that this node has read and applied a packet of any node.
    pub(super) fn read(&self, header: &Header) {
        if header.node == self.me {
            self.read.send_if_modified(|read| mem::replace(read, header.number) < header.number);
        }
    }
}

impl Waiting {
    /// Begins a packet unless one is open; returns whether it began one.
    fn begin(&mut self) -> bool {
        let is_new = self.open.is_empty();
        if is_new {
            self.open.resize(HEADER, 0);
            self.bytes += HEADER;
        }
        is_new
    }

    fn close(&mut self, me: NodeId) {
        if self.open.is_empty() {
            return;
        }
        let mut packet = mem::take(&mut self.open);
        let header = Header { node: me, number: self.number, round: 0 };
        packet[..HEADER].copy_from_slice(&header.write());
        self.closed.push_back((self.number, packet.into()));
        self.number += 1;
        self.events = 0;
    }
}

impl LogWriter for LogOutbox {
    fn is_open(&self, now: Moment) -> bool {
        let there = self.there.load(Ordering::Relaxed);
        let lately = self.wait.is_zero() || now.since(Moment::from_millis(there)) < self.wait;
        lately && self.lock().bytes < self.bound
    }

    fn fits(&self, app: &App, publication: &Publication<'_>) -> bool {
        let Publication { channel, event, data, .. } = publication;
        let texts = [app.id.len(), channel.as_str().len(), event.len(), data.len()];
        let size = HEADER + AROUND + texts.iter().sum::<usize>();
        size <= self.largest.load(Ordering::Relaxed)
    }

    fn append(&self, app: &Arc<App>, publication: &Publication<'_>) -> Ticket {
        let mut waiting = self.lock();
        let was_empty = waiting.begin();
        let before = waiting.open.len();
        let update = ClusterUpdate::Published(publication);
        Writer(&mut waiting.open).update(&app.id, &update);
        let added = waiting.open.len() - before;
        waiting.bytes += added;
        if before > HEADER && waiting.open.len() > self.largest.load(Ordering::Relaxed) {
            // It begins a packet of its own.
            let event = waiting.open.split_off(before);
            waiting.close(self.me);
            waiting.open.resize(HEADER, 0);
            waiting.open.extend_from_slice(&event);
            waiting.bytes += HEADER;
        }
        waiting.events += 1;
        let number = waiting.number;
        if waiting.open.len() >= self.packet || waiting.events == EVENTS {
            waiting.close(self.me);
        }
        drop(waiting);
        if was_empty {
            self.wake.notify_one();
        }
        Ticket { number, stored: self.stored.subscribe() }
    }

    fn catch_up(&self) -> Ticket {
        let mut waiting = self.lock();
        let was_empty = waiting.begin();
        let number = waiting.number;
        drop(waiting);
        if was_empty {
            self.wake.notify_one();
        }
        Ticket { number, stored: self.read.subscribe() }
    }
}

/// Waits for the next event of a link; for ever without one.
///
/// # Cancel safety
/// An event that was not returned is returned by the next call.
pub(super) async fn next_event(link: Option<&mut LogLink>) -> LogEvent {
    let Some(link) = link else { return std::future::pending().await };
    match link.events.recv().await {
        Some(event) => event,
        None => std::future::pending().await,
    }
}
