//! The values for ACME authorities: names, addresses, keys.
//!
//! Invariants
//! - Names for which no authority would issue a certificate are refused here, before an order.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use certificates::Challenge;

use super::value::{Raw, Value, Wrong, by_name};
use super::{ConfigError, Settings};

/// A public name, lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain(pub String);

impl Value for Domain {
    const PLACEHOLDER: &str = "DOMAIN";
    const EXPECTED: &str = "a name such as `shop.example.com`, without wildcards (they need a proof by DNS, which Hearth does not do); of letters beyond ASCII the `xn--` form";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let name = text.to_ascii_lowercase();
        let fits = |label: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            let edges = label.starts_with('-') || label.ends_with('-');
            !label.is_empty() && label.len() < 64 && label.bytes().all(plain) && !edges
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        // An address ends in a number, a name does not.
        let is_name = last.bytes().any(|byte| byte.is_ascii_alphabetic());
        if name.len() < 254 && name.contains('.') && name.split('.').all(fits) && is_name {
            Ok(Self(name))
        } else {
            Err(Wrong::quoted(text))
        }
    }
}

/// A name or address of this machine or its network, lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalName(pub String);

impl Value for LocalName {
    const PLACEHOLDER: &str = "NAME";
    const EXPECTED: &str = "a name such as `shop.test` (below `localhost`, `test`, `internal`, `local` or `home.arpa`), or a private address such as `192.168.1.7`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let name = text.to_ascii_lowercase();
        if certificates::is_local(&name) { Ok(Self(name)) } else { Err(Wrong::quoted(text)) }
    }
}

/// A mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mailbox(pub String);

impl Value for Mailbox {
    const PLACEHOLDER: &str = "ADDRESS";
    const EXPECTED: &str = "a mail address such as `admin@example.com`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let text = text.strip_prefix("mailto:").unwrap_or(text);
        // More than one recipient or header fields are refused by authorities (RFC 8555, section 7.3).
        match text.split_once('@') {
            Some((user, host))
                if !user.is_empty() && !host.is_empty() && !text.contains([' ', ',', '?', '<']) =>
            {
                Ok(Self(text.to_owned()))
            }
            _ => Err(Wrong::quoted(text)),
        }
    }
}

/// The URL of an authority's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory(pub String);

impl Value for Directory {
    const PLACEHOLDER: &str = "URL";
    const EXPECTED: &str = "`letsencrypt`, `letsencrypt-staging` or an https URL";

    fn choices() -> &'static [&'static str] {
        &["letsencrypt", "letsencrypt-staging"]
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        // https://letsencrypt.org/docs/acme-protocol-updates/
        match raw.text()? {
            "letsencrypt" => Ok(Self("https://acme-v02.api.letsencrypt.org/directory".into())),
            "letsencrypt-staging" => {
                Ok(Self("https://acme-staging-v02.api.letsencrypt.org/directory".into()))
            }
            text => match text.parse::<url::Url>() {
                Ok(url) if url.scheme() == "https" => Ok(Self(url.into())),
                _ => Err(Wrong::quoted(text)),
            },
        }
    }
}

/// [`Challenge`] by its name in RFC 8555 and RFC 8737.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChallengeName(pub Challenge);

by_name! { ChallengeName, "CHALLENGE",
    "tls-alpn-01" => Self(Challenge::TlsAlpn),
    "http-01" => Self(Challenge::Http),
}

/// A secret of bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyBytes(pub Vec<u8>);

impl std::fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Value for KeyBytes {
    const PLACEHOLDER: &str = "KEY";
    const EXPECTED: &str = "the key in base64url";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?.trim_end_matches('=');
        match BASE64_URL_SAFE_NO_PAD.decode(text) {
            Ok(bytes) if !bytes.is_empty() => Ok(Self(bytes)),
            // Not quoted back.
            _ => Err(Wrong("another text".into())),
        }
    }
}

impl Settings {
    /// The ways to prove that names are ours that there are listeners for, the most wanted first.
    pub(crate) fn challenges(&self) -> Vec<Challenge> {
        let tcp = || self.http.listen.iter().filter(|listen| listen.is_tcp());
        let found = [
            (tcp().any(|listen| self.speaks_tls(listen)), Challenge::TlsAlpn),
            (tcp().any(|listen| !self.speaks_tls(listen)), Challenge::Http),
        ];
        let wanted = self.acme.challenge.0.map(|ChallengeName(wanted)| wanted);
        let usable = found.into_iter().filter(|(is_there, _)| *is_there).map(|(_, way)| way);
        usable.filter(|way| wanted.is_none_or(|wanted| wanted == *way)).collect()
    }

    pub(super) fn check_acme(&self) -> Result<(), ConfigError> {
        let together = |problem: &str, hint: &str| {
            Err(ConfigError::Together { problem: problem.into(), hint: hint.into() })
        };
        let acme = &self.acme;
        if acme.domains.is_empty() {
            return Ok(());
        }
        if !acme.accept_terms.0 {
            return together(
                "`acme.domains` is set, and the authority's terms are not accepted",
                "read them (https://letsencrypt.org/repository/ has those of Let's Encrypt), then add `--acme-accept-terms`",
            );
        }
        if acme.external_key_id.is_some() != acme.external_key.is_some() {
            return together(
                "one of `acme.external_key_id` and `acme.external_key` is set without the other",
                "set both, as the authority shows them",
            );
        }
        if self.challenges().is_empty() {
            return together(
                "no listener can answer the authority's challenges for `acme.domains`",
                "add `--listen https://:443` or `--listen http://:80`, or leave `acme.challenge` out",
            );
        }
        Ok(())
    }
}
