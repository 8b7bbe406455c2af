//! Fields and bodies as lines of at most 76 characters of ASCII, by the crate `email-encoding`; quoted-printable here, which it has not.

use std::fmt::Write as _;

use email_encoding::headers::writer::EmailWriter;
use email_encoding::headers::{quoted_string, rfc2047, rfc2231};

use crate::Address;

/// The width of a line.
const WIDTH: usize = 76;
/// A `String` takes whatever is written to it.
const TAKES: &str = "a text takes all that is written to it";

/// `Subject: value`, folded; as encoded words (RFC 2047) where it is not plain, or looks like one: it was meant literally.
pub(crate) fn subject(out: &mut String, value: &str) {
    let mut line = begin(out, "Subject");
    if is_plain(value) {
        line.folding().write_str(value).expect(TAKES);
    } else {
        rfc2047::encode(value, &mut line).expect(TAKES);
    }
    // Blanks that it still holds belong to this line.
    drop(line);
    out.push_str("\r\n");
}

/// `Name: value`, folded; as encoded words only what is not ASCII: ids and dates have none (RFC 2047, 5), whatever blanks are about them.
pub(crate) fn field(out: &mut String, name: &str, value: &str) {
    let mut line = begin(out, name);
    if value.is_ascii() {
        line.folding().write_str(&tidy(value)).expect(TAKES);
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

/// Without blanks around it, tabs as blanks, and no gap that would make a line too long.
fn tidy(value: &str) -> String {
    let mut gap = 0;
    let value = value.trim_matches([' ', '\t']).chars();
    let blank = |c| if c == '\t' { ' ' } else { c };
    let fits = |c: &char| {
        gap = if *c == ' ' { gap + 1 } else { 0 };
        gap < WIDTH
    };
    value.map(blank).filter(fits).collect()
}

/// Returns whether the value is unchanged by folding and unfolding.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && !value.starts_with(' ')
        && !value.ends_with(' ')
        && !value.contains("  ")
        && value.split(' ').all(|word| word.len() < 900)
        && !value.contains("=?")
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
            subject(&mut out, value);
            out
        };
        assert_eq!(field("Hello"), "Subject: Hello\r\n");
        assert_eq!(field("Gr\u{fc}\u{df}e"), "Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n");
        assert_eq!(field("=?x?q?y?="), "Subject: =?utf-8?b?PT94P3E/eT89?=\r\n");
        assert_eq!(field(""), "Subject: \r\n");
        let long = "word ".repeat(40);
        assert!(field(long.trim_end()).lines().all(|line| line.len() <= 78));
    }

    #[test]
    fn fields_of_ids_and_dates_are_never_encoded_words() {
        let field = |name: &str, value: &str| {
            let mut out = String::new();
            field(&mut out, name, value);
            out
        };
        for (name, value, line) in [
            ("References", "<a@b>  <c@d>", "References: <a@b>  <c@d>\r\n"),
            ("References", "<a@b>\t<c@d>\t", "References: <a@b> <c@d>\r\n"),
            ("In-Reply-To", " <a@b>", "In-Reply-To: <a@b>\r\n"),
            ("Message-ID", "<a@b> ", "Message-ID: <a@b>\r\n"),
            ("Date", "Thu,\t1 Jan 1970 00:00:00 +0000", "Date: Thu, 1 Jan 1970 00:00:00 +0000\r\n"),
            ("X-Word", "=?utf-8?q?a?=", "X-Word: =?utf-8?q?a?=\r\n"),
            ("X-Name", "Gr\u{fc}\u{df}e", "X-Name: =?utf-8?b?R3LDvMOfZQ==?=\r\n"),
            ("X-Empty", " \t", "X-Empty: \r\n"),
        ] {
            assert_eq!(field(name, value), line);
        }
        let ids = "<0123456789@x.test>  ".repeat(40);
        let folded = field("References", &ids);
        assert!(folded.lines().all(|line| line.len() <= 78), "{folded}");
        assert_eq!(folded.replace("\r\n", ""), format!("References: {}", ids.trim_end()));
        let (word, gap) = ("w".repeat(900), " ".repeat(2000));
        for value in
            [format!("{word}{gap}{word}"), format!("a{gap}{word}"), format!("{word} {word}")]
        {
            let longest = field(&"N".repeat(76), &value).lines().map(str::len).max();
            assert!(longest.is_some_and(|longest| longest <= 998), "{longest:?}");
        }
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
        fn quoted_printable_round_trips(text in proptest::collection::vec(0_u8..=255, 0..400)) {
            let text = with_crlf(&text);
            let encoded = quoted_printable(&text);
            for line in encoded.split("\r\n") {
                proptest::prop_assert!(line.len() <= 76 && !line.contains(['\r', '\n']) && !line.ends_with([' ', '\t']));
                proptest::prop_assert!(line.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)));
            }
            proptest::prop_assert_eq!(decoded(&encoded), text);
        }

        #[test]
        fn any_field_is_folded_correctly(value in "\\PC{0,150}|[ \ta]{0,150}") {
            let (mut one, mut other) = (String::new(), String::new());
            subject(&mut one, &value);
            field(&mut other, "X-Any", &value);
            for out in [one, other] {
                proptest::prop_assert!(out.is_ascii() && out.ends_with("\r\n"));
                for (at, line) in out.trim_end_matches("\r\n").split("\r\n").enumerate() {
                    proptest::prop_assert!(line.len() <= 998 && !line.contains(['\r', '\n']));
                    proptest::prop_assert!(at == 0 || (line.starts_with(' ') && !line.trim().is_empty()));
                }
            }
        }
    }
}
