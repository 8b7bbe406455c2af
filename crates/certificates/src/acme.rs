//! Maintains a certificate of an ACME authority: obtains it, presents it, and renews it before it expires.
//!
//! Invariants
//! - A cached certificate is presented before the authority is contacted; one stored by another server is presented
//!   without contacting it.
//! - After a failure the next attempt comes later than the previous one did, and never before the authority permits
//!   it.
//! - A presented certificate is only replaced by one that was issued later.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AccountCredentials, CertificateIdentifier, ExternalAccountKey, NewAccount, RetryPolicy,
};

use crate::cache::{Cache, Lock};
use crate::client::Client;
use crate::order::{OrderError, order};
use crate::renewal_schedule::{Facts, until};
use crate::{Challenge, Issued, Shop};

/// The certificate to maintain, and its authority.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the certificate, in lower case, without wildcards. At least one.
    pub domains: Vec<String>,
    /// `mailto:` URLs for messages about the account. May be empty.
    pub contact: Vec<String>,
    /// The authority's directory, an https URL.
    pub directory: String,
    /// PEM file of the certificate authorities trusted for the directory's own certificate.
    pub authorities: PathBuf,
    /// Folder for the account and certificates.
    pub cache: PathBuf,
    /// Challenges that can be answered, in order of preference. After a failure the next one is tried first.
    pub challenges: Vec<Challenge>,
    /// External account known to the authority (RFC 8555, section 7.3.4).
    pub external: Option<External>,
    /// Timing.
    pub pace: Pace,
}

/// An account that the authority assigned by other means.
#[derive(Clone)]
pub struct External {
    /// Id of the key.
    pub id: String,
    /// The key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for External {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("External").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Intervals and time limits.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Pause after the first failure; each further one doubles it.
    pub retry: Duration,
    /// Longest pause, unless the authority requires more.
    pub longest_retry: Duration,
    /// Time limit for an order to become ready, and for its certificate.
    pub order: Duration,
    /// Interval of checks of the clock and of the shared cache.
    pub look: Duration,
    /// Interval of queries for the renewal time (RFC 9773), unless the authority sets another.
    pub ask: Duration,
}

impl Default for Pace {
    /// Let's Encrypt permits five failures an hour for a name; these defaults make five in the first hour.
    fn default() -> Self {
        Self {
            retry: Duration::from_mins(2),
            longest_retry: Duration::from_hours(6),
            order: Duration::from_mins(3),
            look: Duration::from_mins(1),
            ask: Duration::from_hours(6),
        }
    }
}

/// Maximum pause that an authority can require.
const LONGEST_PAUSE: Duration = Duration::from_hours(7 * 24);

/// State of the maintenance.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Certificates issued by the authority since the start.
    pub issued: u64,
    /// Attempts that failed since then.
    pub failed: u64,
    /// Reason of the last failure; `None` after a success.
    pub last_failure: Option<String>,
    /// When the next attempt or renewal takes place.
    pub next: Option<SystemTime>,
}

/// Maintains one certificate. Cheap to clone: all clones share the same state.
#[derive(Clone, Debug)]
pub struct Acme {
    options: Arc<Options>,
    report: Arc<Mutex<Report>>,
    /// The last logged reason why the cached certificate is unusable; each is logged once.
    useless: Arc<Mutex<Option<String>>>,
}

/// The certificate presented now.
struct Held {
    issued: Issued,
    facts: Facts,
    /// When to renew it.
    renewal: SystemTime,
    /// When to ask the authority whether to renew it earlier.
    ask: SystemTime,
    /// Why it could not be cached.
    unkept: Option<std::io::Error>,
}

/// The error that prevents ordering one certificate after the other.
const DUE_AT_ONCE: &str =
    "the new certificate is to be renewed already when it comes: is this machine's clock ahead?";

impl Held {
    fn is_due(&self) -> bool {
        self.renewal.min(self.ask) <= SystemTime::now()
    }
}

impl Acme {
    /// Creates the maintenance without contacting the authority.
    pub fn new(options: Options) -> Self {
        Self { options: Arc::new(options), report: Arc::default(), useless: Arc::default() }
    }

    /// Returns the names of the certificate.
    pub fn domains(&self) -> &[String] {
        &self.options.domains
    }

    /// Returns the current state.
    pub fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Presents the cached certificate, if it is usable, without contacting the authority.
    pub fn show_kept(&self, shop: &dyn Shop) {
        let Options { cache, directory, domains, .. } = &*self.options;
        if let Ok(cache) = Cache::open(cache, directory, domains) {
            self.look(&cache, &mut None, shop);
        }
    }

    /// Maintains the certificate while the future is polled; it never ends.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: the authority discards an unfinished order after some days.
    #[expect(clippy::infinite_loop, reason = "it is dropped when the server ends")]
    pub async fn keep(&self, shop: &dyn Shop) {
        let mut held: Option<Held> = None;
        let mut failures: u32 = 0;
        loop {
            match self.one(shop, &mut held, failures).await {
                Ok(next) => {
                    failures = 0;
                    self.note(|report| (report.next, report.last_failure) = (Some(next), None));
                    // Short sleeps, because clocks are changed and machines are suspended.
                    tokio::time::sleep(until(next).min(self.options.pace.look)).await;
                }
                Err((reason, pause)) => {
                    failures += 1;
                    let pace = &self.options.pace;
                    let doubled = pace.retry.saturating_mul(1 << (failures - 1).min(20));
                    let wait = doubled.min(pace.longest_retry).mul_f64(1.0 + fastrand::f64() / 4.0);
                    let wait = wait.max(pause.unwrap_or_default().min(LONGEST_PAUSE));
                    self.log_failure(&reason, held.as_ref(), wait);
                    self.note(|report| {
                        report.failed += 1;
                        report.last_failure = Some(reason);
                        report.next = Some(SystemTime::now() + wait);
                    });
                    self.wait_or_find(wait, &mut held, shop).await;
                }
            }
        }
    }

    /// Logs why there is no new certificate, with a level according to the urgency.
    fn log_failure(&self, reason: &str, held: Option<&Held>, wait: Duration) {
        const LATE: Duration = Duration::from_hours(7 * 24);
        let domains = self.options.domains.join(", ");
        let retry_in = wait.as_secs();
        if held.is_some_and(|held| held.unkept.is_some()) {
            tracing::error!(
                domains,
                reason,
                retry_in,
                "certificate in use, but not saved: the next start would order another one"
            );
            return;
        }
        match held.map(|held| until(held.facts.not_after)) {
            Some(left) if left > LATE => tracing::warn!(
                domains,
                reason,
                retry_in,
                days_left = left.as_secs() / 86_400,
                "certificate not renewed, the old one stays in use"
            ),
            Some(left) => tracing::error!(
                domains,
                reason,
                retry_in,
                days_left = left.as_secs() / 86_400,
                "certificate not renewed, the old one is nearly over"
            ),
            None => tracing::error!(domains, reason, retry_in, "no certificate yet"),
        }
    }

    fn note(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Checks the cache, and the authority if necessary. Returns when the next check is due, or why there is no
    /// certificate and how long the authority wants no requests.
    async fn one(
        &self,
        shop: &dyn Shop,
        held: &mut Option<Held>,
        failures: u32,
    ) -> Result<SystemTime, (String, Option<Duration>)> {
        let at_disk = |error: &dyn std::fmt::Display| {
            (format!("the cache {} cannot be used: {error}", self.options.cache.display()), None)
        };
        let Options { cache, directory, domains, .. } = &*self.options;
        let cache = Cache::open(cache, directory, domains).map_err(|error| at_disk(&error))?;
        self.look(&cache, held, shop);
        if let Some(held) = held.as_mut().filter(|held| held.unkept.is_some()) {
            held.unkept = cache.keep_certificate(&held.issued).err();
        }
        if let Some(held) = held.as_ref().filter(|held| !held.is_due()) {
            let next = held.renewal.min(held.ask);
            return held.unkept.as_ref().map_or(Ok(next), |error| Err(at_disk(error)));
        }
        let Some(_lock) = self.turn(&cache, held, shop).await.map_err(|error| at_disk(&error))?
        else {
            // Another server has stored one in the meantime.
            let next = held.as_ref().map(|held| held.renewal.min(held.ask));
            return Ok(next.unwrap_or_else(SystemTime::now));
        };
        let client = Client::new(&self.options.authorities)
            .map_err(|error| (format!("{}: {error}", self.options.authorities.display()), None))?;
        let outcome = self.ask(&client, &cache, held, shop, failures).await;
        let next = outcome.map_err(|error| (describe(&error), client.pause()))?;
        match held {
            Some(Held { unkept: Some(error), .. }) => Err(at_disk(error)),
            Some(held) if held.renewal <= SystemTime::now() => Err((DUE_AT_ONCE.to_owned(), None)),
            _ => Ok(next),
        }
    }

    /// Returns the lock, or `None` if nothing is left to do.
    async fn turn(
        &self,
        cache: &Cache,
        held: &mut Option<Held>,
        shop: &dyn Shop,
    ) -> std::io::Result<Option<Lock>> {
        loop {
            let lock = cache.lock()?;
            // Checked again under the lock, because its previous owner may have written.
            self.look(cache, held, shop);
            if held.as_ref().is_some_and(|held| !held.is_due()) {
                return Ok(None);
            }
            if lock.is_some() {
                return Ok(lock);
            }
            tracing::debug!("another server asks the authority just now");
            tokio::time::sleep(self.options.pace.look.min(Duration::from_secs(5))).await;
        }
    }

    /// Presents the cached certificate if it was issued after the presented one. One that could not be cached stays
    /// presented.
    fn look(&self, cache: &Cache, held: &mut Option<Held>, shop: &dyn Shop) {
        let found = match cache.certificate() {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => return self.of_no_use(cache, error.to_string()),
        };
        if held.as_ref().is_some_and(|held| held.issued == found) {
            return;
        }
        let facts = Facts::of(&found.chain).filter(|facts| facts.covers(&self.options.domains));
        if let (Some(held), Some(facts)) = (&held, &facts)
            && facts.not_before <= held.facts.not_before
        {
            return;
        }
        let shown = facts
            .ok_or_else(|| "it is no certificate for these names".to_owned())
            .and_then(|facts| shop.show(&found).map(|()| facts));
        match shown {
            Ok(facts) => *held = Some(self.held(found, facts)),
            Err(reason) => self.of_no_use(cache, reason),
        }
    }

    fn of_no_use(&self, cache: &Cache, reason: String) {
        let mut explanation = self.useless.lock().unwrap_or_else(PoisonError::into_inner);
        if explanation.as_ref() != Some(&reason) {
            let file = cache.path();
            tracing::warn!(file = %file.display(), reason, "kept certificate is of no use");
            *explanation = Some(reason);
        }
    }

    fn held(&self, issued: Issued, facts: Facts) -> Held {
        let days_left = until(facts.not_after).as_secs() / 86_400;
        tracing::info!(domains = ?facts.names, days_left, "certificate shown");
        let renewal = facts.renewal(fastrand::f64());
        // Not at the start, because the authority's information about a new certificate is that of the order.
        let ask = SystemTime::now() + self.options.pace.ask;
        Held { issued, facts, renewal, ask, unkept: None }
    }

    /// Asks under the lock whether a renewal is due, and orders it if so.
    async fn ask(
        &self,
        client: &Client,
        cache: &Cache,
        held: &mut Option<Held>,
        shop: &dyn Shop,
        failures: u32,
    ) -> Result<SystemTime, OrderError> {
        client.forget_pause();
        let account = self.account(client, cache).await?;
        if let Some(held) = held.as_mut().filter(|held| held.renewal > SystemTime::now()) {
            self.suggested(&account, held).await;
            if !held.is_due() {
                return Ok(held.renewal.min(held.ask));
            }
        }
        tracing::info!(domains = ?self.options.domains, directory = self.options.directory, "certificate ordered");
        let mut challenges = self.options.challenges.clone();
        let turn = failures as usize % challenges.len().max(1);
        challenges.rotate_left(turn);
        let replaces = held.as_ref().map(|held| &held.facts.leaf);
        let retries = RetryPolicy::new().timeout(self.options.pace.order);
        let ordered =
            order(&account, &self.options.domains, &challenges, replaces, &retries, shop).await;
        let issued = match ordered {
            Err(error) if error.kind() == Some("accountDoesNotExist") => {
                forget_account(cache);
                return Err(error);
            }
            ordered => ordered?,
        };
        shop.show(&issued).map_err(|reason| OrderError::Useless { reason })?;
        let unkept = cache.keep_certificate(&issued).err();
        let facts = Facts::of(&issued.chain).expect("it was looked at when it came");
        self.note(|report| report.issued += 1);
        let held = held.insert(Held { unkept, ..self.held(issued, facts) });
        Ok(held.renewal.min(held.ask))
    }

    /// Updates the renewal time from the authority: earlier if it must revoke the certificate, at another time if it
    /// is busy.
    async fn suggested(&self, account: &Account, held: &mut Held) {
        held.ask = SystemTime::now() + self.options.pace.ask;
        let Ok(id) = CertificateIdentifier::try_from(&held.facts.leaf) else { return };
        match account.renewal_info(&id).await {
            Ok((info, again)) => {
                let window = info.suggested_window;
                let (start, end) = (SystemTime::from(window.start), SystemTime::from(window.end));
                let within = end.duration_since(start).unwrap_or_default().mul_f64(fastrand::f64());
                // Drawn once per window; otherwise the latest of many draws would count.
                if held.renewal < start || held.renewal > end {
                    held.renewal = start + within;
                }
                let (least, most) = (self.options.pace.ask / 6, self.options.pace.ask * 4);
                held.ask = SystemTime::now() + again.clamp(least, most);
            }
            Err(error) => tracing::debug!(%error, "the authority does not say when to renew"),
        }
    }

    async fn account(&self, client: &Client, cache: &Cache) -> Result<Account, OrderError> {
        let kept = cache.account().unwrap_or_else(|error| {
            tracing::warn!(%error, "kept account cannot be read");
            None
        });
        if let Some(kept) = kept {
            match serde_json::from_str::<AccountCredentials>(&kept) {
                Ok(credentials) => {
                    let builder = Account::builder_with_http(Box::new(client.clone()));
                    return Ok(builder.from_credentials(credentials).await?);
                }
                Err(error) => {
                    tracing::warn!(%error, "kept account is of no use, a new one is made");
                }
            }
        }
        let contact: Vec<&str> = self.options.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = self.options.external.as_ref();
        let external = external.map(|known| ExternalAccountKey::new(known.id.clone(), &known.key));
        let builder = Account::builder_with_http(Box::new(client.clone()));
        let (account, credentials) =
            builder.create(&new, self.options.directory.clone(), external.as_ref()).await?;
        tracing::info!(account = account.id(), "account made");
        let kept = serde_json::to_string(&credentials).map_err(std::io::Error::other);
        if let Err(error) = kept.and_then(|text| cache.keep_account(&text)) {
            tracing::error!(%error, "account not kept");
        }
        Ok(account)
    }

    /// Waits until the time is over, or another server stores a certificate.
    async fn wait_or_find(&self, wait: Duration, held: &mut Option<Held>, shop: &dyn Shop) {
        let again = tokio::time::Instant::now() + wait;
        let Options { cache, directory, domains, pace, .. } = &*self.options;
        while tokio::time::Instant::now() < again {
            let left = again.saturating_duration_since(tokio::time::Instant::now());
            tokio::time::sleep(left.min(pace.look)).await;
            let Ok(cache) = Cache::open(cache, directory, domains) else { continue };
            self.look(&cache, held, shop);
            if held.as_ref().is_some_and(|held| !held.is_due() && held.unkept.is_none()) {
                return;
            }
        }
    }
}

fn forget_account(cache: &Cache) {
    tracing::warn!("the authority does not know our account any more, a new one is made");
    if let Err(error) = cache.forget_account() {
        tracing::error!(%error, "old account not forgotten");
    }
}

/// Formats the error and its causes in one line.
fn describe(error: &OrderError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let explanation = error.to_string();
        if !text.contains(&explanation) {
            text.push_str(": ");
            text.push_str(&explanation);
        }
        cause = error.source();
    }
    text
}
