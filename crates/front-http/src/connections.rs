//! The table of open connections: it limits them, counts them by client address, and closes idle ones while clients
//! wait.
//!
//! Invariants
//! - A connection with a request in progress is never closed here. A connection that receives a request at that
//!   moment answers it first.
//! - A request takes no lock of the table; only the start and end of a connection do. The table is scanned only while
//!   all places are taken and a client waits, for at most a twentieth of the time.
//! - While fewer than a sixteenth of the places are free, an address above its share gets a further place only in
//!   exchange for one of its own.
//! - Trusted proxies and unix sockets have no share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::eviction::{self, Candidate};
use crate::metrics::{ClientLimit, FrontMetrics};
use crate::options::Options;
use crate::phase::{Phase, PhaseCell};
use crate::site::Site;

/// Minimum time between two scans while clients wait.
const SCAN: Duration = Duration::from_millis(25);
/// Inverse of the fraction of time that scans may take.
const SCAN_PART: u32 = 20;
/// Inverse of the fraction of places closed at once, so that the next clients need no scan.
const BATCH_PART: usize = 32;
const LARGEST_BATCH: usize = 256;
/// Shares apply while fewer than this fraction of the places (its inverse) is free.
const CROWDED_PART: usize = 16;
/// Maximum number of addresses in a report.
const TOP: usize = 10;

/// The connections of a front.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    share: usize,
    /// Descriptors from this number on are reserved and not used for clients.
    ceiling: RawFd,
    slots: Arc<Semaphore>,
    table: Mutex<Table>,
    metrics: Arc<FrontMetrics>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: HashMap<u64, Entry>,
    clients: HashMap<IpAddr, Held>,
    /// Connections closed above their address's share and not yet replaced.
    credit: usize,
    /// The last scan found as many connections to close as it was looking for, so there may be more.
    more: bool,
    /// Maximum number of connections since the last report.
    peak: usize,
    /// No scan takes place before this time.
    next_scan: Option<Instant>,
    /// Time and address of the last rejected connection.
    refused: Option<(Instant, IpAddr)>,
}

/// The connections of one address.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    open: usize,
    has_share: bool,
}

#[derive(Debug)]
struct Entry {
    client: Client,
    phase: Arc<PhaseCell>,
    /// Closes the connection when no request is in progress.
    close: CancellationToken,
    closing: bool,
}

/// The client of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Client {
    address: Option<IpAddr>,
    has_share: bool,
}

impl Client {
    /// A client that is not known yet, or is on a unix socket.
    pub(crate) const UNKNOWN: Self = Self { address: None, has_share: false };

    pub(crate) fn at(address: IpAddr, trusted: bool) -> Self {
        Self { address: Some(Site::of(address).address()), has_share: !trusted }
    }
}

/// An open connection; its place becomes free on drop.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Arc<Connections>,
    id: u64,
    pub(crate) phase: Arc<PhaseCell>,
    _slot: OwnedSemaphorePermit,
}

/// The error for an address above its share while places are scarce.
#[derive(Debug)]
pub(crate) struct AboveShare;

impl Connections {
    pub(crate) fn new(options: &Options, metrics: Arc<FrontMetrics>) -> Arc<Self> {
        let limit = options.max_connections.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            limit,
            share: options.connections_per_client.unwrap_or_else(|| (limit / 2).max(1)),
            ceiling: options.descriptor_ceiling.unwrap_or(RawFd::MAX),
            slots: Arc::new(Semaphore::new(limit)),
            table: Mutex::default(),
            metrics,
        })
    }

    /// Waits for a free place. While there is none and `waits` says that a client waits, idle connections are closed.
    /// Cancel safe.
    pub(crate) async fn slot(&self, waits: impl Fn() -> bool) -> OwnedSemaphorePermit {
        loop {
            if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
                return slot;
            }
            if waits() {
                self.make_room();
            }
            let slot = Arc::clone(&self.slots).acquire_owned();
            if let Ok(slot) = tokio::time::timeout(SCAN, slot).await {
                return slot.expect("the semaphore is never closed");
            }
        }
    }

    /// Returns whether a client may use this descriptor, or whether it is reserved for the rest of the server. The
    /// kernel assigns the lowest free number, so a number shows how many are open.
    pub(crate) fn may_have(&self, descriptor: RawFd) -> bool {
        descriptor < self.ceiling
    }

    /// Waits until clients may use descriptors again. `any` is any open one. Cancel safe.
    pub(crate) async fn descriptor(&self, any: &impl AsFd, waits: impl Fn() -> bool) {
        let is_free = || {
            let next = rustix::io::fcntl_dupfd_cloexec(any, 0);
            next.is_ok_and(|next| self.may_have(next.as_raw_fd()))
        };
        while !is_free() {
            if waits() {
                self.make_room();
            }
            tokio::time::sleep(SCAN).await;
        }
    }

    /// Adds an accepted connection. `close` ends it when no request is in progress.
    pub(crate) fn open(
        self: &Arc<Self>,
        slot: OwnedSemaphorePermit,
        client: Client,
        close: CancellationToken,
    ) -> Result<Open, AboveShare> {
        let phase = Arc::new(PhaseCell::new(Phase::First));
        let entry =
            Entry { client: Client::UNKNOWN, phase: Arc::clone(&phase), close, closing: false };
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        table.entries.insert(id, entry);
        table.peak = table.peak.max(table.entries.len());
        drop(table);
        self.metrics.connections.increment(1.0);
        let open = Open { connections: Arc::clone(self), id, phase, _slot: slot };
        open.is_of(client)?;
        Ok(open)
    }

    /// Closes some of the connections that wait for their clients. Calls more frequent than the scan interval do
    /// nothing.
    pub(crate) fn make_room(&self) {
        let started = Instant::now();
        let mut table = self.table();
        if table.next_scan.is_some_and(|next| started < next) {
            return;
        }
        let batch = (self.limit / BATCH_PART).clamp(1, LARGEST_BATCH);
        let chosen = eviction::choose(table.candidates(), table.excess(self.share), batch);
        let mut tokens = Vec::with_capacity(chosen.len());
        for id in chosen {
            if let Some(entry) = table.entries.get_mut(&id) {
                entry.closing = true;
                tokens.push(entry.close.clone());
            }
        }
        table.credit = tokens.len();
        table.more = tokens.len() == batch;
        // If more can be closed, the next call scans at once; otherwise scanning would cost time without effect.
        let pause = if table.more { Duration::ZERO } else { SCAN };
        table.next_scan = Some(started + pause.max(started.elapsed() * SCAN_PART));
        drop(table);
        for token in &tokens {
            self.metrics.limited(ClientLimit::Idle);
            token.cancel();
        }
        if !tokens.is_empty() {
            tracing::debug!(connections = tokens.len(), "idle connections closed: others wait");
        }
    }

    /// Returns the maximum number of connections since the last call.
    pub fn take_peak(&self) -> usize {
        let mut table = self.table();
        let open = table.entries.len();
        std::mem::replace(&mut table.peak, open)
    }

    /// Returns the maximum number of connections.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of open connections.
    pub fn len(&self) -> usize {
        self.table().entries.len()
    }

    /// Returns whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the current state for people and programs.
    pub fn report(&self) -> ClientReport {
        let mut report =
            ClientReport { limit: self.limit, share: self.share, ..ClientReport::default() };
        let table = self.table();
        for entry in table.entries.values() {
            report.open += 1;
            match entry.phase.get() {
                Phase::First | Phase::Head => report.unfinished += 1,
                Phase::Idle => report.idle += 1,
                Phase::Busy => report.busy += 1,
            }
            report.not_reading += usize::from(entry.phase.is_stalled());
        }
        let mut clients: Vec<(IpAddr, usize)> =
            table.clients.iter().map(|(client, held)| (*client, held.open)).collect();
        report.refused = table.refused.map(|(at, client)| (name(client), at.elapsed()));
        drop(table);
        report.clients = clients.len();
        clients.sort_unstable_by_key(|(client, open)| (std::cmp::Reverse(*open), *client));
        clients.truncate(TOP);
        report.most = clients.into_iter().map(|(client, open)| (name(client), open)).collect();
        report.limited = self.metrics.limited_so_far();
        report
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder panics")
    }
}

/// Returns the display form of an address; for IPv6 the client's network.
fn name(client: IpAddr) -> String {
    match client {
        IpAddr::V4(_) => client.to_string(),
        IpAddr::V6(_) => format!("{client}/64"),
    }
}

impl Table {
    fn candidates(&self) -> Vec<Candidate> {
        let waiting = |(id, entry): (&u64, &Entry)| {
            let phase = entry.phase.get();
            let waits = phase != Phase::Busy && !entry.phase.is_stalled() && !entry.closing;
            waits.then(|| Candidate {
                id: *id,
                client: entry.client.address,
                unfinished: phase != Phase::Idle,
                waited: entry.phase.waited(),
            })
        };
        self.entries.iter().filter_map(waiting).collect()
    }

    /// Returns how many connections each address has above its share.
    fn excess(&self, share: usize) -> HashMap<IpAddr, usize> {
        let above = self.clients.iter().filter(|(_, held)| held.has_share && held.open > share);
        above.map(|(client, held)| (*client, held.open - share)).collect()
    }

    fn forget(&mut self, client: Client) {
        let Some(address) = client.address else { return };
        if let Some(held) = self.clients.get_mut(&address) {
            held.open -= 1;
            if held.open == 0 {
                self.clients.remove(&address);
            }
        }
    }
}

impl Open {
    /// Sets the client of a connection once it is known.
    pub(crate) fn is_of(&self, client: Client) -> Result<(), AboveShare> {
        let connections = &self.connections;
        let Some(address) = client.address else { return Ok(()) };
        let mut table = connections.table();
        let held = table.clients.entry(address).or_default();
        held.open += 1;
        held.has_share = client.has_share;
        let open = held.open;
        let before = match table.entries.get_mut(&self.id) {
            Some(entry) => std::mem::replace(&mut entry.client, client),
            None => Client::UNKNOWN,
        };
        table.forget(before);
        let crowded = connections.slots.available_permits() < connections.limit / CROWDED_PART;
        if !client.has_share || open <= connections.share || !crowded {
            return Ok(());
        }
        // Takes the place of an idle connection; those of addresses above their share are closed first.
        if table.credit == 0 {
            drop(table);
            connections.make_room();
            table = connections.table();
        }
        if table.credit > 0 || table.more {
            table.credit = table.credit.saturating_sub(1);
            return Ok(());
        }
        table.refused = Some((Instant::now(), address));
        drop(table);
        connections.metrics.limited(ClientLimit::Share);
        tracing::debug!(client = %name(address), open, "connection refused: it is above the client's share");
        Err(AboveShare)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut table = self.connections.table();
        if let Some(entry) = table.entries.remove(&self.id) {
            table.forget(entry.client);
        }
        drop(table);
        self.connections.metrics.connections.decrement(1.0);
    }
}

/// The clients' connections at one moment, and how often client limits applied since the start.
#[derive(Clone, Debug, Default)]
pub struct ClientReport {
    /// Maximum number of connections.
    pub limit: usize,
    /// Maximum number for one address while places are scarce.
    pub share: usize,
    /// Open connections.
    pub open: usize,
    /// Connections with a request in progress.
    pub busy: usize,
    /// Connections between two requests.
    pub idle: usize,
    /// Connections whose first request has not arrived, or whose next one is incomplete.
    pub unfinished: usize,
    /// Connections whose client currently does not read what was written.
    pub not_reading: usize,
    /// Addresses with a connection; an IPv6 /64 counts as one.
    pub clients: usize,
    /// Addresses with the most connections, in descending order.
    pub most: Vec<(String, usize)>,
    /// Address of the last connection rejected because of its share, and how long ago.
    pub refused: Option<(String, Duration)>,
    /// How often each limit applied.
    pub limited: Vec<(ClientLimit, u64)>,
}
