//! The identity of the TLS peer, as a program may read it after the call.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egress::Secured;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The peer of one response. Its certificates are parsed on first access.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) secured: Arc<Secured>,
    facts: OnceLock<Vec<Facts>>,
}

impl Peer {
    pub(crate) fn new(secured: Arc<Secured>) -> Self {
        Self { secured, facts: OnceLock::new() }
    }

    /// The peer's certificates, its own first.
    pub(crate) fn certificates(&self) -> &[Facts] {
        self.facts.get_or_init(|| {
            self.secured.chain.iter().map(|certificate| Facts::of(certificate)).collect()
        })
    }
}

/// The fields of a certificate. For one that cannot be parsed there is only the PEM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// In hexadecimal digits.
    pub(crate) serial: String,
    /// `DNS:a.test, IP:127.0.0.1`
    pub(crate) names: String,
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    pub(crate) pem: String,
}

impl Facts {
    pub(crate) fn of(der: &[u8]) -> Self {
        let pem = pem(der);
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            return Self { pem, ..Self::default() };
        };
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|names| &names.value.general_names[..]).unwrap_or_default();
        let names: Vec<String> = names.iter().filter_map(name).collect();
        let serial = certificate.raw_serial().iter().map(|byte| format!("{byte:02x}"));
        Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            serial: serial.collect(),
            names: names.join(", "),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            pem,
        }
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
        GeneralName::IPAddress(bytes) => {
            let address = match <[u8; 4]>::try_from(*bytes) {
                Ok(v4) => std::net::IpAddr::from(v4),
                Err(_longer) => std::net::IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
            };
            Some(format!("IP:{address}"))
        }
        GeneralName::URI(uri) => Some(format!("URI:{uri}")),
        GeneralName::RFC822Name(address) => Some(format!("email:{address}")),
        _ => None,
    }
}

/// RFC 7468.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unparsable_certificate_is_shown_raw() {
        let facts = Facts::of(&[1; 60]);
        assert!(facts.subject.is_empty() && facts.not_after == 0);
        assert_eq!(facts.pem.lines().count(), 4);
        assert_eq!(facts.pem.lines().nth(1).map(str::len), Some(64));
    }
}
