//! The certificates of a front and their selection per client. They can change while the front serves.
//!
//! Invariants
//! - A client gets the certificate with its server name, otherwise one with a matching wildcard, otherwise the first.
//!   Of several that match, it gets the first whose key it can verify.
//! - The certificate of a challenge is presented only to the authority that asks for it (RFC 8737), and such a
//!   connection never carries a request.
//! - A handshake sees the certificates of one moment: never some from before and some from after a change.
//! - A client that prefers `ChaCha20` gets it. All others get AES with 128 bits if they know it: its SHA-256 has
//!   instructions of its own in processors, and the SHA-384 that goes with 256 bits has none that ring uses everywhere.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig};
use rustls_pki_types::CertificateDer;

use super::clients::{ClientAuthorities, VerifiedClient, Verifier};
use crate::tls::{ACME, Certificate};

/// The sources of certificates in order of priority. A client without a server name gets the first certificate of the
/// first source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Files of the operator.
    Files,
    /// A certificate authority on the network.
    Authority,
    /// Hearth's local authority, for development.
    Local,
}

/// The certificates of a front, and its answers to authorities' challenges. Clones share the same state.
#[derive(Clone)]
pub struct Certificates {
    shelf: Arc<Shelf>,
    config: Arc<ServerConfig>,
    /// The configuration for clients that prefer `ChaCha20`: their own order of cipher suites decides.
    as_offered: Arc<ServerConfig>,
    /// The configuration for HTTP/3.
    quic: Arc<ServerConfig>,
    /// Verifies clients, if they are asked for certificates.
    clients: Option<Clients>,
}

/// How clients are asked for certificates.
#[derive(Clone)]
struct Clients {
    verifier: Arc<Verifier>,
    /// For certificate authorities that ask for a challenge: they have none.
    unasked: Arc<ServerConfig>,
}

/// A function that creates a certificate for a name, or returns `None`.
type Make = dyn Fn(&str) -> Option<Certificate> + Send + Sync;

struct Maker(Box<Make>);

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

/// Maximum number of created certificates kept; further names get another certificate.
const MADE: usize = 100;

#[derive(Debug, Default)]
struct Shelf {
    shown: RwLock<BTreeMap<Place, Vec<Certificate>>>,
    /// Certificates that answer TLS-ALPN-01, by name.
    challenges: RwLock<HashMap<String, Certificate>>,
    /// Creates certificates for names that no other certificate matches.
    maker: RwLock<Option<Maker>>,
    made: Mutex<HashMap<String, Certificate>>,
    /// Answers to HTTP-01 by token (RFC 8555, section 8.3).
    answers: RwLock<HashMap<String, String>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("shown", &self.shelf.shown).finish_non_exhaustive()
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// Creates an empty set. Every handshake fails with a message until there is a certificate.
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Creates an empty set whose clients are asked for certificates.
    pub fn asking(authorities: ClientAuthorities) -> Self {
        Self::with(Some(authorities))
    }

    fn with(authorities: Option<ClientAuthorities>) -> Self {
        let shelf = Arc::new(Shelf::default());
        let mut provider = ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        let provider = Arc::new(provider);
        let verifier = authorities.map(|authorities| Arc::new(Verifier::new(authorities)));
        let config = |verifier: Option<Arc<Verifier>>| {
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .expect("ring has what TLS 1.2 and 1.3 need");
            let asks = verifier.is_some();
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            let mut config =
                builder.with_cert_resolver(Arc::clone(&shelf) as Arc<dyn ResolvesServerCert>);
            // The server's order decides: a client that offers more than `acme-tls/1` uses HTTP.
            config.alpn_protocols = [&b"h2"[..], b"http/1.1", ACME].map(<[u8]>::to_vec).to_vec();
            if asks {
                // A resumed session would keep a client whose authority is trusted no longer.
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
            config
        };
        let clients = verifier.clone().map(|verifier| {
            let mut unasked = config(None);
            unasked.alpn_protocols = vec![ACME.to_vec()];
            Clients { verifier, unasked: Arc::new(unasked) }
        });
        let mut config = config(verifier);
        let as_offered = Arc::new(config.clone());
        let mut quic = config.clone();
        quic.alpn_protocols = vec![b"h3".to_vec()];
        config.ignore_client_order = true;
        Self { shelf, config: Arc::new(config), as_offered, quic: Arc::new(quic), clients }
    }

    /// Replaces the authorities that verify clients, for further connections.
    pub fn trust(&self, authorities: ClientAuthorities) {
        if let Some(clients) = &self.clients {
            clients.verifier.replace(authorities);
        }
    }

    /// Returns the client of a connection, if clients are asked for certificates.
    pub(crate) fn client(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<VerifiedClient> {
        self.clients.as_ref().map(|_| VerifiedClient::of(chain))
    }

    /// Replaces the certificates of one source. Open connections keep theirs.
    pub fn show(&self, place: Place, certificates: Vec<Certificate>) {
        let mut shown = self.shelf.shown.write().unwrap_or_else(PoisonError::into_inner);
        shown.insert(place, certificates);
    }

    /// Sets a function that creates certificates during the handshake for names that no other certificate matches, at
    /// most 100. For development.
    pub fn make(&self, maker: impl Fn(&str) -> Option<Certificate> + Send + Sync + 'static) {
        let mut current = self.shelf.maker.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Maker(Box::new(maker)));
    }

    /// Returns all certificates in order of priority.
    pub fn shown(&self) -> Vec<(Place, Certificate)> {
        let shown = self.shelf.shown.read().unwrap_or_else(PoisonError::into_inner);
        let each = shown.iter().flat_map(|(place, of)| of.iter().map(|one| (*place, one.clone())));
        each.collect()
    }

    /// Answers HTTP-01 for a token, on every listener, until [`Certificates::forget`].
    pub fn answer(&self, token: &str, with: &str) {
        let mut answers = self.shelf.answers.write().unwrap_or_else(PoisonError::into_inner);
        answers.insert(token.to_owned(), with.to_owned());
    }

    /// Answers TLS-ALPN-01 for a name, on every listener with TLS, until [`Certificates::forget`].
    pub fn prove(&self, name: &str, with: Certificate) {
        let mut challenges = self.shelf.challenges.write().unwrap_or_else(PoisonError::into_inner);
        challenges.insert(name.to_ascii_lowercase(), with);
    }

    /// Removes all answers to challenges.
    pub fn forget(&self) {
        self.shelf.answers.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.shelf.challenges.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns how to answer a client.
    pub(crate) fn config_for(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        if let Some(Clients { unasked, .. }) = &self.clients
            && is_challenge(hello)
        {
            return Arc::clone(unasked);
        }
        let known = &self.config.crypto_provider().cipher_suites;
        let first = hello
            .cipher_suites()
            .iter()
            .find(|offered| known.iter().any(|suite| suite.suite() == **offered));
        let chosen =
            if first.copied().is_some_and(is_chacha) { &self.as_offered } else { &self.config };
        Arc::clone(chosen)
    }

    /// Returns how to answer a client over QUIC, which speaks TLS 1.3 alone. Early data is never accepted: others could
    /// repeat it.
    pub(crate) fn quic(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.quic)
    }

    /// Returns the answer for this path, if it is a challenge.
    pub(crate) fn answer_to(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix("/.well-known/acme-challenge/")?;
        self.shelf.answers.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }
}

impl Shelf {
    fn made_for(&self, name: &str) -> Option<Certificate> {
        let maker = self.maker.read().unwrap_or_else(PoisonError::into_inner);
        let Maker(make) = maker.as_ref()?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(name) {
            return Some(known.clone());
        }
        let new = Some(made.len()).filter(|count| *count < MADE).and_then(|_| make(name))?;
        made.insert(name.to_owned(), new.clone());
        Some(new)
    }
}

impl ResolvesServerCert for Shelf {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let now = SystemTime::now();
        let name = hello.server_name().map(str::to_ascii_lowercase);
        if is_challenge(&hello) {
            let challenges = self.challenges.read().unwrap_or_else(PoisonError::into_inner);
            return challenges.get(&name?).map(|certificate| Arc::clone(certificate.key(now)));
        }
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = &name
            && !shown.values().flatten().any(|known| known.is_for(name) || known.covers(name))
            && let Some(made) = self.made_for(name)
        {
            return Some(Arc::clone(made.key(now)));
        }
        let chosen = choose(&shown.values().flatten(), name.as_deref(), |certificate| {
            certificate.key(now).key.choose_scheme(hello.signature_schemes()).is_some()
        });
        if chosen.is_none() {
            tracing::debug!(server.address = name, "no certificate to show yet");
        }
        chosen.map(|certificate| Arc::clone(certificate.key(now)))
    }
}

/// Returns whether a certificate authority asks for the answer to a challenge, and for nothing else.
fn is_challenge(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.all(|protocol| protocol == ACME))
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

fn is_chacha(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

/// Selects the certificate for a client with this server name and the signature schemes of `verifies`.
fn choose<'a>(
    all: &(impl Iterator<Item = &'a Certificate> + Clone),
    name: Option<&str>,
    verifies: impl Fn(&Certificate) -> bool,
) -> Option<&'a Certificate> {
    // If no key can be verified, the alert explains more than another certificate, so the name alone decides.
    let named = |fits: fn(&Certificate, &str) -> bool| {
        let name = name?;
        let mut fitting = all.clone().filter(|certificate| fits(certificate, name));
        fitting.clone().find(|one| verifies(one)).or_else(|| fitting.next())
    };
    named(Certificate::is_for)
        .or_else(|| named(Certificate::covers))
        .or_else(|| all.clone().find(|one| verifies(one)).or_else(|| all.clone().next()))
}
