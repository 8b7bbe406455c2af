//! Limits of requests per client address that go to PHP: token buckets, one for each rule and address.
//!
//! Invariants
//! - It takes `now` and returns decisions: it reads no clock.
//! - Memory has a bound, however many addresses ask. Where there is no room, the buckets that are fullest are
//!   forgotten first, and a forgotten bucket is full again.
//! - An IPv6 /64 is one address. A trusted proxy that names no client has no bucket.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::site::Site;

/// Most buckets of each shard; a bucket takes some 40 bytes.
const MOST: usize = 4096;
const SHARDS: usize = 16;

/// A rule: at most this many requests per client address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The rule is for this path and all below; `/` is for all.
    path: String,
    /// Time in which one request is regained.
    interval: Duration,
    /// Requests that may come at once.
    burst: NonZeroU32,
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
        let (Some(path), Some(rate)) = (words.next(), words.next()) else {
            return Err(NoRateLimit);
        };
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
        if !path.starts_with('/') || words.next().is_some() {
            return Err(NoRateLimit);
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { path, interval: unit / count.get(), burst })
    }
}

impl RateLimit {
    /// Returns whether the rule is for this path.
    fn is_for(&self, path: &[u8]) -> bool {
        path.strip_prefix(self.path.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

/// The buckets of all rules. A bucket is the time at which it will be full again.
#[derive(Debug)]
pub(crate) struct RateLimits {
    rules: Vec<RateLimit>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<(usize, Site), Duration>;

impl RateLimits {
    /// Creates full buckets. Of several rules for a path, the one with the longest path counts.
    pub(crate) fn new(mut rules: Vec<RateLimit>) -> Self {
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.path.len()));
        Self { rules, hasher: RandomState::new(), shards: Default::default() }
    }

    /// Takes a request out of the bucket of the rule that is for one of these paths: its path, and the one that its
    /// script sees. Returns how long the client has to wait if the bucket is empty.
    pub(crate) fn take(
        &self,
        site: Site,
        paths: [&[u8]; 2],
        now: Duration,
    ) -> Result<(), Duration> {
        let is_for = |rule: &RateLimit| paths.iter().any(|path| rule.is_for(path));
        let Some(number) = self.rules.iter().position(is_for) else { return Ok(()) };
        let Some(rule) = self.rules.get(number) else { return Ok(()) };
        let key = (number, site);
        let shard = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        let mut shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
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

    fn limits(rules: &[&str]) -> RateLimits {
        RateLimits::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn site(address: &str) -> Site {
        Site::of(address.parse().unwrap())
    }

    fn taken(limits: &RateLimits, address: &str, path: &str, now: Duration) -> bool {
        limits.take(site(address), [path.as_bytes(), b""], now).is_ok()
    }

    #[test]
    fn a_rule_is_a_path_a_rate_and_perhaps_a_burst() {
        let rule: RateLimit = "/login/ 5/m 10".parse().unwrap();
        let interval = Duration::from_secs(12);
        assert_eq!(
            rule,
            RateLimit { path: "/login".into(), interval, burst: 10.try_into().unwrap() }
        );
        for wrong in ["", "/", "/ 5", "5/s /", "/ 0/s", "/ 5/d", "/ 5/s 0", "/ 5/s 5 5", "/ -1/s"] {
            assert_eq!(wrong.parse::<RateLimit>(), Err(NoRateLimit), "{wrong}");
        }
    }

    #[test]
    fn a_bucket_fills_again_at_its_rate() {
        let limits = limits(&["/ 2/s 3"]);
        let now = SECOND;
        for _ in 0..3 {
            assert!(taken(&limits, "192.0.2.1", "/", now));
        }
        let wait = limits.take(site("192.0.2.1"), [b"/", b""], now);
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
        // `index.php/login` is another name of it.
        assert!(limits.take(site("192.0.2.1"), [b"/index.php/login", b"/login"], SECOND).is_err());
        let only_login = self::limits(&["/login 1/s"]);
        assert!((0..9).all(|_| taken(&only_login, "192.0.2.1", "/", SECOND)));
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
        let buckets: usize = limits.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(buckets <= MOST * SHARDS, "{buckets}");
        assert!(!taken(&limits, "192.0.2.1", "/", SECOND), "its bucket is kept");
    }
}
