//! Settings that name one of several things: models, versions, paths, formats and secrets.

use std::fmt;
use std::path::Path;

use front_http::{AccessLogFormat, RequestBuffering};
use front_lambda::emulator::Integration;
use http::HeaderValue;
use http::uri::PathAndQuery;
use pool::Model;

use super::{Raw, Value, Wrong, parsed};

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

/// A secret that two sides share.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// Draws a token that cannot be guessed: 128 bits, in digits.
    pub(crate) fn draw() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        Self(format!("{:032x}", u128::from_ne_bytes(bytes)))
    }

    /// Returns the secret itself, for the other side.
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

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text for people.
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

/// The way in which the files that PHP preloads are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preload {
    /// They are learned from requests.
    Learned,
}

impl Value for Preload {
    const PLACEHOLDER: &'static str = "HOW";

    fn expected() -> String {
        "`learned`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["learned"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "learned" => Ok(Self::Learned),
            other => Err(Wrong::quoted(other)),
        }
    }
}

/// The files whose changes are a reload in production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedFiles {
    /// Those that the boot has included.
    Boot,
}

impl Value for WatchedFiles {
    const PLACEHOLDER: &'static str = "FILES";

    fn expected() -> String {
        "`boot`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["boot"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "boot" => Ok(Self::Boot),
            other => Err(Wrong::quoted(other)),
        }
    }
}

/// The kind of code that answers the events of AWS Lambda.
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

/// What becomes of an application that does not boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BootFailure {
    /// Another model runs in its place, and the boot is tried again until it succeeds.
    Retry,
    /// Another model runs in its place until the next reload.
    Fallback,
    /// The server ends.
    Exit,
}

impl Value for BootFailure {
    const PLACEHOLDER: &'static str = "ACTION";

    fn expected() -> String {
        "`retry`, `fallback` or `exit`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["retry", "fallback", "exit"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "retry" => Ok(Self::Retry),
            "fallback" => Ok(Self::Fallback),
            "exit" => Ok(Self::Exit),
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
        "`json`, `common`, `combined` or `short`".into()
    }

    fn choices() -> &'static [&'static str] {
        &["json", "common", "combined", "short"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "json" => Ok(Self::Json),
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            "short" => Ok(Self::Short { coloured: false }),
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
