//! Socket ids, as clients and applications see them.
//!
//! Invariants
//! - An id has the form that every Pusher library checks: two decimal numbers with a point between
//!   (`/\A\d+\.\d+\z/`).
//! - It is drawn at random from 2^63 values: it does not collide with an id of another node, and cannot be predicted.

use std::fmt;
use std::str::FromStr;

/// Upper bound of each half. The whole id is below 2^63, so its decimals fit into fields of 19 digits.
const HALF: u64 = 1 << 31;

/// Id of a socket, unique across nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(u64);

impl SocketId {
    /// Creates an id from 63 random bits; the highest bit is ignored.
    pub const fn from_random(random: u64) -> Self {
        Self(random & (HALF * HALF * 2 - 1))
    }

    /// Returns the 63 bits.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 31, self.0 & (HALF - 1))
    }
}

impl fmt::Debug for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error returned for a malformed id, or one that this server never issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSocketId;

impl FromStr for SocketId {
    type Err = InvalidSocketId;

    /// Accepts only the form that [`SocketId`] writes: no sign, no leading zero, each half in its range.
    fn from_str(text: &str) -> Result<Self, InvalidSocketId> {
        let (high, low) = text.split_once('.').ok_or(InvalidSocketId)?;
        let (high, low) = (half(high, HALF * 2)?, half(low, HALF)?);
        Ok(Self(high << 31 | low))
    }
}

fn half(digits: &str, bound: u64) -> Result<u64, InvalidSocketId> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || digits.len() > 10 || (digits.len() > 1 && digits.starts_with('0')) {
        return Err(InvalidSocketId);
    }
    digits.parse().ok().filter(|number| *number < bound).ok_or(InvalidSocketId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_id_can_be_parsed() {
        for random in [0, 1, HALF - 1, HALF, u64::MAX, 0x1234_5678_9abc_def0] {
            let id = SocketId::from_random(random);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn all_other_texts_are_rejected() {
        for text in [
            "",
            "1",
            ".",
            "1.",
            ".1",
            "01.1",
            "1.01",
            "+1.1",
            "1.2.3",
            "1.2147483648",
            "4294967296.1",
            "a.b",
        ] {
            assert_eq!(text.parse::<SocketId>(), Err(InvalidSocketId), "{text:?}");
        }
    }
}
