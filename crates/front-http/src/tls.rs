//! TLS: certificates as they are read, as they are kept, and which of them a client is shown. rustls with ring, ALPN for HTTP/2.

mod certificate;
mod certificates;
mod stapled;

pub use certificate::{Certificate, TlsError};
pub use certificates::{Certificates, Place};

/// What an authority that looks for us says in ALPN (RFC 8737, section 6.2).
pub(crate) const ACME: &[u8] = b"acme-tls/1";
