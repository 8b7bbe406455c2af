//! Rules in `[http]`: which requests need a password or have another address, and which fields answers get.

use std::path::Path;

use front_http::{Claim, FieldRule, NoFieldRule, PasswordRule, Redirect, RuleOptions};

use super::ConfigError;
use super::keys::{Http, Settings};
use super::value::{Raw, Value, Wrong, by_name};

/// The paths with their files of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PasswordRules(pub Vec<PasswordRule>);

impl Value for PasswordRules {
    const PLACEHOLDER: &str = "PATH=FILE";
    const REPEATS: bool = true;
    const EXPECTED: &str = "a path such as `/admin` or `shop.example.com/admin`, `=`, and a file of `htpasswd -B`, or `off`; several as a table, or separated by `;`";

    fn parse(raw: &Raw, base: &Path) -> Result<Self, Wrong> {
        let rule = |(scope, file): (String, String)| {
            let scope: Claim = scope.parse().map_err(|_no_claim| Wrong::quoted(&scope))?;
            let file = match &*file {
                "" => return Err(Wrong(format!("`{scope}` without a file"))),
                "off" => None,
                file => Some(base.join(file)),
            };
            Ok(PasswordRule { scope, file })
        };
        pairs(raw, &[';', '\n'])?.into_iter().map(rule).collect::<Result<_, _>>().map(Self)
    }
}

/// The redirects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redirects(pub Vec<Redirect>);

impl Value for Redirects {
    const PLACEHOLDER: &str = "FROM=TO";
    const REPEATS: bool = true;
    const EXPECTED: &str = "a path (`/old`), a path and all below it (`/old/*`) or a host (`www.example.com`), `=`, and a path or an https address, which ends with `/*` if the \
         rest is kept, with 301, 302, 303, 307 or 308 after it; several as a table, or separated by `;`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let redirect = |(from, to): (String, String)| {
            Redirect::new(&from, &to).map_err(|_none| Wrong(format!("`{from}` = `{to}`")))
        };
        pairs(raw, &[';', '\n'])?.into_iter().map(redirect).collect::<Result<_, _>>().map(Self)
    }
}

/// The fields of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldRules(pub Vec<FieldRule>);

impl Value for FieldRules {
    const PLACEHOLDER: &str = "FIELD=VALUE";
    const REPEATS: bool = true;
    const EXPECTED: &str = "a field to set, `+` before it to add one, `?` to set one that is missing, `-` to remove one (with an empty value); before that a path such as \
         `/assets`, a host or a type such as `text/html`; `=`, and the value; several as a table, or a line each; no field of the connection or of the length";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let rule = |(rule, value): (String, String)| {
            FieldRule::new(&rule, &value).map_err(|reason| match reason {
                NoFieldRule::Form => Wrong(format!("`{rule}` = `{value}`")),
                NoFieldRule::Framing => Wrong(format!("`{rule}`, which the server sets itself")),
            })
        };
        // Values have semicolons.
        pairs(raw, &['\n'])?.into_iter().map(rule).collect::<Result<_, _>>().map(Self)
    }
}

/// Whether clients must have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// A connection without one is refused.
    Require,
    /// The application decides.
    Optional,
}

by_name! { ClientCertificates, "WHICH",
    "require" => Self::Require,
    "optional" => Self::Optional,
}

/// Names and values: a table, or `name = value` texts.
fn pairs(raw: &Raw, separators: &[char]) -> Result<Vec<(String, String)>, Wrong> {
    let texts: Vec<&str> = match raw {
        Raw::Table(pairs) => return Ok(pairs.clone()),
        Raw::Text(text) => text.split(separators).collect(),
        Raw::List(items) => items.iter().map(String::as_str).collect(),
    };
    let texts = texts.into_iter().map(str::trim).filter(|text| !text.is_empty());
    let pair = |text: &str| match text.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(Wrong::quoted(text)),
    };
    texts.map(pair).collect()
}

impl Settings {
    /// Checks that clients can show certificates where they are required.
    pub(super) fn check_clients(&self) -> Result<(), ConfigError> {
        let together = |problem: &str, hint: &str| {
            Err(ConfigError::Together { problem: problem.into(), hint: hint.into() })
        };
        let http = &self.http;
        if http.client_ca.is_none() {
            if http.client_crl.is_some() {
                return together(
                    "`http.client_crl` is set, but clients are asked for no certificates",
                    "name the authorities of the revocation lists in `http.client_ca`, or switch `http.client_crl` off, too",
                );
            }
            return Ok(());
        }
        if !http.listen.iter().any(|one| self.speaks_tls(one)) {
            return together(
                "`http.client_ca` is set, but no listener speaks HTTPS",
                "clients show certificates over TLS alone: add `--tls-cert FILE` and `--tls-key FILE`, or `--acme NAME`",
            );
        }
        let plain = http.listen.iter().any(|one| one.is_tcp() && !self.speaks_tls(one));
        let required = http.client_certificates == ClientCertificates::Require;
        if plain && required && !http.redirect_to_https {
            return together(
                "`http.client_ca` requires certificates, but a listener answers without TLS",
                "switch `http.redirect_to_https` on, leave the `http://` listener out, or set `http.client_certificates = \"optional\"`",
            );
        }
        Ok(())
    }
}

impl Http {
    /// Returns the rules for requests.
    pub(crate) fn rules(&self) -> RuleOptions {
        RuleOptions {
            rate_limits: self.rate_limits.clone(),
            basic_auth: self.basic_auth.0.clone(),
            redirects: self.redirects.0.clone(),
            headers: self.headers.0.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_a_table_or_a_text() {
        let read = |raw: &Raw| PasswordRules::parse(raw, Path::new("/srv"));
        let table = [("/admin", "users"), ("b.example/x", "off")];
        let table = table.map(|(scope, file)| (scope.to_owned(), file.to_owned()));
        let rules = read(&Raw::Table(table.into())).unwrap();
        assert_eq!(rules.0[0].file.as_deref(), Some(Path::new("/srv/users")));
        assert_eq!(
            (rules.0[1].scope.to_string().as_str(), &rules.0[1].file),
            ("b.example/x", &None)
        );
        assert_eq!(read(&Raw::Text("/admin = users; b.example/x=off".into())), Ok(rules));
        assert_eq!(read(&Raw::Text("admin users".into())), Err(Wrong::quoted("admin users")));
        assert_eq!(read(&Raw::Text("/a/*=users".into())), Err(Wrong::quoted("/a/*")));
        assert!(read(&Raw::Text("/a=".into())).is_err());
    }
}
