//! Replies of a server (RFC 5321, 4.2): pure bytes.
//!
//! Invariants
//! - A reply is whole or not there; one without end is refused before it costs much.

use bytes::{Buf as _, BytesMut};

/// A reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// 200 to 599.
    pub code: u16,
    /// The text, with lines joined by LF, without the code.
    pub text: String,
}

/// The longest line, and the most of a reply. RFC 5321, 4.5.3.1.5 has 512 for a line; servers write longer ones.
const LINE: usize = 4096;
const WHOLE: usize = 64 << 10;

impl Reply {
    /// 4xx: it may do later. 421 among them says that the connection ends.
    pub fn is_transient(&self) -> bool {
        (400..500).contains(&self.code)
    }

    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The server ends the connection (RFC 5321, 3.8).
    pub fn is_goodbye(&self) -> bool {
        self.code == 421
    }

    /// `5.1.1`, where the reply begins with one (RFC 2034).
    pub fn enhanced(&self) -> Option<&str> {
        let word = self.text.split([' ', '\n']).next()?;
        let mut numbers = word.split('.');
        let class = numbers.next()?;
        let short = |part: &str| {
            (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let good = matches!(class, "2" | "4" | "5")
            && numbers.next().is_some_and(short)
            && numbers.next().is_some_and(short)
            && numbers.next().is_none();
        good.then_some(word)
    }

    /// Takes a whole reply off the bytes that came; `None`: there is more to come.
    pub(crate) fn take(input: &mut BytesMut) -> Result<Option<Self>, &'static str> {
        let mut code = None;
        let mut text = String::new();
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                if rest.len() > LINE || input.len() > WHOLE {
                    return Err("a reply without end");
                }
                return Ok(None);
            };
            let line = rest.get(..length).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            at += length + 1;
            if line.len() > LINE || at > WHOLE {
                return Err("a reply that is too long");
            }
            let (digits, words) = line.split_at_checked(3).ok_or("a line without a code")?;
            let digits = str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u16>().ok());
            let number =
                digits.filter(|code| (200..600).contains(code)).ok_or("a line without a code")?;
            if *code.get_or_insert(number) != number {
                return Err("a reply of two codes");
            }
            let (last, words) = match words {
                [] => (true, words),
                [b' ', words @ ..] => (true, words),
                [b'-', words @ ..] => (false, words),
                _ => return Err("a line without a code"),
            };
            if !text.is_empty() {
                text.push('\n');
            }
            let words = String::from_utf8_lossy(words);
            text.extend(words.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }));
            if last {
                input.advance(at);
                return Ok(Some(Self { code: number, text }));
            }
        }
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.text.replace('\n', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &str) -> Result<Option<(u16, String, usize)>, &'static str> {
        let mut input = BytesMut::from(bytes);
        let reply = Reply::take(&mut input)?;
        Ok(reply.map(|reply| (reply.code, reply.text, input.len())))
    }

    #[test]
    fn single_and_multi_line_replies_are_parsed() {
        for (bytes, code, text, left) in [
            ("250 ok\r\n", 250, "ok", 0),
            ("250\r\n", 250, "", 0),
            ("250-a\r\n250-b\r\n250 c\r\n220 x", 250, "a\nb\nc", 5),
            ("550 5.1.1 no\n", 550, "5.1.1 no", 0),
            ("250 a\tb\x07\r\n", 250, "a\tb ", 0),
        ] {
            assert_eq!(take(bytes), Ok(Some((code, text.to_owned(), left))), "{bytes:?}");
        }
        for part in ["", "2", "250", "250 ok", "250-a\r\n", "250-a\r\n250 b"] {
            assert_eq!(take(part), Ok(None), "{part:?}");
        }
    }

    #[test]
    fn invalid_replies_are_rejected() {
        let long = format!("250 {}", "x".repeat(5000));
        let endless = "250-x\r\n".repeat(20_000);
        for bytes in [
            "hello\r\n",
            "\r\n",
            "25 x\r\n",
            "199 x\r\n",
            "600 x\r\n",
            "250x\r\n",
            "250-a\r\n220 b\r\n",
            &long,
            &endless,
        ] {
            assert!(take(bytes).is_err(), "{}", bytes.get(..20).unwrap_or(bytes));
        }
    }

    #[test]
    fn an_enhanced_code_is_found_where_there_is_one() {
        let of =
            |text: &str| Reply { code: 550, text: text.to_owned() }.enhanced().map(str::to_owned);
        assert_eq!(of("5.1.1 no").as_deref(), Some("5.1.1"));
        assert_eq!(of("4.7.650").as_deref(), Some("4.7.650"));
        for text in ["", "no", "1.2.3.4 is blocked", "5.1", "3.1.1 x", "5..1 x", "5.1.1234 x"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        #[test]
        fn any_reply_bytes_are_handled_in_any_pieces(bytes in "(2[0-9]{2}[- ][a-z]{0,5}\r?\n|.|\n){0,20}") {
            let whole = Reply::take(&mut BytesMut::from(bytes.as_str()));
            let mut input = BytesMut::new();
            let mut found = Ok(None);
            for byte in bytes.bytes() {
                input.extend_from_slice(&[byte]);
                found = Reply::take(&mut input);
                if found != Ok(None) {
                    break;
                }
            }
            if let Ok(Some(_)) = whole {
                proptest::prop_assert_eq!(found, whole);
            }
        }
    }
}
