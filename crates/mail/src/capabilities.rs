//! The capabilities that a server announces in its reply to EHLO (RFC 5321, 4.1.1.1).

use crate::Reply;

/// The capabilities of a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Capabilities {
    /// RFC 3207.
    pub start_tls: bool,
    /// RFC 2920.
    pub pipelining: bool,
    /// RFC 6152.
    pub eight_bit: bool,
    /// RFC 6531.
    pub utf8: bool,
    /// RFC 3461.
    pub dsn: bool,
    /// SIZE (RFC 1870), with the largest message; 0: not announced.
    pub size: Option<u64>,
    /// RFC 4954: in upper case.
    pub mechanisms: Vec<String>,
}

impl Capabilities {
    /// The first line is a greeting; the others are keywords. Unknown ones are skipped.
    pub(crate) fn of(reply: &Reply) -> Self {
        let mut found = Self::default();
        for line in reply.text.split('\n').skip(1) {
            let line = line.trim().to_ascii_uppercase();
            // `AUTH=` is what servers of long ago wrote.
            let line = line.replacen("AUTH=", "AUTH ", 1);
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("STARTTLS") => found.start_tls = true,
                Some("PIPELINING") => found.pipelining = true,
                Some("8BITMIME") => found.eight_bit = true,
                Some("SMTPUTF8") => found.utf8 = true,
                Some("DSN") => found.dsn = true,
                Some("SIZE") => {
                    let limit = words.next().and_then(|word| word.parse::<u64>().ok());
                    found.size = Some(limit.unwrap_or_default());
                }
                Some("AUTH") => {
                    for word in words {
                        if !found.mechanisms.iter().any(|known| known == word) {
                            found.mechanisms.push(word.to_owned());
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Capabilities {
        Capabilities::of(&Reply { code: 250, text: text.to_owned() })
    }

    #[test]
    fn known_keywords_are_parsed_and_others_skipped() {
        let found = of(
            "x.test\nSIZE 1000\n8BITMIME\nPipelining\nauth PLAIN login\nAUTH=LOGIN\nHELP\n\nSMTPUTF8\nDSN\nSTARTTLS",
        );
        assert_eq!(
            found,
            Capabilities {
                start_tls: true,
                pipelining: true,
                eight_bit: true,
                utf8: true,
                dsn: true,
                size: Some(1000),
                mechanisms: vec!["PLAIN".to_owned(), "LOGIN".to_owned()],
            }
        );
    }

    #[test]
    fn invalid_limits_are_ignored() {
        assert_eq!(of("STARTTLS"), Capabilities::default(), "the first line is a greeting");
        for (text, size) in [
            ("x\nSIZE", Some(0)),
            ("x\nSIZE 0", Some(0)),
            ("x\nSIZE lots", Some(0)),
            ("x\nSIZE 99999999999999999999999", Some(0)),
            ("x\nSIZES 5", None),
        ] {
            assert_eq!(of(text).size, size, "{text}");
        }
    }
}
