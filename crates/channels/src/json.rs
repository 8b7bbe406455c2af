//! JSON as it passes through: checked once, looked into without copies, and given on byte for byte.
//!
//! Invariants
//! - No recursion: what nests deeper than [`DEPTH`] is refused, whatever its size.
//! - A [`Raw`] is one whole value that RFC 8259 allows; its text is the sender's own.
//! - Of two members with one name the last counts, as in browsers, PHP and Go.

mod scan;
mod write;

use std::borrow::Cow;

pub use scan::Invalid;
pub use write::{push_string, quoted};

/// Arrays and objects one in another: PHP's own bound.
pub const DEPTH: usize = 512;

/// One value, known to be JSON, without the blanks around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

/// What a value is.
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
    /// Checks that `text` is one value and nothing more.
    pub fn new(text: &'a str) -> Result<Self, Invalid> {
        let span = scan::document(text.as_bytes())?;
        Ok(Self(text.get(span).expect("a value begins and ends with ASCII")))
    }

    /// The same for bytes, which must be UTF-8.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Invalid> {
        match str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(error) => Err(Invalid::Syntax { at: error.valid_up_to() }),
        }
    }

    /// As it was sent.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// What it is.
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

    /// What a string says; none for all else, and for one that is no Unicode text (half of a surrogate pair).
    pub fn string(self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| scan::unescape(self.0)).flatten()
    }

    /// A boolean.
    pub fn boolean(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// A whole number from 0 on, written without fraction and exponent.
    pub fn unsigned(self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// A string, or a number as JavaScript would write it where it can tell it from its neighbours: applications give users' ids as either.
    pub fn id(self) -> Option<Cow<'a, str>> {
        match self.kind() {
            Kind::String => self.string(),
            Kind::Number => Some(number_as_text(self.0)),
            _ => None,
        }
    }

    /// Members of an object, in order, with names as they are meant; nothing for all else. A name that is no Unicode text is passed over with its value.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        scan::Members::new(self.0)
            .map(|(name, value)| (scan::unescape(name), Self(value)))
            .filter_map(|(name, value)| Some((name?, value)))
    }

    /// Elements of an array, in order; nothing for all else.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        scan::Elements::new(self.0).map(Self)
    }

    /// The members of these names, in one walk. Each none when it is missing or this is no object.
    pub fn pick<const N: usize>(self, names: [&str; N]) -> [Option<Self>; N] {
        let mut found = [None; N];
        for (name, value) in self.members() {
            if let Some(place) = names.iter().position(|wanted| *wanted == name) {
                found[place] = Some(value);
            }
        }
        found
    }

    /// The member of this name.
    pub fn get(self, name: &str) -> Option<Self> {
        let [found] = self.pick([name]);
        found
    }

    /// Itself unless it is `null`, which says as much as leaving it out.
    pub fn present(self) -> Option<Self> {
        (self.kind() != Kind::Null).then_some(self)
    }
}

/// Beyond this JavaScript's numbers have no neighbours one apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn number_as_text(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Cow::Borrowed(text);
    }
    match text.parse::<f64>() {
        // Display writes the shortest digits that read back as the same number, as JavaScript does; adding 0 makes of -0 a 0.
        Ok(number) if number.abs() < EXACT => Cow::Owned((number + 0.0).to_string()),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests;
