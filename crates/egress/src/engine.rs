//! The engine: origins by key, and calls on their connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use http_body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attempt::{Ready, Scoped};
use crate::connect::Ways;
use crate::dns::Dns;
use crate::origin::Origin;
use crate::request::{Head, signs_in};
use crate::scope::Scopes;
use crate::stats::Counters;
use crate::tls::Tls;
use crate::upload::Whole;
use crate::{
    Answer, Call, CallError, HttpVersions, Interim, Key, Options, OriginReport, Scheme, Tap, Trust,
    memory,
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

    pub(crate) fn origin(self: &Arc<Self>, key: Key) -> Arc<Origin> {
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
        let mut ready = self.ready(call)?;
        ready.run(tap, &mut interim).await
    }

    /// Prepares a call.
    pub fn ready(&self, call: Call) -> Result<Ready, CallError> {
        let begin = Instant::now();
        let common = self.common();
        if common.closing.is_cancelled() {
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
        let scoped =
            call.scope.map(|scope| Scoped::new(common.scopes.members(key.uid, &scope), scope));
        let origin = common.origin(key);
        origin.counters.called();
        match Head::new(call.request) {
            Ok((head, body)) => {
                let body = (!body.is_end_stream()).then(|| Whole::from(body));
                Ok(Ready { origin, scoped, head, body, limits: call.limits, begin })
            }
            Err(error) => {
                origin.counters.unanswered(error.fate, error.reason);
                Err(error)
            }
        }
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.held.common
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
