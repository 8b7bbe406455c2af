//! All open WebSockets of a front, by id and application: where messages for them enter, and how many there are.
//!
//! Invariants
//! - An id is 128 bits of the system's randomness, and names a connection only together with its application.
//! - A connection is counted from the moment that it is let in until its close event has been handled.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use channels::websocket::{CloseCode, Deflater, message_frame};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::outbox::{Outbox, Refused};
use super::routes::WebSocketLimits;
use crate::folded::Folded;
use crate::site::Site;

/// Independent parts of the table, so that messages to different connections do not wait for each other.
const SHARDS: usize = 64;
/// Close events that are handled at once: when the server stops all connections end together.
const CLOSING: usize = 16;

/// The open WebSockets of a front.
#[derive(Debug)]
pub struct WebSockets {
    shards: [Mutex<HashMap<u128, Arc<Socket>>>; SHARDS],
    applications: Mutex<HashMap<Arc<str>, Arc<Application>>>,
    /// Permits of close events.
    pub(super) closing: Semaphore,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Socket {
    application: Arc<Application>,
    pub(super) outbox: Outbox,
    /// Messages of at least this size are compressed; `usize::MAX` before and without the negotiation.
    deflate_from: Mutex<usize>,
}

/// The connections of one application together.
#[derive(Debug)]
pub(super) struct Application {
    name: Arc<str>,
    clients: Mutex<Clients>,
    pub(super) figures: Figures,
    /// Lines of the log about events for which no worker was free.
    busy: Mutex<Folded<Instant>>,
}

#[derive(Debug, Default)]
struct Clients {
    open: usize,
    of_site: HashMap<Site, usize>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) opened: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) overflowed: AtomicU64,
}

/// The WebSockets of one application, for operators.
#[derive(Clone, Debug, Serialize)]
pub struct SocketReport {
    /// Name of the application.
    pub application: String,
    /// Open connections.
    pub open: usize,
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that were refused: by origin, limit or the application.
    pub refused: u64,
    /// Connections that ended.
    pub closed: u64,
    /// Messages from clients.
    pub received: u64,
    /// Messages to clients.
    pub sent: u64,
    /// Events that the application did not handle: it failed, or no worker was free.
    pub failed: u64,
    /// Connections closed because their client did not read.
    pub overflowed: u64,
}

/// Reasons why a message does not reach a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// There is no such connection of this application, or it is closing.
    #[error("there is no such connection")]
    Gone,
    /// The client does not read: the connection is closed for it.
    #[error("too much waits for this client")]
    Full,
    /// A text is not UTF-8.
    #[error("a text message is not UTF-8")]
    NotText,
}

/// Reasons why no further connection is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSeat {
    /// The application has as many as it may have.
    Full,
    /// The client's address has as many as it may have.
    Client,
}

/// A connection that is counted; its id is unknown again once it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    all: Arc<WebSockets>,
    id: u128,
    pub(super) socket: Arc<Socket>,
    site: Option<Site>,
}

impl WebSockets {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            applications: Mutex::default(),
            closing: Semaphore::new(CLOSING),
        })
    }

    /// Lets a connection in. `client` is its address, unless that of a proxy.
    pub(crate) fn seat(
        self: &Arc<Self>,
        application: &Arc<str>,
        client: Option<IpAddr>,
        limits: &WebSocketLimits,
    ) -> Result<Seat, NoSeat> {
        let application = self.application(application);
        let site = client.map(Site::of);
        let mut clients = application.clients();
        let held = site.map_or(0, |site| clients.of_site.get(&site).copied().unwrap_or(0));
        let refused = if clients.open >= limits.connections {
            Some(NoSeat::Full)
        } else {
            (held >= limits.per_client).then_some(NoSeat::Client)
        };
        if let Some(refused) = refused {
            drop(clients);
            application.figures.refused.fetch_add(1, Relaxed);
            return Err(refused);
        }
        clients.open += 1;
        if let Some(site) = site {
            *clients.of_site.entry(site).or_default() += 1;
        }
        drop(clients);
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the system has randomness");
        let id = u128::from_be_bytes(id);
        let outbox = Outbox::new(limits.queue);
        let socket = Arc::new(Socket { application, outbox, deflate_from: Mutex::new(usize::MAX) });
        self.shard(id).insert(id, Arc::clone(&socket));
        Ok(Seat { all: Arc::clone(self), id, socket, site })
    }

    /// Sends a message to a connection of the application, without waiting for the client.
    pub fn send(
        &self,
        application: &str,
        id: &str,
        binary: bool,
        payload: &[u8],
    ) -> Result<(), NotSent> {
        if !binary && str::from_utf8(payload).is_err() {
            return Err(NotSent::NotText);
        }
        let socket = self.find(application, id).ok_or(NotSent::Gone)?;
        match socket.outbox.push(socket.frame(binary, payload)) {
            Ok(()) => {
                socket.application.figures.sent.fetch_add(1, Relaxed);
                Ok(())
            }
            Err(Refused::Ended) => Err(NotSent::Gone),
            Err(Refused::Full) => Err(NotSent::Full),
        }
    }

    /// Closes a connection of the application after what waits for its client. Returns false if there is none.
    pub fn close(&self, application: &str, id: &str, code: CloseCode, reason: &str) -> bool {
        self.find(application, id).is_some_and(|socket| socket.outbox.close(code, reason))
    }

    /// Returns the figures of all applications that have had connections, by name.
    pub fn report(&self) -> Vec<SocketReport> {
        let applications = self.applications.lock().expect("no holder panics");
        let mut all: Vec<SocketReport> =
            applications.values().map(|application| application.report()).collect();
        all.sort_unstable_by(|one, other| one.application.cmp(&other.application));
        all
    }

    /// Counts a connection that was refused before it was let in.
    pub(crate) fn refused(&self, application: &Arc<str>) {
        self.application(application).figures.refused.fetch_add(1, Relaxed);
    }

    fn application(&self, name: &Arc<str>) -> Arc<Application> {
        let mut applications = self.applications.lock().expect("no holder panics");
        let known = applications.entry(Arc::clone(name)).or_insert_with(|| {
            Arc::new(Application {
                name: Arc::clone(name),
                clients: Mutex::default(),
                figures: Figures::default(),
                busy: Mutex::default(),
            })
        });
        Arc::clone(known)
    }

    fn find(&self, application: &str, id: &str) -> Option<Arc<Socket>> {
        let id = URL_SAFE_NO_PAD.decode(id).ok()?;
        let id = u128::from_be_bytes(id.try_into().ok()?);
        let socket = self.shard(id).get(&id).cloned()?;
        (*socket.application.name == *application).then_some(socket)
    }

    fn shard(&self, id: u128) -> MutexGuard<'_, HashMap<u128, Arc<Socket>>> {
        let number = usize::try_from(id % SHARDS as u128).expect("below the number of shards");
        self.shards[number].lock().expect("no holder panics")
    }
}

impl Application {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().expect("no holder panics")
    }

    fn report(&self) -> SocketReport {
        let Figures { opened, refused, closed, received, sent, failed, overflowed } = &self.figures;
        SocketReport {
            application: self.name.to_string(),
            open: self.clients().open,
            opened: opened.load(Relaxed),
            refused: refused.load(Relaxed),
            closed: closed.load(Relaxed),
            received: received.load(Relaxed),
            sent: sent.load(Relaxed),
            failed: failed.load(Relaxed),
            overflowed: overflowed.load(Relaxed),
        }
    }
}

impl Socket {
    /// Returns a message as a frame for this connection.
    pub(super) fn frame(&self, binary: bool, payload: &[u8]) -> Bytes {
        thread_local! {
            static DEFLATER: RefCell<Deflater> = RefCell::default();
        }
        if payload.len() < *self.deflate_from.lock().expect("no holder panics") {
            return message_frame(binary, payload);
        }
        DEFLATER.with_borrow_mut(|deflater| deflater.message(binary, payload))
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.application.figures
    }

    /// Counts an event of the application for which no worker was free. Returns how many had no line of the log
    /// before it, if this one is to have one.
    pub(super) fn is_busy(&self) -> Option<u64> {
        self.application.busy.lock().expect("no holder panics").count(Instant::now())
    }
}

impl Seat {
    /// Returns the connection's id.
    pub(crate) fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.id.to_be_bytes())
    }

    /// Compresses messages of at least this size. They may wait already: those stay as they are.
    pub(crate) fn deflate_from(&self, size: usize) {
        *self.socket.deflate_from.lock().expect("no holder panics") = size;
    }

    /// Forgets the id: no further message is accepted. The connection still counts.
    pub(super) fn forget(&self) {
        self.socket.outbox.end();
        self.all.shard(self.id).remove(&self.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.forget();
        let mut clients = self.socket.application.clients();
        clients.open -= 1;
        if let Some(site) = self.site
            && let Some(held) = clients.of_site.get_mut(&site)
        {
            *held -= 1;
            if *held == 0 {
                clients.of_site.remove(&site);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::WebSocketOptions;
    use super::*;

    #[test]
    fn an_id_works_for_its_own_application_while_it_is_open() {
        let all = WebSockets::new();
        let limits = WebSocketOptions::default().limits;
        let (shop, blog): (Arc<str>, Arc<str>) = ("shop".into(), "blog".into());
        let seat = all.seat(&shop, None, &limits).unwrap();
        let other = all.seat(&blog, None, &limits).unwrap();
        assert_ne!(seat.id(), other.id());
        assert_eq!(seat.id().len(), 22);
        assert_eq!(all.send("blog", &seat.id(), false, b"x"), Err(NotSent::Gone));
        assert!(!all.close("blog", &seat.id(), CloseCode::NORMAL, ""));
        assert_eq!(all.send("shop", "", false, b"x"), Err(NotSent::Gone));
        assert_eq!(all.send("shop", &seat.id(), false, b"\xff"), Err(NotSent::NotText));
        all.send("shop", &seat.id(), true, b"\xff").unwrap();
        let id = seat.id();
        drop(seat);
        assert_eq!(all.send("shop", &id, false, b"x"), Err(NotSent::Gone));
        let report = all.report();
        assert_eq!((&*report[1].application, report[1].open, report[1].sent), ("shop", 0, 1));
    }

    #[test]
    fn connections_are_limited_in_all_and_for_each_client() {
        let all = WebSockets::new();
        let limits = WebSocketOptions::default().limits;
        let limits = WebSocketLimits { connections: 3, per_client: 2, ..limits };
        let name: Arc<str> = "main".into();
        let seat = |last: u8| all.seat(&name, Some([192, 0, 2, last].into()), &limits);
        let (first, _second) = (seat(1).unwrap(), seat(1).unwrap());
        assert_eq!(seat(1).unwrap_err(), NoSeat::Client);
        let _third = seat(2).unwrap();
        assert_eq!(seat(3).unwrap_err(), NoSeat::Full);
        drop(first);
        let _fourth = seat(1).unwrap();
    }
}
