//! Settings for the egress engine: reads files of certificates, and builds the key of a connection.

use std::path::Path;
use std::sync::Arc;

use egress::{Certificate, Key, ProxyKind, ProxyTls, Scheme, Trust};

use crate::error::{Failure, Kind};
use crate::settings::{Settings, TlsFiles};
use crate::target::Target;
use crate::unlock;

/// The largest file.
const LARGEST: u64 = 16 << 20;

/// The contents of the files.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    tls: Read,
    proxy: Read,
}

#[derive(Clone, Debug)]
struct Read {
    trust: Trust,
    certificate: Option<Certificate>,
}

impl TlsFiles {
    fn any(&self) -> bool {
        self.certificate.is_some()
            || self.key.is_some()
            || self.authorities.is_some()
            || self.authorities_folder.is_some()
            || self.authorities_pem.is_some()
    }
}

impl Settings {
    /// Whether files have to be read first.
    pub(crate) fn unprepared(&self) -> bool {
        self.prepared.get().is_none() && (self.tls.any() || self.proxy_tls.any())
    }

    /// Reads the files. Blocks.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        if self.unprepared() {
            let prepared = Prepared { tls: read(&self.tls)?, proxy: read(&self.proxy_tls)? };
            let _first = self.prepared.set(Arc::new(prepared));
        }
        Ok(())
    }

    /// Refuses a scheme that is not among the safe protocols.
    pub(crate) fn allow(&self, scheme: &str, by_default: [&str; 2]) -> Result<(), Failure> {
        let safe = match &self.safe_protocols {
            Some(schemes) => schemes.iter().any(|safe| safe == scheme),
            None => by_default.contains(&scheme),
        };
        if safe {
            return Ok(());
        }
        let what = format!("Protocol \"{scheme}\" is not among the safe ones");
        Err(Failure::new(Kind::Protocol, what))
    }

    /// Returns the key of a connection to `target`. A local file has one that is never connected to.
    pub(crate) fn key(&self, target: &Target) -> Result<Key, Failure> {
        self.allow(target.scheme(), ["http", "https"])?;
        if target.is_file() {
            return Ok(Key::plain(0, Scheme::Http, "", 0));
        }
        let Some(scheme) = Scheme::named(target.scheme()) else {
            let what = format!("Protocol \"{}\" not supported", target.scheme());
            return Err(Failure::new(Kind::Protocol, what));
        };
        let (host, port) = target.host_port();
        let port = port.unwrap_or_else(|| scheme.default_port());
        Ok(self.key_of(scheme, scheme == Scheme::Https, host, port))
    }

    /// Returns the key of a connection to a host; `tls`: TLS may be used.
    pub(crate) fn key_of(&self, scheme: Scheme, tls: bool, host: &str, port: u16) -> Key {
        let mut key = Key::plain(0, scheme, host, port);
        let resolve =
            self.resolve.iter().find(|resolve| resolve.host == host && resolve.port == port);
        key.connect_to = resolve.map(|resolve| (Arc::clone(&resolve.address), port));
        key.unix = self.unix_socket.as_deref().map(Arc::from);
        key.interface = self.interface;
        key.public = !self.private_addresses;
        key.family = self.family;
        key.http = self.http;
        let prepared = self.prepared.get();
        if tls {
            key.tls_min = self.tls_min;
            key.tls_max = self.tls_max;
            key.ciphers.clone_from(&self.ciphers);
            key.pins = Arc::clone(&self.pins);
            if let Some(prepared) = prepared {
                key.trust.clone_from(&prepared.tls.trust);
                key.certificate.clone_from(&prepared.tls.certificate);
            }
            if self.insecure {
                key.trust = Trust::Anyone;
            }
        }
        key.proxy.clone_from(&self.proxy);
        if let Some(proxy) = &mut key.proxy
            && proxy.kind == ProxyKind::Https
        {
            let read = prepared.map(|prepared| &prepared.proxy);
            let trust = match read {
                _ if self.insecure => Trust::Anyone,
                Some(read) => read.trust.clone(),
                None => Trust::System,
            };
            let certificate = read.and_then(|read| read.certificate.clone());
            proxy.tls = Some(Arc::new(ProxyTls { trust, certificate }));
        }
        key
    }
}

fn unusable(code: u8, message: String) -> Failure {
    Failure { code, ..Failure::new(Kind::Certificate, message) }
}

fn file(path: &Path, code: u8) -> Result<Vec<u8>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        unusable(code, format!("{} cannot be used: {why}", path.display()))
    };
    let facts = std::fs::metadata(path).map_err(|error| wrong(&error))?;
    if facts.len() > LARGEST || !facts.is_file() {
        return Err(wrong(&"it is no file of certificates"));
    }
    std::fs::read(path).map_err(|error| wrong(&error))
}

fn read(files: &TlsFiles) -> Result<Read, Failure> {
    /// `CURLE_SSL_CERTPROBLEM`, `CURLE_SSL_CACERT_BADFILE`
    const CERTIFICATE: u8 = 58;
    const AUTHORITIES: u8 = 77;

    let mut authorities: Vec<u8> = files.authorities_pem.as_deref().unwrap_or_default().to_vec();
    if let Some(path) = &files.authorities {
        authorities.extend(file(path, AUTHORITIES)?);
        authorities.push(b'\n');
    }
    if let Some(folder) = &files.authorities_folder {
        let wrong =
            |why: std::io::Error| unusable(AUTHORITIES, format!("{}: {why}", folder.display()));
        for entry in std::fs::read_dir(folder).map_err(wrong)? {
            // An entry that is not a certificate is skipped, as in OpenSSL.
            if let Ok(read) =
                entry.map_err(wrong).and_then(|entry| file(&entry.path(), AUTHORITIES))
            {
                authorities.extend(read);
                authorities.push(b'\n');
            }
        }
    }
    let wished = files.authorities.is_some()
        || files.authorities_folder.is_some()
        || files.authorities_pem.is_some();
    let trust = if wished { Trust::Authorities(authorities.into()) } else { Trust::System };

    let certificate = match &files.certificate {
        None if files.key.is_some() => {
            return Err(unusable(CERTIFICATE, "there is a key without a certificate".to_owned()));
        }
        None => None,
        Some(path) => {
            let chain = file(path, CERTIFICATE)?;
            let (key, key_path, key_der) = match &files.key {
                Some(key) => (file(key, CERTIFICATE)?, key, files.key_der),
                None => (chain.clone(), path, files.certificate_der),
            };
            let chain =
                if files.certificate_der { unlock::pem("CERTIFICATE", &chain) } else { chain };
            let key = unlock::key(&key, key_der, files.password.as_ref()).map_err(|why| {
                unusable(CERTIFICATE, format!("{} cannot be used: {why}", key_path.display()))
            })?;
            Some(Certificate { chain: chain.into(), key: key.into() })
        }
    };
    Ok(Read { trust, certificate })
}
