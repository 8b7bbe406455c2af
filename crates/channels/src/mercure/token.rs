//! JSON Web Tokens in compact form (RFC 7519, RFC 7515), verified with one key of the settings.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::{hmac, signature};

use super::selector::Selector;
use crate::json::{Kind, Raw};

/// A signature algorithm (RFC 7518).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the RFC")]
pub enum Algorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl Algorithm {
    /// All algorithms with their names.
    pub const ALL: [(Self, &'static str); 12] = [
        (Self::HS256, "HS256"),
        (Self::HS384, "HS384"),
        (Self::HS512, "HS512"),
        (Self::RS256, "RS256"),
        (Self::RS384, "RS384"),
        (Self::RS512, "RS512"),
        (Self::PS256, "PS256"),
        (Self::PS384, "PS384"),
        (Self::PS512, "PS512"),
        (Self::ES256, "ES256"),
        (Self::ES384, "ES384"),
        (Self::EdDSA, "EdDSA"),
    ];

    /// Returns the algorithm with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(algorithm, _)| algorithm)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }
}

/// A key with its algorithm.
#[derive(Clone)]
pub struct Key {
    algorithm: Algorithm,
    verifier: Arc<Verifier>,
}

enum Verifier {
    Secret(hmac::Key),
    Public(signature::UnparsedPublicKey<Vec<u8>>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.algorithm).finish()
    }
}

/// The key cannot be used with its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// A shared secret is empty.
    #[error("the key is empty")]
    Empty,
    /// The text is no public key in PEM.
    #[error("the key must be a public key in PEM (`-----BEGIN PUBLIC KEY-----`)")]
    NoPem,
}

impl Key {
    /// Reads a shared secret (`HS…`) or a public key in PEM.
    pub fn new(algorithm: Algorithm, text: &str) -> Result<Self, InvalidKey> {
        if text.is_empty() {
            return Err(InvalidKey::Empty);
        }
        let secret = |of| Ok(Verifier::Secret(hmac::Key::new(of, text.as_bytes())));
        let public = |of: &'static dyn signature::VerificationAlgorithm| {
            let key = public_key(text).ok_or(InvalidKey::NoPem)?;
            Ok(Verifier::Public(signature::UnparsedPublicKey::new(of, key)))
        };
        let verifier = match algorithm {
            Algorithm::HS256 => secret(hmac::HMAC_SHA256),
            Algorithm::HS384 => secret(hmac::HMAC_SHA384),
            Algorithm::HS512 => secret(hmac::HMAC_SHA512),
            Algorithm::RS256 => public(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => public(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => public(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => public(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => public(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => public(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => public(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => public(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => public(&signature::ED25519),
        }?;
        Ok(Self { algorithm, verifier: Arc::new(verifier) })
    }
}

/// Returns the key bytes of a public key in PEM: the content of the last bit string of its structure (RFC 5280), or
/// the whole of an `RSA PUBLIC KEY`.
fn public_key(pem: &str) -> Option<Vec<u8>> {
    let (label, rest) = pem.split_once("-----BEGIN ")?.1.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let text: String = body.split_whitespace().collect();
    let der = STANDARD.decode(text).ok()?;
    if label == "RSA PUBLIC KEY" {
        return Some(der);
    }
    let (0x30, structure, _) = element(&der)? else { return None };
    let (0x30, _, rest) = element(structure)? else { return None };
    let (0x03, bits, _) = element(rest)? else { return None };
    bits.split_first().filter(|(unused, _)| **unused == 0).map(|(_, key)| key.to_vec())
}

/// Reads one element in DER: tag, content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), rest.get(2..)?),
        short @ 0..=0x7f => (usize::from(short), rest),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The rights that a token grants.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// Topics of private updates that may be published; `None` if nothing may be published.
    pub(super) publish: Option<Vec<Selector>>,
    /// Topics of private updates that may be received.
    pub(super) subscribe: Vec<Selector>,
    /// Data for the subscription API: JSON.
    pub(super) payload: Option<Box<str>>,
    /// When the token expires, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

/// Maximum number of selectors in one claim.
const SELECTORS: usize = 1000;

impl Claims {
    /// Verifies a token; `None` if it is not valid now.
    pub(super) fn verify(token: &str, key: &Key, now: u64) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header = URL_SAFE_NO_PAD.decode(header).ok()?;
        let header = Raw::from_bytes(&header).ok()?;
        // Extensions that must be understood (RFC 7515, 4.1.11): none is.
        if header.get("crit").is_some() {
            return None;
        }
        let algorithm = header.get("alg")?.string()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if algorithm != key.algorithm.name() {
            return None;
        }
        match &*key.verifier {
            Verifier::Secret(key) => hmac::verify(key, signed.as_bytes(), &signature).ok()?,
            Verifier::Public(key) => key.verify(signed.as_bytes(), &signature).ok()?,
        }
        Self::read(&URL_SAFE_NO_PAD.decode(payload).ok()?, now)
    }

    /// Reads the claims of a token whose signature is right; `None` if they are not valid now.
    pub(super) fn read(payload: &[u8], now: u64) -> Option<Self> {
        let payload = Raw::from_bytes(payload).ok()?;
        let expires = Time::read(payload, "exp");
        let valid = match (expires, Time::read(payload, "nbf")) {
            (Time::Invalid, _) | (_, Time::Invalid) => false,
            (Time::At(expires), _) if expires <= now => false,
            (_, Time::At(begins)) => begins <= now,
            _ => true,
        };
        if !valid {
            return None;
        }
        let claim = payload.get("mercure").or_else(|| payload.get("https://mercure.rocks/"));
        let list = |name| {
            let list = claim?.get(name).filter(|list: &Raw<'_>| list.kind() == Kind::Array)?;
            let texts = list.elements().take(SELECTORS).filter_map(Raw::string);
            Some(texts.map(|text| Selector::new(&text)).collect())
        };
        Some(Self {
            publish: list("publish"),
            subscribe: list("subscribe").unwrap_or_default(),
            payload: claim
                .and_then(|claim| claim.get("payload"))
                .map(|payload| payload.text().into()),
            expires: if let Time::At(expires) = expires { Some(expires) } else { None },
        })
    }
}

/// A time in a claim, in seconds since 1970.
#[derive(Clone, Copy)]
enum Time {
    Absent,
    At(u64),
    Invalid,
}

impl Time {
    /// Reads a time, which may have a fraction.
    fn read(payload: Raw<'_>, name: &str) -> Self {
        let Some(value) = payload.get(name).and_then(Raw::present) else { return Self::Absent };
        let whole = value.text().split('.').next().and_then(|text| text.parse().ok());
        whole.map_or(Self::Invalid, Self::At)
    }
}
