//! Rates of requests per client address: token buckets, one for each rule and address.
//!
//! Invariants
//! - It takes `now` and returns decisions: it reads no clock.
//! - Memory has a bound, however many addresses ask. Where there is no room, the buckets that are fullest are
//!   forgotten first, and a forgotten bucket is full again.
//! - An IPv6 /64 is one address. A trusted proxy that names no client has no bucket.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher as _, RandomState};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::RuleError;
use crate::claims::{Claim, Claims};
use crate::folded::Folded;
use crate::site::Site;

/// Most buckets of each shard; a bucket takes some 40 bytes.
const MOST: usize = 4096;
const SHARDS: usize = 16;
/// The highest rate in requests per unit of time.
const FASTEST: u32 = 1_000_000;

/// A rule: at most this many requests per client address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// The requests that the rule is for.
    scope: Claim,
    /// Time in which one request is regained.
    interval: Duration,
    /// Requests that may come at once.
    burst: NonZeroU32,
    /// A rule of the front itself, which shares no bucket with an operator's.
    of_front: bool,
}

/// A text that is not a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rule is `PATH REQUESTS/UNIT`, such as `/login 5/m`")]
pub struct NoRateLimit;

impl FromStr for RateLimit {
    type Err = NoRateLimit;

    /// Reads `PATH COUNT/UNIT`, and perhaps `BURST`: `/login 5/m 10`.
    fn from_str(text: &str) -> Result<Self, NoRateLimit> {
        let mut words = text.split_ascii_whitespace();
        let (Some(scope), Some(rate)) = (words.next(), words.next()) else {
            return Err(NoRateLimit);
        };
        let scope = scope.parse().map_err(|_invalid| NoRateLimit)?;
        let (count, unit) = rate.split_once('/').ok_or(NoRateLimit)?;
        let count = count.parse::<NonZeroU32>().map_err(|_invalid| NoRateLimit)?;
        let unit = match unit {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            _ => return Err(NoRateLimit),
        };
        let burst = match words.next() {
            Some(burst) => burst.parse().map_err(|_invalid| NoRateLimit)?,
            None => count,
        };
        if count.get() > FASTEST || burst.get() > FASTEST || words.next().is_some() {
            return Err(NoRateLimit);
        }
        Ok(Self { scope, interval: unit / count.get(), burst, of_front: false })
    }
}

impl RateLimit {
    /// Creates a rule of the front itself.
    pub(super) const fn of_front(interval: Duration, burst: NonZeroU32) -> Self {
        Self { scope: Claim::everything(), interval, burst, of_front: true }
    }

    /// Returns the number under which the rule's buckets are kept: the same for the same rule after a reload.
    pub(super) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A rule with its key and what was refused by it.
#[derive(Debug)]
struct Counted {
    rule: RateLimit,
    key: u64,
    /// Lines of the log about refused requests.
    refused: Mutex<Folded<Duration>>,
}

/// The rules of a release.
#[derive(Debug)]
pub(crate) struct RateLimits {
    rules: Vec<Counted>,
    claims: Claims,
}

impl RateLimits {
    pub(super) fn new(rules: &[RateLimit]) -> Result<Self, RuleError> {
        super::each_once("http.rate_limits", rules.iter().map(|rule| &rule.scope))?;
        let claims = Claims::new(rules.iter().map(|rule| &rule.scope).zip(0..));
        let counted = |rule: &RateLimit| Counted {
            key: rule.key(),
            rule: rule.clone(),
            refused: Mutex::default(),
        };
        Ok(Self { rules: rules.iter().map(counted).collect(), claims })
    }

    /// Counts a request of a client for this cleaned path. Returns how long the client has to wait if it asks too often
    /// under one of the path's rules; then no rule counts the request. `behind`: the front controller's name begins
    /// the path.
    pub(crate) fn take(
        &self,
        buckets: &RateBuckets,
        site: Site,
        host: &str,
        path: &[u8],
        behind: bool,
        now: Duration,
    ) -> Result<(), Duration> {
        let scope = |number: usize| Some(&self.rules.get(number)?.rule.scope);
        let numbers = super::numbers_for(&self.claims, host, path, behind, scope);
        let mut taken = Vec::new();
        let mut longest = None;
        for counted in numbers.into_iter().filter_map(|number| self.rules.get(number)) {
            match buckets.take(counted.key, &counted.rule, site, now) {
                Ok(()) => taken.push(counted),
                Err(wait) => {
                    counted.log(site, now);
                    longest = longest.max(Some(wait));
                }
            }
        }
        let Some(wait) = longest else { return Ok(()) };
        for counted in taken {
            buckets.give_back(counted.key, &counted.rule, site);
        }
        Err(wait)
    }
}

impl Counted {
    /// Logs that a request was refused, unless that was logged within the last minute: then the next line counts it.
    fn log(&self, site: Site, now: Duration) {
        let folded = self.refused.lock().unwrap_or_else(PoisonError::into_inner).count(now);
        if let Some(others) = folded {
            let requests = others + 1;
            let (path, client) = (&self.rule.scope, site.address());
            tracing::warn!(%path, client.address = %client, requests, "rate limit: requests refused");
        }
    }
}

/// The buckets of all rules, which outlive releases. A bucket is the time at which it will be full again.
#[derive(Debug, Default)]
pub(crate) struct RateBuckets {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<(u64, Site), Duration>;

impl RateBuckets {
    /// Takes a request out of a bucket of this rule. Returns how long the client has to wait if the bucket is empty.
    pub(super) fn take(
        &self,
        key: u64,
        rule: &RateLimit,
        site: Site,
        now: Duration,
    ) -> Result<(), Duration> {
        let key = (key, site);
        let mut shard = self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = shard.get(&key).copied().unwrap_or(now).max(now) + rule.interval;
        let wait = full_at.saturating_sub(now + rule.interval.saturating_mul(rule.burst.get()));
        if !wait.is_zero() {
            return Err(wait);
        }
        if shard.len() >= MOST && !shard.contains_key(&key) {
            make_room(&mut shard, now);
        }
        shard.insert(key, full_at);
        Ok(())
    }

    /// Puts a request back into its bucket.
    pub(super) fn give_back(&self, key: u64, rule: &RateLimit, site: Site) {
        let key = (key, site);
        let mut shard = self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(full_at) = shard.get_mut(&key) {
            *full_at = full_at.saturating_sub(rule.interval);
        }
    }

    fn shard(&self, key: &(u64, Site)) -> &Mutex<Shard> {
        let number = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[number]
    }
}

/// Forgets full buckets, and if that is not enough the fuller half of the rest.
fn make_room(shard: &mut Shard, now: Duration) {
    shard.retain(|_, full_at| *full_at > now);
    if shard.len() > MOST / 2 {
        let mut times: Vec<Duration> = shard.values().copied().collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        shard.retain(|_, full_at| *full_at > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Rules with their buckets.
    struct Limits {
        rules: RateLimits,
        buckets: RateBuckets,
    }

    impl Limits {
        fn take(&self, address: &str, path: &str, now: Duration) -> Result<(), Duration> {
            let path = path.as_bytes();
            let behind = crate::rules::is_behind(Some("/index.php"), path);
            self.rules.take(&self.buckets, site(address), "a.example", path, behind, now)
        }
    }

    fn limits(rules: &[&str]) -> Limits {
        let rules: Vec<_> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Limits { rules: RateLimits::new(&rules).unwrap(), buckets: RateBuckets::default() }
    }

    fn site(address: &str) -> Site {
        Site::of(address.parse().unwrap())
    }

    fn taken(limits: &Limits, address: &str, path: &str, now: Duration) -> bool {
        limits.take(address, path, now).is_ok()
    }

    #[test]
    fn a_rule_is_a_path_a_rate_and_perhaps_a_burst() {
        let rule: RateLimit = "/login/ 5/m 10".parse().unwrap();
        let interval = Duration::from_secs(12);
        let scope = "/login".parse().unwrap();
        let burst = 10.try_into().unwrap();
        assert_eq!(rule, RateLimit { scope, interval, burst, of_front: false });
        assert!("*.example.com/login 1/s".parse::<RateLimit>().is_ok());
        for wrong in [
            "",
            "/",
            "/ 5",
            "5/s /",
            "/ 0/s",
            "/ 5/d",
            "/ 5/s 0",
            "/ 5/s 5 5",
            "/ -1/s",
            "/ 1000001/s",
            "/a/../b 1/s",
            "/a* 1/s",
        ] {
            assert_eq!(wrong.parse::<RateLimit>(), Err(NoRateLimit), "{wrong}");
        }
        let twice = ["/a 1/s", "/a/ 2/s"].map(|rule| rule.parse().unwrap());
        let error = RateLimits::new(&twice).unwrap_err().to_string();
        assert_eq!(error, "`http.rate_limits` has two rules for /a");
    }

    #[test]
    fn a_bucket_fills_again_at_its_rate() {
        let limits = limits(&["/ 2/s 3"]);
        let now = SECOND;
        for _ in 0..3 {
            assert!(taken(&limits, "192.0.2.1", "/", now));
        }
        let wait = limits.take("192.0.2.1", "/", now);
        assert_eq!(wait, Err(Duration::from_millis(500)));
        assert!(taken(&limits, "192.0.2.2", "/", now), "another client");
        assert!(taken(&limits, "192.0.2.1", "/", now + SECOND / 2));
        assert!(!taken(&limits, "192.0.2.1", "/", now + SECOND / 2));
        let later = now + 100 * SECOND;
        assert_eq!((0..9).filter(|_| taken(&limits, "192.0.2.1", "/", later)).count(), 3);
    }

    #[test]
    fn the_rule_with_the_longest_path_counts() {
        let limits = limits(&["/ 9/s", "/login 1/s"]);
        assert!(taken(&limits, "192.0.2.1", "/login", SECOND));
        assert!(!taken(&limits, "192.0.2.1", "/login/again", SECOND));
        assert!(taken(&limits, "192.0.2.1", "/loginpage", SECOND));
        // `index.php/login` is another name of it, and to Symfony `index.phplogin`, too.
        for path in ["/index.php/login", "/index.phplogin", "/x/index.PHPlogin"] {
            assert!(!taken(&limits, "192.0.2.1", path, SECOND), "{path}");
        }
        let only_login = self::limits(&["/login 1/s"]);
        assert!((0..9).all(|_| taken(&only_login, "192.0.2.1", "/", SECOND)));
    }

    #[test]
    fn a_path_in_two_areas_has_the_rates_of_both() {
        let limits =
            limits(&["/wp-login.php 1/m", "/wp-json/oembed 2/s", "/api 1/m", "/api/open 9/s"]);
        let both = "/wp-login.php/wp-json/oembed";
        assert!(taken(&limits, "192.0.2.1", both, SECOND));
        for path in [both, "/wp-login.php"] {
            assert!(!taken(&limits, "192.0.2.1", path, SECOND), "{path}");
        }
        // A refused request is counted by neither rule.
        assert!(taken(&limits, "192.0.2.1", "/wp-json/oembed", SECOND));
        assert!(!taken(&limits, "192.0.2.1", "/wp-json/oembed", SECOND));
        assert_eq!(limits.take("192.0.2.1", both, SECOND), Err(60 * SECOND), "the longer time");

        // No more specific rule replaces that of a script which is not the front controller.
        assert!(taken(&limits, "192.0.2.1", "/api/login.php/api/open", SECOND));
        assert!(!taken(&limits, "192.0.2.1", "/api/login.php/api/open", SECOND));
        let limits = self::limits(&["/ 1/m", "/api 2/m"]);
        for path in ["/index.php/api", "/index.phpapi"] {
            assert!(taken(&limits, "192.0.2.1", path, SECOND), "{path}");
        }
        for path in ["/index.php/api", "/index.php/", "/"] {
            assert!(!taken(&limits, "192.0.2.1", path, SECOND), "{path}");
        }
    }

    #[test]
    fn a_rule_for_a_host_is_for_that_host() {
        let limits = limits(&["b.example 1/h", "*.example/x 1/h", "/y 1/h"]);
        for (path, passes) in [("/", 9), ("/x", 1), ("/y", 1)] {
            let count = (0..9).filter(|_| taken(&limits, "192.0.2.1", path, SECOND)).count();
            assert_eq!(count, passes, "{path}");
        }
    }

    #[test]
    fn a_reload_keeps_the_buckets_of_rules_that_stay() {
        let Limits { buckets, rules } = limits(&["/a 1/h"]);
        let take = |rules: &RateLimits| {
            rules.take(&buckets, site("192.0.2.1"), "", b"/a", false, SECOND).is_ok()
        };
        assert!(take(&rules));
        assert!(!take(&limits(&["/a 1/h", "/b 1/h"]).rules));
        assert!(take(&limits(&["/a 2/h"]).rules), "another rule");
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let limits = limits(&["/ 1/s"]);
        assert!(taken(&limits, "2001:db8::1", "/", SECOND));
        assert!(!taken(&limits, "2001:db8::2", "/", SECOND));
        assert!(taken(&limits, "2001:db8:0:1::1", "/", SECOND));
    }

    #[test]
    fn many_addresses_take_bounded_memory_and_free_no_heavy_user() {
        let limits = limits(&["/ 1/s 100"]);
        for _ in 0..100 {
            assert!(taken(&limits, "192.0.2.1", "/", SECOND));
        }
        for address in 0..200_000_u32 {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + address).to_string();
            assert!(taken(&limits, &address, "/", SECOND));
        }
        let buckets: usize =
            limits.buckets.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(buckets <= MOST * SHARDS, "{buckets}");
        assert!(!taken(&limits, "192.0.2.1", "/", SECOND), "its bucket is kept");
    }
}
