//! Scans JSON bytes: first with full validation, later over validated text without checks.

use std::borrow::Cow;
use std::ops::Range;

use super::DEPTH;

/// Reasons why a text is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The text violates RFC 8259, or ends too early.
    #[error("invalid JSON at byte {at}")]
    Syntax {
        /// Offset of the error in bytes.
        at: usize,
    },
    /// Arrays and objects are nested too deeply.
    #[error("JSON nested deeper than {DEPTH}")]
    TooDeep,
}

/// The open arrays and objects: a bit for each level, set for an object.
struct Open {
    bits: [u64; DEPTH / 64],
    depth: usize,
}

impl Open {
    fn enter(&mut self, object: bool) -> Result<(), Invalid> {
        let word = self.bits.get_mut(self.depth / 64).ok_or(Invalid::TooDeep)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Returns whether the innermost level is an object; `None` if no level is open.
    fn in_object(&self) -> Option<bool> {
        let level = self.depth.checked_sub(1)?;
        Some(self.bits[level / 64] >> (level % 64) & 1 == 1)
    }
}

/// Returns the range of the single value in `bytes`.
pub(super) fn document(bytes: &[u8]) -> Result<Range<usize>, Invalid> {
    let start = blanks(bytes, 0);
    let end = value(bytes, start)?;
    let rest = blanks(bytes, end);
    if rest == bytes.len() { Ok(start..end) } else { Err(Invalid::Syntax { at: rest }) }
}

/// Validates the value at `at` and returns its end.
fn value(bytes: &[u8], mut at: usize) -> Result<usize, Invalid> {
    let mut open = Open { bits: [0; DEPTH / 64], depth: 0 };
    loop {
        // A value starts here.
        at = match bytes.get(at) {
            Some(b'{') => {
                open.enter(true)?;
                at = blanks(bytes, at + 1);
                if bytes.get(at) == Some(&b'}') {
                    open.leave();
                    at + 1
                } else {
                    at = name(bytes, at)?;
                    continue;
                }
            }
            Some(b'[') => {
                open.enter(false)?;
                at = blanks(bytes, at + 1);
                if bytes.get(at) == Some(&b']') {
                    open.leave();
                    at + 1
                } else {
                    continue;
                }
            }
            Some(b'"') => string(bytes, at)?,
            Some(b'-' | b'0'..=b'9') => number(bytes, at)?,
            Some(b't') => word(bytes, at, b"true")?,
            Some(b'f') => word(bytes, at, b"false")?,
            Some(b'n') => word(bytes, at, b"null")?,
            _ => return Err(Invalid::Syntax { at }),
        };
        // A value ended here; the enclosing levels may end as well.
        loop {
            let Some(object) = open.in_object() else { return Ok(at) };
            at = blanks(bytes, at);
            match (bytes.get(at), object) {
                (Some(b'}'), true) | (Some(b']'), false) => {
                    open.leave();
                    at += 1;
                }
                (Some(b','), true) => {
                    at = name(bytes, blanks(bytes, at + 1))?;
                    break;
                }
                (Some(b','), false) => {
                    at = blanks(bytes, at + 1);
                    break;
                }
                _ => return Err(Invalid::Syntax { at }),
            }
        }
    }
}

/// Validates a member's name and colon, and returns the start of its value.
fn name(bytes: &[u8], at: usize) -> Result<usize, Invalid> {
    if bytes.get(at) != Some(&b'"') {
        return Err(Invalid::Syntax { at });
    }
    let colon = blanks(bytes, string(bytes, at)?);
    if bytes.get(colon) != Some(&b':') {
        return Err(Invalid::Syntax { at: colon });
    }
    Ok(blanks(bytes, colon + 1))
}

/// Validates the string whose quote is at `at`.
fn string(bytes: &[u8], mut at: usize) -> Result<usize, Invalid> {
    at += 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => {
                at = match bytes.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at + 2,
                    Some(b'u') if hex(bytes, at + 2).is_some() => at + 6,
                    _ => return Err(Invalid::Syntax { at }),
                };
            }
            None | Some(0..0x20) => return Err(Invalid::Syntax { at }),
            Some(_) => at += 1,
        }
    }
}

fn number(bytes: &[u8], mut at: usize) -> Result<usize, Invalid> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        _ => digits(bytes, at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        let signed = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        at = digits(bytes, at + 1 + usize::from(signed))?;
    }
    Ok(at)
}

/// Skips one or more digits.
fn digits(bytes: &[u8], at: usize) -> Result<usize, Invalid> {
    let count =
        bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 { Err(Invalid::Syntax { at }) } else { Ok(at + count) }
}

fn word(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, Invalid> {
    if bytes.get(at..).unwrap_or_default().starts_with(word) {
        Ok(at + word.len())
    } else {
        Err(Invalid::Syntax { at })
    }
}

fn blanks(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// Parses four hexadecimal digits.
fn hex(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |number: u16, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u16::try_from(digit).ok()?)
    })
}

/// Unescapes a validated string with its quotes; `None` if it contains half of a surrogate pair.
pub(super) fn unescape(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut characters = escape.chars();
        rest = match characters.next()? {
            'u' => {
                let (character, length) = unicode(escape.as_bytes())?;
                text.push(character);
                escape.get(length..)?
            }
            letter => {
                text.push(match letter {
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    itself => itself,
                });
                characters.as_str()
            }
        };
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

/// Decodes `uXXXX` or a surrogate pair `uXXXX\uXXXX`, and returns the character and the length of the escape.
fn unicode(escape: &[u8]) -> Option<(char, usize)> {
    let first = hex(escape, 1)?;
    if let Some(character) = char::from_u32(u32::from(first)) {
        return Some((character, 5));
    }
    let second = if escape.get(5..7)? == br"\u" { hex(escape, 7)? } else { return None };
    let character = char::decode_utf16([first, second]).next()?.ok()?;
    Some((character, 11))
}

/// Iterates over the members of a validated object: name with quotes, and value.
#[derive(Debug)]
pub(super) struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Members<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let at = if text.starts_with('{') { 1 } else { text.len() };
        Self { text, at }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let name = next_of(bytes, self.at)?;
        let value_at = blanks(bytes, blanks(bytes, name.end) + 1);
        let value = value_at..skip(bytes, value_at);
        self.at = value.end;
        Some((self.text.get(name)?, self.text.get(value)?))
    }
}

/// Iterates over the elements of a validated array.
#[derive(Debug)]
pub(super) struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Elements<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let at = if text.starts_with('[') { 1 } else { text.len() };
        Self { text, at }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let element = next_of(self.text.as_bytes(), self.at)?;
        self.at = element.end;
        self.text.get(element)
    }
}

/// Returns the string or value after a bracket or comma; `None` at the end of the array or object.
fn next_of(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let mut start = blanks(bytes, at);
    if bytes.get(start) == Some(&b',') {
        start = blanks(bytes, start + 1);
    }
    match bytes.get(start)? {
        b']' | b'}' => None,
        _ => Some(start..skip(bytes, start)),
    }
}

/// Returns the end of the validated value at `at`.
fn skip(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b'-' | b'0'..=b'9' | b'a'..=b'z' => {
                let rest = bytes.get(at..).unwrap_or_default();
                at += rest
                    .iter()
                    .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
                    .count();
            }
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the end of the validated string whose quote is at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}
