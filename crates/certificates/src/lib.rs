//! Automatic certificates: from an authority on the network by ACME (RFC 8555), and from this machine's own
//! authority, for development.
//!
//! Invariants
//! - No private key is ever in a file that another user may read, nor half a certificate in any file.
//! - A valid certificate is never dropped because a new one cannot be obtained: a failed renewal only changes what is
//!   reported.
//! - Requests to the authority respect its limits: one order at a time per shared folder, and increasing pauses.
//! - The crate knows no listeners, HTTP, PHP or configuration files: any implementation of [`Shop`] presents
//!   certificates and answers challenges.

mod acme;
mod cache;
mod client;
mod local;
mod order;
mod renewal_schedule;

pub use acme::{Acme, External, Options, Pace, Report};
pub use local::{LocalAuthority, LocalError, is_local};

/// A certificate with its chain and its private key, as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, followed by its intermediates.
    pub chain: String,
    /// The private key in PKCS#8.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// The methods of proving control of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A file served on port 80 (RFC 8555, section 8.3).
    Http,
    /// A certificate presented on port 443 (RFC 8737).
    TlsAlpn,
}

/// Presents certificates to clients and answers challenges.
pub trait Shop: Send + Sync + 'static {
    /// Answers requests for `/.well-known/acme-challenge/` and the token with this text.
    fn answer(&self, token: &str, with: &str);
    /// Presents this certificate to clients that ask for the name with the protocol `acme-tls/1`. Returns an error
    /// message if it cannot be used.
    fn prove(&self, name: &str, with: &Issued) -> Result<(), String>;
    /// Removes all answers to challenges.
    fn forget(&self);
    /// Presents this certificate to clients from now on. Returns an error message if it cannot be used; the previous
    /// one then stays.
    fn show(&self, certificate: &Issued) -> Result<(), String>;
}
