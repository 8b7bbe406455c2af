//! This machine's own certificate authority for development: created once, accessible only by its user, and useless
//! outside this machine and its network.
//!
//! Invariants
//! - It can never vouch for public names: it is constrained to local ones (RFC 5280, section 4.2.1.10).
//! - Its key is in one file that only its owner can read, and the keys of its certificates are in none.
//! - Trust is never installed automatically: that is a command of the machine's user.

use std::fs::DirBuilder;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};

use crate::{Issued, cache};

/// Names for which no public authority issues certificates, and which public DNS does not resolve: RFC 6761 and 8375,
/// ICANN's `internal`, and `local` of multicast DNS.
const NAMES: [&str; 5] = ["localhost", "test", "internal", "local", "home.arpa"];

/// Loopback and private networks (RFC 1918, RFC 4193).
const NETWORKS: [(IpAddr, u8); 6] = [
    (IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(std::net::Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(std::net::Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
];

const DAY: Duration = Duration::from_hours(24);
/// Validity of the authority.
const LONG: Duration = Duration::from_hours(3650 * 24);
/// Validity of a certificate: browsers accept at most 398 days from public authorities, and some from any.
const SHORT: Duration = Duration::from_hours(397 * 24);

/// Reasons why there is no local authority, or no certificate from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The folder or a file in it cannot be used.
    #[error("cannot keep the local authority in {}", path.display())]
    Disk {
        /// The path.
        path: PathBuf,
        /// The error.
        #[source]
        cause: io::Error,
    },
    /// The stored file is not an authority.
    #[error("{} holds no authority that can be used", path.display())]
    Useless {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        cause: rcgen::Error,
    },
    /// The name is not local.
    #[error("`{name}` is no local name")]
    NotLocal {
        /// The name as given.
        name: String,
    },
}

/// The local certificate authority.
#[derive(Debug)]
pub struct LocalAuthority {
    certificate: PathBuf,
    chain: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Returns whether the local authority may issue certificates for a name or address.
pub fn is_local(name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return NETWORKS.iter().any(|network| contains(*network, address));
    }
    let label = |label: &str| {
        let plain =
            label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        !label.is_empty() && label.len() < 64 && plain
    };
    let below = |root: &&str| {
        name.strip_suffix(*root).is_some_and(|front| front.is_empty() || front.ends_with('.'))
    };
    let bare = name.strip_prefix("*.").unwrap_or(name);
    // Clients require two labels after a wildcard: with `*.localhost` they reject the whole certificate.
    if bare.len() < name.len() && !bare.contains('.') {
        return false;
    }
    NAMES.iter().any(below) && name.len() < 254 && bare.split('.').all(label)
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = u32::from(bits);
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (u32::from(network) ^ u32::from(address)).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            (u128::from(network) ^ u128::from(address)).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

impl LocalAuthority {
    /// Returns the path of the authority's certificate, which clients must trust.
    pub fn certificate_in(folder: &Path) -> PathBuf {
        folder.join("hearth-local-ca.pem")
    }

    /// Opens the authority in `folder`, or creates one. Servers that start at the same time get the same one. Blocks
    /// while another process creates it.
    pub fn open(folder: &Path) -> Result<Self, LocalError> {
        let disk = |cause| LocalError::Disk { path: folder.to_owned(), cause };
        DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(disk)?;
        let _alone = cache::lock_folder(folder).map_err(disk)?;
        let (certificate, key) = (Self::certificate_in(folder), folder.join("hearth-local-ca.key"));
        let useless = |cause| LocalError::Useless { path: certificate.clone(), cause };
        let kept = cache::read(&key).map_err(disk)?;
        let params = params();
        let (params, key, chain) = if let Some(text) = kept {
            let key = KeyPair::from_pem(&text).map_err(useless)?;
            // Name and key define an authority; the trusted certificate has the rest and stays unchanged.
            let chain = cache::read(&certificate).map_err(disk)?;
            let chain = match chain {
                Some(chain) => chain,
                None => params.self_signed(&key).map_err(useless)?.pem(),
            };
            (params, key, chain)
        } else {
            let new = KeyPair::generate().map_err(useless)?;
            let chain = params.self_signed(&new).map_err(useless)?.pem();
            cache::write(&key, &new.serialize_pem()).map_err(disk)?;
            tracing::info!(certificate = %certificate.display(), "local authority made");
            (params, new, chain)
        };
        cache::write(&certificate, &chain).map_err(disk)?;
        Ok(Self { certificate, chain, issuer: Issuer::new(params, key) })
    }

    /// Returns the PEM file that clients must trust.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Issues a certificate for these names and addresses, valid for a year.
    pub fn issue(&self, names: &[String]) -> Result<Issued, LocalError> {
        if let Some(name) = names.iter().find(|name| !is_local(name)) {
            return Err(LocalError::NotLocal { name: name.clone() });
        }
        let made = (|| {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.subject_alt_names =
                names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, "Hearth, on this machine");
            (params.not_before, params.not_after) = from_now(SHORT);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.use_authority_key_identifier_extension = true;
            let certificate = params.signed_by(&key, &self.issuer)?;
            let chain = format!("{}{}", certificate.pem(), self.chain);
            Ok::<_, rcgen::Error>(Issued { chain, key: key.serialize_pem() })
        })();
        made.map_err(|cause| LocalError::Useless { path: self.certificate.clone(), cause })
    }
}

fn alternative(name: &str) -> Result<SanType, rcgen::Error> {
    Ok(match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_no_address) => SanType::DnsName(Ia5String::try_from(name)?),
    })
}

/// Starts yesterday, because clocks differ.
fn from_now(length: Duration) -> (time::OffsetDateTime, time::OffsetDateTime) {
    let now = time::OffsetDateTime::now_utc();
    (now - DAY, now + length - DAY)
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Hearth local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = from_now(LONG);
    let names = NAMES.iter().map(|name| GeneralSubtree::DnsName((*name).to_owned()));
    let networks = NETWORKS.iter().map(|(address, bits)| {
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, *bits))
    });
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: names.chain(networks).collect(),
        excluded_subtrees: Vec::new(),
    });
    params
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;
    use crate::renewal_schedule::Facts;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Returns whether a client that trusts the authority accepts the certificate.
    fn believes(authority: &str, issued: &Issued, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let leaf = CertificateDer::from_pem_slice(issued.chain.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn the_local_authority_is_created_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("hearth/local");
        let first = LocalAuthority::open(&place).unwrap();
        let text = std::fs::read_to_string(first.certificate()).unwrap();
        let again = LocalAuthority::open(&place).unwrap();
        assert_eq!(std::fs::read_to_string(again.certificate()).unwrap(), text);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&place), mode(&place.join("hearth-local-ca.key"))), (0o700, 0o600));

        let asked =
            names(&["localhost", "*.shop.test", "127.0.0.1", "::1", "shop.test", "192.168.1.7"]);
        for authority in [first, again] {
            let issued = authority.issue(&asked).unwrap();
            for name in ["localhost", "127.0.0.1", "::1", "shop.test", "a.shop.test", "192.168.1.7"]
            {
                assert!(believes(&text, &issued, name), "{name}");
            }
            assert!(!believes(&text, &issued, "other.test"));
            assert_eq!(Facts::of(&issued.chain).unwrap().names[1], "*.shop.test");
        }
    }

    #[test]
    fn simultaneous_servers_share_the_local_authority() {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let at_once = std::sync::Barrier::new(4);
            let chains: Vec<String> = std::thread::scope(|scope| {
                let open = || {
                    at_once.wait();
                    LocalAuthority::open(folder.path()).unwrap().chain
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let kept = std::fs::read_to_string(LocalAuthority::certificate_in(folder.path()));
            assert_eq!(chains, vec![kept.unwrap(); 4]);
        }
    }

    #[test]
    fn the_local_authority_is_constrained_to_local_names() {
        let folder = tempfile::tempdir().unwrap();
        let authority = LocalAuthority::open(folder.path()).unwrap();
        for name in [
            "*.localhost",
            "shop.example",
            "test.example",
            "8.8.8.8",
            "atest",
            "a..test",
            "",
            "2606:4700::1",
            "a b.test",
        ] {
            let refused = authority.issue(&names(&[name])).unwrap_err();
            assert!(matches!(refused, LocalError::NotLocal { .. }), "{name}");
        }
        // This holds even for an attacker who has its key.
        let text = std::fs::read_to_string(authority.certificate()).unwrap();
        for name in ["shop.example", "8.8.8.8"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(names(&[name])).unwrap();
            let forged = params.signed_by(&key, &authority.issuer).unwrap();
            let forged = Issued { chain: forged.pem(), key: key.serialize_pem() };
            assert!(!believes(&text, &forged, name), "{name}");
        }
    }

    #[test]
    fn an_invalid_key_is_named_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hearth-local-ca.key"), "half").unwrap();
        let refused = LocalAuthority::open(folder.path()).unwrap_err();
        assert!(matches!(refused, LocalError::Useless { .. }), "{refused}");
    }
}
