//! The I/O thread: moves requests from the runtime's queue to their hosts, and at each host to the workers that make them.
//!
//! A worker is a task that makes one request after the other: when one ends, it takes the next that waits for its host.
//! So a request that waits is only an entry in a queue, however many there are.
//!
//! Invariants
//! - The number of workers per host has a limit; no worker waits for a request.
//! - A request that waits ends at its deadline, too, and when it is aborted.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use egress::{HttpVersions, Key, Network, Route, Scheme, SharedFields};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Failure, Kind};
use crate::in_flight::InFlight;
use crate::response::Response;
use crate::run;
use crate::runtime::{Runtime, Stage};
use crate::settings::Settings;
use crate::smtp::{self, MailServer, MailServerKey};
use crate::sys::lock;
use crate::target::Target;

/// The most concurrent look-ups of names and reads of files.
const BLOCKING: usize = 12;
/// How long such a thread is waited for at the end. After that it is left running, and the library must not be unloaded before it ends.
const BLOCKED: Duration = Duration::from_secs(1);
/// How long connections may take to close.
const GOODBYE: Duration = Duration::from_millis(100);
/// The shortest interval between two checks of waiting requests.
const LOOK: Duration = Duration::from_millis(4);
/// The most hosts in memory. Above it, those without requests are dropped.
const HOSTS: usize = 1024;
/// Longer than any time limit that can be set.
const NEVER: Duration = Duration::from_hours(24 * 365 * 10);

/// The engine's settings as the egress engine needs them.
pub(crate) fn options(settings: &Settings) -> egress::Options {
    let engine = &settings.engine;
    let mut deny = Network::link_local();
    deny.extend(engine.deny.iter().copied());
    egress::Options {
        http1_connections: engine.connections_per_host,
        http2_connections: engine.h2_connections_per_host,
        connections: engine.connections,
        // The number of waiting requests is limited above this engine.
        waiting: usize::MAX,
        idle: engine.idle,
        dns: engine.dns,
        // The rest of the threads is for files.
        lookups: BLOCKING - 4,
        deny,
        peers: true,
        ..egress::Options::default()
    }
}

/// Runs until the runtime ends. Reports first whether it could start.
pub(crate) fn run(
    runtime: &Arc<Runtime>,
    settings: &Settings,
    tell: &mpsc::Sender<io::Result<()>>,
) {
    let tokio_runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING)
        .build();
    let tokio_runtime = match tokio_runtime {
        Ok(tokio_runtime) => tokio_runtime,
        Err(error) => {
            let _nobody = tell.send(Err(error)).is_err();
            return;
        }
    };
    let _nobody = tell.send(Ok(())).is_err();
    let io = Arc::new(Io {
        runtime: Arc::clone(runtime),
        tasks: TaskTracker::new(),
        http1: settings.engine.connections_per_host,
        at_once: settings.engine.requests_per_host,
        mail: settings.engine.mail_connections_per_host,
        closing: CancellationToken::new(),
        sweeping: AtomicBool::new(false),
        hosts: Mutex::default(),
    });
    tokio_runtime.block_on(serve(&io));
    tokio_runtime.shutdown_timeout(BLOCKED);
    runtime.callbacks.flush();
    runtime.over_by_itself();
}

/// The state of the I/O thread.
pub(crate) struct Io {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) tasks: TaskTracker,
    /// The most workers per host: over HTTP/1.1 without TLS, and otherwise.
    http1: usize,
    at_once: usize,
    /// The most connections to one mail server.
    mail: usize,
    pub(crate) closing: CancellationToken,
    /// Whether a task maintains kept connections to mail servers.
    pub(crate) sweeping: AtomicBool,
    hosts: Mutex<Hosts>,
}

#[derive(Default)]
struct Hosts {
    by_key: HashMap<(Key, Option<MailServerKey>), Arc<Host>>,
    /// The last host, with the settings and the origin that led to it.
    last: Option<(Arc<Settings>, Box<str>, Arc<Host>)>,
    /// The earliest deadline of the waiting requests, or an earlier time.
    late: Option<Instant>,
}

/// A host: the requests that wait for it, and its workers.
pub(crate) struct Host {
    pub(crate) key: Key,
    /// The way to the origin. None: it is no HTTP origin.
    pub(crate) route: Option<Route>,
    /// The fields of requests that have none of their own, with their settings.
    pub(crate) fields: Mutex<Option<(Arc<Settings>, Arc<SharedFields>)>>,
    /// The connections, if this is a mail server.
    pub(crate) mail_server: Option<MailServer>,
    limit: usize,
    state: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<InFlight>>,
    workers: usize,
    running: Vec<Running>,
}

/// The place of a worker.
#[derive(Default)]
struct Running {
    /// The request that it makes.
    in_flight: Option<Arc<InFlight>>,
    /// Wakes it. It stands here and not at the request, of which tens of thousands may wait.
    waker: Option<Waker>,
}

async fn serve(io: &Arc<Io>) {
    let mut starts = Vec::new();
    // A separate task: it runs after everything that is ready, so these completions are delivered together.
    let callbacks = Arc::clone(&io.runtime.callbacks);
    let mut courier = JoinSet::new();
    courier.spawn(async move {
        loop {
            callbacks.gathered_all().await;
            callbacks.flush();
        }
    });
    loop {
        let (stage, over) = io.runtime.taken(&mut starts);
        for in_flight in starts.drain(..) {
            io.dispatch(in_flight);
        }
        if stage == Stage::Killed {
            io.closing.cancel();
            io.kill();
        }
        if io.runtime.aborted.swap(false, SeqCst) {
            io.end_waiting();
        }
        if stage != Stage::Open && over {
            break;
        }
        let late = lock(&io.hosts).late;
        let woken = io.runtime.wake.notified();
        match late {
            None => woken.await,
            Some(late) => tokio::select! {
                () = woken => {}
                () = tokio::time::sleep_until(late.max(Instant::now() + LOOK)) => io.end_waiting(),
            },
        }
    }
    io.closing.cancel();
    for host in io.all() {
        if let Some(server) = &host.mail_server {
            server.close().await;
        }
    }
    io.tasks.close();
    let goodbye = async {
        io.tasks.wait().await;
        io.runtime.egress.close().await;
    };
    let _gone = tokio::time::timeout(GOODBYE, goodbye).await.is_err();
}

impl Host {
    fn new(key: Key, limit: usize) -> Self {
        let (fields, state) = (Mutex::default(), Mutex::default());
        Self { key, route: None, fields, mail_server: None, limit, state }
    }
}

impl Hosts {
    fn make_room(&mut self) {
        if self.by_key.len() >= HOSTS {
            self.by_key.retain(|_, host| lock(&host.state).workers > 0);
            // A worker may have been among them, and a request that waits for it there would be overlooked.
            self.last = None;
        }
    }
}

impl Io {
    /// Passes a request to its host, after its files were read.
    fn dispatch(self: &Arc<Self>, in_flight: Arc<InFlight>) {
        if !in_flight.spec.settings.unprepared() {
            return self.to_host(in_flight);
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let settings = Arc::clone(&in_flight.spec.settings);
            let prepared = tokio::task::spawn_blocking(move || settings.prepare()).await;
            match prepared {
                Ok(Ok(())) => this.to_host(in_flight),
                Ok(Err(failure)) => this.runtime.complete(in_flight, Response::failed(failure)),
                Err(_gone) => {
                    let failure = Failure::new(Kind::Stopped, "The engine was stopped");
                    this.runtime.complete(in_flight, Response::failed(failure));
                }
            }
        });
    }

    fn to_host(self: &Arc<Self>, in_flight: Arc<InFlight>) {
        // Its files were read while the engine ended.
        if self.closing.is_cancelled() {
            let failure = Failure::new(Kind::Stopped, "The engine was stopped");
            return self.runtime.complete(in_flight, Response::failed(failure));
        }
        let host = match self.host(&in_flight) {
            Ok(host) => host,
            Err(failure) => return self.runtime.complete(in_flight, Response::failed(failure)),
        };
        let mut queue = lock(&host.state);
        if queue.workers < host.limit {
            queue.workers += 1;
            let free = queue.running.iter().position(|running| running.in_flight.is_none());
            let place = free.unwrap_or(queue.running.len());
            if free.is_none() {
                queue.running.push(Running::default());
            }
            // It occupies a place from now on. Its worker has still to be polled, and says then by what it is woken.
            if let Some(running) = queue.running.get_mut(place) {
                *running = Running { in_flight: Some(Arc::clone(&in_flight)), waker: None };
            }
            drop(queue);
            let worker = Worker { io: Arc::clone(self), host, place };
            self.tasks.spawn(worker.work(in_flight));
            return;
        }
        let deadline = in_flight.deadline();
        queue.waiting.push_back(in_flight);
        drop(queue);
        self.runtime.numbers.queued.fetch_add(1, Relaxed);
        if let Some(deadline) = deadline {
            let mut hosts = lock(&self.hosts);
            if hosts.late.is_none_or(|late| deadline < late) {
                hosts.late = Some(deadline);
                drop(hosts);
                // A request that comes from a task, with its files read, finds `serve` asleep until the time before.
                self.runtime.wake.notify_one();
            }
        }
    }

    fn host(&self, in_flight: &InFlight) -> Result<Arc<Host>, Failure> {
        let settings = &in_flight.spec.settings;
        let none = || Failure::new(Kind::Url, "There is no URL");
        let target = in_flight.spec.target.as_ref().ok_or_else(none)?;
        if in_flight.spec.mail().is_some() {
            settings.allow(target.scheme(), ["smtp", "smtps"])?;
            return Ok(self.mail_server(settings, target));
        }
        let mut hosts = lock(&self.hosts);
        if let Some((of, origin, host)) = &hosts.last
            && Arc::ptr_eq(of, settings)
            && **origin == *target.origin()
        {
            return Ok(Arc::clone(host));
        }
        let key = settings.key(target)?;
        let named = (key, None);
        let found = hosts.by_key.get(&named).map(Arc::clone);
        let host = found.unwrap_or_else(|| {
            hosts.make_room();
            let key = &named.0;
            let http1 = match key.http {
                HttpVersions::Http1 => true,
                HttpVersions::Negotiate => key.scheme == Scheme::Http,
                HttpVersions::Http2 => false,
            };
            let limit = if http1 { self.http1.min(self.at_once) } else { self.at_once };
            let route = Route::new(key.clone(), target.authority()).ok();
            let host = Arc::new(Host { route, ..Host::new(key.clone(), limit) });
            hosts.by_key.insert(named, Arc::clone(&host));
            host
        });
        hosts.last = Some((Arc::clone(settings), target.origin().into(), Arc::clone(&host)));
        Ok(host)
    }

    /// Returns the entry of a mail server.
    fn mail_server(&self, settings: &Settings, target: &Target) -> Arc<Host> {
        let (key, how) = settings.mail_key(target);
        let mut hosts = lock(&self.hosts);
        let named = (key, Some(how));
        if let Some(host) = hosts.by_key.get(&named) {
            return Arc::clone(host);
        }
        hosts.make_room();
        let (key, how) = named.clone();
        let mail_server = how.map(MailServer::new);
        let host = Arc::new(Host { mail_server, ..Host::new(key, self.mail) });
        hosts.by_key.insert(named, Arc::clone(&host));
        host
    }

    /// Returns all current hosts.
    pub(crate) fn all(&self) -> Vec<Arc<Host>> {
        lock(&self.hosts).by_key.values().map(Arc::clone).collect()
    }

    /// Ends waiting requests that are aborted or past their deadline, and wakes the workers of running ones that are aborted.
    fn end_waiting(&self) {
        let now = Instant::now();
        let mut ended = Vec::new();
        {
            let mut hosts = lock(&self.hosts);
            let mut next: Option<Instant> = None;
            for host in hosts.by_key.values() {
                let mut queue = lock(&host.state);
                let before = queue.waiting.len();
                queue.waiting.retain(|in_flight| {
                    let failure = in_flight
                        .ended()
                        .or_else(|| in_flight.late(now).then(|| in_flight.too_late()));
                    if let Some(failure) = failure {
                        ended.push((Arc::clone(in_flight), failure));
                        return false;
                    }
                    if let Some(deadline) = in_flight.deadline() {
                        next = Some(next.map_or(deadline, |next| next.min(deadline)));
                    }
                    true
                });
                let gone = before - queue.waiting.len();
                self.runtime.numbers.queued.fetch_sub(gone as u64, Relaxed);
                for running in &queue.running {
                    if running.in_flight.as_ref().is_some_and(|in_flight| in_flight.is_ended())
                        && let Some(waker) = &running.waker
                    {
                        waker.wake_by_ref();
                    }
                }
            }
            hosts.late = next;
        }
        for (in_flight, failure) in ended {
            self.runtime.complete(in_flight, Response::failed(failure));
        }
    }

    /// Ends all requests.
    fn kill(&self) {
        {
            let hosts = lock(&self.hosts);
            for host in hosts.by_key.values() {
                let queue = lock(&host.state);
                let running = queue.running.iter().filter_map(|one| one.in_flight.as_ref());
                queue.waiting.iter().chain(running).for_each(|in_flight| in_flight.stop());
            }
        }
        self.end_waiting();
    }
}

/// Makes requests to one host, one at a time.
struct Worker {
    io: Arc<Io>,
    host: Arc<Host>,
    place: usize,
}

impl Worker {
    async fn work(self, first: Arc<InFlight>) {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        if let Some(running) = lock(&self.host.state).running.get_mut(self.place) {
            running.waker = Some(waker);
        }
        let mut clock = pin!(tokio::time::sleep(NEVER));
        let mut rings = None;
        let mut next = Some(first);
        while let Some(in_flight) = next {
            let response = self.fly(&in_flight, clock.as_mut(), &mut rings).await;
            self.io.runtime.complete(in_flight, response);
            next = self.next();
        }
    }

    /// Returns the next waiting request. None: this worker ends.
    fn next(&self) -> Option<Arc<InFlight>> {
        let mut queue = lock(&self.host.state);
        let next = queue.waiting.pop_front();
        if next.is_some() {
            self.io.runtime.numbers.queued.fetch_sub(1, Relaxed);
        } else {
            queue.workers -= 1;
        }
        if let Some(running) = queue.running.get_mut(self.place) {
            running.in_flight.clone_from(&next);
            if next.is_none() {
                running.waker = None;
            }
        }
        next
    }

    /// Makes one request, until its deadline or an abort. `rings`: the timer's time. It may be too early, set for an earlier request: setting
    /// it costs more than a check, and most requests end long before their deadline.
    async fn fly(
        &self,
        in_flight: &Arc<InFlight>,
        mut clock: Pin<&mut Sleep>,
        rings: &mut Option<Instant>,
    ) -> Response {
        let so_far = Mutex::new(Response::default());
        let mut run = pin!(async {
            match (in_flight.spec.mail(), &self.host.mail_server) {
                (Some(mail), Some(server)) => {
                    let sending = smtp::run(&self.io, &self.host, server, mail, in_flight, &so_far);
                    Box::pin(sending).await
                }
                _ => run::run(&self.io, &self.host, in_flight, &so_far).await,
            }
        });
        let failure = std::future::poll_fn(|cx| {
            if let Some(failure) = in_flight.ended() {
                return Poll::Ready(Some(failure));
            }
            // Not CatchUnwind: the future would be moved into it, kilobytes for each request.
            match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
                Ok(Poll::Ready(Ok(()))) => return Poll::Ready(None),
                Ok(Poll::Ready(Err(failure))) => return Poll::Ready(Some(failure)),
                Err(_panic) => {
                    self.io.runtime.numbers.panics.fetch_add(1, Relaxed);
                    let failure = Failure::new(Kind::Internal, "The library has a fault");
                    return Poll::Ready(Some(failure));
                }
                Ok(Poll::Pending) => {}
            }
            let Some(deadline) = in_flight.deadline() else { return Poll::Pending };
            if rings.is_none_or(|rings| rings > deadline) {
                clock.as_mut().reset(deadline);
                *rings = Some(deadline);
            }
            // However much has arrived: earlier polls may have used up tokio's budget for the task.
            while pin!(unconstrained(clock.as_mut())).poll(cx).is_ready() {
                if *rings == Some(deadline) {
                    *rings = None;
                    return Poll::Ready(Some(in_flight.too_late()));
                }
                clock.as_mut().reset(deadline);
                *rings = Some(deadline);
            }
            Poll::Pending
        })
        .await;
        // An abort from within is reported as one.
        let failure = failure.map(|failure| in_flight.ended().unwrap_or(failure));
        let mut response = std::mem::take(&mut *lock(&so_far));
        if let Some(failure) = failure {
            response.fail(failure);
        }
        response
    }
}
