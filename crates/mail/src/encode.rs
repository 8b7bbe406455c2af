//! Fields and bodies as lines of at most 76 characters of ASCII, by the crate `email-encoding`; quoted-printable here, which it has not.

use std::fmt::Write as _;

use email_encoding::headers::writer::EmailWriter;
use email_encoding::headers::{quoted_string, rfc2047, rfc2231};

use crate::Address;

/// The width of a line.
const WIDTH: usize = 76;
/// A `String` takes whatever is written to it.
const TAKES: &str = "a text takes all that is written to it";

/// `Name: value`, folded; as encoded words (RFC 2047) where it is not plain. With `words` what looks like one is encoded, too: it was meant literally.
pub(crate) fn unstructured(out: &mut String, name: &str, value: &str, words: bool) {
    let mut line = begin(out, name);
    if is_plain(value, words) {
        line.folding().write_str(value).expect(TAKES);
    } else {
        rfc2047::encode(value, &mut line).expect(TAKES);
    }
    // Blanks that it still holds belong to this line.
    drop(line);
    out.push_str("\r\n");
}

/// `Name: address, address`
pub(crate) fn addresses<'a>(
    out: &mut String,
    name: &str,
    addresses: impl Iterator<Item = &'a Address>,
) {
    let mut line = begin(out, name);
    for (at, address) in addresses.enumerate() {
        if at > 0 {
            line.write_char(',').expect(TAKES);
            line.space();
        }
        let spec = address.spec();
        let width = if address.name().is_empty() { spec.len() } else { spec.len() + 2 };
        if !address.name().is_empty() {
            if at > 0 && line.projected_line_len() + address.name().len() + 2 > WIDTH {
                line.new_line().expect(TAKES);
            }
            quoted_string::encode(address.name(), &mut line).expect(TAKES);
            line.space();
        }
        if (at > 0 || !address.name().is_empty()) && line.projected_line_len() + width > WIDTH {
            line.new_line().expect(TAKES);
        }
        if address.name().is_empty() {
            line.write_str(&spec).expect(TAKES);
        } else {
            write!(line, "<{spec}>").expect(TAKES);
        }
    }
    // Blanks that it still holds belong to this line.
    drop(line);
    out.push_str("\r\n");
}

/// `Content-Disposition: what; filename=…` (RFC 2183, 2231)
pub(crate) fn disposition(out: &mut String, what: &str, filename: Option<&str>) {
    let mut line = begin(out, "Content-Disposition");
    line.write_str(what).expect(TAKES);
    if let Some(filename) = filename {
        line.write_char(';').expect(TAKES);
        line.space();
        rfc2231::encode("filename", filename, &mut line).expect(TAKES);
    }
    // Blanks that it still holds belong to this line.
    drop(line);
    out.push_str("\r\n");
}

fn begin<'a>(out: &'a mut String, name: &str) -> EmailWriter<'a> {
    out.push_str(name);
    out.push(':');
    EmailWriter::new(out, name.len() + 1, 1, false)
}

/// It reads the same after folding and unfolding.
fn is_plain(value: &str, words: bool) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && !value.starts_with(' ')
        && !value.ends_with(' ')
        && !value.contains("  ")
        && value.split(' ').all(|word| word.len() < 900)
        && (!words || !value.contains("=?"))
}

/// Each line ends with CR LF, whatever it ended with.
pub(crate) fn with_crlf(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 32);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if_eq(&b'\n');
                out.extend_from_slice(b"\r\n");
            }
            b'\n' => out.extend_from_slice(b"\r\n"),
            other => out.push(other),
        }
    }
    out
}

/// RFC 2045, 6.7. `text` has lines that end with CR LF, and no other CR or LF.
pub(crate) fn quoted_printable(text: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len() * 5 / 4);
    let mut width = 0;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let next = bytes.peek().copied();
        if byte == b'\r' && next == Some(b'\n') {
            bytes.next();
            out.push_str("\r\n");
            width = 0;
            continue;
        }
        let at_end = matches!(next, None | Some(b'\r'));
        let literal = match byte {
            // Blanks at the end of a line are lost on the way.
            b' ' | b'\t' => !at_end,
            b'=' => false,
            other => other.is_ascii_graphic(),
        };
        let needs = if literal { 1 } else { 3 };
        // One is kept for the soft end of the line.
        if width + needs > WIDTH - usize::from(!at_end) {
            out.push_str("=\r\n");
            width = 0;
        }
        width += needs;
        if literal {
            out.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
            out.push('=');
            out.push(digit(byte >> 4));
            out.push(digit(byte & 15));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_become_one_kind() {
        assert_eq!(with_crlf(b"a\nb\r\nc\rd\r\r\n\n"), b"a\r\nb\r\nc\r\nd\r\n\r\n\r\n");
    }

    #[test]
    fn plain_values_stay_as_they_are_and_others_become_encoded_words() {
        let field = |value: &str| {
            let mut out = String::new();
            unstructured(&mut out, "Subject", value, true);
            out
        };
        assert_eq!(field("Hello"), "Subject: Hello\r\n");
        assert_eq!(field("Gr\u{fc}\u{df}e"), "Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n");
        assert_eq!(field("=?x?q?y?="), "Subject: =?utf-8?b?PT94P3E/eT89?=\r\n");
        assert_eq!(field(""), "Subject: \r\n");
        let long = "word ".repeat(40);
        assert!(field(long.trim_end()).lines().all(|line| line.len() <= 78));
    }

    /// RFC 2045's rules, read the other way round.
    fn decoded(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            match (first, tail) {
                (b'=', [b'\r', b'\n', after @ ..]) => rest = after,
                (b'=', [high, low, after @ ..]) => {
                    let pair = [*high, *low];
                    let digits = str::from_utf8(&pair).expect("digits");
                    out.push(u8::from_str_radix(digits, 16).expect("digits"));
                    rest = after;
                }
                (byte, after) => {
                    out.push(*byte);
                    rest = after;
                }
            }
        }
        out
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        #[test]
        fn quoted_printable_comes_back_as_it_was(text in proptest::collection::vec(0_u8..=255, 0..400)) {
            let text = with_crlf(&text);
            let encoded = quoted_printable(&text);
            for line in encoded.split("\r\n") {
                proptest::prop_assert!(line.len() <= 76 && !line.contains(['\r', '\n']) && !line.ends_with([' ', '\t']));
                proptest::prop_assert!(line.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)));
            }
            proptest::prop_assert_eq!(decoded(&encoded), text);
        }

        #[test]
        fn a_field_is_folded_text_whatever_is_in_it(value in "\\PC{0,150}") {
            let mut out = String::new();
            unstructured(&mut out, "X-Any", &value, true);
            proptest::prop_assert!(out.is_ascii() && out.ends_with("\r\n"));
            for (at, line) in out.trim_end_matches("\r\n").split("\r\n").enumerate() {
                proptest::prop_assert!(line.len() <= 998 && !line.contains(['\r', '\n']));
                proptest::prop_assert!(at == 0 || line.starts_with(' '));
            }
        }
    }
}
