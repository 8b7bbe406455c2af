//! Validates JSON once, reads it without copies, and forwards it byte for byte.
//!
//! Invariants
//! - No recursion: values nested deeper than [`DEPTH`] are rejected, whatever their size.
//! - A [`Raw`] is one whole value according to RFC 8259; its text is the sender's own.
//! - Of two members with one name the last counts, as in browsers, PHP and Go.

mod scan;
mod write;

use std::borrow::Cow;

pub use scan::Invalid;
pub use write::{push_string, quoted};

/// Maximum nesting depth of arrays and objects, the same as PHP's.
pub const DEPTH: usize = 512;

/// A valid JSON value, without surrounding whitespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// A number
    Number,
    /// A string
    String,
    /// An array
    Array,
    /// An object
    Object,
}

impl<'a> Raw<'a> {
    /// Validates that `text` is exactly one value.
    pub fn new(text: &'a str) -> Result<Self, Invalid> {
        let span = scan::document(text.as_bytes())?;
        Ok(Self(text.get(span).expect("a value begins and ends with ASCII")))
    }

    /// Validates bytes, which must be UTF-8.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Invalid> {
        match str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(error) => Err(Invalid::Syntax { at: error.valid_up_to() }),
        }
    }

    /// Returns the text as it was sent.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// Returns the type of the value.
    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }

    /// Returns the unescaped string; `None` for other types, and for a string with half of a surrogate pair.
    pub fn string(self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| scan::unescape(self.0)).flatten()
    }

    /// Returns a boolean.
    pub fn boolean(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Returns a non-negative integer written without fraction and exponent.
    pub fn unsigned(self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Returns a string, or a number as JavaScript would write it if it is exact. Applications send user ids as
    /// either.
    pub fn id(self) -> Option<Cow<'a, str>> {
        match self.kind() {
            Kind::String => self.string(),
            Kind::Number => Some(number_as_text(self.0)),
            _ => None,
        }
    }

    /// Iterates over the members of an object in order, with unescaped names; empty for other types. A member whose
    /// name is not valid Unicode is skipped.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        scan::Members::new(self.0)
            .map(|(name, value)| (scan::unescape(name), Self(value)))
            .filter_map(|(name, value)| Some((name?, value)))
    }

    /// Iterates over the elements of an array in order; empty for other types.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        scan::Elements::new(self.0).map(Self)
    }

    /// Returns the members with these names in one pass; `None` for each that is missing.
    pub fn pick<const N: usize>(self, names: [&str; N]) -> [Option<Self>; N] {
        let mut found = [None; N];
        for (name, value) in self.members() {
            if let Some(place) = names.iter().position(|wanted| *wanted == name) {
                found[place] = Some(value);
            }
        }
        found
    }

    /// Returns the member with this name.
    pub fn get(self, name: &str) -> Option<Self> {
        let [found] = self.pick([name]);
        found
    }

    /// Returns the value unless it is `null`, which is treated like a missing value.
    pub fn present(self) -> Option<Self> {
        (self.kind() != Kind::Null).then_some(self)
    }
}

/// Largest magnitude up to which JavaScript's numbers represent all integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn number_as_text(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Cow::Borrowed(text);
    }
    match text.parse::<f64>() {
        // `Display` writes the shortest digits that parse to the same number, as JavaScript does; adding 0 turns -0
        // into 0.
        Ok(number) if number.abs() < EXACT => Cow::Owned((number + 0.0).to_string()),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests;
