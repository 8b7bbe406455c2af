//! Lists of revoked certificates (CRL, RFC 5280, section 5), as operators give them.
//!
//! Invariants
//! - Each authority that verifies clients has a list that it has signed, and that has not expired: with another one
//!   every client of it would be refused, so that a mistake shows at the start.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::certificate::bytes;
use super::clients::name_of;
use crate::tls::TlsError;

/// The lists of one file.
#[derive(Debug)]
pub(super) struct RevocationLists {
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    /// When the first one expires.
    pub(super) expires: SystemTime,
}

impl RevocationLists {
    /// Reads a file: one list in DER, or any number in PEM.
    pub(super) fn read(
        path: &Path,
        authorities: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        Self::parse(bytes(path)?, authorities, now)
            .map_err(|reason| TlsError::RevocationList { path: path.to_owned(), reason })
    }

    fn parse(
        file: Vec<u8>,
        authorities: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<Self, String> {
        let lists = if file.windows(11).any(|part| part == b"-----BEGIN ") {
            let lists = CertificateRevocationListDer::pem_slice_iter(&file);
            lists.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?
        } else {
            vec![CertificateRevocationListDer::from(file)]
        };
        if lists.is_empty() {
            return Err("it holds no list".to_owned());
        }
        let read = lists.iter().map(|list| parsed(list)).collect::<Result<Vec<_>, _>>()?;
        let mut expiries = Vec::new();
        for list in &read {
            let of = name_of(list.issuer());
            let Some(next) = list.next_update() else {
                return Err(format!("the list of {of} does not name its next update"));
            };
            let seconds = u64::try_from(next.timestamp()).unwrap_or(0);
            let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            if expires <= now {
                return Err(format!("the list of {of} expired at {next}"));
            }
            expiries.push(expires);
        }
        for authority in authorities {
            let (_, authority) = X509Certificate::from_der(authority)
                .map_err(|error| format!("an authority cannot be read: {error}"))?;
            let of = name_of(authority.subject());
            let issued = |list: &&CertificateRevocationList<'_>| {
                list.issuer().as_raw() == authority.subject().as_raw()
            };
            let mut own = read.iter().filter(issued).peekable();
            if own.peek().is_none() {
                return Err(format!("it has no list of {of}"));
            }
            if !own.any(|list| list.verify_signature(authority.public_key()).is_ok()) {
                return Err(format!("{of} has not signed its list"));
            }
        }
        let expires = expiries.into_iter().min().expect("there is a list");
        Ok(Self { lists, expires })
    }
}

fn parsed(list: &[u8]) -> Result<CertificateRevocationList<'_>, String> {
    match CertificateRevocationList::from_der(list) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err("more follows the list".to_owned()),
        Err(error) => Err(format!("it is neither PEM nor DER: {error}")),
    }
}
