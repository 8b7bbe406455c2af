//! The request fields by which a stored answer was chosen (RFC 9111, section 4.1).
//!
//! Invariants
//! - Two requests have the same selector only if every named field means the same in both; a missing field differs
//!   from an empty one.
//! - Only what makes no difference is normalised: white space around commas, several lines of one field, and in
//!   `Accept-Encoding` and `Accept-Language` case and order.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The most fields that `Vary` may name.
const MOST_FIELDS: usize = 16;
/// The most bytes of their names.
const MOST_BYTES: usize = 1024;

/// Why an answer with this `Vary` is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VaryError {
    /// The answer depends on something that is in no field: `*`.
    Any,
    /// `Vary` names too much, or something that is no field.
    TooMuch,
}

/// The fields that `Vary` names, sorted. The default names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule(Box<[HeaderName]>);

impl Rule {
    /// Reads `Vary` of an answer. `None` if it names no field.
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, VaryError> {
        let mut names = Vec::new();
        for value in headers.get_all(header::VARY) {
            if value.len() > MOST_BYTES {
                return Err(VaryError::TooMuch);
            }
            let text = value.to_str().map_err(|_bytes| VaryError::TooMuch)?;
            for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                if name == "*" {
                    return Err(VaryError::Any);
                }
                let name = HeaderName::from_bytes(name.as_bytes());
                names.push(name.map_err(|_other| VaryError::TooMuch)?);
            }
        }
        Self::of(names)
    }

    fn of(mut names: Vec<HeaderName>) -> Result<Option<Self>, VaryError> {
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        if names.len() > MOST_FIELDS {
            return Err(VaryError::TooMuch);
        }
        Ok((!names.is_empty()).then(|| Self(names.into())))
    }

    /// Returns whether this rule names every field of the other.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|name| self.0.contains(name))
    }

    /// Returns whether this rule names a field.
    pub fn names(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }

    /// Returns a rule with the fields of both.
    pub fn join(&self, other: &Self) -> Result<Self, VaryError> {
        let names = self.0.iter().chain(&other.0).cloned().collect();
        Self::of(names)?.ok_or(VaryError::TooMuch)
    }

    /// Returns the number of bytes that the names take, for the bound of memory.
    pub fn size(&self) -> usize {
        self.0.iter().map(|name| name.as_str().len() + size_of::<HeaderName>()).sum()
    }

    /// Appends the selector of a request to a key.
    pub fn select(&self, headers: &HeaderMap, key: &mut Vec<u8>) {
        for name in &self.0 {
            let values = headers.get_all(name);
            if values.iter().next().is_none() {
                key.push(1);
                continue;
            }
            key.push(2);
            let value = normalised(name, values.iter());
            // The length keeps two fields apart whatever bytes they have.
            key.extend_from_slice(&value.len().to_be_bytes());
            key.extend_from_slice(&value);
        }
    }
}

fn normalised<'v>(name: &HeaderName, values: impl Iterator<Item = &'v HeaderValue>) -> Vec<u8> {
    let folds = *name == header::ACCEPT_ENCODING || *name == header::ACCEPT_LANGUAGE;
    let mut items: Vec<Vec<u8>> = Vec::new();
    for value in values {
        for item in value.as_bytes().split(|byte| *byte == b',') {
            let item = item.trim_ascii();
            items.push(if folds { folded(item) } else { item.to_vec() });
        }
    }
    if folds {
        items.retain(|item| !item.is_empty());
        items.sort_unstable();
        items.dedup();
    }
    items.join(&b',')
}

fn folded(item: &[u8]) -> Vec<u8> {
    item.iter().filter(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;
    use proptest::prelude::*;

    fn rule(vary: &str) -> Rule {
        Rule::read(&headers(&[("vary", vary)])).unwrap().unwrap()
    }

    fn select(vary: &str, pairs: &[(&'static str, &str)]) -> Vec<u8> {
        let mut key = Vec::new();
        rule(vary).select(&headers(pairs), &mut key);
        key
    }

    /// RFC 9111, section 4.1.
    #[test]
    fn requests_match_if_every_named_field_does() {
        let two = "A, b";
        let same = select(two, &[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(same, select(two, &[("b", "2"), ("a", "1")]));
        assert_ne!(same, select(two, &[("a", "1"), ("b", "3")]));
        assert_ne!(same, select(two, &[("a", "1")]));
        assert_ne!(select("a", &[("a", "")]), select("a", &[]));
        assert_eq!(rule("b, A, b"), rule("a,B"));
    }

    /// RFC 9111, section 4.1: what normalising may do.
    #[test]
    fn what_makes_no_difference_is_normalised() {
        assert_eq!(select("x", &[("x", "1, 2")]), select("x", &[("x", "1"), ("x", "2")]));
        assert_eq!(select("x", &[("x", "1,2")]), select("x", &[("x", " 1 ,  2 ")]));
        assert_ne!(select("x", &[("x", "1,2")]), select("x", &[("x", "2,1")]));
        assert_ne!(select("x", &[("x", "a")]), select("x", &[("x", "A")]));
        let language = |value| select("accept-language", &[("accept-language", value)]);
        assert_eq!(language("EN, de;q=0.5"), language("de; q=0.5,en"));
        assert_ne!(language("en, de;q=0.5"), language("en, de;q=0.6"));
    }

    #[test]
    fn rules_of_one_address_are_joined() {
        assert!(rule("a, b").covers(&rule("b")));
        assert!(!rule("b").covers(&rule("a, b")));
        assert!(rule("a, Authorization").names(&header::AUTHORIZATION));
        assert!(!rule("a").names(&header::AUTHORIZATION));
        assert_eq!(rule("b").join(&rule("a")).unwrap(), rule("a, b"));
        assert!(rule("a,b,c,d,e,f,g,h").join(&rule("i,j,k,l,m,n,o,p,q")).is_err());
        assert_eq!(Rule::read(&headers(&[("vary", " , ")])), Ok(None));
        assert_eq!(Rule::read(&headers(&[("vary", "a b")])), Err(VaryError::TooMuch));
    }

    proptest! {
        #[test]
        fn fields_cannot_be_mistaken_for_each_other(a in "[ab]{0,6}", b in "[ab]{0,6}") {
            let with = |a: &str, b: &str| {
                let mut headers = HeaderMap::new();
                if let (Ok(a), Ok(b)) = (HeaderValue::from_str(a), HeaderValue::from_str(b)) {
                    headers.insert("a", a);
                    headers.insert("b", b);
                }
                let mut key = Vec::new();
                rule("a, b").select(&headers, &mut key);
                key
            };
            if a != b {
                prop_assert_ne!(with(&a, &b), with(&b, &a));
            }
        }
    }
}
