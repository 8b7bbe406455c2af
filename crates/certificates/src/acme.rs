//! Keeps a certificate of an ACME authority: obtains it, shows it, and has the next one before it is over.
//!
//! Invariants
//! - What the cache holds is shown before anybody is asked; what another server has put there is shown without asking.
//! - After a failure the next try comes later than the last one did, and never before the authority wants it.
//! - What is shown is only replaced by what was issued after it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AccountCredentials, CertificateIdentifier, ExternalAccountKey, NewAccount, RetryPolicy,
};

use crate::cache::{Cache, Lock};
use crate::client::Client;
use crate::moments::{Facts, until};
use crate::order::{OrderError, order};
use crate::{Challenge, Issued, Shop};

/// What certificate to keep, and by whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose certificate it is: names, lower case, no wildcards. At least one.
    pub domains: Vec<String>,
    /// Who is told when something is wrong with the account: `mailto:` URLs. May be empty.
    pub contact: Vec<String>,
    /// The authority's directory, an https URL.
    pub directory: String,
    /// Whom the directory's own certificate has to be from, a PEM file.
    pub authorities: PathBuf,
    /// Where account and certificates are kept.
    pub cache: PathBuf,
    /// What can be answered here, the most wanted first. After a failure the next one is tried first.
    pub challenges: Vec<Challenge>,
    /// An account elsewhere that the authority knows (RFC 8555, section 7.3.4).
    pub external: Option<External>,
    /// How fast it goes on.
    pub pace: Pace,
}

/// The account that an authority has given somebody by other means.
#[derive(Clone)]
pub struct External {
    /// The key's id.
    pub id: String,
    /// The key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for External {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("External").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After the first failure; each further one doubles it.
    pub retry: Duration,
    /// At most, unless the authority asks for more.
    pub longest_retry: Duration,
    /// For an order to become ready, and for its certificate.
    pub order: Duration,
    /// Between two looks at the clock and at what other servers have put into the cache.
    pub look: Duration,
    /// Between two questions for when to renew (RFC 9773), unless the authority names another.
    pub ask: Duration,
}

impl Default for Pace {
    /// Let's Encrypt takes five failures an hour for a name; this has five in the first.
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

/// An authority that asks for more is asked again after this.
const LONGEST_PAUSE: Duration = Duration::from_hours(7 * 24);

/// What there is to tell.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Certificates that the authority has issued since the start.
    pub issued: u64,
    /// Tries that failed since then.
    pub failed: u64,
    /// Why the last one failed; nothing once one has not.
    pub last_failure: Option<String>,
    /// When it is tried again, or the certificate is renewed.
    pub next: Option<SystemTime>,
}

/// Keeps one certificate. Cheap to clone: all clones are of the same.
#[derive(Clone, Debug)]
pub struct Acme {
    options: Arc<Options>,
    report: Arc<Mutex<Report>>,
    /// Why what the cache holds is of no use: said once.
    useless: Arc<Mutex<Option<String>>>,
}

/// What is shown now.
struct Held {
    issued: Issued,
    facts: Facts,
    /// When to renew it.
    renewal: SystemTime,
    /// When to ask the authority whether it should be sooner.
    ask: SystemTime,
    /// Why it is not in the cache.
    unkept: Option<std::io::Error>,
}

/// Nobody may be asked for one certificate after the other.
const DUE_AT_ONCE: &str =
    "the new certificate is to be renewed already when it comes: is this machine's clock ahead?";

impl Held {
    fn is_due(&self) -> bool {
        self.renewal.min(self.ask) <= SystemTime::now()
    }
}

impl Acme {
    /// Nothing is asked for yet.
    pub fn new(options: Options) -> Self {
        Self { options: Arc::new(options), report: Arc::default(), useless: Arc::default() }
    }

    /// Whose certificate it is.
    pub fn domains(&self) -> &[String] {
        &self.options.domains
    }

    /// What there is to tell now.
    pub fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what the cache holds, where that is of any use. Nobody is asked.
    pub fn show_kept(&self, shop: &dyn Shop) {
        let Options { cache, directory, domains, .. } = &*self.options;
        if let Ok(cache) = Cache::open(cache, directory, domains) {
            self.look(&cache, &mut None, shop);
        }
    }

    /// Keeps the certificate for as long as it is polled; it never ends.
    ///
    /// # Cancel safety
    /// It may be dropped at any time: an order that was begun is forgotten by the authority after some days.
    #[expect(clippy::infinite_loop, reason = "it is dropped when the server ends")]
    pub async fn keep(&self, shop: &dyn Shop) {
        let mut held: Option<Held> = None;
        let mut failures: u32 = 0;
        loop {
            match self.one(shop, &mut held, failures).await {
                Ok(next) => {
                    failures = 0;
                    self.note(|report| (report.next, report.last_failure) = (Some(next), None));
                    // Short: clocks are set and machines sleep.
                    tokio::time::sleep(until(next).min(self.options.pace.look)).await;
                }
                Err((reason, pause)) => {
                    failures += 1;
                    let pace = &self.options.pace;
                    let doubled = pace.retry.saturating_mul(1 << (failures - 1).min(20));
                    let wait = doubled.min(pace.longest_retry).mul_f64(1.0 + fastrand::f64() / 4.0);
                    let wait = wait.max(pause.unwrap_or_default().min(LONGEST_PAUSE));
                    self.say(&reason, held.as_ref(), wait);
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

    /// Says why there is no new certificate, as loud as it is bad.
    fn say(&self, reason: &str, held: Option<&Held>, wait: Duration) {
        const LATE: Duration = Duration::from_hours(7 * 24);
        let domains = self.options.domains.join(", ");
        let retry_in = wait.as_secs();
        if held.is_some_and(|held| held.unkept.is_some()) {
            tracing::error!(
                domains,
                reason,
                retry_in,
                "certificate shown, but not kept: the next start would ask for another one"
            );
            return;
        }
        match held.map(|held| until(held.facts.not_after)) {
            Some(left) if left > LATE => tracing::warn!(
                domains,
                reason,
                retry_in,
                days_left = left.as_secs() / 86_400,
                "certificate not renewed, the old one is shown"
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

    /// One look: at the cache, and if need be at the authority. Says when the next is due, or why there is no certificate and how long the
    /// authority wants to be left alone.
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
            // Another server has put one there meanwhile.
            let next = held.as_ref().map(|held| held.renewal.min(held.ask));
            return Ok(next.unwrap_or_else(SystemTime::now));
        };
        let client = Client::new(&self.options.authorities)
            .map_err(|error| (format!("{}: {error}", self.options.authorities.display()), None))?;
        let outcome = self.ask(&client, &cache, held, shop, failures).await;
        let next = outcome.map_err(|error| (told(&error), client.pause()))?;
        match held {
            Some(Held { unkept: Some(error), .. }) => Err(at_disk(error)),
            Some(held) if held.renewal <= SystemTime::now() => Err((DUE_AT_ONCE.to_owned(), None)),
            _ => Ok(next),
        }
    }

    /// The lock, or nothing when there is nothing left to do.
    async fn turn(
        &self,
        cache: &Cache,
        held: &mut Option<Held>,
        shop: &dyn Shop,
    ) -> std::io::Result<Option<Lock>> {
        loop {
            let lock = cache.lock()?;
            // Looked at again with the lock: who had it before us may have written.
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

    /// Shows what the cache holds, where that was issued after what is shown: what cannot be kept is not taken back.
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
        let mut said = self.useless.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref() != Some(&reason) {
            let file = cache.path();
            tracing::warn!(file = %file.display(), reason, "kept certificate is of no use");
            *said = Some(reason);
        }
    }

    fn held(&self, issued: Issued, facts: Facts) -> Held {
        let days_left = until(facts.not_after).as_secs() / 86_400;
        tracing::info!(domains = ?facts.names, days_left, "certificate shown");
        let renewal = facts.renewal(fastrand::f64());
        // Not all at the start: what the authority says of a new certificate is what it said of the old.
        let ask = SystemTime::now() + self.options.pace.ask;
        Held { issued, facts, renewal, ask, unkept: None }
    }

    /// With the lock: asks whether it is time, and orders if it is.
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

    /// When the authority wants the certificate to be renewed: earlier where it has to be revoked, elsewhere where it has much to do.
    async fn suggested(&self, account: &Account, held: &mut Held) {
        held.ask = SystemTime::now() + self.options.pace.ask;
        let Ok(id) = CertificateIdentifier::try_from(&held.facts.leaf) else { return };
        match account.renewal_info(&id).await {
            Ok((info, again)) => {
                let window = info.suggested_window;
                let (start, end) = (SystemTime::from(window.start), SystemTime::from(window.end));
                let within = end.duration_since(start).unwrap_or_default().mul_f64(fastrand::f64());
                // Drawn once for a window: else the latest of many draws would count.
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

    /// Waits, unless another server puts a certificate into the cache meanwhile.
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

/// The error and its causes in one line.
fn told(error: &OrderError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
