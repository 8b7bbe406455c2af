//! Basic authentication (RFC 7617) by path: users with hashed passwords in files as `htpasswd -B` writes them.
//!
//! Invariants
//! - No spelling of a path bypasses its rule: paths are compared in each form that a script may see, without regard to
//!   case. The rules of all forms count, except that of a path behind the front controller's name if it is wider.
//! - An unknown user takes as long as a wrong password. A password that was right is compared by its keyed digest.
//! - Of a flood of wrong passwords, few are hashed at once, and few per client.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use ring::hmac;
use tokio::sync::Semaphore;

use super::rate_limit::{RateBuckets, RateLimit};
use super::{RuleError, each_once, is_behind, numbers_for};
use crate::claims::{Claim, Claims};
use crate::route;
use crate::site::Site;

/// The most expensive bcrypt hash that is accepted; verifying one takes about a second.
const MOST_COST: u32 = 14;
/// Most passwords that wait to be hashed; more are answered with 503.
const MOST_WAITING: usize = 64;
/// Most digests of right passwords that are kept.
const MOST_KNOWN: usize = 4096;
/// Wrong passwords of one client: this many at once, then one in each interval.
const ATTEMPTS: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(6);

/// A rule: the requests that need a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordRule {
    /// The requests.
    pub scope: Claim,
    /// The file of users; `None` exempts the requests from a wider rule.
    pub file: Option<PathBuf>,
}

/// The users of one file with their hashes.
#[derive(Debug)]
struct Users {
    hashes: HashMap<Arc<str>, Arc<str>>,
    /// A hash for users who do not exist: it costs as much as another one.
    any: Arc<str>,
}

/// The rules of a release.
pub(crate) struct BasicAuth {
    claims: Claims,
    /// The scope of each rule, and the number of its file.
    rules: Vec<(Claim, Option<usize>)>,
    files: Vec<Users>,
    key: hmac::Key,
    /// Digests of right passwords.
    known: Mutex<HashSet<[u8; 32]>>,
    attempts: (RateLimit, u64),
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl std::fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BasicAuth").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Reasons why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The request has no right password.
    Password,
    /// The client has sent too many wrong ones, and has to wait.
    TooOften(Duration),
    /// Too many passwords wait to be hashed.
    Busy,
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking<'a> {
    /// The client, unless a trusted proxy names none.
    pub(crate) site: Option<Site>,
    pub(crate) buckets: &'a RateBuckets,
    pub(crate) now: Duration,
}

impl BasicAuth {
    pub(super) fn new(rules: &[PasswordRule]) -> Result<Self, RuleError> {
        let scopes: Vec<Claim> = rules.iter().map(|rule| rule.scope.to_lowercase()).collect();
        each_once("http.basic_auth", scopes.iter())?;
        let mut numbers = Vec::new();
        let mut files = Vec::new();
        let mut read: Vec<&Path> = Vec::new();
        for rule in rules {
            numbers.push(match &rule.file {
                None => None,
                Some(path) => {
                    let known = read.iter().position(|known| known == path);
                    if known.is_none() {
                        files.push(Users::read(path)?);
                        read.push(path);
                    }
                    known.or_else(|| files.len().checked_sub(1))
                }
            });
        }
        let rng = ring::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rng)
            .map_err(|_unspecified| RuleError::Random)?;
        let attempts = RateLimit::of_front(ATTEMPT_INTERVAL, ATTEMPTS);
        let attempts_key = attempts.key();
        let threads = available_parallelism().map_or(1, usize::from) / 4;
        Ok(Self {
            claims: Claims::new(scopes.iter().zip(0..)),
            rules: scopes.into_iter().zip(numbers).collect(),
            files,
            key,
            known: Mutex::default(),
            attempts: (attempts, attempts_key),
            permits: Arc::new(Semaphore::new(threads.max(1))),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Returns the numbers of the files of users for this path. There is none if it needs no password, and mostly one.
    /// Of several each must have the user: it is unknown in which area an application sees the path.
    pub(crate) fn files_for(
        &self,
        host: &str,
        path: &str,
        front_controller: Option<&str>,
    ) -> Vec<usize> {
        let Ok(cleaned) = route::clean(path) else { return Vec::new() };
        let behind = is_behind(front_controller, cleaned.as_bytes());
        let lower = cleaned.as_bytes().to_ascii_lowercase();
        // A front controller may decode the path without resolving its dots.
        let decoded = route::decoded(path).filter(|decoded| *decoded != lower);
        let numbers = |path: &[u8], behind| {
            numbers_for(&self.claims, host, path, behind, |number| Some(self.rule(number)?.0))
        };
        let mut counting = numbers(&lower, behind);
        counting.extend(decoded.iter().flat_map(|decoded| numbers(decoded, false)));
        let files = counting.into_iter().filter_map(|number| Some(self.rule(number)?.1));
        let mut files: Vec<usize> = files.collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Returns the scope and the file of a rule, unless it exempts.
    fn rule(&self, number: usize) -> Option<(&Claim, usize)> {
        let (scope, file) = self.rules.get(number)?;
        Some((scope, (*file)?))
    }

    /// Returns the user of a request, if its password is right.
    pub(crate) async fn check(
        &self,
        file: usize,
        headers: &HeaderMap,
        asking: Asking<'_>,
    ) -> Result<Arc<str>, Denied> {
        let users = self.files.get(file).ok_or(Denied::Password)?;
        let (user, password) = credentials(headers).ok_or(Denied::Password)?;
        let digest = self.digest(file, &user, &password);
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&digest) {
            return Ok(user.into());
        }
        let (rule, key) = &self.attempts;
        if let Some(site) = asking.site {
            asking.buckets.take(*key, rule, site, asking.now).map_err(Denied::TooOften)?;
        }
        let found = users.hashes.get(&*user);
        let (exists, hash) = (found.is_some(), Arc::clone(found.unwrap_or(&users.any)));
        let hashed = self.hash(password, hash).await;
        if let (Some(site), true) =
            (asking.site, hashed.as_ref().map_or(true, |fits| exists && *fits))
        {
            asking.buckets.give_back(*key, rule, site);
        }
        if !(hashed? && exists) {
            return Err(Denied::Password);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(digest);
        Ok(user.into())
    }

    fn digest(&self, file: usize, user: &str, password: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&file.to_le_bytes());
        context.update(&user.len().to_le_bytes());
        context.update(user.as_bytes());
        context.update(password);
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Compares a password with a hash, on a thread of its own once there is a place.
    async fn hash(&self, password: Vec<u8>, hash: Arc<str>) -> Result<bool, Denied> {
        let _waits = Waits::new(&self.waiting).ok_or(Denied::Busy)?;
        let permits = Arc::clone(&self.permits);
        let permit = permits.acquire_owned().await.map_err(|_closed| Denied::Busy)?;
        let hashing = tokio::task::spawn_blocking(move || {
            let fits = bcrypt::verify(&password, &hash).unwrap_or(false);
            // A client that leaves frees no place while the thread still works.
            drop(permit);
            fits
        });
        hashing.await.map_err(|_ended| Denied::Busy)
    }
}

/// A place among the passwords that wait to be hashed.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Option<Self> {
        let waits = Self(waiting);
        (waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING).then_some(waits)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the user and password of the only `Authorization` field.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (field, None) = (fields.next()?.to_str().ok()?, fields.next()) else { return None };
    let (scheme, encoded) = field.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let password = decoded.split_off(colon + 1);
    decoded.pop();
    Some((String::from_utf8(decoded).ok()?, password))
}

impl Users {
    fn read(path: &Path) -> Result<Self, RuleError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| RuleError::Unreadable { path: path.to_owned(), cause })?;
        Self::parse(&text).map_err(|(line, reason)| RuleError::Passwords {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    /// Reads `user:hash` lines. An error is the number of a line, and what is wrong with it.
    fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut hashes = HashMap::new();
        let mut any = None;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, hash) = line.split_once(':').ok_or((number, "has no `user:hash`"))?;
            let cost =
                cost(hash).ok_or((number, "has no bcrypt hash: write it by `htpasswd -B`"))?;
            if cost > MOST_COST {
                return Err((
                    number,
                    "has a hash whose cost is above 14: each login would take seconds",
                ));
            }
            let hash: Arc<str> = hash.into();
            if user.is_empty() || hashes.insert(Arc::from(user), Arc::clone(&hash)).is_some() {
                return Err((number, "has a user that is empty or stands there twice"));
            }
            any.get_or_insert(hash);
        }
        let any = any.ok_or((1, "has no user: add one by `htpasswd -B FILE USER`"))?;
        Ok(Self { hashes, any })
    }
}

/// Returns the cost of a bcrypt hash: `$2y$10$`, then 53 characters of salt and digest.
fn cost(hash: &str) -> Option<u32> {
    let rest = ["$2a$", "$2b$", "$2y$"].iter().find_map(|prefix| hash.strip_prefix(prefix))?;
    let (cost, rest) = rest.split_once('$')?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let fits = cost.len() == 2 && rest.len() == 53 && rest.bytes().all(is_base64);
    let cost = cost.parse().ok().filter(|cost| (4..=31).contains(cost))?;
    fits.then_some(cost)
}

/// Reads any value of `Authorization`.
#[cfg(any(test, fuzzing))]
pub(super) fn any_credentials(value: &str) {
    let Ok(value) = http::HeaderValue::from_str(value) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, value.clone());
    if let Some((user, password)) = credentials(&headers) {
        assert!(!user.contains(':'), "the first colon parts user and password");
        let again = STANDARD.encode([user.as_bytes(), b":", &password].concat());
        let again = http::HeaderValue::try_from(format!("bAsIc {again}")).expect("it is ASCII");
        headers.insert(header::AUTHORIZATION, again);
        assert_eq!(credentials(&headers), Some((user, password)));
    }
    headers.append(header::AUTHORIZATION, value);
    assert_eq!(credentials(&headers), None, "two fields are none");
}

/// Reads any file of users.
///
/// # Panics
/// If a hash passes that costs more than a login may.
#[cfg(any(test, fuzzing))]
pub(super) fn any_users(text: &str) {
    match Users::parse(text) {
        Ok(users) => {
            for (user, hash) in &users.hashes {
                assert!(!user.is_empty() && !user.contains(['\n', ':']));
                assert!(cost(hash).is_some_and(|cost| cost <= MOST_COST), "{hash}");
            }
            assert!(users.hashes.values().any(|hash| *hash == users.any));
        }
        Err((line, reason)) => {
            assert!(line <= text.lines().count().max(1) && !reason.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `secret` at cost 4.
    const SECRET: &str = "$2y$04$Cunbpthv3MQoS.v99DdMhOp8yUcVn41mI8u8U5AH.mvhI5YXV6kxe";

    fn auth(rules: &[(&str, Option<&str>)]) -> BasicAuth {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("users"), format!("# staff\n\nann:{SECRET}\n")).unwrap();
        std::fs::write(folder.path().join("others"), format!("bob:{SECRET}\n")).unwrap();
        let rules = rules.iter().map(|(scope, file)| PasswordRule {
            scope: scope.parse().unwrap(),
            file: file.map(|file| folder.path().join(file)),
        });
        BasicAuth::new(&rules.collect::<Vec<_>>()).unwrap()
    }

    fn files_for(auth: &BasicAuth, host: &str, path: &str) -> Vec<usize> {
        auth.files_for(host, path, Some("/index.php"))
    }

    fn headers(credentials: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = format!("bAsic {}", STANDARD.encode(credentials));
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn no_spelling_of_a_path_bypasses_its_rule() {
        let auth = auth(&[("/admin", Some("users")), ("/admin/health", None)]);
        for path in [
            "/admin",
            "/admin/",
            "/admin/users",
            "/%61dmin",
            "//admin",
            "/./admin",
            "/x/../admin",
            "/x/%2e%2E/admin",
            "/admin/../public",
            "/admin/health/../users",
            "/admin%2Fusers",
            "/%2Fadmin",
            "/ADMIN",
            "/index.php/admin",
            "/index.PHP/Admin/x",
            "/index.php//admin",
            "/a/index.php/x.php/admin",
            "/index.phpadmin",
            "/%69ndex.phpadmin",
            "/INDEX.PHPAdmin",
            "/index.php%61dmin/x",
            "/a/index.phpadmin",
            "/index.php.phpadmin",
        ] {
            assert_eq!(files_for(&auth, "a.example", path), [0], "{path}");
        }
        for path in ["/", "/administrator", "/admin/health", "/public", "/x/admin"] {
            assert!(files_for(&auth, "a.example", path).is_empty(), "{path}");
        }
    }

    #[test]
    fn each_file_has_its_users() {
        let auth =
            auth(&[("/", Some("users")), ("b.example", Some("others")), ("/c", Some("users"))]);
        let found = [("a.example", "/"), ("b.example", "/x"), ("", "/c")];
        assert_eq!(found.map(|(host, path)| files_for(&auth, host, path)), [[0], [1], [0]]);
    }

    #[test]
    fn of_the_rules_for_a_path_a_wider_one_does_not_count() {
        let auth = auth(&[
            ("/", Some("users")),
            ("/admin", Some("others")),
            ("/admin/health", None),
            ("intern.example", Some("users")),
            ("intern.example/admin", Some("others")),
            ("*.example.com/admin", Some("users")),
            ("*.b.example.com/admin", Some("others")),
        ]);
        for host in ["a.example", "intern.example", "a.b.example.com"] {
            for path in ["/admin", "/index.php/admin", "/index.php/Admin/x"] {
                assert_eq!(files_for(&auth, host, path), [1], "{host}{path}");
            }
            for path in ["/", "/index.php/", "/index.php/administrator", "/admin.php"] {
                assert_eq!(files_for(&auth, host, path), [0], "{host}{path}");
            }
        }
        assert_eq!(files_for(&auth, "a.example.com", "/index.php/admin"), [0]);
        assert!(files_for(&auth, "a.example", "/admin/health").is_empty());
        assert_eq!(files_for(&auth, "a.example", "/index.php/admin/health"), [0]);
        // Another script runs, or the front controller sees the whole path: the wider rule counts, too.
        for path in [
            "/users.php/admin",
            "/index.phpadmin",
            "/INDEX.php/admin",
            "/x/index.php/admin",
            "/index.php/users.php/admin",
            "/x/../admin",
        ] {
            assert_eq!(files_for(&auth, "a.example", path), [0, 1], "{path}");
        }
        assert_eq!(auth.files_for("a.example", "/index.php/admin", None), [0, 1]);
    }

    #[test]
    fn a_path_in_two_areas_needs_a_user_of_both() {
        let auth = auth(&[("/shop", Some("users")), ("/customers", Some("others"))]);
        for path in ["/shop/index.php/customers", "/customers/x.php/shop", "/shop/../customers"] {
            assert_eq!(files_for(&auth, "", path), [0, 1], "{path}");
        }
        assert_eq!(files_for(&auth, "", "/shop/customers"), [0]);
    }

    #[tokio::test]
    async fn a_right_password_is_hashed_once_and_wrong_ones_few_times_per_client() {
        let auth = auth(&[("/", Some("users"))]);
        let buckets = RateBuckets::default();
        let site = Some(Site::of("192.0.2.1".parse().unwrap()));
        let asking = Asking { site, buckets: &buckets, now: Duration::from_secs(100) };
        for _ in 0..20 {
            let user = auth.check(0, &headers("ann:secret"), asking).await.unwrap();
            assert_eq!(&*user, "ann");
        }
        assert_eq!(auth.known.lock().unwrap().len(), 1);
        for credentials in ["ann:wrong", "ann:", "bob:secret", ":secret", "ann"] {
            let checked = auth.check(0, &headers(credentials), asking).await;
            assert_eq!(checked, Err(Denied::Password), "{credentials}");
        }
        for number in 0..6 {
            let checked = auth.check(0, &headers(&format!("ann:{number}")), asking).await;
            assert_eq!(checked, Err(Denied::Password), "{number}");
        }
        let checked = auth.check(0, &headers("ann:7"), asking).await;
        assert_eq!(checked, Err(Denied::TooOften(ATTEMPT_INTERVAL)));
        assert!(auth.check(0, &headers("ann:secret"), asking).await.is_ok(), "it is known");
        let other = Asking { site: Some(Site::of("192.0.2.2".parse().unwrap())), ..asking };
        assert_eq!(auth.check(0, &headers("ann:7"), other).await, Err(Denied::Password));
        // No second field may name another user to PHP.
        let mut two = headers("ann:secret");
        two.append(header::AUTHORIZATION, "Basic eDp5".parse().unwrap());
        assert_eq!(auth.check(0, &two, asking).await, Err(Denied::Password));
    }

    #[tokio::test]
    async fn wrong_passwords_share_no_bucket_with_a_rate_of_the_same_size() {
        let auth = auth(&[("/", Some("users"))]);
        let limits = super::super::RateLimits::new(&["/ 10/m".parse().unwrap()]).unwrap();
        let buckets = RateBuckets::default();
        let site = Site::of("192.0.2.1".parse().unwrap());
        let now = Duration::from_secs(100);
        let asking = Asking { site: Some(site), buckets: &buckets, now };
        for number in 0..10 {
            let checked = auth.check(0, &headers(&format!("ann:{number}")), asking).await;
            assert_eq!(checked, Err(Denied::Password), "{number}");
        }
        for number in 0..10 {
            assert!(limits.take(&buckets, site, "", b"/", false, now).is_ok(), "{number}");
        }
        assert!(limits.take(&buckets, site, "", b"/", false, now).is_err());
        let checked = auth.check(0, &headers("ann:11"), asking).await;
        assert_eq!(checked, Err(Denied::TooOften(ATTEMPT_INTERVAL)));
    }

    #[tokio::test]
    async fn a_flood_of_wrong_passwords_is_refused_before_it_is_hashed() {
        let auth = auth(&[("/", Some("users"))]);
        let buckets = RateBuckets::default();
        let permits = Arc::clone(&auth.permits)
            .acquire_many_owned(u32::try_from(auth.permits.available_permits()).unwrap());
        let permits = permits.await.unwrap();
        let of = |number: u32| Asking {
            site: Some(Site::of(std::net::Ipv4Addr::from_bits(number).into())),
            buckets: &buckets,
            now: Duration::from_secs(100),
        };
        let wrong = headers("ann:wrong");
        let mut flood: Vec<_> =
            (0..100).map(|number| Box::pin(auth.check(0, &wrong, of(number)))).collect();
        let mut busy = 0;
        for check in &mut flood {
            let now = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(match check.as_mut().poll(cx) {
                    std::task::Poll::Ready(answer) => Some(answer),
                    std::task::Poll::Pending => None,
                })
            });
            busy += u32::from(now.await == Some(Err(Denied::Busy)));
        }
        assert_eq!(busy, 100 - u32::try_from(MOST_WAITING).unwrap());
        drop(flood);
        assert_eq!(auth.waiting.load(Ordering::Relaxed), 0);
        drop(permits);
        assert!(auth.check(0, &headers("ann:secret"), of(200)).await.is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_used_says_which_line() {
        let wrong = |text: &str| Users::parse(text).unwrap_err();
        assert_eq!(wrong(""), (1, "has no user: add one by `htpasswd -B FILE USER`"));
        assert_eq!(wrong("\nann").0, 2);
        for hash in ["$apr1$a$b", "{SHA}abc", "secret", "$2y$10$short", "$2y$99$", "", "$2y$04$ä"]
        {
            assert_eq!(
                wrong(&format!("ann:{hash}")).1,
                "has no bcrypt hash: write it by `htpasswd -B`"
            );
        }
        let dear = SECRET.replacen("$04$", "$15$", 1);
        assert!(wrong(&format!("ann:{dear}")).1.contains("above 14"));
        assert!(wrong(&format!("ann:{SECRET}\nann:{SECRET}")).1.contains("twice"));
        assert!(wrong(&format!(":{SECRET}")).1.contains("empty"));
    }
}
