//! Settings about the network: addresses, listeners, origins and trusted proxies.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use egress::{Network, Scheme};
use front_http::{Cidr, RateLimit, TrustedHeader, TrustedHeaders};
use http::uri::PathAndQuery;

use super::{Raw, Value, Wrong};

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// An IP address and a port; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Value for Address {
    const PLACEHOLDER: &str = "ADDR";
    const EXPECTED: &str = "an address such as `127.0.0.1:8080`, `[::1]:8080`, `:8080` (all interfaces) or `unix:/run/app.sock`";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(Wrong::quoted(text))
            } else {
                Ok(Self::Unix(base.join(path)))
            };
        }
        socket_address(text).map(Self::Tcp).ok_or_else(|| Wrong::quoted(text))
    }
}

/// An address, and whether TLS is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    /// The scheme, `http://` or `https://`; without one TLS depends on whether there are certificates.
    pub tls: Option<bool>,
    /// The address.
    pub address: Address,
}

impl Listen {
    /// Returns whether the address is no file: clients may be on any machine.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp(_))
    }
}

impl Value for Listen {
    const PLACEHOLDER: &str = Address::PLACEHOLDER;

    fn expected() -> String {
        format!(
            "{}; `http://` or `https://` before a port says what is spoken there",
            Address::expected()
        )
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let (tls, address) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(address), _) => (Some(true), address),
            (_, Some(address)) => (Some(false), address),
            _ => (None, text),
        };
        if tls.is_some() && address.starts_with("unix:") {
            return Err(Wrong::quoted(text));
        }
        // As it is copied from a browser.
        let bare = if tls.is_some() { address.trim_end_matches('/') } else { address };
        let address = Address::parse(&Raw::Text(bare.to_owned()), base);
        address.map(|address| Self { tls, address }).map_err(|_address| Wrong::quoted(text))
    }
}

/// A value of `Strict-Transport-Security` (RFC 6797, section 6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hsts(pub String);

impl Value for Hsts {
    const PLACEHOLDER: &str = "DIRECTIVES";
    const EXPECTED: &str =
        "`max-age=SECONDS`, with `; includeSubDomains` and `; preload` if need be";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let wrong = || Wrong::quoted(text);
        let mut directives = text.split(';').map(str::trim);
        let age = directives.next().and_then(|first| first.strip_prefix("max-age="));
        age.and_then(|seconds| seconds.parse::<u64>().ok()).ok_or_else(wrong)?;
        let known = |directive: &str| {
            directive.eq_ignore_ascii_case("includeSubDomains")
                || directive.eq_ignore_ascii_case("preload")
        };
        if directives.all(known) { Ok(Self(text.to_owned())) } else { Err(wrong()) }
    }
}

by_from_str! { RateLimit, "RULE", "a path and a rate, such as `/login 5/m` or `/ 50/s 200`" }

/// `IP:PORT`, `localhost:PORT` or `:PORT`. Names are not resolved: what is bound must not depend on a name server.
fn socket_address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        return Some(SocketAddr::from(([0_u16; 8], port.parse().ok()?)));
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)));
    }
    text.parse().ok()
}

impl Value for SocketAddr {
    const PLACEHOLDER: &str = "ADDR";
    const EXPECTED: &str = "an address such as `127.0.0.1:9180` or `:9180` (all interfaces)";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        socket_address(text).ok_or_else(|| Wrong::quoted(text))
    }
}

by_from_str! { Cidr, "CIDR", "an address or a range such as `10.0.0.0/8`, `192.168.1.7` or `fd00::/8`" }

impl Value for TrustedHeaders {
    const PLACEHOLDER: &str = "FIELD";
    const REPEATS: bool = true;
    const EXPECTED: &str = "`x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port` or `x-request-id`, several as a list, or separated by commas; \
         or `forwarded` in place of all `x-forwarded` ones";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let headers = Vec::<TrustedHeader>::parse(raw, base)?;
        Self::new(headers).map_err(|mixed| Wrong(mixed.to_string()))
    }
}

by_from_str! { TrustedHeader, TrustedHeaders::PLACEHOLDER, TrustedHeaders::EXPECTED }

by_from_str! { Network, "CIDR", "a network such as `10.0.0.0/8`, `fd00::/8`, or one address" }

/// An origin: `https://api.example.com`, with a port if need be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OriginUrl {
    /// The scheme: with or without TLS.
    pub scheme: Scheme,
    /// Lower case, without brackets.
    pub host: String,
    /// The scheme's own where none is named.
    pub port: u16,
}

impl Value for OriginUrl {
    const PLACEHOLDER: &str = "ORIGIN";
    const EXPECTED: &str = "an origin such as `https://api.example.com` or `http://10.0.0.7:8080`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let wrong = || Wrong::quoted(text);
        let uri: http::Uri = text.parse().map_err(|_invalid| wrong())?;
        let scheme = uri.scheme_str().and_then(Scheme::named).ok_or_else(wrong)?;
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        let bare = matches!(uri.path_and_query().map(PathAndQuery::as_str), None | Some("/"))
            && !text.contains(['@', '#']);
        if host.is_empty() || !bare {
            return Err(wrong());
        }
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or_else(|| scheme.default_port()),
        })
    }
}
