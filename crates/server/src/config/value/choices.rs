//! Settings that name one of several things: models, versions, paths, formats and secrets.

use std::fmt;
use std::path::Path;

use front_http::{AccessLogFormat, RequestBuffering};
use front_lambda::emulator::Integration;
use http::HeaderValue;
use http::uri::PathAndQuery;
use pool::Model;

use super::{Raw, Value, Wrong, one_of};

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
    const PLACEHOLDER: &str = "MODEL";

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
    const PLACEHOLDER: &str = "VERSION";
    const EXPECTED: &str = "a PHP version such as `8.2`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        Self::parse(text).ok_or_else(|| Wrong::quoted(text))
    }
}

/// The path of a URL, with a query if need be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlPath(pub PathAndQuery);

impl Value for UrlPath {
    const PLACEHOLDER: &str = "URL_PATH";
    const EXPECTED: &str = "the path of a URL such as `/` or `/news?page=2`";

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
    const PLACEHOLDER: &str = "TOKEN";
    const EXPECTED: &str = "at least 16 characters that a header field can hold, without spaces";

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

by_name! { LogFormat, "FORMAT",
    "json" => Self::Json,
    "text" => Self::Text,
}

/// The way in which the files that PHP preloads are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preload {
    /// Files are learned from requests.
    Learned,
}

by_name! { Preload, "HOW",
    "learned" => Self::Learned,
}

/// The files whose changes are a reload in production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedFiles {
    /// Files that the boot has included.
    Boot,
}

by_name! { WatchedFiles, "FILES",
    "boot" => Self::Boot,
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

by_name! { Handler, "KIND",
    "http" => Self::Http,
    "function" => Self::Function,
    "console" => Self::Console,
}

/// The handling of an application that does not boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BootFailure {
    /// Another model runs in its place, and the boot is tried again until it succeeds.
    Retry,
    /// Another model runs in its place until the next reload.
    Fallback,
    /// The server ends.
    Exit,
}

by_name! { BootFailure, "ACTION",
    "retry" => Self::Retry,
    "fallback" => Self::Fallback,
    "exit" => Self::Exit,
}

impl Value for Integration {
    const PLACEHOLDER: &str = "KIND";

    fn expected() -> String {
        one_of(Self::choices())
    }

    fn choices() -> &'static [&'static str] {
        &["function-url", "apigw-v1", "apigw-v2", "alb", "alb-multi"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        text.parse().map_err(|_unknown| Wrong::quoted(text))
    }
}

by_name! { AccessLogFormat, "FORMAT",
    "json" => Self::Json,
    "common" => Self::Common,
    "combined" => Self::Combined,
    "short" => Self::Short { coloured: false },
}

by_name! { RequestBuffering, "BODIES",
    "all" => Self::All,
    "forms" => Self::Forms,
}
