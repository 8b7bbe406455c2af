//! One certificate with its chain, its key and, if there is one, its OCSP response.
//!
//! Invariants
//! - A [`Certificate`] exists only if certificate and key match.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::options::TlsFiles;
use crate::tls::stapled;

/// Reasons why a certificate cannot be used. Each names the file concerned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A file is not PEM.
    #[error("{} is not valid PEM: {what}", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// A file contains no certificate.
    #[error("{} holds no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file contains no private key.
    #[error("{} holds no private key", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key in a file is encrypted.
    #[error("the key in {} is encrypted", path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The authorities for clients cannot be used.
    #[error("{} cannot verify clients", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The error of rustls.
        #[source]
        cause: rustls::Error,
    },
    /// The revocation lists of these authorities cannot be used.
    #[error("the revocation lists in {} cannot be used: {reason}", path.display())]
    RevocationList {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// Certificate and key cannot be used, or do not match.
    #[error("the certificate in {} cannot be used with the key in {}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The error of rustls.
        #[source]
        cause: rustls::Error,
    },
}

/// A certificate to present to clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    /// The certificate with an OCSP response, and when that expires.
    stapled: Option<(Arc<CertifiedKey>, Option<SystemTime>)>,
    names: Arc<[String]>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Certificate {
    /// Reads the files, and an OCSP response from the file beside the certificate ([`TlsFiles::stapled`]). An
    /// unusable OCSP response is logged and ignored, because a certificate is valid without it.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let mut read = Self::from_pem(&bytes(&files.certificate)?, &bytes(&files.key)?, files)?;
        let path = files.stapled();
        match std::fs::read(&path) {
            Ok(response) => match stapled::look(&response, SystemTime::now()) {
                Ok(until) => read.staple(response, until),
                Err(reason) => {
                    tracing::warn!(file = %path.display(), %reason, "OCSP response not stapled");
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "OCSP response not stapled");
            }
        }
        Ok(read)
    }

    /// Parses texts that have already been read; `files` names them in errors.
    pub fn from_pem(certificate: &[u8], key: &[u8], files: &TlsFiles) -> Result<Self, TlsError> {
        let chain = chain(certificate, &files.certificate)?;
        let key = private_key(key, &files.key)?;
        let of_leaf = X509Certificate::from_der(chain.first().expect("it is not empty"));
        let (_, leaf) = of_leaf.map_err(|error| TlsError::NotPem {
            path: files.certificate.clone(),
            what: format!("the first certificate in it cannot be read ({error})"),
        })?;
        let names: Vec<String> = leaf
            .subject_alternative_name()
            .ok()
            .flatten()
            .into_iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(name_of)
            .collect();
        let (not_before, not_after) = (
            moment(leaf.validity().not_before.timestamp()),
            moment(leaf.validity().not_after.timestamp()),
        );
        let key =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|cause| {
                TlsError::Unusable {
                    certificate: files.certificate.clone(),
                    key: files.key.clone(),
                    cause,
                }
            })?;
        Ok(Self { key: Arc::new(key), stapled: None, names: names.into(), not_before, not_after })
    }

    fn staple(&mut self, response: Vec<u8>, until: Option<SystemTime>) {
        let mut key = CertifiedKey::clone(&self.key);
        key.ocsp = Some(response);
        self.stapled = Some((Arc::new(key), until));
    }

    /// Returns what to present at `now`, because a client rejects an expired OCSP response.
    pub(super) fn key(&self, now: SystemTime) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((key, until)) if until.is_none_or(|until| now < until) => key,
            _ => &self.key,
        }
    }

    /// Creates the certificate that answers a challenge (RFC 8737). It is not inspected as others are, because its
    /// critical extension is known only to the authority.
    pub fn for_challenge(
        certificate: &[u8],
        key: &[u8],
        files: &TlsFiles,
    ) -> Result<Self, TlsError> {
        let chain = chain(certificate, &files.certificate)?;
        let key = private_key(key, &files.key)?;
        let key = ring::default_provider().key_provider.load_private_key(key).map_err(|cause| {
            TlsError::Unusable {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                cause,
            }
        })?;
        Ok(Self {
            key: Arc::new(CertifiedKey::new(chain, key)),
            stapled: None,
            names: Arc::default(),
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
        })
    }

    /// Returns its names and addresses (RFC 5280, section 4.2.1.6) in lower case, including `*.example.com`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the start of its validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the end of its validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Returns whether an OCSP response is presented with it now.
    pub fn is_stapled(&self) -> bool {
        self.key(SystemTime::now()).ocsp.is_some()
    }

    /// Returns whether it contains exactly this name.
    pub(super) fn is_for(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Returns whether a wildcard of it matches this name: for one label, the first (RFC 9525, section 6.3).
    pub(super) fn covers(&self, name: &str) -> bool {
        let Some((_, parent)) = name.split_once('.') else { return false };
        self.names.iter().any(|known| known.strip_prefix("*.") == Some(parent))
    }
}

impl TlsFiles {
    /// Returns the path of the certificate's OCSP response (DER): the certificate's path with `.ocsp` appended.
    pub fn stapled(&self) -> PathBuf {
        let mut name = OsString::from(&self.certificate);
        name.push(".ocsp");
        name.into()
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(std::net::IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            16 => Some(std::net::IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Converts seconds since 1970; negative ones become 1970, before any certificate was valid.
fn moment(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

pub(super) fn chain(text: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| not_pem(path, &error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

fn private_key(text: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // PKCS #8 (RFC 5958, section 3) and RFC 1421 mark encrypted keys in different ways.
    let marks: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    let holds = |mark: &[u8]| text.windows(mark.len()).any(|part| part == mark);
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        _ if marks.into_iter().any(holds) => TlsError::EncryptedKey { path: path.to_owned() },
        pem::Error::NoItemsFound => TlsError::NoKey { path: path.to_owned() },
        error => not_pem(path, &error),
    })
}

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Unreadable { path: path.to_owned(), cause })
}

fn not_pem(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::NotPem { path: path.to_owned(), what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = testkit::certificates().origin.write(folder.path(), "origin");
        let files = TlsFiles { certificate, key };
        let refused = |label: &str, head: &str| {
            let text = format!("-----BEGIN {label}-----\n{head}MIIB\n-----END {label}-----\n");
            std::fs::write(&files.key, text).unwrap();
            Certificate::read(&files).unwrap_err()
        };
        let head = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n";
        for (label, head) in [("ENCRYPTED PRIVATE KEY", ""), ("RSA PRIVATE KEY", head)] {
            let error = refused(label, head);
            assert!(matches!(error, TlsError::EncryptedKey { .. }), "{error}");
        }
        assert!(matches!(refused("PUBLIC KEY", ""), TlsError::NoKey { .. }));
    }

    #[test]
    fn an_expired_response_is_not_stapled() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = testkit::certificates().origin.write(folder.path(), "origin");
        let mut read = Certificate::read(&TlsFiles { certificate, key }).unwrap();
        let now = SystemTime::now();
        assert_eq!((&read.key(now).ocsp, read.is_stapled()), (&None, false));
        let until = now + Duration::from_hours(1);
        read.staple(b"good".to_vec(), Some(until));
        assert!(read.is_stapled());
        assert_eq!(read.key(now).ocsp.as_deref(), Some(&b"good"[..]));
        assert_eq!(read.key(until).ocsp, None);
        assert_eq!(read.key(until).cert, read.key(now).cert);
        read.staple(b"for ever".to_vec(), None);
        assert_eq!(read.key(until).ocsp.as_deref(), Some(&b"for ever"[..]));
    }
}
