//! From text to types: what each kind of setting accepts, and how it says so.
//!
//! Invariants
//! - One grammar per type, whether the text comes from a flag, the environment or a file.
//! - A refused text is quoted back with what was expected; nothing is guessed or clamped.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use egress::{Network, Scheme};
use front_http::{AccessLogFormat, Cidr, RequestBuffering, TrustedHeader, TrustedHeaders};
use front_lambda::emulator::Integration;
use http::HeaderValue;
use http::uri::PathAndQuery;
use pool::{ByteSize, Model};

/// A value before it has a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A string, number or boolean, as it was written.
    Text(String),
    /// Several of them.
    List(Vec<String>),
    /// Names and values, nested names joined by dots.
    Table(Vec<(String, String)>),
}

impl Raw {
    pub(super) fn text(&self) -> Result<&str, Wrong> {
        match self {
            Self::Text(text) => Ok(text.trim()),
            Self::List(items) => Err(Wrong(format!("a list ({})", items.join(", ")))),
            Self::Table(_) => Err(Wrong("a table".into())),
        }
    }
}

/// A text that is not what the setting takes: the text, for the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub String);

impl Wrong {
    pub(super) fn quoted(text: &str) -> Self {
        Self(format!("`{text}`"))
    }
}

/// A type that a setting can have.
pub(crate) trait Value: Sized {
    /// Stands for the value in help texts.
    const PLACEHOLDER: &'static str;
    /// A list or table: the flag may be given several times.
    const REPEATS: bool = false;
    /// What the flag means without a value, where it may stand so. Its value then follows a `=`.
    const ALONE: Option<&'static str> = None;

    /// What it accepts, to follow "write".
    fn expected() -> String;

    /// All texts it accepts, when there are only a few.
    fn choices() -> &'static [&'static str] {
        &[]
    }

    /// Reads a value; relative paths are taken from `base`.
    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong>;

    /// What holds when a stronger source names the setting too. Tables are joined, all else is replaced.
    #[must_use]
    fn overridden_by(self, stronger: Self) -> Self {
        stronger
    }
}

impl Value for bool {
    const PLACEHOLDER: &'static str = "BOOL";

    fn expected() -> String {
        "`on` or `off`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            other => Err(Wrong::quoted(other)),
        }
    }
}

/// Something that is off unless somebody wants it: its flag needs no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted(pub bool);

impl Value for Wanted {
    const PLACEHOLDER: &'static str = bool::PLACEHOLDER;
    const ALONE: Option<&'static str> = Some("on");

    fn expected() -> String {
        bool::expected()
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        bool::parse(raw, base).map(Self)
    }
}

impl Value for String {
    const PLACEHOLDER: &'static str = "TEXT";

    fn expected() -> String {
        "a text".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        raw.text().map(str::to_owned)
    }
}

impl Value for PathBuf {
    const PLACEHOLDER: &'static str = "PATH";

    fn expected() -> String {
        "a path".into()
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "" => Err(Wrong("an empty text".into())),
            path => Ok(base.join(path)),
        }
    }
}

/// A value whose own `FromStr` knows its form.
fn parsed<T: std::str::FromStr>(raw: &Raw) -> Result<T, Wrong> {
    let text = raw.text()?;
    text.parse().map_err(|_malformed| Wrong::quoted(text))
}

impl Value for usize {
    const PLACEHOLDER: &'static str = "COUNT";

    fn expected() -> String {
        "a count of 0 or more".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for NonZeroUsize {
    const PLACEHOLDER: &'static str = "COUNT";

    fn expected() -> String {
        "a count of 1 or more".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for NonZeroU16 {
    const PLACEHOLDER: &'static str = "PORT";

    fn expected() -> String {
        "a port such as `443`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for NonZeroU64 {
    const PLACEHOLDER: &'static str = "COUNT";

    fn expected() -> String {
        "a count of 1 or more".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for Duration {
    const PLACEHOLDER: &'static str = "DURATION";

    fn expected() -> String {
        "a duration with its unit, such as `500ms`, `30s`, `2m` or `1h`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        duration(text).ok_or_else(|| Wrong::quoted(text))
    }
}

/// `<number><unit>`, the number possibly with a fraction. Zero needs a unit too: a time-out of nothing is rarely meant.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let seconds = Duration::from_millis(milliseconds).as_secs_f64() * decimal(number)?;
    let exact = Duration::try_from_secs_f64(seconds).ok()?;
    // Whole milliseconds: 0.3 s is 300 ms, not 299.999999.
    Some(Duration::from_millis(
        u64::try_from((exact + Duration::from_micros(500)).as_millis()).ok()?,
    ))
}

impl Value for ByteSize {
    const PLACEHOLDER: &'static str = "BYTES";

    fn expected() -> String {
        "a number of bytes with an optional unit, such as `512KiB`, `64MiB` or `8M` (units are powers of 1024)".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        bytes(text).map(Self).ok_or_else(|| Wrong::quoted(text))
    }
}

/// `<number>[unit]`; `K`, `M`, `G` mean what they mean in php.ini: powers of 1024.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn split_unit(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    (number.trim(), unit)
}

fn decimal(number: &str) -> Option<f64> {
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| number.parse().ok()).flatten()
}

/// A setting that can be switched off: `None` is `off`.
impl<T: Value> Value for Option<T> {
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    const REPEATS: bool = T::REPEATS;

    fn expected() -> String {
        format!("{}, or `off`", T::expected())
    }

    fn choices() -> &'static [&'static str] {
        T::choices()
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        match raw {
            Raw::Text(text) if matches!(text.trim(), "off" | "none" | "false") => Ok(None),
            raw => T::parse(raw, base).map(Some),
        }
    }
}

/// A setting that Hearth decides by itself unless it is told: `None` is `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Auto<T>(pub Option<T>);

impl<T: Value> Value for Auto<T> {
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    const REPEATS: bool = T::REPEATS;

    fn expected() -> String {
        format!("{}, or `auto`", T::expected())
    }

    fn choices() -> &'static [&'static str] {
        T::choices()
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        match raw {
            Raw::Text(text) if text.trim() == "auto" => Ok(Self(None)),
            raw => T::parse(raw, base).map(|value| Self(Some(value))),
        }
    }
}

/// A list; text is split at commas.
impl<T: Value> Value for Vec<T> {
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    const REPEATS: bool = true;

    fn expected() -> String {
        format!("{}; several as a list, or separated by commas", T::expected())
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let texts: Vec<&str> = match raw {
            Raw::Text(text) => text.split(',').collect(),
            Raw::List(items) => items.iter().flat_map(|item| item.split(',')).collect(),
            Raw::Table(_) => return Err(Wrong("a table".into())),
        };
        texts
            .into_iter()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(|text| T::parse(&Raw::Text(text.to_owned()), base))
            .collect()
    }
}

/// Names and values, e.g. settings for PHP; a later value of the same name wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs(pub Vec<(String, String)>);

impl Pairs {
    fn set(&mut self, name: String, value: String) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
    }
}

impl Value for Pairs {
    const PLACEHOLDER: &'static str = "NAME=VALUE";
    const REPEATS: bool = true;

    fn expected() -> String {
        "`name=value`; several as a table, or separated by `;`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let texts: Vec<&str> = match raw {
            Raw::Table(pairs) => return Ok(Self(pairs.clone())),
            Raw::Text(text) => text.split([';', '\n']).collect(),
            // A flag is one pair: its value may hold any character.
            Raw::List(items) => items.iter().map(String::as_str).collect(),
        };
        let mut pairs = Self::default();
        for text in texts.into_iter().map(str::trim).filter(|text| !text.is_empty()) {
            match text.split_once('=') {
                Some((name, value)) if !name.trim().is_empty() => {
                    pairs.set(name.trim().to_owned(), value.trim().to_owned());
                }
                _ => return Err(Wrong::quoted(text)),
            }
        }
        Ok(pairs)
    }

    fn overridden_by(mut self, stronger: Self) -> Self {
        for (name, value) in stronger.0 {
            self.set(name, value);
        }
        self
    }
}

/// Where a listener binds.
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
    const PLACEHOLDER: &'static str = "ADDR";

    fn expected() -> String {
        "an address such as `127.0.0.1:8080`, `[::1]:8080`, `:8080` (all interfaces) or `unix:/run/app.sock`".into()
    }

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
    /// As `http://` or `https://` says it; without one it goes by whether there are certificates.
    pub tls: Option<bool>,
    /// Where.
    pub address: Address,
}

impl Listen {
    /// It is no file: who connects may be anybody.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp(_))
    }
}

impl Value for Listen {
    const PLACEHOLDER: &'static str = Address::PLACEHOLDER;

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
    const PLACEHOLDER: &'static str = "DIRECTIVES";

    fn expected() -> String {
        "`max-age=SECONDS`, with `; includeSubDomains` and `; preload` if need be".into()
    }

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
    const PLACEHOLDER: &'static str = "ADDR";

    fn expected() -> String {
        "an address such as `127.0.0.1:9180` or `:9180` (all interfaces)".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        socket_address(text).ok_or_else(|| Wrong::quoted(text))
    }
}

impl Value for Cidr {
    const PLACEHOLDER: &'static str = "CIDR";

    fn expected() -> String {
        "an address or a range such as `10.0.0.0/8`, `192.168.1.7` or `fd00::/8`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for TrustedHeaders {
    const PLACEHOLDER: &'static str = "FIELD";
    const REPEATS: bool = true;

    fn expected() -> String {
        "`x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port` or `x-request-id`, several as a list, or separated by commas; \
         or `forwarded` in place of all `x-forwarded` ones"
            .into()
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let headers = Vec::<TrustedHeader>::parse(raw, base)?;
        Self::new(headers).map_err(|mixed| Wrong(mixed.to_string()))
    }
}

impl Value for TrustedHeader {
    const PLACEHOLDER: &'static str = TrustedHeaders::PLACEHOLDER;

    fn expected() -> String {
        TrustedHeaders::expected()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for Network {
    const PLACEHOLDER: &'static str = "CIDR";

    fn expected() -> String {
        "a network such as `10.0.0.0/8`, `fd00::/8`, or one address".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

/// A user, as the system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account(pub u32);

impl Value for Account {
    const PLACEHOLDER: &'static str = "USER";

    fn expected() -> String {
        "the number of a user, or a name in /etc/passwd".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        number_of(text, "/etc/passwd").map(Self).ok_or_else(|| Wrong::quoted(text))
    }
}

/// A group, as the system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub u32);

impl Value for Group {
    const PLACEHOLDER: &'static str = "GROUP";

    fn expected() -> String {
        "the number of a group, or a name in /etc/group".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        number_of(text, "/etc/group").map(Self).ok_or_else(|| Wrong::quoted(text))
    }
}

/// A number, or the third field of the line that begins with the name (passwd(5), group(5)).
fn number_of(text: &str, file: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let lines = std::fs::read_to_string(file).ok()?;
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == text).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// An origin: `https://api.example.com`, with a port if need be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OriginUrl {
    /// With TLS or without.
    pub scheme: Scheme,
    /// Lower case, without brackets.
    pub host: String,
    /// The scheme's own where none is named.
    pub port: u16,
}

impl Value for OriginUrl {
    const PLACEHOLDER: &'static str = "ORIGIN";

    fn expected() -> String {
        "an origin such as `https://api.example.com` or `http://10.0.0.7:8080`".into()
    }

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

const MODEL_NAMES: &[&str] = &{
    let mut names = [""; Model::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Model::ALL[at].name();
        at += 1;
    }
    names
};

impl Value for Model {
    const PLACEHOLDER: &'static str = "MODEL";

    fn expected() -> String {
        let models = Self::ALL.iter().map(|model| format!("`{}`", model.name()));
        let letters: Vec<&str> = Self::ALL.iter().map(|model| model.letter()).collect();
        let names = models.collect::<Vec<_>>().join(", ");
        format!("{names} (or their letters: {})", letters.join(" "))
    }

    fn choices() -> &'static [&'static str] {
        MODEL_NAMES
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        Self::named(text).ok_or_else(|| Wrong::quoted(text))
    }
}

/// A PHP minor version, e.g. `8.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PhpVersion {
    /// `8` in `8.2`.
    pub major: u8,
    /// `2` in `8.2`.
    pub minor: u8,
}

impl PhpVersion {
    /// Reads `8.2`; of `8.2.35` the last part is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        parts.all(|part| part.parse::<u16>().is_ok()).then_some(Self { major, minor })
    }
}

impl fmt::Display for PhpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Value for PhpVersion {
    const PLACEHOLDER: &'static str = "VERSION";

    fn expected() -> String {
        "a PHP version such as `8.2`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        Self::parse(text).ok_or_else(|| Wrong::quoted(text))
    }
}

/// The path of a URL, with a query if need be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlPath(pub PathAndQuery);

impl Value for UrlPath {
    const PLACEHOLDER: &'static str = "URL_PATH";

    fn expected() -> String {
        "the path of a URL such as `/` or `/news?page=2`".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let path = text.starts_with('/').then(|| text.parse().ok()).flatten();
        path.map(Self).ok_or_else(|| Wrong::quoted(text))
    }
}

/// What one side knows the other by.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// One that nobody guesses: 128 bits, in digits.
    pub(crate) fn draw() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        Self(format!("{:032x}", u128::from_ne_bytes(bytes)))
    }

    /// For those who are to know it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The value of `Authorization` (RFC 6750, 2.1).
    pub(crate) fn bearer(&self) -> HeaderValue {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0))
            .expect("it was looked at when it was read");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Value for Token {
    const PLACEHOLDER: &'static str = "TOKEN";

    fn expected() -> String {
        "at least 16 characters that a header field can hold, without spaces".into()
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            // Not quoted back.
            return Err(Wrong("another text".into()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

impl Value for LogFormat {
    const PLACEHOLDER: &'static str = "FORMAT";

    fn expected() -> String {
        "`json` or `text`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["json", "text"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            other => Err(Wrong::quoted(other)),
        }
    }
}

/// What answers the events of AWS Lambda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// An HTTP application.
    Http,
    /// A function.
    Function,
    /// A framework's console.
    Console,
}

impl Value for Handler {
    const PLACEHOLDER: &'static str = "KIND";

    fn expected() -> String {
        "`http`, `function` or `console`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["http", "function", "console"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "http" => Ok(Self::Http),
            "function" => Ok(Self::Function),
            "console" => Ok(Self::Console),
            other => Err(Wrong::quoted(other)),
        }
    }
}

impl Value for Integration {
    const PLACEHOLDER: &'static str = "KIND";

    fn expected() -> String {
        "`function-url`, `apigw-v1`, `apigw-v2`, `alb` or `alb-multi`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["function-url", "apigw-v1", "apigw-v2", "alb", "alb-multi"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        parsed(raw)
    }
}

impl Value for AccessLogFormat {
    const PLACEHOLDER: &'static str = "FORMAT";

    fn expected() -> String {
        "`json`, `common` or `combined`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["json", "common", "combined"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "json" => Ok(Self::Json),
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            other => Err(Wrong::quoted(other)),
        }
    }
}

impl Value for RequestBuffering {
    const PLACEHOLDER: &'static str = "BODIES";

    fn expected() -> String {
        "`all` or `forms`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["all", "forms"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "all" => Ok(Self::All),
            "forms" => Ok(Self::Forms),
            other => Err(Wrong::quoted(other)),
        }
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
