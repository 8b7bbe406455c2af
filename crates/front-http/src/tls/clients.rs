//! Certificates of clients (mutual TLS): which authorities are trusted, and what the application learns.
//!
//! Invariants
//! - Every connection is verified by the authorities of its time: sessions are not resumed.
//! - With revocation lists, a certificate whose status they do not tell is refused: one of an authority without a list,
//!   or with an expired one.
//! - What the application gets comes from a verified certificate, and never from a field of the request.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use bytes::Bytes;
use ring::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring as provider;
use rustls::pki_types::UnixTime;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::CertificateDer;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::certificate::{bytes, chain};
use super::revoked::RevocationLists;
use crate::tls::TlsError;

/// The authorities that verify clients, their lists of revoked certificates, and whether a client must have a
/// certificate.
#[derive(Clone, Debug)]
pub struct ClientAuthorities {
    verifier: Arc<dyn ClientCertVerifier>,
    expires: Option<SystemTime>,
}

impl ClientAuthorities {
    /// Reads the authorities' certificates, a PEM file, and their revocation lists from another file. Clients without
    /// a certificate are accepted unless `required`.
    pub fn read(file: &Path, revoked: Option<&Path>, required: bool) -> Result<Self, TlsError> {
        let unusable = |cause: Error| TlsError::Authorities { path: file.to_owned(), cause };
        let mut roots = RootCertStore::empty();
        let authorities = chain(&bytes(file)?, file)?;
        for certificate in &authorities {
            roots.add(certificate.clone()).map_err(unusable)?;
        }
        let crypto = Arc::new(provider::default_provider());
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto);
        if !required {
            builder = builder.allow_unauthenticated();
        }
        let mut expires = None;
        if let Some(path) = revoked {
            let lists = RevocationLists::read(path, &authorities, SystemTime::now())?;
            expires = Some(lists.expires);
            builder = builder.with_crls(lists.lists).enforce_revocation_expiration();
        }
        let verifier = builder.build().map_err(|error| match (error, revoked) {
            (VerifierBuilderError::InvalidCrl(error), Some(path)) => {
                TlsError::RevocationList { path: path.to_owned(), reason: format!("{error:?}") }
            }
            (error, _) => unusable(Error::General(error.to_string())),
        })?;
        Ok(Self { verifier, expires })
    }

    /// Returns when the first revocation list expires; from then on its authority's clients are refused.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }
}

/// A verifier whose authorities can be replaced.
#[derive(Debug)]
pub(super) struct Verifier(RwLock<ClientAuthorities>);

impl Verifier {
    pub(super) fn new(authorities: ClientAuthorities) -> Self {
        Self(RwLock::new(authorities))
    }

    pub(super) fn replace(&self, authorities: ClientAuthorities) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = authorities;
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).verifier)
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.current().client_auth_mandatory()
    }

    // No names: they would outlive the authorities that a reload replaces.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

/// The client of a connection that was asked for a certificate, as variables for PHP.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedClient {
    variables: Arc<[(&'static str, Bytes)]>,
    /// Whether the client has shown a certificate.
    pub(crate) known: bool,
}

impl VerifiedClient {
    /// Returns the client with this verified chain, which is empty without a certificate.
    pub(crate) fn of(chain: Option<&[CertificateDer<'_>]>) -> Self {
        let leaf = chain.and_then(<[_]>::first);
        let read = leaf.and_then(|leaf| Some((leaf, X509Certificate::from_der(leaf).ok()?.1)));
        let Some((der, certificate)) = read else {
            let none = [("SSL_CLIENT_VERIFY", Bytes::from_static(b"NONE"))];
            return Self { variables: Arc::new(none), known: false };
        };
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().last();
        let common_name = common_name.map(|name| text_of(name.attr_value().data));
        let variables = [
            ("SSL_CLIENT_VERIFY", "SUCCESS".to_owned()),
            ("SSL_CLIENT_S_DN", name_of(subject)),
            ("SSL_CLIENT_S_DN_CN", common_name.unwrap_or_default()),
            ("SSL_CLIENT_I_DN", name_of(certificate.issuer())),
            ("SSL_CLIENT_M_SERIAL", hex(certificate.raw_serial()).to_ascii_uppercase()),
            ("SSL_CLIENT_FINGERPRINT", hex(digest::digest(&digest::SHA256, der).as_ref())),
        ];
        let variables = variables.map(|(name, value)| (name, Bytes::from(value)));
        Self { variables: Arc::new(variables), known: true }
    }

    /// Returns the variables.
    pub(crate) fn variables(&self) -> Vec<(&'static str, Bytes)> {
        self.variables.to_vec()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Formats a name as RFC 4514 says, the most specific part first, as nginx and Apache do.
pub(super) fn name_of(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let parts = parts.into_iter().rev().map(|part| {
        let attributes = part.iter().map(|attribute| {
            let kind = attribute.attr_type();
            let kind = oid2abbrev(kind, oid_registry())
                .map_or_else(|_| kind.to_id_string(), str::to_owned);
            format!("{kind}={}", escaped(&text_of(attribute.attr_value().data)))
        });
        attributes.collect::<Vec<_>>().join("+")
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Escapes a value of a name (RFC 4514, section 2.4).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, sign) in value.chars().enumerate() {
        match sign {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => text.extend(['\\', sign]),
            ' ' if at == 0 || at == last => text.extend(['\\', sign]),
            '#' if at == 0 => text.extend(['\\', sign]),
            sign if sign.is_control() => {
                let mut bytes = [0; 4];
                for byte in sign.encode_utf8(&mut bytes).bytes() {
                    write!(text, "\\{byte:02X}").expect("a String takes all");
                }
            }
            sign => text.push(sign),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_rfc_4514_says() {
        for (value, expected) in [
            ("plain", "plain"),
            ("a,O=b", "a\\,O\\=b"),
            (" a b ", "\\ a b\\ "),
            ("#a#", "\\#a#"),
            ("a\0\n", "a\\00\\0A"),
            ("ä\"+;<>\\", "ä\\\"\\+\\;\\<\\>\\\\"),
        ] {
            assert_eq!(escaped(value), expected);
        }
    }

    #[test]
    fn a_client_without_a_certificate_is_none() {
        for chain in [None, Some(&[][..])] {
            let client = VerifiedClient::of(chain);
            assert!(!client.known);
            assert_eq!(client.variables(), [("SSL_CLIENT_VERIFY", Bytes::from_static(b"NONE"))]);
        }
    }
}
