//! From text to types: the accepted values of each kind of setting, and their descriptions.
//!
//! Invariants
//! - One grammar per type, whether the text comes from a flag, the environment or a file.
//! - A refused text is quoted back with what was expected; nothing is guessed or clamped.

/// Implements [`Value`] for a type whose values have one name each, in the order of the reference.
macro_rules! by_name {
    ($type:ty, $placeholder:literal, $($name:literal => $value:expr,)+) => {
        impl $crate::config::value::Value for $type {
            const PLACEHOLDER: &str = $placeholder;

            fn expected() -> String {
                $crate::config::value::one_of(Self::choices())
            }

            fn choices() -> &'static [&'static str] {
                &[$($name),+]
            }

            fn parse(
                raw: &$crate::config::value::Raw,
                _base: &std::path::Path,
            ) -> Result<Self, $crate::config::value::Wrong> {
                match raw.text()? {
                    $($name => Ok($value),)+
                    other => Err($crate::config::value::Wrong::quoted(other)),
                }
            }
        }
    };
}
pub(super) use by_name;

/// Implements [`Value`] for a type whose own `FromStr` knows its form.
macro_rules! by_from_str {
    ($type:ty, $placeholder:expr, $expected:expr) => {
        impl Value for $type {
            const PLACEHOLDER: &str = $placeholder;
            const EXPECTED: &str = $expected;

            fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
                let text = raw.text()?;
                text.parse().map_err(|_malformed| Wrong::quoted(text))
            }
        }
    };
}

mod choices;
mod network;

use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pool::ByteSize;

pub(crate) use self::choices::{
    BootFailure, Handler, LogFormat, PhpVersion, Preload, Token, UrlPath, WatchedFiles,
};
pub(crate) use self::network::{Address, Hsts, Listen, OriginUrl};

/// A value before it has a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A string, number or boolean, as it was written.
    Text(String),
    /// Several texts.
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
    /// The placeholder of the value in help texts.
    const PLACEHOLDER: &str;
    /// A list or table: the flag may be given several times.
    const REPEATS: bool = false;
    /// The value of the flag without an argument, if it may stand so. Its value then follows a `=`.
    const ALONE: Option<&'static str> = None;

    /// The accepted values, unless [`Value::expected`] composes them.
    const EXPECTED: &str = "";

    /// Returns the accepted values, to follow "write".
    fn expected() -> String {
        Self::EXPECTED.to_owned()
    }

    /// Returns all accepted texts, if there are only a few.
    fn choices() -> &'static [&'static str] {
        &[]
    }

    /// Reads a value; relative paths are taken from `base`.
    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong>;

    /// Returns the value if a stronger source names the setting too. Tables are joined, all else is replaced.
    #[must_use]
    fn overridden_by(self, stronger: Self) -> Self {
        stronger
    }
}

impl Value for bool {
    const PLACEHOLDER: &str = "BOOL";
    const EXPECTED: &str = "`on` or `off`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            other => Err(Wrong::quoted(other)),
        }
    }
}

/// A switch that is off by default: its flag needs no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted(pub bool);

impl Value for Wanted {
    const PLACEHOLDER: &str = bool::PLACEHOLDER;
    const ALONE: Option<&'static str> = Some("on");

    fn expected() -> String {
        bool::expected()
    }

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        bool::parse(raw, base).map(Self)
    }
}

impl Value for String {
    const PLACEHOLDER: &str = "TEXT";
    const EXPECTED: &str = "a text";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        raw.text().map(str::to_owned)
    }
}

impl Value for PathBuf {
    const PLACEHOLDER: &str = "PATH";
    const EXPECTED: &str = "a path";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        match raw.text()? {
            "" => Err(Wrong("an empty text".into())),
            path => Ok(base.join(path)),
        }
    }
}

/// Lists names with "or" before the last one.
pub(super) fn one_of(names: &[&str]) -> String {
    let mut names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) }
}

by_from_str! { usize, "COUNT", "a count of 0 or more" }

by_from_str! { NonZeroUsize, "COUNT", "a count of 1 or more" }

by_from_str! { NonZeroU16, "PORT", "a port such as `443`" }

by_from_str! { NonZeroU64, "COUNT", "a count of 1 or more" }

impl Value for Duration {
    const PLACEHOLDER: &str = "DURATION";
    const EXPECTED: &str = "a duration with its unit, such as `500ms`, `30s`, `2m` or `1h`";

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
    const PLACEHOLDER: &str = "BYTES";
    const EXPECTED: &str = "a number of bytes with an optional unit, such as `512KiB`, `64MiB` or `8M` (units are powers of 1024)";

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
    const PLACEHOLDER: &str = T::PLACEHOLDER;
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

/// A setting that Hearth chooses itself by default: `None` is `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Auto<T>(pub Option<T>);

impl<T: Value> Value for Auto<T> {
    const PLACEHOLDER: &str = T::PLACEHOLDER;
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
    const PLACEHOLDER: &str = T::PLACEHOLDER;
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
    const PLACEHOLDER: &str = "NAME=VALUE";
    const REPEATS: bool = true;
    const EXPECTED: &str = "`name=value`; several as a table, or separated by `;`";

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

/// A user, as the system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account(pub u32);

impl Value for Account {
    const PLACEHOLDER: &str = "USER";
    const EXPECTED: &str = "the number of a user, or a name in /etc/passwd";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        number_of(text, "/etc/passwd").map(Self).ok_or_else(|| Wrong::quoted(text))
    }
}

/// A group, as the system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub u32);

impl Value for Group {
    const PLACEHOLDER: &str = "GROUP";
    const EXPECTED: &str = "the number of a group, or a name in /etc/group";

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

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
