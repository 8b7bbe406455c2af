//! Where certificates come from that nobody puts there: an authority on the network that is asked by ACME (RFC 8555), and this machine's own,
//! for development.
//!
//! Invariants
//! - No private key is ever in a file that another user may read, nor half a certificate in any file.
//! - A certificate that holds is never given up for one that cannot be had: failing to renew changes nothing but what is said.
//! - The authority on the network is asked for by its limits: one order at a time for a folder, whoever shares it, and ever longer pauses.
//! - It knows nothing of listeners, HTTP, PHP and configuration files: whatever implements [`Shop`] shows certificates and answers for names.

mod acme;
mod cache;
mod client;
mod local;
mod moments;
mod order;

pub use acme::{Acme, External, Options, Pace, Report};
pub use local::{LocalAuthority, LocalError, is_local};

/// A certificate with its chain and its private key, PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, then its intermediates.
    pub chain: String,
    /// PKCS#8.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// By what a name is proved to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A file of ours on port 80 (RFC 8555, section 8.3).
    Http,
    /// A certificate of ours on port 443 (RFC 8737).
    TlsAlpn,
}

/// Who shows certificates to clients and answers to authorities.
pub trait Shop: Send + Sync + 'static {
    /// Answers a request for `/.well-known/acme-challenge/` and the token with this.
    fn answer(&self, token: &str, with: &str);
    /// Shows this to whoever asks for the name with the protocol `acme-tls/1`. Errs, in words, where it cannot be used.
    fn prove(&self, name: &str, with: &Issued) -> Result<(), String>;
    /// No authority has a question any more.
    fn forget(&self);
    /// Shows this to clients from now on. Errs, in words, where it cannot be used; what was shown then stays.
    fn show(&self, certificate: &Issued) -> Result<(), String>;
}
