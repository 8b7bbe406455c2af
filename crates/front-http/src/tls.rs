//! TLS: reading, storing and selecting certificates, using rustls with ring, and ALPN for HTTP/2.

mod certificate;
mod certificates;
mod clients;
mod revoked;
mod stapled;

pub use certificate::{Certificate, TlsError};
pub use certificates::{Certificates, Place};
pub use clients::ClientAuthorities;
pub(crate) use clients::VerifiedClient;

/// The ALPN protocol of a certificate authority's challenge (RFC 8737, section 6.2).
pub(crate) const ACME: &[u8] = b"acme-tls/1";
