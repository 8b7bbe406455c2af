//! Addresses: `Name <local@domain>` (RFC 5322, 3.4), judged as commands and fields need them.
//!
//! Invariants
//! - No control character is in one; a local part that needs quotes has them; a domain is in ASCII (IDNA) or an address literal.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a value of the caller cannot be part of a mail.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Flaw(pub String);

impl Flaw {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// A mail address with an optional display name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    name: String,
    /// The local part as commands write it: quoted if necessary.
    local: String,
    domain: String,
}

/// RFC 5321, 4.5.3.1.1 and 4.5.3.1.3.
const LOCAL: usize = 64;
const PATH: usize = 254;
/// The longest display name, between quotes.
const NAME: usize = 900;

impl Address {
    /// Takes `local@domain`, `<local@domain>`, `Name <local@domain>` or `"Name" <local@domain>`, each with a comment in parentheses
    /// behind it, which is the name where there is no other: `local@domain (Name)`. Quotes that are not in pairs are part of the name.
    pub fn parse(text: &str) -> Result<Self, Flaw> {
        let text = text.trim_matches(' ');
        let (text, comment) = split_comment(text);
        match text.strip_suffix('>') {
            None => Self::new(comment, text),
            Some(before) => {
                let (name, spec) = split_angle(before)
                    .or_else(|| before.rsplit_once('<'))
                    .ok_or_else(|| Flaw::new(format!("address {text:?}: the < is missing")))?;
                let name = unquoted(name.trim_matches(' '));
                Self::new(if name.is_empty() { comment } else { &name }, spec.trim_matches(' '))
            }
        }
    }

    /// A display name, which may be empty, and `local@domain`.
    pub fn new(name: &str, spec: &str) -> Result<Self, Flaw> {
        let flaw = |what: &str| Flaw::new(format!("address {spec:?}: {what}"));
        if name.chars().chain(spec.chars()).any(char::is_control) {
            return Err(flaw("there are control characters in it"));
        }
        if name.len() + name.matches(['"', '\\']).count() > NAME {
            return Err(flaw("the name is too long"));
        }
        let (local, domain) = split_at(spec).ok_or_else(|| flaw("it is not local@domain"))?;
        let local = judged_local(local).ok_or_else(|| flaw("what is before the @ is none"))?;
        let domain = judged_domain(domain).ok_or_else(|| flaw("what is behind the @ is none"))?;
        if local.len() > LOCAL || local.len() + 1 + domain.len() > PATH {
            return Err(flaw("it is too long"));
        }
        Ok(Self { name: name.to_owned(), local, domain })
    }

    /// The display name; empty: there is none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// In ASCII, or an address literal.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// `local@domain`, as in commands.
    pub fn spec(&self) -> String {
        format!("{}@{}", self.local, self.domain)
    }

    /// Returns whether only a server with SMTPUTF8 (RFC 6531) accepts it.
    pub fn is_international(&self) -> bool {
        !self.local.is_ascii()
    }
}

/// The text before a comment at the end, and what is in the comment: without nested ones, which are left where they are.
fn split_comment(text: &str) -> (&str, &str) {
    let parts = text.strip_suffix(')').and_then(|rest| rest.rsplit_once('('));
    match parts {
        Some((before, comment)) if before.contains('@') && !comment.contains(['>', '"']) => {
            (before.trim_matches(' '), comment.trim_matches(' '))
        }
        _ => (text, ""),
    }
}

/// At the `<` that is in no quotes.
fn split_angle(text: &str) -> Option<(&str, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' if !quoted => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// A name without the quotes it may stand in.
fn unquoted(name: &str) -> String {
    let Some(inside) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut out = String::with_capacity(inside.len());
    let mut characters = inside.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(characters.next()),
            other => out.push(other),
        }
    }
    out
}

/// At the `@` behind the local part, which may be quoted.
fn split_at(spec: &str) -> Option<(&str, &str)> {
    let Some(quoted) = spec.strip_prefix('"') else { return spec.rsplit_once('@') };
    let mut escaped = false;
    for (at, character) in quoted.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                let domain = quoted.get(at + 1..)?.strip_prefix('@')?;
                return Some((spec.get(..at + 2)?, domain));
            }
            _ => {}
        }
    }
    None
}

/// RFC 5321, 4.1.2, `Local-part`, and RFC 6531, 3.3. Dots that stand wrong, which some providers have given out, need quotes.
fn judged_local(local: &str) -> Option<String> {
    if let Some(inside) = local.strip_prefix('"') {
        let inside = inside.strip_suffix('"')?;
        return (!inside.is_empty()).then(|| local.to_owned());
    }
    let atom = |character: char| {
        character.is_ascii_alphanumeric()
            || "!#$%&'*+-/=?^_`{|}~.".contains(character)
            || (!character.is_ascii() && !character.is_whitespace())
    };
    if local.is_empty() || !local.chars().all(atom) {
        return None;
    }
    let dots = local.starts_with('.') || local.ends_with('.') || local.contains("..");
    Some(if dots { format!("\"{local}\"") } else { local.to_owned() })
}

/// A domain in ASCII, or an address literal (RFC 5321, 4.1.3).
fn judged_domain(domain: &str) -> Option<String> {
    if let Some(literal) = domain.strip_prefix('[') {
        let literal = literal.strip_suffix(']')?;
        let good = match literal.get(..5) {
            Some(tag) if tag.eq_ignore_ascii_case("IPv6:") => {
                literal.get(5..)?.parse::<Ipv6Addr>().is_ok()
            }
            _ => literal.parse::<Ipv4Addr>().is_ok(),
        };
        return good.then(|| domain.to_owned());
    }
    let ascii = idna::domain_to_ascii_strict(domain).ok()?;
    (!ascii.is_empty() && !ascii.ends_with('.')).then_some(ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, String)> {
        Address::parse(text).ok().map(|address| (address.name().to_owned(), address.spec()))
    }

    #[test]
    fn each_form_of_an_address_is_taken() {
        for (text, name, spec) in [
            ("mary@x.test", "", "mary@x.test"),
            ("<mary@x.test>", "", "mary@x.test"),
            ("Mary Smith <mary@x.test>", "Mary Smith", "mary@x.test"),
            ("\"Mary Smith\" <mary@x.test>", "Mary Smith", "mary@x.test"),
            (r#""A \"B\" <C>" <a@b>"#, "A \"B\" <C>", "a@b"),
            ("Jos\u{e9} <jos\u{e9}@x.test>", "Jos\u{e9}", "jos\u{e9}@x.test"),
            ("a@B\u{dc}CHER.test", "", "a@xn--bcher-kva.test"),
            ("\"a b\"@x.test", "", "\"a b\"@x.test"),
            ("\"a@b\"@x.test", "", "\"a@b\"@x.test"),
            ("a..b@x.test", "", "\"a..b\"@x.test"),
            ("\"Last, First\" <a@b>", "Last, First", "a@b"),
            ("Last, First <a@b>", "Last, First", "a@b"),
            ("Big\" Box <a@b>", "Big\" Box", "a@b"),
            ("\"Giant; \"Big\" Box\" <a@b>", "Giant; \"Big\" Box", "a@b"),
            ("a@b (Mary Smith)", "Mary Smith", "a@b"),
            ("Mary <a@b> (at work)", "Mary", "a@b"),
            ("< a@b >", "", "a@b"),
            ("a@[127.0.0.1]", "", "a@[127.0.0.1]"),
            ("a@[IPv6:::1]", "", "a@[IPv6:::1]"),
        ] {
            assert_eq!(parse(text), Some((name.to_owned(), spec.to_owned())), "{text}");
        }
        assert!(Address::parse("jos\u{e9}@x.test").expect("one").is_international());
        assert!(!Address::parse("a@b\u{fc}cher.test").expect("one").is_international());
    }

    #[test]
    fn injection_into_commands_and_fields_is_rejected() {
        let long = format!("{}@x.test", "a".repeat(65));
        for text in [
            "",
            "a",
            "a@",
            "@b",
            "a b@x.test",
            "a@x test",
            "a@x.test> SIZE=1",
            "<a@x.test",
            "a@x.test\r\nRCPT TO:<b@x.test>",
            "a\n@x.test",
            "a\0@x.test",
            "Name\r\nBcc: x <a@x.test>",
            "<a@x.test>\r\n",
            "<a@x.test>, <b@x.test>",
            "a@x.test (x) (y",
            "a@x.test (x\r\nRCPT)",
            "a>@x.test",
            "a@[1.2.3]",
            "a@[IPv6:x]",
            "a@x..test",
            "a@-x.test",
            "a@x_y.test",
            "\"a@x.test",
            "\"\"@x.test",
            "a@x.test.",
            "a,b@x.test",
            &long,
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        #[test]
        fn accepted_addresses_are_one_line_and_round_trip(text in "\\PC{0,12}@\\PC{0,12}|[a-z\"\\\\@<> .\r\n]{0,20}") {
            if let Ok(address) = Address::parse(&text) {
                let spec = address.spec();
                proptest::prop_assert!(!spec.contains(['\r', '\n', '\0']));
                let again = Address::new("", &spec);
                proptest::prop_assert_eq!(again.map(|again| again.spec()), Ok(spec));
            }
        }
    }
}
