//! Fields of answers by path or type: set, added, set if missing, or removed.
//!
//! Invariants
//! - The length of an answer, its coding and what belongs to its connection cannot be changed.
//! - `Strict-Transport-Security` is never sent over plain HTTP (RFC 6797, section 7.2).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::seen_by;
use crate::claims::{Claim, Claims, HostClaim};

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Replaces the field.
    Set,
    /// Sends the field beside others of the name.
    Add,
    /// Sends the field if the answer has none of the name.
    Default,
    /// Removes the field.
    Remove,
}

/// The answers of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    All,
    /// Answers of this type, without parameters; `image/` stands for all images.
    Type(String),
    Path(Claim),
}

/// A rule for one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRule {
    scope: Scope,
    effect: Effect,
    name: HeaderName,
    value: HeaderValue,
}

/// Reasons why a rule cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFieldRule {
    /// The text has another form.
    #[error("not a field with a path or a type before it")]
    Form,
    /// The server itself is responsible for the field.
    #[error("the server sets this field itself")]
    Framing,
}

/// Fields of the connection or of the body's form.
pub(super) const FRAMING: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl FieldRule {
    /// Reads a rule from `Field`, `+Field`, `?Field` or `-Field`, with a path, a host or a type before it, and the
    /// field's value.
    pub fn new(rule: &str, value: &str) -> Result<Self, NoFieldRule> {
        let mut words = rule.split_ascii_whitespace();
        let (scope, field) = match (words.next(), words.next(), words.next()) {
            (Some(field), None, None) => (Scope::All, field),
            (Some(scope), Some(field), None) => (Scope::read(scope)?, field),
            _ => return Err(NoFieldRule::Form),
        };
        let (effect, name) = match field.split_at_checked(1) {
            Some(("+", name)) => (Effect::Add, name),
            Some(("?", name)) => (Effect::Default, name),
            Some(("-", name)) => (Effect::Remove, name),
            _ => (Effect::Set, field),
        };
        let name = HeaderName::try_from(name).map_err(|_invalid| NoFieldRule::Form)?;
        if FRAMING.contains(&name.as_str()) || name.as_str().starts_with("sec-websocket-") {
            return Err(NoFieldRule::Framing);
        }
        let value = HeaderValue::from_str(value.trim()).map_err(|_invalid| NoFieldRule::Form)?;
        if value.is_empty() != (effect == Effect::Remove) {
            return Err(NoFieldRule::Form);
        }
        Ok(Self { scope, effect, name, value })
    }

    fn apply(&self, headers: &mut HeaderMap, secure: bool) {
        if !secure
            && self.name == header::STRICT_TRANSPORT_SECURITY
            && self.effect != Effect::Remove
        {
            return;
        }
        match self.effect {
            Effect::Set => drop(headers.insert(&self.name, self.value.clone())),
            Effect::Add => drop(headers.append(&self.name, self.value.clone())),
            Effect::Default => drop(headers.entry(&self.name).or_insert(self.value.clone())),
            Effect::Remove => drop(headers.remove(&self.name)),
        }
    }
}

impl Scope {
    fn read(text: &str) -> Result<Self, NoFieldRule> {
        if let Ok(claim) = text.parse::<Claim>()
            && (text.starts_with('/') || !is_type(text))
        {
            return Ok(Self::Path(claim));
        }
        match text.strip_suffix('*').unwrap_or(text) {
            kind if is_type(text) => Ok(Self::Type(kind.to_ascii_lowercase())),
            _ => Err(NoFieldRule::Form),
        }
    }

    /// Returns the order in which rules apply: a later one has the last word.
    fn rank(&self) -> (u8, usize) {
        match self {
            Self::All => (0, 0),
            Self::Type(kind) if kind.ends_with('/') => (1, 0),
            Self::Type(_) => (1, 1),
            Self::Path(Claim { host, path }) => {
                let host = match host {
                    HostClaim::Any => 2,
                    HostClaim::Below(_) => 3,
                    HostClaim::Exact(_) => 4,
                };
                (host, path.as_str().len())
            }
        }
    }
}

/// Returns whether the text is a media type with a known top level, such as `text/html` or `image/*`.
fn is_type(text: &str) -> bool {
    const TOP: &[&str] = &["application", "audio", "font", "image", "model", "text", "video"];
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._*".contains(&byte);
    text.split_once('/').is_some_and(|(top, sub)| {
        TOP.contains(&&*top.to_ascii_lowercase()) && !sub.is_empty() && sub.bytes().all(fits)
    })
}

/// The rules of a release, in the order in which they apply.
#[derive(Debug)]
pub(crate) struct Fields(Vec<(FieldRule, Option<Claims>)>);

/// The numbers of the rules for a request.
#[derive(Debug)]
pub(crate) struct Chosen(Vec<usize>);

impl Fields {
    pub(super) fn new(rules: &[FieldRule]) -> Self {
        let mut rules = rules.to_vec();
        rules.sort_by_key(|rule| rule.scope.rank());
        let with_claims = |rule: FieldRule| {
            let claims = match &rule.scope {
                Scope::Path(claim) => Some(Claims::new([(claim, 0)])),
                Scope::All | Scope::Type(_) => None,
            };
            (rule, claims)
        };
        Self(rules.into_iter().map(with_claims).collect())
    }

    /// Returns the rules for a request: those for its cleaned path, and for what the front controller sees of it.
    /// Without a path only rules for all paths apply.
    pub(crate) fn choose(
        &self,
        host: &str,
        path: Option<&[u8]>,
        front_controller: Option<&str>,
    ) -> Chosen {
        let seen = path.and_then(|path| seen_by(front_controller, path));
        let fits = |claims: &Option<Claims>| match claims {
            None => true,
            Some(claims) => {
                path.into_iter().chain(seen).any(|path| claims.choose(host, path).is_ok())
            }
        };
        Chosen(
            (0..).zip(&self.0).filter(|(_, (_, claims))| fits(claims)).map(|(at, _)| at).collect(),
        )
    }

    /// Changes the fields of an answer.
    pub(crate) fn apply(&self, chosen: &Chosen, headers: &mut HeaderMap, secure: bool) {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
        let kind = kind.unwrap_or_default().to_ascii_lowercase();
        for (rule, _) in chosen.0.iter().filter_map(|number| self.0.get(*number)) {
            let fits = match &rule.scope {
                Scope::Type(known) if known.ends_with('/') => kind.starts_with(known),
                Scope::Type(known) => kind == *known,
                Scope::All | Scope::Path(_) => true,
            };
            if fits {
                rule.apply(headers, secure);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(rules: &[(&str, &str)]) -> Fields {
        let rule = |(rule, value): &(&str, &str)| FieldRule::new(rule, value).expect(rule);
        Fields::new(&rules.iter().map(rule).collect::<Vec<_>>())
    }

    fn changed(fields: &Fields, path: &str, kind: &str, secure: bool) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", kind.parse().unwrap());
        headers.insert("x-powered-by", "PHP".parse().unwrap());
        headers.insert("vary", "accept".parse().unwrap());
        let chosen = fields.choose("a.example", Some(path.as_bytes()), Some("/index.php"));
        fields.apply(&chosen, &mut headers, secure);
        let skipped = header::CONTENT_TYPE;
        let texts = headers.iter().filter(|(name, _)| *name != skipped);
        let mut texts: Vec<String> =
            texts.map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        texts.sort();
        texts.join(" ")
    }

    #[test]
    fn fields_are_set_added_completed_and_removed_by_path_and_type() {
        let fields = fields(&[
            ("-X-Powered-By", ""),
            ("+Vary", "cookie"),
            ("?Vary", "never"),
            ("X-Frame-Options", "DENY"),
            ("/embed X-Frame-Options", "SAMEORIGIN"),
            ("b.example X-Host", "b"),
            ("text/html X-Page", "1"),
            ("image/* X-Image", "1"),
            ("/assets ?Cache-Control", "public"),
        ]);
        let all = "vary=accept vary=cookie x-frame-options=DENY";
        assert_eq!(changed(&fields, "/", "text/css", true), all);
        let page = changed(&fields, "/embed/x", "Text/HTML; charset=UTF-8", true);
        assert_eq!(page, "vary=accept vary=cookie x-frame-options=SAMEORIGIN x-page=1");
        let image = changed(&fields, "/assets/a.png", "image/png", true);
        assert_eq!(image, format!("cache-control=public {all} x-image=1"));
    }

    #[test]
    fn no_path_behind_another_script_changes_its_fields() {
        let rules = [("X-Frame-Options", "DENY"), ("/embed -X-Frame-Options", "")];
        let fields = fields(&rules);
        let frames = |path: &str| !changed(&fields, path, "text/html", true).contains("DENY");
        for path in ["/embed", "/embed/x", "/index.php/embed", "/index.phpembed"] {
            assert!(frames(path), "{path}");
        }
        for path in ["/account.php/embed", "/account/index.php/embed", "/index.php/a.php/embed"] {
            assert!(!frames(path), "{path}");
        }
    }

    #[test]
    fn hsts_is_never_set_over_plain_http() {
        let fields = fields(&[
            ("Strict-Transport-Security", "max-age=9"),
            ("-X-Powered-By", ""),
            ("-vary", ""),
        ]);
        assert_eq!(changed(&fields, "/", "text/html", false), "");
        assert_eq!(changed(&fields, "/", "text/html", true), "strict-transport-security=max-age=9");
    }

    #[test]
    fn fields_of_the_connection_and_malformed_rules_are_refused() {
        for name in FRAMING.iter().chain(&["Sec-WebSocket-Accept"]) {
            for effect in ["", "+", "?", "-"] {
                let rule = FieldRule::new(&format!("{effect}{name}"), "x");
                assert_eq!(rule, Err(NoFieldRule::Framing), "{effect}{name}");
            }
        }
        for (rule, value) in [
            ("", "x"),
            ("X-A", ""),
            ("-X-A", "x"),
            ("X A B", "x"),
            ("X(A)", "x"),
            ("X-A", "a\nb: c"),
            ("X-A", "a\r\nSet-Cookie: b"),
            ("/a/* X-A", "x"),
            ("/a/../b X-A", "x"),
            ("+", "x"),
        ] {
            assert_eq!(FieldRule::new(rule, value), Err(NoFieldRule::Form), "{rule}: {value:?}");
        }
    }
}
