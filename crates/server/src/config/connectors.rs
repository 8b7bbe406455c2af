//! Connectors to databases: tables of `hearth.toml`, or `NAME=URL`.
//!
//! Invariants
//! - No URL is quoted back: it may hold a password.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbproxy::{Login, Password, Protocol, Secret, Verify};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::nearest;
use super::value::{Auto, Raw, Value, Wrong};

/// The settings of a connector.
#[derive(Clone, Debug)]
pub(crate) struct NamedConnector {
    /// The name: letters, digits, `-`, `_`.
    pub name: String,
    /// The scheme's.
    pub protocol: Protocol,
    /// The server.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The verification of the server's certificate.
    pub verify: Verify,
    /// The login; Redis may need none.
    pub login: Option<Login>,
    /// The authorities that are believed, unless they are the system's.
    pub authorities: Option<PathBuf>,
    /// Our own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Sessions at the server.
    pub sessions: NonZeroUsize,
    /// The time that a client waits for a session.
    pub wait: Duration,
    /// The socket for PHP; `None` is a default path.
    pub socket: Option<PathBuf>,
}

/// The settings of all connectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connectors(pub Vec<NamedConnector>);

/// A key of a connector's table.
pub(super) struct ConnectorKey {
    /// The name.
    pub name: &'static str,
    /// The description.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page tells of it"))]
    pub doc: &'static str,
    /// The accepted values.
    pub expected: fn() -> String,
    /// The default; empty: none.
    pub default: &'static str,
}

macro_rules! connector_keys {
    ($($name:ident: $type:ty = $default:literal, $doc:literal;)+) => {
        /// Every key that a connector's table may have, in the order of the manual.
        pub(super) const CONNECTOR_KEYS: &[ConnectorKey] = &[$(ConnectorKey {
            name: stringify!($name),
            doc: $doc,
            expected: <$type as Value>::expected,
            default: $default,
        }),+];
    };
}

connector_keys! {
    url: ServerUrl = "", "The server, and the user that logs in.";
    password_file: PathBuf = "", "A file with the password, instead of one in the URL. It is read for each login, so a change takes effect at the next one.";
    sslmode: SslMode = "verify-full", "How the server's certificate is verified, as in libpq. The default for `redis://` is `disable`.";
    sslrootcert: Auto<PathBuf> = "auto", "The trusted authorities, a PEM file. `auto`: the system's.";
    sslcert: PathBuf = "", "A client certificate, a PEM file.";
    sslkey: PathBuf = "", "Its private key, a PEM file.";
    sessions: NonZeroUsize = "50", "The most sessions at the server. With N times (workers + 1), each worker keeps N connections; requests borrow sessions for others.";
    wait: Duration = "5s", "How long PHP waits for a session if all are in use; then it gets an error.";
    socket: Auto<PathBuf> = "auto", "The socket that PHP connects to. `auto`: in the server's private folder; PHP finds it by `HEARTH_DATABASE_NAME`.";
}

/// `mysql://user:password@host:port/database`.
#[derive(Clone, Debug)]
struct ServerUrl {
    protocol: Protocol,
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<Secret>,
    database: Option<String>,
    /// `rediss`, not `redis`.
    tls: bool,
    /// The keys of a table, behind the `?`.
    keys: Vec<(String, String)>,
}

impl Value for ServerUrl {
    const PLACEHOLDER: &str = "URL";
    const EXPECTED: &str = "`mysql://USER:PASSWORD@HOST:PORT/DATABASE`, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, or `rediss://USER:PASSWORD@HOST:PORT` (`rediss://:PASSWORD@…`)";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let url: Url = raw.text()?.parse().map_err(|_why| Wrong("a text that is no URL".into()))?;
        let (protocol, port) = match url.scheme() {
            "mysql" | "mariadb" => (Protocol::MySql, 3306),
            "postgresql" | "postgres" | "pgsql" => (Protocol::Postgres, 5432),
            "rediss" | "redis" => (Protocol::Redis, 6379),
            other => return Err(Wrong(format!("a URL of the scheme `{other}`"))),
        };
        let host = match url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) if !host.to_string().is_empty() => decoded(&host.to_string())?,
            _ => return Err(Wrong("a URL without a host".into())),
        };
        let filled =
            |text: &str| decoded(text).map(|text| Some(text).filter(|text| !text.is_empty()));
        let parsed = Self {
            protocol,
            host,
            port: url.port().unwrap_or(port),
            user: filled(url.username())?,
            password: url.password().map(decoded).transpose()?.map(|text| Secret::new(&text)),
            database: filled(url.path().trim_start_matches('/'))?,
            tls: url.scheme() != "redis",
            keys: url.query_pairs().map(|(name, value)| (name.into(), value.into())).collect(),
        };
        match (protocol, &parsed.user) {
            (Protocol::Redis, _) if parsed.database.is_some() => {
                Err(Wrong("a URL with a database, which Redis's clients name themselves".into()))
            }
            (Protocol::MySql | Protocol::Postgres, None) => {
                Err(Wrong("a URL without a user to log in".into()))
            }
            _ => Ok(parsed),
        }
    }
}

fn decoded(text: &str) -> Result<String, Wrong> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_not_text| Wrong("a URL with bytes that are no text".into()))
}

/// [`Verify`] by its names.
#[derive(Clone, Copy, Debug)]
struct SslMode(Verify);

impl Value for SslMode {
    const PLACEHOLDER: &str = "MODE";
    const EXPECTED: &str = "`verify-full` (authority and name), `verify-ca` (authority alone), `require` (encryption only) or `disable`";

    fn choices() -> &'static [&'static str] {
        &["verify-full", "verify-ca", "require", "disable"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "verify-full" => Ok(Self(Verify::Full)),
            "verify-ca" => Ok(Self(Verify::Authority)),
            "require" => Ok(Self(Verify::Require)),
            "disable" => Ok(Self(Verify::Disable)),
            // `allow` and `prefer` would continue unencrypted if an attacker strips TLS.
            other => Err(Wrong::quoted(other)),
        }
    }
}

/// The texts of one table.
struct Table<'a> {
    name: &'a str,
    pairs: Vec<(String, String)>,
    base: &'a Path,
}

impl Table<'_> {
    fn get<T: Value>(&self, key: &str) -> Result<Option<T>, Wrong> {
        let row = CONNECTOR_KEYS.iter().find(|row| row.name == key);
        let row = row.expect("only keys of the table are asked for");
        let found = self.pairs.iter().rev().find(|(name, _)| name == key);
        let text = match found {
            Some((_, text)) => text.as_str(),
            None if row.default.is_empty() => return Ok(None),
            None => row.default,
        };
        T::parse(&Raw::Text(text.to_owned()), self.base).map(Some).map_err(|wrong| {
            Wrong(format!(
                "`{key}` of `{}`: {} where it takes {}",
                self.name,
                wrong.0,
                (row.expected)()
            ))
        })
    }

    fn read(mut self) -> Result<NamedConnector, Wrong> {
        let name = self.name.to_owned();
        let wrong = |what: &str| Wrong(format!("connector `{name}` {what}"));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > 32 || !name.bytes().all(fits) {
            return Err(wrong("has a name of other than letters, digits, `-` and `_`"));
        }
        let url: ServerUrl = self.get("url")?.ok_or_else(|| wrong("has no `url`"))?;
        // The table is stronger.
        self.pairs.splice(..0, url.keys.clone());
        if let Some((unknown, _)) =
            self.pairs.iter().find(|(key, _)| !CONNECTOR_KEYS.iter().any(|row| row.name == key))
        {
            let near = nearest(unknown, CONNECTOR_KEYS.iter().map(|row| row.name));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            return Err(wrong(&format!("has no key `{unknown}`{hint}")));
        }
        let plain = !url.tls && !self.pairs.iter().any(|(key, _)| key == "sslmode");
        let SslMode(verify) = self.get("sslmode")?.expect("it has a default");
        let certificate = match (self.get("sslcert")?, self.get("sslkey")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(wrong("has one of `sslcert` and `sslkey` without the other")),
        };
        let file: Option<PathBuf> = self.get("password_file")?;
        let password = match (url.password, file) {
            (Some(_), Some(_)) => return Err(wrong("has two passwords: in the URL and in a file")),
            (_, Some(file)) => Password::File(file),
            (Some(secret), None) => Password::Given(secret),
            (None, None) => Password::None,
        };
        let authorities: Auto<PathBuf> = self.get("sslrootcert")?.expect("it has a default");
        let socket: Auto<PathBuf> = self.get("socket")?.expect("it has a default");
        Ok(NamedConnector {
            protocol: url.protocol,
            host: url.host,
            port: url.port,
            verify: if plain { Verify::Disable } else { verify },
            login: match (url.user, &password) {
                // Redis's clients may log in themselves.
                (None, Password::None) => None,
                (user, _) => {
                    Some(Login { user: user.unwrap_or_default(), password, database: url.database })
                }
            },
            authorities: authorities.0,
            certificate,
            sessions: self.get("sessions")?.expect("it has a default"),
            wait: self.get("wait")?.expect("it has a default"),
            socket: socket.0,
            name,
        })
    }
}

impl NamedConnector {
    /// Returns the protocol's scheme in a URL.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.protocol {
            Protocol::MySql => "mysql",
            Protocol::Postgres => "postgresql",
            Protocol::Redis => "redis",
        }
    }

    /// The variable by which PHP finds it.
    pub(crate) fn variable(&self) -> String {
        format!("HEARTH_DATABASE_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }
}

impl Value for Connectors {
    const PLACEHOLDER: &str = "NAME=URL";
    const REPEATS: bool = true;
    const EXPECTED: &str = "`NAME=URL`; several separated by spaces, or as tables `[databases.connectors.NAME]` with `url`";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let mut tables: Vec<(String, Vec<(String, String)>)> = Vec::new();
        let mut add = |name: &str, key: &str, value: &str| {
            let pair = (key.to_owned(), value.to_owned());
            match tables.iter_mut().find(|(known, _)| known == name) {
                Some((_, pairs)) => pairs.push(pair),
                None => tables.push((name.to_owned(), vec![pair])),
            }
        };
        let texts: Vec<&str> = match raw {
            Raw::Text(text) => text.split_whitespace().collect(),
            Raw::List(items) => items.iter().map(|item| item.trim()).collect(),
            Raw::Table(pairs) => {
                for (path, value) in pairs {
                    let (name, key) = path.rsplit_once('.').ok_or_else(|| {
                        Wrong(format!("`{path}` outside the table of a connector"))
                    })?;
                    add(name, key, value);
                }
                Vec::new()
            }
        };
        for text in texts {
            let (name, url) = text
                .split_once('=')
                .ok_or_else(|| Wrong("a text that is not `NAME=URL`".into()))?;
            add(name.trim(), "url", url.trim());
        }
        let connectors: Vec<NamedConnector> = tables
            .iter()
            .map(|(name, pairs)| Table { name, pairs: pairs.clone(), base }.read())
            .collect::<Result<_, _>>()?;
        for (at, one) in connectors.iter().enumerate() {
            if let Some(twin) =
                connectors.iter().take(at).find(|twin| twin.variable() == one.variable())
            {
                return Err(Wrong(format!(
                    "`{}` and `{}`, which are one variable for PHP",
                    twin.name, one.name
                )));
            }
        }
        Ok(Self(connectors))
    }

    fn overridden_by(mut self, stronger: Self) -> Self {
        self.0
            .retain(|weaker| stronger.0.iter().all(|named| named.variable() != weaker.variable()));
        self.0.extend(stronger.0);
        self
    }
}

#[cfg(test)]
#[path = "connectors_tests.rs"]
mod tests;
