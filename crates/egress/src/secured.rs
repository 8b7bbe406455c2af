//! The outcome of a TLS handshake, and the names of cipher suites.

use rustls::crypto::ring;
use rustls::{CipherSuite, SupportedCipherSuite};
use rustls_pki_types::CertificateDer;

use crate::TlsVersion;

/// The outcome of a TLS handshake with one peer.
#[derive(Debug)]
pub struct Secured {
    /// The negotiated version.
    pub version: TlsVersion,
    /// The suite's name in IANA's registry.
    pub cipher: String,
    /// The peer's certificates, DER, its own first. A resumed session has those of its first handshake.
    pub chain: Vec<CertificateDer<'static>>,
}

impl Secured {
    pub(crate) fn of(connection: &rustls::ClientConnection) -> Self {
        let version = match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => TlsVersion::V1_2,
            _ => TlsVersion::V1_3,
        };
        let cipher = connection.negotiated_cipher_suite();
        let cipher = cipher.map(|suite| registered(suite.suite())).unwrap_or_default();
        let chain = connection.peer_certificates().unwrap_or_default().to_vec();
        Self { version, cipher, chain }
    }
}

/// rustls marks the suites of TLS 1.3, the registry does not.
fn registered(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

/// A supported cipher suite, by its number in IANA's registry.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cipher(pub(crate) u16);

impl Cipher {
    /// Finds a suite by its name in the registry (`TLS_AES_128_GCM_SHA256`) or in OpenSSL (`ECDHE-RSA-AES128-GCM-SHA256`), in any case.
    pub fn named(name: &str) -> Option<Self> {
        let wanted = openssl(name).unwrap_or_else(|| name.to_ascii_uppercase());
        let mut suites = ring::ALL_CIPHER_SUITES.iter().map(SupportedCipherSuite::suite);
        suites.find(|suite| registered(*suite) == wanted).map(|suite| Self(suite.into()))
    }

    /// The names of all supported suites, preferred ones first.
    pub fn all() -> impl Iterator<Item = String> {
        ring::ALL_CIPHER_SUITES.iter().map(|suite| registered(suite.suite()))
    }
}

/// The registry's name of a TLS 1.2 suite with an OpenSSL name: `ECDHE-ECDSA-AES256-GCM-SHA384`.
fn openssl(name: &str) -> Option<String> {
    let name = name.to_ascii_uppercase();
    let (key, rest) = ["ECDSA", "RSA"].iter().find_map(|key| {
        Some((key, name.strip_prefix("ECDHE-")?.strip_prefix(key)?.strip_prefix('-')?))
    })?;
    let cipher = match rest {
        "AES128-GCM-SHA256" => "AES_128_GCM_SHA256",
        "AES256-GCM-SHA384" => "AES_256_GCM_SHA384",
        "CHACHA20-POLY1305" => "CHACHA20_POLY1305_SHA256",
        _ => return None,
    };
    Some(format!("TLS_ECDHE_{key}_WITH_{cipher}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cipher_is_known_by_both_of_its_names() {
        for (name, other) in [
            ("TLS_AES_128_GCM_SHA256", "tls_aes_128_gcm_sha256"),
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
            ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ecdhe-ecdsa-chacha20-poly1305"),
        ] {
            let cipher = Cipher::named(name);
            assert!(cipher.is_some(), "{name}");
            assert_eq!(cipher, Cipher::named(other));
        }
        for name in ["", "AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-", "TLS13_AES"] {
            assert_eq!(Cipher::named(name), None, "{name}");
        }
        assert!(Cipher::all().all(|name| Cipher::named(&name).is_some()));
    }
}
