//! The task that moves packets between the outbox, the broker and the cluster.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::OptionFuture;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Duration, Instant, sleep_until, timeout, timeout_at};
use tracing::{info, warn};

use super::cluster::{Cluster, Local, Report};
use super::log::{LogLink, LogOptions};
use super::packet::{Packet, PacketUpdate};
use super::shared::Shared;
use super::{Options, Outbox};
use crate::app::App;
use crate::apps::{AppRef, Found};
use crate::channels::Channels;
use crate::moment::Moment;
use crate::nodes::{NodeId, Origin};

/// An event of the broker connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    /// A packet from any node, including this one.
    Packet(Bytes),
    /// The broker is connected: packets can be sent and are received.
    Connected,
    /// The connection was lost. The broker reconnects by itself.
    Disconnected,
    /// A packet that [`Broker::send`] returned would be accepted now.
    Writable,
}

/// A publish/subscribe service to which all nodes are subscribed. It connects and reconnects by itself.
pub trait Broker: Send {
    /// Accepts a packet for all nodes, or returns it if there is no room.
    ///
    /// It never waits, because a node that waited here would not receive, and would thereby block the broker. An
    /// accepted packet that cannot be sent is dropped, and the other nodes detect the gap.
    fn send(&mut self, packet: Bytes) -> Result<(), Bytes>;

    /// Returns the next event.
    ///
    /// # Cancel safety
    /// An event that was not returned is returned by the next call.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = BrokerEvent> + Send + '_>>;

    /// Waits until all accepted packets are sent. This is the last call.
    ///
    /// # Cancel safety
    /// Packets that are unsent when the future is dropped are lost.
    fn finish(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// A handle to the cluster state, to wait for readiness and to read the counters.
#[derive(Clone, Debug)]
pub struct Joined(watch::Receiver<Report>);

impl Joined {
    /// Waits until this node is ready, which takes a second or two. Clients are accepted after that.
    ///
    /// # Cancel safety
    /// The method only waits.
    pub async fn ready(&mut self) {
        // The sender is dropped when the task ends; then there is nothing to wait for.
        let _ended = self.0.wait_for(|report| report.ready && report.loaded).await;
    }

    /// Returns the current counters.
    pub fn report(&self) -> Report {
        *self.0.borrow()
    }
}

/// Maximum number of bytes of packets kept while the broker is disconnected. The oldest packets are dropped.
const KEPT: usize = 4 * 1024 * 1024;

/// Maximum number of incoming packets processed before outgoing ones are sent.
const AT_ONCE: usize = 256;

/// How long a stopping node waits until its goodbye is sent.
const FINISH: Duration = Duration::from_secs(2);

/// How long a packet waits for applications that must be looked up. It is shorter than the time after which others
/// consider this node dead.
const LOOK_UP: Duration = Duration::from_secs(1);
/// How long packets wait for no application after a look-up timed out: the next one would probably do so, too.
const LOOK_UP_PAUSE: Duration = Duration::from_secs(10);

/// Connects these channels with those of other nodes. The returned future runs until `ending` completes, sends a
/// goodbye, and must be polled by the caller.
///
/// `clock` must be the clock that the hub uses for the channels.
pub fn start(
    channels: Channels,
    broker: Box<dyn Broker>,
    log: Option<(LogLink, LogOptions)>,
    me: NodeId,
    options: Options,
    clock: impl Fn() -> Moment + Send + Sync + 'static,
    ending: impl Future<Output = ()> + Send + 'static,
) -> (impl Future<Output = Report> + Send, Joined) {
    let woken = Arc::new(Notify::new());
    let notify = Arc::clone(&woken);
    let outbox = Arc::new(Outbox::new(me, &options, move || notify.notify_one()));
    let shared = log.map(|(link, log)| {
        let shared = Shared::new(&channels, link, me, &options, &log, &woken, clock());
        outbox.set_log(Arc::clone(&shared.outbox));
        shared
    });
    channels.connect(Arc::<Outbox>::clone(&outbox));
    let (reports, joined) = watch::channel(Report::default());
    let node = Running {
        channels,
        broker,
        outbox,
        woken,
        reports,
        clock,
        waiting: VecDeque::new(),
        connected: false,
        late: None,
        shared,
    };
    (node.run(options, ending), Joined(joined))
}

struct Running<C> {
    channels: Channels,
    broker: Box<dyn Broker>,
    outbox: Arc<Outbox>,
    woken: Arc<Notify>,
    reports: watch::Sender<Report>,
    clock: C,
    waiting: VecDeque<Bytes>,
    connected: bool,
    late: Late,
    /// The log, if histories are shared.
    shared: Option<Shared>,
}

/// When a look-up timed out last; `None` if that is long ago.
pub(super) type Late = Option<Instant>;

impl<C: Fn() -> Moment + Send + Sync> Running<C> {
    async fn run(mut self, options: Options, ending: impl Future<Output = ()> + Send) -> Report {
        let mut ending = pin!(ending);
        let mut cluster = Cluster::new(Arc::clone(&self.outbox), options, (self.clock)());
        cluster.lost((self.clock)());
        let mut nodes = 0;
        loop {
            let now = (self.clock)();
            let mut local = LocalChannels::new(&self.channels);
            let wake = cluster.poll(now, &mut local);
            self.send();
            if let Some(shared) = &mut self.shared {
                shared.send();
            }
            let loaded = self.shared.as_ref().is_none_or(Shared::is_loaded);
            let report = Report { loaded, ..cluster.report() };
            if report.nodes != nodes {
                info!(nodes = report.nodes, "number of other nodes changed");
                nodes = report.nodes;
            }
            self.reports.send_if_modified(|before| std::mem::replace(before, report) != report);
            let wake = Instant::now() + wake.since(now);
            let woken = Arc::clone(&self.woken);
            let shared = self.shared.as_mut();
            let logged = OptionFuture::from(shared.map(Shared::next));
            tokio::select! {
                Some(event) = logged => {
                    if let Some(shared) = &mut self.shared {
                        shared.handle_all(event, wake, &self.channels, &mut self.late, &self.clock).await;
                    }
                }
                event = self.broker.next() => self.handle_all(event, wake, &mut cluster).await,
                () = woken.notified() => {}
                () = sleep_until(wake) => {}
                () = &mut ending => break,
            }
        }
        if let Some(shared) = &mut self.shared {
            shared.finish(FINISH).await;
        }
        cluster.end();
        if timeout(FINISH, self.finish()).await.is_err() {
            warn!("the goodbye was not sent: other nodes remove this one after a timeout");
        }
        cluster.report()
    }

    /// Sends outgoing packets; keeps some of them while the broker is disconnected.
    fn send(&mut self) {
        if !self.connected {
            self.waiting.extend(self.outbox.take());
            let mut bytes: usize = self.waiting.iter().map(Bytes::len).sum();
            while bytes > KEPT {
                bytes -= self.waiting.pop_front().map_or(bytes, |packet| packet.len());
            }
            return;
        }
        // While the broker accepts no packets, updates stay in the outbox. They are bounded there and make few large
        // packets.
        if self.offer() {
            self.waiting.extend(self.outbox.take());
            self.offer();
        }
    }

    /// Passes waiting packets to the broker; returns `true` if it accepted all.
    fn offer(&mut self) -> bool {
        while let Some(packet) = self.waiting.pop_front() {
            if let Err(packet) = self.broker.send(packet) {
                self.waiting.push_front(packet);
                return false;
            }
        }
        true
    }

    /// Waits until everything that can be sent is sent.
    async fn finish(&mut self) {
        self.send();
        while self.connected && !self.waiting.is_empty() {
            self.connected = self.broker.next().await != BrokerEvent::Disconnected;
            self.send();
        }
        self.broker.finish().await;
    }

    /// Handles an event and all further events that are available, until `wake` at the latest. Others' packets may
    /// arrive faster than the broker accepts this node's.
    async fn handle_all(&mut self, event: BrokerEvent, wake: Instant, cluster: &mut Cluster) {
        self.handle(event, cluster).await;
        for _ in 1..AT_ONCE {
            let event =
                if Instant::now() < wake { self.broker.next().now_or_never() } else { None };
            let Some(event) = event else { return };
            self.handle(event, cluster).await;
        }
    }

    async fn handle(&mut self, event: BrokerEvent, cluster: &mut Cluster) {
        match event {
            BrokerEvent::Packet(bytes) => {
                let Ok(packet) = Packet::read(&bytes) else {
                    warn!(bytes = bytes.len(), "invalid packet from the broker");
                    return cluster.malformed();
                };
                let mut local = LocalChannels::new(&self.channels);
                local.look_up(&packet, &mut self.late).await;
                cluster.receive(packet, (self.clock)(), &mut local);
            }
            BrokerEvent::Connected => {
                info!("connected to the broker");
                self.connected = true;
                cluster.found((self.clock)());
            }
            BrokerEvent::Disconnected => {
                warn!("connection to the broker lost; clients of this node are still served");
                self.connected = false;
                cluster.lost((self.clock)());
            }
            // Packets are sent before the next event is awaited.
            BrokerEvent::Writable => {}
        }
    }
}

/// The channels of this node, with the applications that a packet concerns.
pub(super) struct LocalChannels<'a> {
    channels: &'a Channels,
    apps: HashMap<String, Arc<App>>,
    /// An application of the packet could not be looked up.
    unresolved: bool,
}

impl<'a> LocalChannels<'a> {
    pub(super) fn new(channels: &'a Channels) -> Self {
        Self { channels, apps: HashMap::new(), unresolved: false }
    }

    /// Looks up the applications of a packet. An application that does not exist here has no clients here.
    pub(super) async fn look_up(&mut self, packet: &Packet<'_>, late: &mut Late) {
        let now = Instant::now();
        *late = late.filter(|since| now < *since + LOOK_UP_PAUSE);
        let mut asked = Vec::new();
        for id in packet.apps() {
            match self.channels.apps().find(AppRef::Id(id)) {
                Found::App(app) => {
                    self.apps.insert(id.to_owned(), app);
                }
                Found::None => {}
                Found::Unknown => {
                    let (sender, receiver) = oneshot::channel();
                    let answer = Box::new(move |answered| {
                        // The caller has stopped waiting.
                        let _late: Result<(), _> = sender.send(answered);
                    });
                    self.channels.apps().ask(AppRef::Id(id), answer);
                    asked.push((id, receiver));
                }
            }
        }
        for (id, receiver) in asked {
            let until = if late.is_none() { now + LOOK_UP } else { now };
            match timeout_at(until, receiver).await {
                Ok(Ok(Ok(Some(app)))) => {
                    self.apps.insert(id.to_owned(), app);
                }
                Ok(Ok(Ok(None))) => {}
                Ok(_) => self.unresolved = true,
                Err(_) => {
                    self.unresolved = true;
                    late.get_or_insert(now);
                }
            }
        }
    }

    /// Returns an application that was looked up.
    pub(super) fn app(&self, id: &str) -> Option<&Arc<App>> {
        self.apps.get(id)
    }

    #[cfg(test)]
    pub(super) fn knows(mut self, app: &Arc<App>) -> Self {
        self.apps.insert(app.id.to_string(), Arc::clone(app));
        self
    }
}

impl Local for LocalChannels<'_> {
    fn apply_remote(&mut self, from: Origin, app: &str, update: &PacketUpdate<'_>, now: Moment) {
        if let Some(app) = self.apps.get(app) {
            update.with_update(|update| self.channels.apply_remote(from, app, update, now));
        }
    }

    fn end_round(&mut self, from: Origin, now: Moment) {
        self.channels.end_round(from, now);
    }

    fn forget(&mut self, node: NodeId, now: Moment) {
        self.channels.forget(node, now);
    }

    fn publish_state(&mut self, now: Moment) {
        self.channels.publish_state(now);
    }

    fn is_resolved(&self) -> bool {
        !self.unresolved
    }
}
