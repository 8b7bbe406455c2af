//! The engine: origins by key, and calls on their connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::{Birth, Ways};
use crate::dns::Dns;
use crate::http1::{Begun, Broken};
use crate::origin::{Lease, Need, Origin};
use crate::repeat::{Progress, Tries, idempotent};
use crate::request::{Head, signs_in};
use crate::scope::{Members, Scopes};
use crate::stats::Counters;
use crate::tls::Tls;
use crate::upload::{Upload, Watch, Whole};
use crate::{
    Answer, Call, CallBody, CallError, Fate, HttpVersions, Interim, Key, Options, OriginReport,
    Scheme, Scope, Sight, Tap, Timing, Trust, memory, tap,
};

/// How often the engine closes expired connections.
const SWEEP: Duration = Duration::from_secs(1);
/// An origin without connections and calls is evicted after this time.
const IDLE_EVICTION: Duration = Duration::from_mins(10);
/// Above this many origins, idle ones are evicted after `IDLE_EVICTION_CROWDED`.
const CROWDED: usize = 1024;
/// The eviction time of idle origins while there are more than `CROWDED`.
const IDLE_EVICTION_CROWDED: Duration = Duration::from_secs(5);
/// The most origins with statistics. Further ones are not counted.
const COUNTED: usize = 4096;

/// Owns the outgoing connections. A clone is another handle of the same engine. Dropping the last handle closes the connections.
#[derive(Clone, Debug)]
pub struct Engine {
    held: Arc<Held>,
}

/// Ends the engine with its last handle, because its parts hold references to each other.
#[derive(Debug)]
struct Held {
    common: Arc<Common>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.common.close();
    }
}

/// The key of an origin's statistics.
type Name = (Scheme, Arc<str>, u16);

/// State that all origins share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) options: Options,
    pub(crate) ways: Ways,
    pub(crate) tasks: TaskTracker,
    origins: RwLock<HashMap<Key, Arc<Origin>>>,
    scopes: Scopes,
    counted: Mutex<HashMap<Name, Arc<Counters>>>,
    permits: Arc<Semaphore>,
    wanted: AtomicUsize,
    sweeping: AtomicBool,
    /// Cancelled when the engine accepts no more calls.
    pub(crate) closing: CancellationToken,
}

impl Common {
    /// Returns a permit for one more connection, if one is free.
    pub(crate) fn free_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit for one more connection, and evicts an idle connection if none is free.
    pub(crate) async fn permit(&self) -> OwnedSemaphorePermit {
        if let Some(permit) = self.free_place() {
            return permit;
        }
        let wanting = Wanting::new(&self.wanted);
        let origins: Vec<_> = self.origins().values().cloned().collect();
        let _made_room = origins.iter().any(|origin| origin.evict());
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        drop(wanting);
        permit.expect("it is never closed")
    }

    /// Returns whether a call waits for a permit.
    pub(crate) fn crowded(&self) -> bool {
        self.wanted.load(Relaxed) > 0
    }

    fn origins(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Key, Arc<Origin>>> {
        self.origins.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn origin(self: &Arc<Self>, key: Key) -> Arc<Origin> {
        if let Some(origin) = self.origins().get(&key) {
            return Arc::clone(origin);
        }
        let counters = self.counters(&key);
        let mut origins = self.origins.write().unwrap_or_else(PoisonError::into_inner);
        let new = |key: &Key| Arc::new(Origin::new(key.clone(), Arc::clone(self), counters));
        let origin = Arc::clone(origins.entry(key).or_insert_with_key(new));
        drop(origins);
        if !self.sweeping.swap(true, Relaxed) {
            self.tasks.spawn(sweep(Arc::downgrade(self), self.closing.clone()));
        }
        origin
    }

    fn counters(&self, key: &Key) -> Arc<Counters> {
        let name = (key.scheme, Arc::clone(&key.host), key.port);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= COUNTED && !counted.contains_key(&name) {
            return Arc::default();
        }
        Arc::clone(counted.entry(name).or_default())
    }

    fn close(&self) {
        self.closing.cancel();
        let origins = {
            let mut origins = self.origins.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *origins)
        };
        for origin in origins.values() {
            origin.close();
        }
    }
}

struct Wanting<'a>(&'a AtomicUsize);

impl<'a> Wanting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Closes expired connections for as long as the engine exists.
async fn sweep(common: Weak<Common>, closing: CancellationToken) {
    while closing.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
        let Some(common) = common.upgrade() else { return };
        let now = Instant::now();
        let origins: Vec<_> = common.origins().values().cloned().collect();
        if common.ways.tls.changed() {
            let verified = |key: &Key| key.trust == Trust::System || key.proxy.is_some();
            origins.iter().filter(|origin| verified(origin.key())).for_each(Origin::renew);
        }
        let after = if origins.len() > CROWDED { IDLE_EVICTION_CROWDED } else { IDLE_EVICTION };
        let forgotten: Vec<_> = origins.iter().filter(|origin| origin.sweep(now, after)).collect();
        if !forgotten.is_empty() {
            let mut origins = common.origins.write().unwrap_or_else(PoisonError::into_inner);
            for origin in forgotten {
                // A call may have come for it in the meantime.
                if origin.sweep(now, after) {
                    origins.remove(origin.key());
                }
            }
        }
    }
}

impl Engine {
    /// Creates an engine without connections.
    pub fn new(options: Options) -> Self {
        let tasks = TaskTracker::new();
        let closing = CancellationToken::new();
        let ways = Ways {
            dns: Dns::new(&options, tasks.clone(), closing.clone()),
            tls: Tls::new(options.ca.clone()),
            deny: options.deny.clone(),
            deny_sockets: options.deny_sockets.clone(),
            peers: options.peers,
        };
        let permits = Arc::new(Semaphore::new(options.connections.max(1)));
        let common = Common {
            options,
            ways,
            tasks,
            origins: RwLock::default(),
            scopes: Scopes::default(),
            counted: Mutex::default(),
            permits,
            wanted: AtomicUsize::new(0),
            sweeping: AtomicBool::new(false),
            closing,
        };
        Self { held: Arc::new(Held { common: Arc::new(common) }) }
    }

    pub(crate) fn ways(&self) -> &Ways {
        &self.held.common.ways
    }

    pub(crate) async fn permit(&self) -> OwnedSemaphorePermit {
        self.held.common.permit().await
    }

    /// Makes one call. Interim responses (100, 103) are passed to `interim` as they arrive, before the response.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call: its HTTP/2 stream is reset, its HTTP/1.1 connection closed.
    pub async fn call(
        &self,
        call: Call,
        interim: impl FnMut(Interim<'_>) + Send,
    ) -> Result<Answer, CallError> {
        self.call_tapped(call, None, interim).await
    }

    /// Makes one call, as [`Engine::call`], with an observer of the bytes on the wire.
    ///
    /// # Cancel safety
    /// As [`Engine::call`].
    pub async fn call_tapped(
        &self,
        call: Call,
        tap: Option<&dyn Tap>,
        mut interim: impl FnMut(Interim<'_>) + Send,
    ) -> Result<Answer, CallError> {
        let heads = tap.filter(|tap| tap.heads());
        let mut interim = |seen: Interim<'_>| {
            if let Some(tap) = heads {
                see_answer(tap, seen);
            }
            interim(seen);
        };
        let begin = Instant::now();
        let limits = call.limits;
        if self.held.common.closing.is_cancelled() {
            return Err(CallError::closing());
        }
        let mut key = call.key;
        if signs_in(call.request.headers()) {
            // One connection of HTTP/2 carries many calls at a time.
            if key.http == HttpVersions::Http2 {
                let message = "Signing in a connection (NTLM, Negotiate) needs HTTP/1.1";
                return Err(CallError::unsupported(message));
            }
            key.http = HttpVersions::Http1;
        }
        let scope = call.scope.as_ref();
        let scoped = scope.map(|scope| Scoped {
            members: self.held.common.scopes.members(key.uid, scope),
            scope,
        });
        let origin = self.held.common.origin(key);
        origin.counters.called();
        let result = match Head::new(call.request) {
            Ok((head, body)) => {
                let attempt =
                    attempt(&origin, scoped, head, body, (limits, begin), tap, &mut interim);
                attempt.await
            }
            Err(error) => Err(error),
        };
        match &result {
            Ok(answer) => origin.counters.answered(answer.timing.reused, origin.key().scheme),
            Err(error) => origin.counters.unanswered(error.fate, error.reason),
        }
        result
    }

    /// Opens one connection for each key that has none, in the background, within a tokio runtime.
    pub fn prewarm(&self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            self.held.common.origin(key).prewarm();
        }
    }

    /// Returns the keys to connect to at the next start, most used first. Keys with a secret or with special options are left out.
    pub fn remembered(&self) -> Vec<Key> {
        let mut origins: Vec<_> = self
            .held
            .common
            .origins()
            .values()
            .filter(|origin| memory::plain(origin.key()))
            .map(|origin| (origin.counters.calls(), origin.key().clone()))
            .collect();
        origins.sort_by_key(|(calls, _)| std::cmp::Reverse(*calls));
        origins.into_iter().filter(|(calls, _)| *calls > 0).map(|(_, key)| key).collect()
    }

    /// Returns the statistics of every origin.
    pub fn report(&self) -> Vec<OriginReport> {
        let common = &self.held.common;
        let mut now: HashMap<Name, (usize, usize)> = HashMap::new();
        for origin in common.origins().values() {
            let key = origin.key();
            let (connections, waiting) = origin.now();
            let sum = now.entry((key.scheme, Arc::clone(&key.host), key.port)).or_default();
            sum.0 += connections;
            sum.1 += waiting;
        }
        let counted = common.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |(name, counters): (&Name, &Arc<Counters>)| {
            let (connections, waiting) = now.get(name).copied().unwrap_or_default();
            OriginReport {
                scheme: name.0,
                host: Arc::clone(&name.1),
                port: name.2,
                stats: counters.stats(connections, waiting),
            }
        };
        counted.iter().map(report).collect()
    }

    /// Stops accepting calls, and closes idle connections. Returns when nothing is being opened and the last HTTP/2 connection has ended with
    /// its last stream. An HTTP/1.1 connection ends with its call.
    ///
    /// # Cancel safety
    /// Closing continues if the future is dropped.
    pub async fn close(&self) {
        let common = &self.held.common;
        common.close();
        common.tasks.close();
        common.tasks.wait().await;
    }
}

/// The scope of a call.
struct Scoped<'a> {
    members: Arc<Members>,
    scope: &'a Scope,
}

/// Waits until the call's scope allows a connection, then for one.
async fn acquire(
    origin: &Arc<Origin>,
    scoped: Option<&Scoped<'_>>,
    need: Need,
) -> Result<Lease, CallError> {
    let Some(Scoped { members, scope }) = scoped else { return origin.acquire(need).await };
    let need = Need { most: scope.shared(), ..need };
    let place = Arc::as_ptr(origin).addr();
    let mut alone = false;
    loop {
        let entered = members.enter(place, scope, origin.shares(), alone);
        let entered = origin.closing().run_until_cancelled(entered).await;
        let ticket = entered.ok_or_else(CallError::closing)?;
        let mut lease = origin.acquire(need).await?;
        if let Some(ticket) = ticket.over(matches!(lease, Lease::Http2(..))) {
            lease.hold(ticket);
            return Ok(lease);
        }
        alone = true;
    }
}

/// Makes a call, and repeats it if that is safe.
async fn attempt(
    origin: &Arc<Origin>,
    scoped: Option<Scoped<'_>>,
    head: Head,
    body: CallBody,
    (limits, begin): (crate::Limits, Instant),
    tap: Option<&dyn Tap>,
    interim: &mut (impl FnMut(Interim<'_>) + Send),
) -> Result<Answer, CallError> {
    let mut tries = Tries::default();
    let mut body = if body.is_end_stream() { None } else { Some(Whole::from(body)) };
    let bodiless = body.is_none();
    let (mut begun, mut repeated) = (false, 0_u8);
    loop {
        // After a failed attempt, only connections that the kernel reports as open are used.
        let repeatable = !tries.sent() && idempotent(&head.method);
        if let Some(tap) = tap {
            tap.see(Sight::Waiting);
        }
        let need = Need { limits, repeatable, most: usize::MAX };
        let lease = acquire(origin, scoped.as_ref(), need).await;
        let lease = lease.map_err(|error| error.final_if(begun || tries.sent()))?;
        let (kept, birth, secured) = (lease.kept(), lease.birth(), lease.secured());
        if let Some(tap) = tap {
            let address = birth.and_then(|birth| birth.address);
            let http2 = matches!(lease, Lease::Http2(..));
            tap.see(Sight::Connection { address, kept, http2, secured: secured.as_deref() });
        }
        let heads = tap.filter(|tap| tap.heads());
        // A new connection of HTTP/1.1 that breaks is the origin's fault.
        let again = kept || matches!(lease, Lease::Http2(..));
        let (upload, watch) = match body.take() {
            None => (Upload::Empty, None),
            Some(body) => {
                let (upload, watch) = Upload::new(body, head.expectant());
                (upload, Some(watch))
            }
        };
        let sent = send(origin, lease, &head, upload, watch.as_ref(), heads, interim).await;
        let Broken { error, progress } = match sent {
            Ok((response, written)) => {
                let timing = timing(begin, kept, response.version(), birth);
                let timing = Timing { repeated, ..timing };
                if let Some(tap) = heads {
                    see_answer(tap, (response.status(), response.headers(), written.as_deref()));
                }
                return Ok(Answer { response, timing, secured, written });
            }
            // Another try cannot make an invalid request valid.
            Err(Unsent::Refused(error)) => return Err(error.final_if(begun || tries.sent())),
            Err(Unsent::Broken(broken)) => broken,
        };
        if watch.as_ref().is_some_and(|watch| watch.broken()) {
            return Err(CallError::abandoned());
        }
        begun |= watch.as_ref().is_some_and(|watch| watch.begun());
        body = watch.and_then(|watch| watch.take());
        let intact = again && (bodiless || body.is_some());
        if !tries.again(progress, &head.method, kept, intact) {
            let fate = if begun || tries.sent() { Fate::Failed } else { Fate::Declined };
            let address = birth.and_then(|birth| birth.address);
            return Err(CallError { fate, address, kept, ..error });
        }
        origin.counters.repeated();
        repeated = repeated.saturating_add(1);
        if progress == Progress::WantsHttp1 {
            origin.insist_on_http1();
        }
    }
}

/// Why a request got no answer on a connection.
enum Unsent {
    /// The request cannot be sent by this version of HTTP.
    Refused(CallError),
    Broken(Broken),
}

/// Sends a request on a connection. Over HTTP/1.1 the response comes with its head as the origin wrote it.
async fn send(
    origin: &Arc<Origin>,
    lease: Lease,
    head: &Head,
    upload: Upload,
    watch: Option<&Arc<Watch>>,
    tap: Option<&dyn Tap>,
    interim: &mut (impl FnMut(Interim<'_>) + Send),
) -> Result<(http::Response<crate::AnswerBody>, Option<Bytes>), Unsent> {
    match lease {
        Lease::Http1(mut lease) => {
            lease.put(head, origin.key(), &upload).map_err(Unsent::Refused)?;
            if let Some(tap) = tap {
                tap.see(Sight::Request(lease.head()));
            }
            let begun = lease.take().exchange(&head.method, upload, watch, interim).await;
            let Begun { response, written } = begun.map_err(Unsent::Broken)?;
            Ok((response.map(UnsyncBoxBody::new), Some(written)))
        }
        Lease::Http2(connection, guard) => {
            let request = head.http2(origin.key().scheme, &upload).map_err(Unsent::Refused)?;
            if let Some(tap) = tap {
                tap.see(Sight::Request(&tap::request_head(&request)));
            }
            let sent = connection.exchange(guard, request, upload, watch, interim).await;
            Ok((sent.map_err(Unsent::Broken)?.map(UnsyncBoxBody::new), None))
        }
    }
}

fn see_answer(tap: &dyn Tap, (status, headers, written): Interim<'_>) {
    match written {
        Some(written) => tap.see(Sight::Answer(written)),
        None => tap.see(Sight::Answer(&tap::answer_head(status, headers))),
    }
}

fn timing(begin: Instant, reused: bool, version: http::Version, birth: Option<Birth>) -> Timing {
    let since = |at: Instant| at.saturating_duration_since(begin);
    Timing {
        resolved: birth.map(|birth| since(birth.resolved)).unwrap_or_default(),
        connected: birth.map(|birth| since(birth.connected)).unwrap_or_default(),
        secured: birth.and_then(|birth| birth.secured).map(since).unwrap_or_default(),
        first_byte: begin.elapsed(),
        reused,
        repeated: 0,
        http2: version == http::Version::HTTP_2,
        address: birth.and_then(|birth| birth.address),
    }
}
