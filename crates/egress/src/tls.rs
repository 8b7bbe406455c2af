//! TLS towards origins: trusted authorities, versions, and the client's certificate. There is one configuration per set of options, built
//! once; sessions are resumed within it.
//!
//! Invariants
//! - The system's authorities are those that their file holds when a connection is opened.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError};

use rustls::crypto::{CryptoProvider, ring};
use rustls::{CertificateError, ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tls::Verifier;
use tokio::sync::Mutex;

use crate::errors::code;
use crate::stamp::Stamp;
use crate::{CallError, Certificate, Cipher, HttpVersions, Key, Reason, TlsVersion, Trust};

/// The most cached configurations. Above it, those without connections are dropped.
const KEPT: usize = 256;

/// The files in which systems keep their authorities.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",   // older ones
    "/etc/ssl/ca-bundle.pem",             // openSUSE
    "/etc/ssl/cert.pem",                  // Alpine
];

/// The authorities that the tarball brings, relative to the program's folder: for systems that have none.
const OF_TARBALL: &str = "../lib/hearth/runtime/ca-certificates.crt";

static CANDIDATES: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let program = std::env::current_exe().ok();
    let of_tarball = program.and_then(|program| Some(program.parent()?.join(OF_TARBALL)));
    SYSTEM.iter().map(PathBuf::from).chain(of_tarball).collect()
});

/// Returns the file of the system's authorities, else that of the tarball that the program is part of.
pub fn system_authorities() -> Option<PathBuf> {
    CANDIDATES.iter().find(|file| std::fs::File::open(file).is_ok()).cloned()
}

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(ring::default_provider()));

/// The part of a [`Key`] that TLS depends on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct TlsOptions {
    trust: Trust,
    /// The version of the system's authorities, if they are used.
    system: Option<Stamp>,
    pins: Arc<[[u8; 32]]>,
    certificate: Option<Certificate>,
    min: TlsVersion,
    max: TlsVersion,
    ciphers: Option<Arc<[Cipher]>>,
    /// `None`: the protocol is not HTTP.
    http: Option<HttpVersions>,
}

/// The cache of configurations.
#[derive(Debug)]
pub(crate) struct Tls {
    ca: Option<PathBuf>,
    /// Loaded on first use, and when the file has changed: 140 certificates take milliseconds.
    system: Mutex<Option<(Stamp, Arc<RootCertStore>)>>,
    /// The version of the authorities that verified connections.
    verified: std::sync::Mutex<Option<Stamp>>,
    configs: std::sync::Mutex<HashMap<TlsOptions, Arc<ClientConfig>>>,
}

impl Tls {
    pub(crate) fn new(ca: Option<PathBuf>) -> Self {
        Self {
            ca,
            system: Mutex::default(),
            verified: std::sync::Mutex::default(),
            configs: std::sync::Mutex::default(),
        }
    }

    /// Returns the configuration for a key and these versions of HTTP, or for another protocol.
    pub(crate) async fn config(
        &self,
        key: &Key,
        http: Option<HttpVersions>,
    ) -> Result<Arc<ClientConfig>, CallError> {
        let (stamp, system) = match key.trust {
            Trust::System => {
                self.system().await.map(|(stamp, roots)| (Some(stamp), Some(roots)))?
            }
            _ => (None, None),
        };
        let options = TlsOptions {
            trust: key.trust.clone(),
            system: stamp,
            pins: Arc::clone(&key.pins),
            certificate: key.certificate.clone(),
            min: key.tls_min,
            max: key.tls_max,
            ciphers: key.ciphers.clone(),
            http,
        };
        if let Some(config) = self.configs().get(&options) {
            return Ok(Arc::clone(config));
        }
        let asked = options.clone();
        let built = tokio::task::spawn_blocking(move || build(&asked, system));
        let built = Arc::new(built.await.map_err(|_gone| CallError::closing())??);
        let mut configs = self.configs();
        if configs.len() >= KEPT {
            configs.retain(|_, config| Arc::strong_count(config) > 1);
        }
        if configs.len() >= KEPT {
            return Ok(built);
        }
        // Another may have been quicker; its sessions are worth more.
        Ok(Arc::clone(configs.entry(options).or_insert(built)))
    }

    fn configs(&self) -> std::sync::MutexGuard<'_, HashMap<TlsOptions, Arc<ClientConfig>>> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn system(&self) -> Result<(Stamp, Arc<RootCertStore>), CallError> {
        let (file, stamp) = system(self.ca.as_deref())?;
        let mut system = self.system.lock().await;
        let loaded = match &*system {
            Some((of, roots)) if *of == stamp => Arc::clone(roots),
            _ => {
                let load = tokio::task::spawn_blocking(move || loaded(&file)).await;
                let roots = load.map_err(|_gone| CallError::closing())??;
                // With their sessions.
                self.configs().retain(|options, _| options.system.is_none_or(|of| of == stamp));
                *system = Some((stamp, Arc::clone(&roots)));
                roots
            }
        };
        self.verified().get_or_insert(stamp);
        Ok((stamp, loaded))
    }

    /// Returns whether the system's authorities have changed since they verified connections. Returns true once per
    /// change.
    pub(crate) fn changed(&self) -> bool {
        let mut verified = self.verified();
        let current = |of: &mut Stamp| system(self.ca.as_deref()).is_ok_and(|(_, now)| now == *of);
        verified.take_if(|of| !current(of)).is_some()
    }

    fn verified(&self) -> std::sync::MutexGuard<'_, Option<Stamp>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(
    options: &TlsOptions,
    system: Option<Arc<RootCertStore>>,
) -> Result<ClientConfig, CallError> {
    let versions = versions(options.min, options.max);
    let provider = provider(options.ciphers.as_deref());
    let roots = match &options.trust {
        Trust::System => system,
        Trust::Authorities(pem) => {
            Some(Arc::new(tls::roots(pem).ok_or_else(|| unusable("no certificate in it"))?))
        }
        Trust::Anyone => None,
    };
    let builder = Verifier::new(provider, roots)
        .map_err(unusable)?
        .pins(Arc::clone(&options.pins))
        .client(&versions)
        .map_err(|error| CallError::unsupported(error.to_string()))?;
    let mut config = match &options.certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let unusable = || {
                let message = "unable to use the client certificate with its key";
                CallError::declined(Reason::Certificate, code::SSL_CERTIFICATE, message)
            };
            let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate.chain)
                .collect::<Result<_, _>>()
                .map_err(|_pem| unusable())?;
            let key = PrivateKeyDer::from_pem_slice(&certificate.key).map_err(|_pem| unusable())?;
            builder.with_client_auth_cert(chain, key).map_err(|_why| unusable())?
        }
    };
    config.alpn_protocols = match options.http {
        Some(HttpVersions::Negotiate) => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Some(HttpVersions::Http1) => vec![b"http/1.1".to_vec()],
        Some(HttpVersions::Http2) => vec![b"h2".to_vec()],
        None => vec![],
    };
    Ok(config)
}

/// Returns a provider with all cipher suites, or with the named ones.
fn provider(ciphers: Option<&[Cipher]>) -> Arc<CryptoProvider> {
    let Some(wished) = ciphers else { return Arc::clone(&PROVIDER) };
    let mut provider = CryptoProvider::clone(&PROVIDER);
    provider.cipher_suites.retain(|suite| wished.contains(&Cipher(suite.suite().into())));
    Arc::new(provider)
}

fn versions(min: TlsVersion, max: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    use rustls::version::{TLS12, TLS13};
    match (min, max) {
        (TlsVersion::V1_2, TlsVersion::V1_2) => vec![&TLS12],
        (TlsVersion::V1_2, TlsVersion::V1_3) => vec![&TLS13, &TLS12],
        (TlsVersion::V1_3, TlsVersion::V1_3) => vec![&TLS13],
        (TlsVersion::V1_3, TlsVersion::V1_2) => vec![],
    }
}

/// Reads this file of authorities, or the system's first one.
fn system(ca: Option<&Path>) -> Result<(PathBuf, Stamp), CallError> {
    let files: Vec<&Path> = match ca {
        Some(file) => vec![file],
        None => CANDIDATES.iter().map(PathBuf::as_path).collect(),
    };
    let there = |file: &&Path| {
        let open = std::fs::File::open(file).ok()?;
        Some((file.to_path_buf(), Stamp::new(&open.metadata().ok()?)))
    };
    files.iter().find_map(there).ok_or_else(|| unusable("no file"))
}

fn unusable(what: impl std::fmt::Display) -> CallError {
    let message = format!("error setting certificate verify locations: {what}");
    CallError::declined(Reason::Certificate, code::CA_FILE, message)
}

/// Returns the authorities of a file.
fn loaded(file: &Path) -> Result<Arc<RootCertStore>, CallError> {
    let pem = std::fs::read(file).map_err(unusable)?;
    match tls::roots(&pem) {
        Some(roots) => Ok(Arc::new(roots)),
        None => Err(unusable(format!("{} holds no certificate", file.display()))),
    }
}

/// The error of a failed handshake, as libcurl with OpenSSL reports it.
pub(crate) fn refused(error: &std::io::Error, host: &str, port: u16) -> CallError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let tls = |what: String| CallError::declined(Reason::Tls, code::SSL_CONNECT, what);
    let Some(inner) = inner else {
        return tls(format!("OpenSSL SSL_connect: {error} in connection to {host}:{port} "));
    };
    let rustls::Error::InvalidCertificate(why) = inner else {
        return tls(format!("TLS connect error: {inner}"));
    };
    let certificate =
        |what: &str| CallError::declined(Reason::Certificate, code::PEER_VERIFICATION, what);
    match why {
        CertificateError::ApplicationVerificationFailure => CallError::declined(
            Reason::Certificate,
            code::PINNED_KEY,
            "SSL: public key does not match pinned public key",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            certificate(&format!(
                "SSL: no alternative certificate subject name matches target host name '{host}'"
            ))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            certificate("SSL certificate problem: certificate has expired")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            certificate("SSL certificate problem: certificate is not yet valid")
        }
        CertificateError::UnknownIssuer => {
            certificate("SSL certificate problem: unable to get local issuer certificate")
        }
        other => certificate(&format!("SSL certificate problem: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversed_tls_versions_are_rejected() {
        assert!(versions(TlsVersion::V1_3, TlsVersion::V1_2).is_empty());
        assert_eq!(versions(TlsVersion::V1_2, TlsVersion::V1_3).len(), 2);
    }
}
