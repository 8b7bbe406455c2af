//! What must be equal for two calls to share a connection. The whole of it is compared, never a hash alone.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use crate::Cipher;

/// Everything that makes a connection what it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Key {
    /// The user whose process asks: users share no connection.
    pub uid: u32,
    /// With TLS or without.
    pub scheme: Scheme,
    /// Lower case; IPv6 addresses without brackets. Also the name for SNI and the certificate.
    pub host: Arc<str>,
    /// The target's.
    pub port: u16,
    /// To connect to instead of `host` and `port`.
    pub connect_to: Option<(Arc<str>, u16)>,
    /// A unix socket to connect to instead of anything else; there is no proxy then.
    pub unix: Option<Arc<Path>>,
    /// Local address.
    pub interface: Option<IpAddr>,
    /// Only addresses of the public Internet, judged after look-up: no loopback, no private networks.
    pub public: bool,
    /// Which addresses are tried.
    pub family: IpFamily,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// Public keys that the origin's must be among (`sha256//…`, as `CURLOPT_PINNEDPUBLICKEY`); empty: any.
    pub pins: Arc<[[u8; 32]]>,
    /// The caller's own.
    pub certificate: Option<Certificate>,
    /// The least version of TLS.
    pub tls_min: TlsVersion,
    /// The greatest version of TLS.
    pub tls_max: TlsVersion,
    /// The cipher suites that may be spoken; none: all there are.
    pub ciphers: Option<Arc<[Cipher]>>,
    /// Which versions of HTTP.
    pub http: HttpVersions,
    /// Through whom.
    pub proxy: Option<Proxy>,
}

/// Of what tells most keys apart: the rest is compared.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.host.hash(state);
        state.write_u64(
            u64::from(self.uid) << 32
                | u64::from(self.port) << 1
                | u64::from(self.scheme == Scheme::Https),
        );
    }
}

/// With TLS or without.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// Without.
    Http,
    /// With.
    Https,
}

impl Scheme {
    /// As URLs write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The scheme that URLs write so, in lower case.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|scheme| scheme.word() == word)
    }

    /// The port of URLs that name none (RFC 9110, 4.2).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Which addresses are tried.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum IpFamily {
    /// IPv6 and IPv4 (RFC 8305).
    #[default]
    Both,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Trust {
    /// The system's authorities, or those the broker was given.
    System,
    /// The authorities in this PEM text.
    Authorities(Arc<[u8]>),
    /// Anybody's: nothing is verified.
    Anyone,
}

/// A client certificate: PEM texts.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Certificate {
    /// With its chain.
    pub chain: Arc<[u8]>,
    /// Its private key.
    pub key: Arc<[u8]>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum TlsVersion {
    /// 1.2
    V1_2,
    /// 1.3
    V1_3,
}

/// Which versions of HTTP may be spoken.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HttpVersions {
    /// As ALPN finds; without TLS HTTP/1.1.
    #[default]
    Negotiate,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 from the first byte.
    Http2,
}

/// A proxy between us and the origin.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Proxy {
    /// How it is spoken to.
    pub kind: ProxyKind,
    /// Name or address.
    pub host: Arc<str>,
    /// Port.
    pub port: u16,
    /// Name and password.
    pub credentials: Option<(Arc<str>, Arc<str>)>,
    /// How it is believed, where it is spoken to over TLS; none: as the system's authorities say.
    pub tls: Option<Arc<ProxyTls>>,
}

/// TLS towards a proxy.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ProxyTls {
    /// Whose certificates are believed.
    pub trust: Trust,
    /// The caller's own.
    pub certificate: Option<Certificate>,
}

impl ProxyKind {
    /// It speaks HTTP.
    pub(crate) const fn http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ProxyKind {
    /// CONNECT for `https`, absolute form for `http` (RFC 9110, 9.3.6).
    Http,
    /// The same, over TLS.
    Https,
    /// SOCKS 4; the address is resolved here, and must be one of IPv4.
    Socks4,
    /// SOCKS 4A; the proxy resolves the name.
    Socks4Hostname,
    /// RFC 1928; the address is resolved here.
    Socks5,
    /// RFC 1928; the proxy resolves the name.
    Socks5Hostname,
}
