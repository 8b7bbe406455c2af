//! The properties that must be equal for two calls to share a connection. All of them are compared, never only a hash.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use crate::Cipher;

/// Everything that distinguishes connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Key {
    /// The user of the calling process: users share no connection.
    pub uid: u32,
    /// The scheme.
    pub scheme: Scheme,
    /// The host, in lower case; IPv6 addresses without brackets. It is also the name for SNI and the certificate.
    pub host: Arc<str>,
    /// The port of the target.
    pub port: u16,
    /// The host and port to connect to instead.
    pub connect_to: Option<(Arc<str>, u16)>,
    /// A Unix socket to connect to instead, without a proxy.
    pub unix: Option<Arc<Path>>,
    /// The local address.
    pub interface: Option<IpAddr>,
    /// Whether only public addresses are permitted, checked after look-up: no loopback, no private networks.
    pub public: bool,
    /// The address families to try.
    pub family: IpFamily,
    /// The authorities to trust.
    pub trust: Trust,
    /// The permitted public keys (`sha256//…`, as `CURLOPT_PINNEDPUBLICKEY`); empty: any.
    pub pins: Arc<[[u8; 32]]>,
    /// The client certificate.
    pub certificate: Option<Certificate>,
    /// The lowest version of TLS.
    pub tls_min: TlsVersion,
    /// The highest version of TLS.
    pub tls_max: TlsVersion,
    /// The permitted cipher suites; none: all.
    pub ciphers: Option<Arc<[Cipher]>>,
    /// The permitted versions of HTTP.
    pub http: HttpVersions,
    /// The proxy.
    pub proxy: Option<Proxy>,
}

/// Hashes the parts that differ between most keys; equality compares all of them.
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

/// The scheme: plain or TLS.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl Scheme {
    /// The scheme as in URLs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Parses a scheme in lower case.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|scheme| scheme.word() == word)
    }

    /// The default port (RFC 9110, 4.2).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The address families to try.
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

/// The authorities to trust.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Trust {
    /// The system's authorities, or those of the broker's settings.
    System,
    /// The authorities in this PEM text.
    Authorities(Arc<[u8]>),
    /// Any certificate: nothing is verified.
    Anyone,
}

/// A client certificate, as PEM texts.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Certificate {
    /// The certificate with its chain.
    pub chain: Arc<[u8]>,
    /// The private key.
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

/// The permitted versions of HTTP.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HttpVersions {
    /// The version that ALPN selects; HTTP/1.1 without TLS.
    #[default]
    Negotiate,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// A proxy in front of the origin.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Proxy {
    /// The proxy's protocol.
    pub kind: ProxyKind,
    /// The proxy's name or address.
    pub host: Arc<str>,
    /// The proxy's port.
    pub port: u16,
    /// User name and password.
    pub credentials: Option<(Arc<str>, Arc<str>)>,
    /// The TLS options for a proxy over TLS; none: the system's authorities.
    pub tls: Option<Arc<ProxyTls>>,
}

/// TLS options for a proxy.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ProxyTls {
    /// The authorities to trust.
    pub trust: Trust,
    /// The client certificate.
    pub certificate: Option<Certificate>,
}

impl ProxyKind {
    /// Returns whether the proxy is an HTTP proxy.
    pub(crate) const fn http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ProxyKind {
    /// CONNECT for `https`, absolute form for `http` (RFC 9110, 9.3.6).
    Http,
    /// An HTTP proxy over TLS.
    Https,
    /// SOCKS 4; the name is resolved here, to an IPv4 address.
    Socks4,
    /// SOCKS 4A; the proxy resolves the name.
    Socks4Hostname,
    /// SOCKS 5 (RFC 1928); the name is resolved here.
    Socks5,
    /// SOCKS 5 (RFC 1928); the proxy resolves the name.
    Socks5Hostname,
}
