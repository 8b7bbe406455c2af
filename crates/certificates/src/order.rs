//! One order: from the names to their certificate, or to an error.
//!
//! Invariants
//! - Whatever the result of an order, its challenge answers are removed at the end.

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeType, Error,
    Identifier, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls_pki_types::CertificateDer;

use crate::renewal_schedule::Facts;
use crate::{Challenge, Issued, Shop};

/// Reasons why an order fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// An error of the authority or the connection.
    #[error(transparent)]
    Acme(#[from] Error),
    /// The authority did not accept the proof for a name.
    #[error("control of {name} is not proved ({by}): {reason}")]
    Unproved {
        /// The name.
        name: String,
        /// Name of the challenge.
        by: String,
        /// Explanation of the authority.
        reason: String,
    },
    /// The authority offers no challenge that can be answered.
    #[error("the authority offers no challenge for {name} that can be answered here")]
    NoChallenge {
        /// The name.
        name: String,
    },
    /// The issued certificate is unusable.
    #[error("the authority's certificate cannot be used: {reason}")]
    Useless {
        /// The reason.
        reason: String,
    },
}

impl OrderError {
    /// Returns the authority's error type, such as `accountDoesNotExist` (RFC 8555, section 6.7).
    pub(crate) fn kind(&self) -> Option<&str> {
        let Self::Acme(Error::Api(problem)) = self else { return None };
        problem.r#type.as_deref()?.strip_prefix("urn:ietf:params:acme:error:")
    }
}

/// Removes the answers of an order on drop.
struct Forget<'a>(&'a dyn Shop);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget();
    }
}

/// Orders a certificate for `domains` that replaces `replaces`, proved by the first of `challenges` that the
/// authority offers.
pub(crate) async fn order(
    account: &Account,
    domains: &[String],
    challenges: &[Challenge],
    replaces: Option<&CertificateDer<'static>>,
    retries: &RetryPolicy,
    shop: &dyn Shop,
) -> Result<Issued, OrderError> {
    let names: Vec<Identifier> = domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = begin(account, &names, replaces).await?;
    let _forget = Forget(shop);
    prove(&mut order, challenges, shop).await?;
    let ready = order.poll_ready(retries).await;
    // The order only states that it failed; its authorizations state why.
    if !matches!(ready, Ok(OrderStatus::Ready | OrderStatus::Valid)) {
        if let Some(unproved) = why(&mut order).await {
            return Err(unproved);
        }
        ready?;
        return Err(Error::Str("the order is invalid, without a reason").into());
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(retries).await?;
    let facts = Facts::of(&chain);
    let reason = match &facts {
        None => Some("it is no certificate"),
        Some(facts) if !facts.covers(domains) => Some("it is for other names"),
        Some(facts) if facts.not_after <= std::time::SystemTime::now() => Some("it is over"),
        Some(_) => None,
    };
    match reason {
        Some(reason) => Err(OrderError::Useless { reason: reason.to_owned() }),
        None => Ok(Issued { chain, key }),
    }
}

/// Creates the order. The replaced certificate is omitted if the authority does not know it or rejects the field (RFC
/// 9773, section 5).
async fn begin(
    account: &Account,
    names: &[Identifier],
    replaces: Option<&CertificateDer<'static>>,
) -> Result<Order, Error> {
    if let Some(id) = replaces.and_then(|der| CertificateIdentifier::try_from(der).ok()) {
        match account.new_order(&NewOrder::new(names).replaces(id)).await {
            Ok(order) => return Ok(order),
            // A rate limit is not retried.
            Err(Error::Api(problem))
                if problem.r#type.as_deref().is_some_and(|kind| kind.ends_with("rateLimited")) =>
            {
                return Err(Error::Api(problem));
            }
            Err(error) => tracing::debug!(%error, "ordered without telling what is replaced"),
        }
    }
    account.new_order(&NewOrder::new(names)).await
}

async fn prove(
    order: &mut Order,
    challenges: &[Challenge],
    shop: &dyn Shop,
) -> Result<(), OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                let reason = format!("the authorization is {status:?}");
                return Err(OrderError::Unproved { name, by: "none".into(), reason });
            }
        }
        let offered = |challenge: &Challenge| {
            authorization.challenges.iter().any(|offer| offer.r#type == kind(*challenge))
        };
        let Some(chosen) = challenges.iter().copied().find(offered) else {
            return Err(OrderError::NoChallenge { name });
        };
        let mut challenge = authorization
            .challenge(kind(chosen))
            .ok_or_else(|| OrderError::NoChallenge { name: name.clone() })?;
        match chosen {
            Challenge::Http => {
                shop.answer(&challenge.token, challenge.key_authorization().as_str());
            }
            Challenge::TlsAlpn => shop
                .prove(&name, &certificate_of(&name, &challenge)?)
                .map_err(|reason| OrderError::Useless { reason })?,
        }
        challenge.set_ready().await.map_err(|error| match error {
            Error::Api(problem) if is_about_the_name(&problem) => OrderError::Unproved {
                name,
                by: called(&kind(chosen)),
                reason: explanation(&problem),
            },
            error => error.into(),
        })?;
    }
    Ok(())
}

fn kind(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::Http => ChallengeType::Http01,
        Challenge::TlsAlpn => ChallengeType::TlsAlpn01,
    }
}

/// Returns the challenge's name in RFC 8555 and RFC 8737.
fn called(kind: &ChallengeType) -> String {
    match kind {
        ChallengeType::Http01 => "http-01".to_owned(),
        ChallengeType::TlsAlpn01 => "tls-alpn-01".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns whether the error, of those in RFC 8555 (section 6.7), concerns the proof of a name.
fn is_about_the_name(problem: &Problem) -> bool {
    const ABOUT: [&str; 6] =
        ["caa", "connection", "dns", "incorrectResponse", "tls", "unauthorized"];
    let kind = problem.r#type.as_deref().unwrap_or_default();
    ABOUT.iter().any(|about| kind.ends_with(&format!(":{about}")))
}

/// Returns the authority's explanation.
fn explanation(problem: &Problem) -> String {
    problem.detail.clone().unwrap_or_else(|| problem.to_string())
}

/// Builds a challenge certificate (RFC 8737, section 3): self-signed, for this name only, with the digest of the key
/// authorization.
fn certificate_of(name: &str, challenge: &ChallengeHandle<'_>) -> Result<Issued, OrderError> {
    let digest = challenge.key_authorization().digest();
    let made = (|| {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
        let certificate = params.self_signed(&key)?;
        Ok::<_, rcgen::Error>(Issued { chain: certificate.pem(), key: key.serialize_pem() })
    })();
    made.map_err(|error| OrderError::Useless { reason: error.to_string() })
}

/// Returns the first name whose proof was rejected.
async fn why(order: &mut Order) -> Option<OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.ok()?;
        let state = authorization.refresh().await.ok()?;
        if state.status == AuthorizationStatus::Valid {
            continue;
        }
        let (by, problem) = state
            .challenges
            .iter()
            .find_map(|challenge| Some((&challenge.r#type, challenge.error.as_ref()?)))?;
        let (by, reason) = (called(by), explanation(problem));
        return Some(OrderError::Unproved {
            name: authorization.identifier().to_string(),
            by,
            reason,
        });
    }
    None
}
