//! The verifier of servers' certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Parses certificates in PEM form. Entries that rustls does not accept are skipped, as in OpenSSL. Returns `None` if
/// none is left.
pub fn roots(pem: &[u8]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    (!roots.is_empty()).then_some(roots)
}

/// Verifies a server's chain of certificates, if there are trusted authorities, and then its pinned key.
#[derive(Debug)]
pub struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// A valid chain is enough, whatever name it is for.
    any_name: bool,
    /// SHA-256 of public keys, one of which the server must have. Empty: any key.
    pins: Arc<[[u8; 32]]>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Creates a verifier that trusts these authorities. `None`: every certificate is trusted.
    ///
    /// # Errors
    /// There is no authority.
    pub fn new(
        provider: Arc<CryptoProvider>,
        roots: Option<Arc<RootCertStore>>,
    ) -> Result<Self, VerifierBuilderError> {
        let build = |roots| {
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()
        };
        let chain = roots.map(build).transpose()?;
        Ok(Self { chain, any_name: false, pins: Arc::default(), provider })
    }

    /// Accepts certificates for any name.
    #[must_use]
    pub fn any_name(self, any_name: bool) -> Self {
        Self { any_name, ..self }
    }

    /// Requires one of these keys.
    #[must_use]
    pub fn pins(self, pins: Arc<[[u8; 32]]>) -> Self {
        Self { pins, ..self }
    }

    /// Begins the configuration of a client that trusts what this verifier accepts.
    ///
    /// # Errors
    /// The provider has no cipher suite for any of the versions.
    pub fn client(
        self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
        Ok(ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self)))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(chain) = &self.chain {
            match chain.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ) {
                // The chain is verified before the name.
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )) if self.any_name => {}
                verified => {
                    verified?;
                }
            }
        }
        if !self.pins.is_empty() {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let key = certificate.subject_public_key_info();
            let digest = ring::digest::digest(&ring::digest::SHA256, &key);
            if !self.pins.iter().any(|pin| pin[..] == *digest.as_ref()) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
