//! TLS to servers: trust, and explanations of failures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tls::Verifier;

use crate::Verify;

/// Reasons why the files of a connector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        cause: std::io::Error,
    },
    /// A file has other content.
    #[error("{} holds no {what} in PEM form", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
    },
    /// The system's authorities were not found, and none were configured.
    #[error("no file with authorities")]
    NoAuthorities,
    /// The certificate and its key do not match.
    #[error("{} cannot be used with {}: {why}", certificate.display(), key.display())]
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// The error of rustls.
        why: String,
    },
}

/// Trusted authorities and our own certificate, from files that are read again when they have changed.
#[derive(Debug)]
pub struct Trust {
    verify: Verify,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    built: Mutex<Built>,
}

#[derive(Debug)]
struct Built {
    config: Option<Arc<ClientConfig>>,
    changed: Vec<Option<SystemTime>>,
}

impl Trust {
    /// Reads the files.
    pub fn new(
        verify: Verify,
        authorities: Option<&Path>,
        certificate: Option<&(PathBuf, PathBuf)>,
    ) -> Result<Self, TrustError> {
        let mut trust = Self {
            verify,
            authorities: authorities.map(Path::to_owned),
            certificate: certificate.cloned(),
            built: Mutex::new(Built { config: None, changed: Vec::new() }),
        };
        let built = Built { changed: trust.changed(), config: trust.build()?.map(Arc::new) };
        trust.built = Mutex::new(built);
        Ok(trust)
    }

    /// Returns the configuration; `None` without encryption. Files that have become invalid change nothing.
    pub(crate) fn config(&self) -> Option<Arc<ClientConfig>> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.changed();
        if changed != built.changed {
            match self.build() {
                Ok(config) => built.config = config.map(Arc::new),
                Err(error) => {
                    tracing::warn!(%error, "certificates have changed and cannot be used: those from before are");
                }
            }
            built.changed = changed;
        }
        built.config.clone()
    }

    fn changed(&self) -> Vec<Option<SystemTime>> {
        let certificate = self.certificate.iter().flat_map(|(chain, key)| [chain, key]);
        let files = self.authorities.iter().chain(certificate);
        files.map(|file| std::fs::metadata(file).ok()?.modified().ok()).collect()
    }

    fn build(&self) -> Result<Option<ClientConfig>, TrustError> {
        if self.verify == Verify::Disable {
            return Ok(None);
        }
        let roots = match self.verify {
            Verify::Disable | Verify::Require => None,
            Verify::Authority | Verify::Full => {
                let path = self.authorities.as_deref().ok_or(TrustError::NoAuthorities)?;
                let roots = tls::roots(&read(path)?);
                let none = || TrustError::Empty { path: path.to_owned(), what: "certificate" };
                Some(Arc::new(roots.ok_or_else(none)?))
            }
        };
        let builder = Verifier::new(Arc::new(ring::default_provider()), roots)
            .map_err(|_none| TrustError::NoAuthorities)?
            .any_name(self.verify != Verify::Full)
            .client(rustls::DEFAULT_VERSIONS)
            .expect("ring has suites for both versions");
        let Some((certificate, key)) = &self.certificate else {
            return Ok(Some(builder.with_no_client_auth()));
        };
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&read(certificate)?).filter_map(Result::ok).collect();
        if chain.is_empty() {
            return Err(TrustError::Empty { path: certificate.clone(), what: "certificate" });
        }
        let own = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|_pem| TrustError::Empty { path: key.clone(), what: "private key" })?;
        let config =
            builder.with_client_auth_cert(chain, own).map_err(|why| TrustError::Mismatch {
                certificate: certificate.clone(),
                key: key.clone(),
                why: why.to_string(),
            })?;
        Ok(Some(config))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    std::fs::read(path).map_err(|cause| TrustError::Unreadable { path: path.to_owned(), cause })
}

/// Explains a failed handshake and what to check.
pub(crate) fn explain(error: &std::io::Error, host: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        None => format!("the handshake failed: {error}"),
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the server's certificate is not for {host}")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet".to_owned()
            }
            CertificateError::UnknownIssuer => {
                "no trusted authority has signed the server's certificate".to_owned()
            }
            other => format!("the server's certificate is not good: {other}"),
        },
        Some(rustls::Error::AlertReceived(alert)) => {
            let mut text = "the server does not go on".to_owned();
            write!(text, " ({alert:?}): it may want a certificate of its own authority")
                .expect("writing to a String cannot fail");
            text
        }
        Some(other) => format!("the handshake failed: {other}"),
    }
}
