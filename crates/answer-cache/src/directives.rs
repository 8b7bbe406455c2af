//! `Cache-Control` of an answer (RFC 9111, section 5.2).
//!
//! Invariants
//! - A directive that restricts is recognised however it is written; one that permits only if its syntax is right.
//! - Of several values of one directive the most restrictive counts.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The largest number of seconds; a larger one counts as this (RFC 9111, section 1.2.2).
pub(crate) const MOST_SECONDS: u32 = 1 << 31;

/// A directive whose value is a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delta {
    /// The directive is missing.
    #[default]
    Absent,
    /// The value is no number of seconds: the answer is stale.
    Invalid,
    /// The value.
    Seconds(u32),
}

impl Delta {
    fn join(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::Absent, other) => other,
            (Self::Seconds(one), Self::Seconds(other)) => Self::Seconds(one.min(other)),
            _ => Self::Invalid,
        };
    }

    /// Returns the seconds; `None` if the directive is missing. An invalid value counts as zero.
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::Absent => None,
            Self::Invalid => Some(0),
            Self::Seconds(seconds) => Some(seconds),
        }
    }
}

/// The part of an answer to which `private` or `no-cache` applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The directive is missing.
    #[default]
    Nothing,
    /// These header fields.
    Fields(Vec<HeaderName>),
    /// The whole answer.
    Whole,
}

impl Scope {
    fn join(&mut self, argument: Option<&str>) {
        let names = argument.map(|list| {
            let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(|name| HeaderName::from_bytes(name.as_bytes())).collect::<Result<Vec<_>, _>>()
        });
        *self = match (std::mem::take(self), names) {
            (Self::Nothing, Some(Ok(names))) if !names.is_empty() => Self::Fields(names),
            (Self::Fields(mut known), Some(Ok(names))) if !names.is_empty() => {
                known.extend(names);
                Self::Fields(known)
            }
            _ => Self::Whole,
        };
    }
}

/// The directives of an answer that a shared cache obeys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `max-age`, section 5.2.2.1.
    pub max_age: Delta,
    /// `s-maxage`, section 5.2.2.10.
    pub s_maxage: Delta,
    /// `must-revalidate`, section 5.2.2.2.
    pub must_revalidate: bool,
    /// `must-understand`, section 5.2.2.3.
    pub must_understand: bool,
    /// `no-cache`, section 5.2.2.4.
    pub no_cache: Scope,
    /// `no-store`, section 5.2.2.5.
    pub no_store: bool,
    /// `private`, section 5.2.2.7.
    pub private: Scope,
    /// `proxy-revalidate`, section 5.2.2.8.
    pub proxy_revalidate: bool,
    /// `public`, section 5.2.2.9.
    pub public: bool,
    /// `stale-while-revalidate`, RFC 5861, section 3.
    pub stale_while_revalidate: Delta,
    /// `stale-if-error`, RFC 5861, section 4.
    pub stale_if_error: Delta,
}

impl Directives {
    /// Reads all `Cache-Control` fields of an answer.
    pub fn read(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        for value in headers.get_all(header::CACHE_CONTROL) {
            for item in items(value) {
                all.add(&item);
            }
        }
        all
    }

    fn add(&mut self, item: &Item) {
        let seconds = || seconds(item);
        match item.name.as_str() {
            "max-age" => self.max_age.join(seconds()),
            "s-maxage" => self.s_maxage.join(seconds()),
            "must-revalidate" => self.must_revalidate = true,
            "must-understand" => self.must_understand = true,
            "no-cache" => self.no_cache.join(item.argument.as_deref()),
            "no-store" => self.no_store = true,
            "private" => self.private.join(item.argument.as_deref()),
            "proxy-revalidate" => self.proxy_revalidate = true,
            "public" => self.public |= item.exact,
            "stale-while-revalidate" => self.stale_while_revalidate.join(seconds()),
            "stale-if-error" => self.stale_if_error.join(seconds()),
            _ => {}
        }
    }

    /// Returns whether a shared cache may store an answer to a request with `Authorization` (section 3.5).
    pub fn allow_authorization(&self) -> bool {
        self.must_revalidate || self.public || matches!(self.s_maxage, Delta::Seconds(_))
    }
}

/// Returns whether a request has this directive (section 5.2.1).
pub(crate) fn asks_for(headers: &HeaderMap, name: &str) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    values.flat_map(items).any(|item| item.name == name)
}

/// One directive as it is written.
#[derive(Debug)]
struct Item {
    /// The directive's name in lower case.
    name: String,
    /// The argument without quotes.
    argument: Option<String>,
    /// Whether the directive follows the grammar: no white space around `=`, closed quotes.
    exact: bool,
}

/// Splits a value at the commas that are not within quotes. Bytes that are no text end it.
fn items(value: &HeaderValue) -> Vec<Item> {
    let text = String::from_utf8_lossy(value.as_bytes());
    let mut found = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                found.extend(text.get(start..at).and_then(item));
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text.get(start..).unwrap_or_default();
    if quoted {
        // An open quote may hide anything: each word in it counts, if it restricts.
        let words = last.split([',', '"']).filter_map(item);
        found.extend(words.map(|word| Item { exact: false, argument: None, ..word }));
    } else {
        found.extend(item(last));
    }
    found
}

fn item(text: &str) -> Option<Item> {
    let text = text.trim_matches([' ', '\t']);
    if text.is_empty() {
        return None;
    }
    let Some((name, argument)) = text.split_once('=') else {
        return Some(Item { name: text.to_ascii_lowercase(), argument: None, exact: true });
    };
    let mut exact = !name.ends_with([' ', '\t']) && !argument.starts_with([' ', '\t']);
    let name = name.trim_end_matches([' ', '\t']).to_ascii_lowercase();
    let argument = argument.trim_start_matches([' ', '\t']);
    let argument = match argument.strip_prefix('"') {
        None => argument.to_owned(),
        Some(quoted) => {
            let inner = quoted.strip_suffix('"');
            exact &= inner.is_some();
            inner.unwrap_or(quoted).replace('\\', "")
        }
    };
    Some(Item { name, argument: Some(argument), exact })
}

fn seconds(item: &Item) -> Delta {
    match item.argument.as_deref().and_then(delta_seconds) {
        Some(seconds) if item.exact => Delta::Seconds(seconds),
        _ => Delta::Invalid,
    }
}

/// Reads a number of seconds (section 1.2.2); a number above the largest counts as the largest.
pub(crate) fn delta_seconds(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().map_or(MOST_SECONDS, |seconds: u32| seconds.min(MOST_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(values: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::CACHE_CONTROL, value.parse().unwrap());
        }
        Directives::read(&headers)
    }

    /// RFC 9111, section 5.2.
    #[test]
    fn names_are_case_insensitive_and_arguments_may_be_quoted() {
        let all = read(&["Public, MAX-AGE=60 , s-maxage=\"120\"", "Must-Revalidate"]);
        assert!(all.public && all.must_revalidate);
        assert_eq!((all.max_age, all.s_maxage), (Delta::Seconds(60), Delta::Seconds(120)));
        assert_eq!(
            read(&["extension=\"max-age=3600, no-store\", max-age=1"]).max_age,
            Delta::Seconds(1)
        );
        assert!(!read(&["extension=\"no-store\""]).no_store);
    }

    /// RFC 9111, sections 1.2.2 and 4.2.1.
    #[test]
    fn the_most_restrictive_of_several_values_counts() {
        assert_eq!(read(&["max-age=60, max-age=5"]).max_age, Delta::Seconds(5));
        assert_eq!(read(&["max-age=60", "max-age=x"]).max_age, Delta::Invalid);
        for wrong in [
            "max-age=-1",
            "max-age=1.5",
            "max-age= 60",
            "max-age =60",
            "max-age",
            "max-age='60'",
            "max-age=\"60",
        ] {
            assert_eq!(read(&[wrong]).max_age, Delta::Invalid, "{wrong}");
        }
        assert_eq!(read(&["max-age=99999999999999999999"]).max_age, Delta::Seconds(MOST_SECONDS));
    }

    #[test]
    fn restrictions_are_recognised_however_they_are_written() {
        for no_store in
            ["no-store", "NO-STORE", "no-store=1", "no-store = x", "a=\"b, no-store", "\"no-store"]
        {
            assert!(read(&[no_store]).no_store, "{no_store}");
        }
        assert_eq!(read(&["private"]).private, Scope::Whole);
        assert_eq!(read(&["private=\"\""]).private, Scope::Whole);
        assert_eq!(read(&["private=\"a b\""]).private, Scope::Whole);
        assert!(!read(&["public = x"]).public);
    }

    /// RFC 9111, sections 5.2.2.4 and 5.2.2.7.
    #[test]
    fn a_qualified_directive_names_fields() {
        let all = read(&["no-cache=\"Set-Cookie, X-A\", private=x-b"]);
        let names = |names: &[&'static str]| {
            Scope::Fields(names.iter().map(|name| HeaderName::from_static(name)).collect())
        };
        assert_eq!(all.no_cache, names(&["set-cookie", "x-a"]));
        assert_eq!(all.private, names(&["x-b"]));
        assert_eq!(read(&["private=x-b, private"]).private, Scope::Whole);
    }

    proptest! {
        #[test]
        fn any_value_is_read(value in "\\PC{0,60}") {
            if let Ok(value) = HeaderValue::from_str(&value) {
                let mut headers = HeaderMap::new();
                headers.insert(header::CACHE_CONTROL, value);
                let _directives = Directives::read(&headers);
            }
        }

        #[test]
        fn no_store_survives_any_company(before in "[a-z=, ]{0,20}", after in "[a-z=\", ]{0,20}") {
            let value = format!("{before}, no-store, {after}");
            prop_assert!(read(&[&value]).no_store);
        }
    }
}
