//! A TLS client that trusts every certificate, and records the server's certificates.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// The certificates that servers sent last.
#[derive(Debug, Default)]
pub struct Shown(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    certificate: Vec<u8>,
    stapled: Vec<u8>,
}

/// Returns the settings of such a client for these ALPN protocols, and the record of what servers send.
pub fn credulous(alpn: &[&str]) -> (Arc<ClientConfig>, Arc<Shown>) {
    let shown = Arc::new(Shown::default());
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what TLS 1.2 and 1.3 need")
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Shown>::clone(&shown))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    (Arc::new(config), shown)
}

impl Shown {
    /// The certificate as DER.
    pub fn certificate(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).certificate.clone()
    }

    /// The stapled OCSP response as DER; empty if there was none.
    pub fn stapled(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stapled.clone()
    }
}

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        stapled: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Last { certificate: certificate.to_vec(), stapled: stapled.to_vec() };
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
