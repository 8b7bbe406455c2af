//! Reads the parts of a payload: numbers, strings, and the name/value pairs of a head.

use crate::decode::Malformed;

/// A text block. It need not be UTF-8, because PHP's messages are bytes.
pub type Text<'a> = &'a [u8];

/// The name/value pairs of a head, validated when the head was decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) left: u16,
    /// Each string is followed by a NUL.
    pub(crate) terminated: bool,
}

impl<'a> Pairs<'a> {
    /// Iterates over all pairs once, so that iterating later cannot fail.
    pub(crate) fn check(self) -> Result<Self, Malformed> {
        if usize::from(self.left) > crate::MAX_PAIRS {
            return Err(Malformed::Pairs(self.left));
        }
        let mut walk = self.clone();
        while walk.left > 0 {
            let (name, value) = walk.step()?;
            let bad = |byte: &u8| match byte {
                0 => true,
                b'\r' | b'\n' => !self.terminated,
                _ => false,
            };
            if name.is_empty() || name.iter().any(bad) || value.iter().any(bad) {
                return Err(Malformed::Payload("forbidden byte in a pair"));
            }
        }
        if walk.rest.is_empty() { Ok(self) } else { Err(Malformed::Payload("bytes after the end")) }
    }

    fn step(&mut self) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        let mut read = Reader { rest: self.rest };
        let name = usize::from(read.u16()?);
        let value = read.u32()? as usize;
        let name = read.string(name, self.terminated)?;
        let value = read.string(value, self.terminated)?;
        self.rest = read.rest;
        self.left -= 1;
        Ok((name, value))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 { None } else { self.step().ok() }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

/// Reads numbers and strings from the front of a payload.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

pub(crate) const NOT_ZERO: Malformed = Malformed::Payload("a zero of the payload is none");
const SHORT: Malformed = Malformed::Payload("payload ends too early");

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn text(&mut self) -> Result<Text<'a>, Malformed> {
        let len = self.u32()? as usize;
        self.bytes(len)
    }

    fn string(&mut self, len: usize, terminated: bool) -> Result<&'a [u8], Malformed> {
        let string = self.bytes(len)?;
        if terminated && self.u8()? != 0 {
            return Err(Malformed::Payload("a string is not terminated"));
        }
        Ok(string)
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Payload("bytes after the end")) }
    }
}
