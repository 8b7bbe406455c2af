//! The places that realtime calls: webhooks, look-ups and the servers of an adapter.

use std::fmt;
use std::path::Path;

use channels::{Secret, auth};
use http::Uri;

use crate::config::value::{Raw, UrlPath, Value, Wrong};

/// The target of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebhookTarget {
    /// A server's URL.
    Url(Uri),
    /// The application's own PHP workers, asked for this path.
    Php(UrlPath),
}

impl fmt::Display for WebhookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Php(path) => write!(f, "php:{}", path.0),
        }
    }
}

impl Value for WebhookTarget {
    const PLACEHOLDER: &str = "URL";
    const EXPECTED: &str = "a URL such as `https://example.com/hooks`, or `php:/hooks` for a path of the application served here";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        if let Some(path) = text.strip_prefix("php:") {
            return UrlPath::parse(&Raw::Text(path.to_owned()), base).map(Self::Php);
        }
        let url: Uri = text.parse().map_err(|_malformed| Wrong::quoted(text))?;
        match (url.scheme_str(), url.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(Self::Url(url)),
            _ => Err(Wrong::quoted(text)),
        }
    }
}

/// The target of look-ups for applications that the settings do not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupTarget(pub WebhookTarget);

impl fmt::Display for LookupTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for LookupTarget {
    const PLACEHOLDER: &str = WebhookTarget::PLACEHOLDER;
    const EXPECTED: &str = "`php:/hearth/apps` for a path of the application served here, or a URL such as `https://example.com/apps`";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        WebhookTarget::parse(raw, base).map(Self)
    }
}

/// The cluster: nodes with subscribers of the same channels.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum AdapterUrl {
    /// No other nodes.
    Memory,
    /// Nodes at the same Redis or Valkey: one server, or some nodes of a cluster.
    Redis(Vec<String>),
    /// Redis, found by sentinels.
    Sentinel {
        /// The sentinels.
        servers: Vec<String>,
        /// The name of the service at the sentinels.
        service: String,
        /// Redis itself speaks TLS.
        tls: bool,
        /// The user for Redis itself.
        user: Option<String>,
        /// The password for Redis itself.
        password: Option<Secret>,
    },
    /// Nodes at the same NATS.
    Nats(Vec<String>),
}

impl fmt::Debug for AdapterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses hold passwords.
        f.write_str(match self {
            Self::Memory => "Memory",
            Self::Redis(_) => "Redis",
            Self::Sentinel { .. } => "Sentinel",
            Self::Nats(_) => "Nats",
        })
    }
}

impl Value for AdapterUrl {
    const PLACEHOLDER: &str = "ADAPTER";
    const EXPECTED: &str = "`memory`, or a URL such as `redis://127.0.0.1:6379`, `redis://one:6379,two:6379` (a cluster), \
         `redis+sentinel://user:password@one:26379,two:26379/service` or `nats://127.0.0.1:4222`; `rediss`, `rediss+sentinel` and `tls` are those with TLS";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        if text == "memory" {
            return Ok(Self::Memory);
        }
        // It may hold a password, so it is not quoted back.
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| Wrong("a text without a scheme".into()))?;
        let adapter = match scheme {
            "redis" | "rediss" => Self::Redis(servers(scheme, rest)),
            "nats" | "tls" => Self::Nats(servers(scheme, rest)),
            "redis+sentinel" | "rediss+sentinel" | "redis-sentinel" | "rediss-sentinel" => {
                sentinel(scheme.starts_with("rediss"), rest)?
            }
            other => return Err(Wrong(format!("a URL of the scheme `{other}`"))),
        };
        match &adapter {
            Self::Redis(servers) | Self::Nats(servers) | Self::Sentinel { servers, .. }
                if servers.is_empty() =>
            {
                Err(Wrong("a URL without a host".into()))
            }
            _ => Ok(adapter),
        }
    }
}

/// Parses a list of servers; the user before the first host applies to all that name none.
fn servers(scheme: &str, hosts: &str) -> Vec<String> {
    let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
    let mut whose = None;
    let server = hosts.map(|host| {
        if let Some((user, _)) = host.rsplit_once('@') {
            whose.get_or_insert(user);
            return format!("{scheme}://{host}");
        }
        match whose {
            Some(user) => format!("{scheme}://{user}@{host}"),
            None => format!("{scheme}://{host}"),
        }
    });
    server.collect()
}

/// Parses `[user:password@]one:26379,two:26379/service[?sentinel_user=…&sentinel_password=…]`: the user in front is for Redis itself, as in
/// Lettuce and others.
fn sentinel(tls: bool, rest: &str) -> Result<AdapterUrl, Wrong> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, service) = rest
        .rsplit_once('/')
        .filter(|(_, service)| !service.is_empty())
        .ok_or_else(|| Wrong("sentinels without the name of a service".into()))?;
    let (whose, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
    if hosts.contains('/') || whose.contains(',') {
        return Err(Wrong("an address of sentinels that cannot be read".into()));
    }
    let (user, password) = whose.split_once(':').unwrap_or((whose, ""));
    let filled = |text: &str| {
        Some(auth::unescaped(text, false).into_owned()).filter(|text| !text.is_empty())
    };
    let (mut sentinel_user, mut sentinel_password) = ("", "");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel_user", value)) => sentinel_user = value,
            Some(("sentinel_password", value)) => sentinel_password = value,
            _ => {
                return Err(Wrong(
                    "an address of sentinels with another parameter than sentinel_user and sentinel_password".into(),
                ));
            }
        }
    }
    let hosts = if sentinel_password.is_empty() {
        hosts.to_owned()
    } else {
        format!("{sentinel_user}:{sentinel_password}@{hosts}")
    };
    Ok(AdapterUrl::Sentinel {
        servers: servers("redis", &hosts),
        service: service.to_owned(),
        tls,
        user: filled(user),
        password: filled(password).map(|password| Secret::new(&password)),
    })
}

/// The prefix of an adapter's subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubjectPrefix(pub String);

impl Value for SubjectPrefix {
    const PLACEHOLDER: &str = "PREFIX";
    const EXPECTED: &str = "letters, digits, `-` and `_`, and single dots between them";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let fit = |part: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !part.is_empty() && part.bytes().all(fits)
        };
        if text.len() > 100 || !text.split('.').all(fit) {
            return Err(Wrong::quoted(text));
        }
        Ok(Self(text.to_owned()))
    }
}
