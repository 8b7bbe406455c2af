//! Addresses of names: one look-up for all concurrent callers, cached for a fixed time.
//!
//! `getaddrinfo` answers as the machine is configured (/etc/hosts, nsswitch, search domains), as in libcurl. It does not return
//! the zone's TTL, so an answer is cached for [`Options::dns`](crate::Options::dns). Failures are not cached.
//!
//! Invariants
//! - At most [`Options::lookups`](crate::Options::lookups) threads look names up. A look-up without a reachable server occupies its thread for half a minute.
//! - There is one look-up per name at a time. A caller that gives up does not disturb the others.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Options;

/// The most names in the cache.
const NAMES: usize = 1024;

/// The function that looks a name up: `getaddrinfo`, or a test's.
type Ask = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;
/// The outcome of a look-up. `None`: it is still running.
type Found = Option<Result<Arc<[IpAddr]>, Unknown>>;

/// Why there are no addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unknown {
    /// The name has no address, as far as is known.
    Nowhere,
    /// No thread became free for the look-up.
    Busy,
}

/// The cache of names.
pub(crate) struct Dns {
    ask: Ask,
    believed: Duration,
    threads: Arc<Semaphore>,
    /// How long a caller waits for a look-up; `None`: without a limit.
    patience: Option<Duration>,
    tasks: TaskTracker,
    closing: CancellationToken,
    names: Arc<Mutex<HashMap<Arc<str>, Name>>>,
}

enum Name {
    Known { addresses: Arc<[IpAddr]>, until: Instant },
    Asked(watch::Receiver<Found>),
}

impl Dns {
    pub(crate) fn new(options: &Options, tasks: TaskTracker, closing: CancellationToken) -> Self {
        Self::asking(Arc::new(getaddrinfo), options, tasks, closing)
    }

    fn asking(ask: Ask, options: &Options, tasks: TaskTracker, closing: CancellationToken) -> Self {
        Self {
            ask,
            believed: options.dns,
            threads: Arc::new(Semaphore::new(options.lookups.max(1))),
            patience: options.lookup_patience,
            tasks,
            closing,
            names: Arc::default(),
        }
    }

    /// Returns the addresses of a name, in the order in which to try them. An IP address is returned as it is.
    ///
    /// # Cancel safety
    /// The look-up continues for other and later callers if the future is dropped.
    pub(crate) async fn look_up(&self, host: &Arc<str>) -> Result<Arc<[IpAddr]>, Unknown> {
        if let Ok(address) = host.parse() {
            return Ok(Arc::new([address]));
        }
        let mut found = match self.known(host) {
            Name::Known { addresses, .. } => return Ok(addresses),
            Name::Asked(found) => found,
        };
        match found.wait_for(Option::is_some).await {
            Ok(found) => found.clone().unwrap_or(Err(Unknown::Nowhere)),
            // It was broken off: the engine ends.
            Err(_gone) => Err(Unknown::Nowhere),
        }
    }

    fn known(&self, host: &Arc<str>) -> Name {
        let now = Instant::now();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.get(host) {
            Some(Name::Known { addresses, until }) if now < *until => {
                return Name::Known { addresses: Arc::clone(addresses), until: *until };
            }
            Some(Name::Asked(found)) if found.has_changed().is_ok() => {
                return Name::Asked(found.clone());
            }
            _ => {}
        }
        if names.len() >= NAMES {
            names.retain(|_, name| match name {
                Name::Known { until, .. } => now < *until,
                Name::Asked(_) => true,
            });
        }
        let (tell, found) = watch::channel(None);
        names.insert(Arc::clone(host), Name::Asked(found.clone()));
        drop(names);
        self.ask(Arc::clone(host), tell);
        Name::Asked(found)
    }

    fn ask(&self, host: Arc<str>, tell: watch::Sender<Found>) {
        let ask = Arc::clone(&self.ask);
        let threads = Arc::clone(&self.threads);
        let names = Arc::clone(&self.names);
        let (believed, patience) = (self.believed, self.patience);
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            let name = Arc::clone(&host);
            let asked = async {
                let thread = threads.acquire_owned();
                let thread = match patience {
                    Some(patience) => tokio::time::timeout(patience, thread).await,
                    None => Ok(thread.await),
                };
                let _thread = thread.map_err(|_late| Unknown::Busy)?.expect("it is never closed");
                let answer = tokio::task::spawn_blocking(move || ask(&name)).await;
                let addresses = answer.ok().and_then(Result::ok).filter(|all| !all.is_empty());
                addresses.map(Arc::<[IpAddr]>::from).ok_or(Unknown::Nowhere)
            };
            let Some(found) = closing.run_until_cancelled(asked).await else { return };
            {
                let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                match &found {
                    Ok(addresses) if names.len() <= NAMES => {
                        let until = Instant::now() + believed;
                        let known = Name::Known { addresses: Arc::clone(addresses), until };
                        names.insert(host, known);
                    }
                    _ => {
                        names.remove(&host);
                    }
                }
            }
            tell.send_replace(Some(found));
        });
    }
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("believed", &self.believed).finish_non_exhaustive()
    }
}

/// Returns whether a name is `localhost` or below it: such names are always this machine's (RFC 6761, 6.3), as in
/// libcurl.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

fn getaddrinfo(host: &str) -> io::Result<Vec<IpAddr>> {
    match configured(host) {
        Err(_) if is_local(host) => {
            Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        }
        answer => answer,
    }
}

fn configured(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in (host, 0).to_socket_addrs()?.map(|address: SocketAddr| address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn dns(
        believed: Duration,
        ask: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Dns {
        limited(&Options { dns: believed, ..Options::default() }, ask)
    }

    fn limited(
        options: &Options,
        ask: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Dns {
        Dns::asking(Arc::new(ask), options, TaskTracker::new(), CancellationToken::new())
    }

    #[tokio::test]
    async fn without_a_thread_a_look_up_fails_and_can_be_repeated() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let options = Options {
            lookups: 1,
            lookup_patience: Some(Duration::from_millis(1)),
            ..Options::default()
        };
        let (tell, mut begun) = tokio::sync::mpsc::channel(1);
        let dns = Arc::new(limited(&options, move |host| {
            if host == "slow.test" {
                tell.blocking_send(()).expect("the test waits");
                wait.lock().expect("one at a time").recv().expect("the test says go");
            }
            Ok(vec![HERE])
        }));
        let held = Arc::clone(&dns);
        let mut slow = tokio::task::JoinSet::new();
        slow.spawn(async move { held.look_up(&"slow.test".into()).await });
        begun.recv().await.expect("it has the thread");
        assert_eq!(dns.look_up(&"other.test".into()).await, Err(Unknown::Busy));
        go.send(()).expect("it waits");
        let found = slow.join_next().await.expect("it was begun");
        assert!(found.expect("no panic").is_ok());
        // The thread is given back behind the answer.
        while dns.look_up(&"other.test".into()).await == Err(Unknown::Busy) {}
        assert!(dns.look_up(&"other.test".into()).await.is_ok());
    }

    #[test]
    fn local_names_are_this_machine() {
        for host in ["localhost", "shop.localhost"] {
            assert!(getaddrinfo(host).unwrap().iter().all(IpAddr::is_loopback), "{host}");
        }
        assert!(!is_local("localhost.example") && !is_local("notlocalhost"));
    }

    #[tokio::test]
    async fn a_burst_of_callers_shares_one_look_up() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let dns = Arc::new(dns(Duration::from_mins(1), move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            wait.lock().expect("one at a time").recv().expect("the test says go");
            Ok(vec![HERE])
        }));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let dns = Arc::clone(&dns);
            all.spawn(async move { dns.look_up(&"one.test".into()).await });
        }
        // A caller that gives up does not take the answer from the others.
        let name = "one.test".into();
        let given_up = tokio::time::timeout(Duration::from_millis(1), dns.look_up(&name));
        assert!(given_up.await.is_err());
        go.send(()).expect("it waits");
        while let Some(found) = all.join_next().await {
            assert_eq!(found.expect("no panic").as_deref(), Ok(&[HERE][..]));
        }
        assert_eq!(dns.look_up(&"one.test".into()).await.as_deref(), Ok(&[HERE][..]));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn expired_names_are_resolved_again_and_failures_not_cached() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let dns = dns(Duration::ZERO, move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::Error::other("no such name")),
            _ => Ok(vec![HERE]),
        });
        assert_eq!(dns.look_up(&"two.test".into()).await, Err(Unknown::Nowhere));
        assert!(dns.look_up(&"two.test".into()).await.is_ok());
        assert!(dns.look_up(&"two.test".into()).await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn an_ip_address_needs_no_look_up() {
        let dns = dns(Duration::ZERO, |_| panic!("no look-up is expected"));
        assert_eq!(dns.look_up(&"127.0.0.1".into()).await.as_deref(), Ok(&[HERE][..]));
        let v6: IpAddr = "::1".parse().expect("an address");
        assert_eq!(dns.look_up(&"::1".into()).await.as_deref(), Ok(&[v6][..]));
    }
}
