//! Lists of revoked certificates (CRL, RFC 5280, section 5), as operators give them.
//!
//! Invariants
//! - Each authority that verifies clients has a list that it has signed, and that has not expired: with another one
//!   every client of it would be refused, so that a mistake shows at the start.
//! - Of several lists with the same issuer and scope only the newest counts: rustls uses the first one that it finds.

use std::cmp::Reverse;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
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
        let all = if file.windows(11).any(|part| part == b"-----BEGIN ") {
            let lists = CertificateRevocationListDer::pem_slice_iter(&file);
            lists.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?
        } else {
            vec![CertificateRevocationListDer::from(file)]
        };
        if all.is_empty() {
            return Err("it holds no list".to_owned());
        }
        let all = all.iter().map(|list| Ok((list, parsed(list)?)));
        let read = newest(all.collect::<Result<Vec<_>, String>>()?);
        let mut expiries = Vec::new();
        for (_, list) in &read {
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
        let known = authorities.iter().map(|authority| X509Certificate::from_der(authority));
        let known = known.map(|read| read.map(|(_, authority)| authority));
        let known: Vec<_> = known
            .collect::<Result<_, _>>()
            .map_err(|error| format!("an authority cannot be read: {error}"))?;
        for authority in &known {
            let of = name_of(authority.subject());
            let mut own = read
                .iter()
                .map(|(_, list)| list)
                .filter(|list| list.issuer().as_raw() == authority.subject().as_raw())
                .peekable();
            if own.peek().is_none() {
                return Err(format!("it has no list of {of}"));
            }
            if !own.any(|list| list.verify_signature(authority.public_key()).is_ok()) {
                let same = |other: &&X509Certificate<'_>| {
                    other.subject().as_raw() == authority.subject().as_raw()
                };
                if known.iter().filter(same).any(|other| {
                    let signed = |(_, list): &(_, CertificateRevocationList<'_>)| {
                        list.verify_signature(other.public_key()).is_ok()
                    };
                    read.iter().any(signed)
                }) {
                    return Err(format!(
                        "two authorities are named {of}, and a list names its authority only: \
                         give one of them another name, or remove it"
                    ));
                }
                return Err(format!("{of} has not signed its list"));
            }
        }
        let expires = expiries.into_iter().min().expect("there is a list");
        let lists = read.into_iter().map(|(list, _)| list.clone()).collect();
        Ok(Self { lists, expires })
    }
}

/// A list in DER, and what it says.
type Read<'l> = (&'l CertificateRevocationListDer<'static>, CertificateRevocationList<'l>);

/// Returns the newest list for each issuer and scope, the newest one first.
fn newest(mut all: Vec<Read<'_>>) -> Vec<Read<'_>> {
    all.sort_by_key(|(_, list)| Reverse(list.last_update().timestamp()));
    let mut newest: Vec<Read<'_>> = Vec::new();
    for (der, list) in all {
        let is_for = |(_, newer): &Read<'_>| {
            newer.issuer().as_raw() == list.issuer().as_raw() && scope(newer) == scope(&list)
        };
        if !newest.iter().any(is_for) {
            newest.push((der, list));
        }
    }
    newest
}

/// Returns which certificates of its issuer a list is for; `None`: all (RFC 5280, section 5.2.5).
fn scope<'l>(list: &'l CertificateRevocationList<'_>) -> Option<&'l [u8]> {
    let mut extensions = list.extensions().iter();
    let point = extensions.find(|one| one.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT)?;
    Some(point.value)
}

fn parsed(list: &[u8]) -> Result<CertificateRevocationList<'_>, String> {
    match CertificateRevocationList::from_der(list) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err("more follows the list".to_owned()),
        Err(error) => Err(format!("it is neither PEM nor DER: {error}")),
    }
}

#[cfg(test)]
mod tests;
