//! TLS: certificate and key from PEM files, ALPN for HTTP/2, rustls with ring.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::options::TlsFiles;

/// Why TLS cannot be spoken. Each names the file to look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A file is no PEM.
    #[error("{} is not valid PEM: {what}", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file holds no private key.
    #[error("{} holds no private key", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key cannot be used, or not together.
    #[error("the certificate in {} cannot be used with the key in {}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls said.
        #[source]
        cause: rustls::Error,
    },
}

/// Reads the files and makes an acceptor.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = key(&files.key)?;
    let unusable = |cause| TlsError::Unusable {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        cause,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| not_pem(path, &error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey { path: path.to_owned() },
        error => not_pem(path, &error),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Unreadable { path: path.to_owned(), cause })
}

fn not_pem(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::NotPem { path: path.to_owned(), what: error.to_string() }
}
