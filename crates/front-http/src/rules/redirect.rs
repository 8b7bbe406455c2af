//! Redirects by host and path.
//!
//! Invariants
//! - The host of a target is the operator's or the request's own: what a client writes in a path is never one.
//! - A redirect never leads to the request's own address.

use std::collections::HashSet;
use std::str::FromStr;

use http::{StatusCode, Uri, uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::{RuleError, each_once};
use crate::claims::{Claim, Claims, HostClaim};

/// Most redirects that a loop is searched through.
const LONGEST_CHAIN: usize = 20;

/// Characters to encode in a path: all but those that RFC 3986 allows there (section 3.3).
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/');

/// A redirect: requests of `from` are sent to `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    from: Claim,
    /// Whether all paths below `from` are redirected, too; their rest follows the target's `*`.
    below: bool,
    /// The target, without its `*`.
    to: String,
    /// The rest of the path follows the target.
    keeps_rest: bool,
    status: StatusCode,
}

/// A text that is not a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a redirect")]
pub struct NoRedirect;

impl Redirect {
    /// Reads a redirect from `/old`, `/old/*`, `host/old` or `host` to `/new`, `/new/*` or an address, possibly with a
    /// status after it.
    pub fn new(from: &str, to: &str) -> Result<Self, NoRedirect> {
        let (from, below) = match from.strip_suffix("/*") {
            Some("") => ("/", true),
            Some(from) => (from, true),
            // A host stands for all its paths.
            None => (from, !from.contains('/')),
        };
        let whole_host = below && !from.contains('/');
        let from: Claim = from.parse().map_err(|_no_claim| NoRedirect)?;
        let mut words = to.split_ascii_whitespace();
        let to = words.next().ok_or(NoRedirect)?;
        let status = match words.next() {
            None => StatusCode::FOUND,
            Some(status) => StatusCode::from_str(status).map_err(|_no_number| NoRedirect)?,
        };
        if words.next().is_some() || !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Err(NoRedirect);
        }
        let (to, keeps_rest) = match to.strip_suffix("/*") {
            Some(to) => (to, true),
            // `https://example.com` for a whole host: the path stays.
            None if whole_host && is_origin(to) => (to.trim_end_matches('/'), true),
            None => (to, false),
        };
        if keeps_rest && (!below || to.contains('?')) || !is_target(to, keeps_rest) {
            return Err(NoRedirect);
        }
        Ok(Self { from, below, to: to.to_owned(), keeps_rest, status })
    }

    /// Returns the target for a request of this cleaned path, and its path and query as they were sent.
    fn location(&self, clean: &[u8], sent: &uri::PathAndQuery) -> String {
        let mut location = self.to.clone();
        if self.keeps_rest {
            let from = self.from.path.as_str();
            // As it was sent, if the prefix is: a client may have encoded a slash.
            let rest = match sent.path().strip_prefix(from) {
                Some(rest) => rest.to_owned(),
                None => {
                    percent_encode(clean.get(from.len()..).unwrap_or_default(), IN_PATH).to_string()
                }
            };
            // One slash: `//evil.example` would be another site.
            location.push('/');
            location.push_str(rest.trim_start_matches(['/', '\\']));
        }
        if let Some(query) = sent.query()
            && !location.contains('?')
        {
            location.push('?');
            location.push_str(query);
        }
        location
    }

    /// Returns whether the redirect is for this cleaned path, which begins with its own.
    fn is_for(&self, path: &[u8]) -> bool {
        self.below || path.strip_suffix(b"/").unwrap_or(path).len() == self.from.path.as_str().len()
    }
}

/// Returns whether the text is `http://host` or `https://host` without a path.
fn is_origin(to: &str) -> bool {
    let host = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://"));
    host.is_some_and(|host| !host.trim_end_matches('/').contains(['/', '?']))
}

/// Returns whether the text, without its `/*`, is a path or an address with a host.
fn is_target(to: &str, keeps_rest: bool) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\\\"<>^`{|}#*".contains(&byte);
    if !to.bytes().all(fits) {
        return false;
    }
    if to.starts_with('/') || to.is_empty() {
        return !to.starts_with("//") && (keeps_rest || !to.is_empty());
    }
    let Ok(uri) = to.parse::<Uri>() else { return false };
    let http = matches!(uri.scheme_str(), Some("http" | "https"));
    http && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
}

/// The redirects of a release.
#[derive(Debug)]
pub(crate) struct Redirects {
    rules: Vec<Redirect>,
    claims: Claims,
}

/// A request's address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address<'r> {
    pub(crate) secure: bool,
    /// Without a port.
    pub(crate) host: &'r str,
    /// The port, unless it is unknown because a proxy did not state it.
    pub(crate) port: Option<u16>,
    /// The cleaned path.
    pub(crate) clean: &'r [u8],
    /// Path and query as they were sent.
    pub(crate) sent: &'r uri::PathAndQuery,
}

impl Redirects {
    pub(super) fn new(rules: &[Redirect]) -> Result<Self, RuleError> {
        each_once("http.redirects", rules.iter().map(|rule| &rule.from))?;
        let claims = Claims::new(rules.iter().map(|rule| &rule.from).zip(0..));
        let all = Self { rules: rules.to_vec(), claims };
        match all.rules.iter().find(|rule| all.loops(rule)) {
            Some(rule) => {
                let (from, to) = (rule.from.clone(), rule.to.clone());
                Err(RuleError::Loop { from, to })
            }
            None => Ok(all),
        }
    }

    /// Returns the target of a request and its status, if it is redirected.
    pub(crate) fn find(&self, address: Address<'_>) -> Option<(String, StatusCode)> {
        let rule = self.rule(address.host, address.clean)?;
        let location = rule.location(address.clean, address.sent);
        (!is_own(&location, address)).then_some((location, rule.status))
    }

    /// Returns whether a rule's target has this host, possibly with a port.
    #[cfg(any(test, fuzzing))]
    pub(super) fn names_authority(&self, authority: &str) -> bool {
        let of = |rule: &Redirect| Some(rule.to.parse::<Uri>().ok()?.authority()?.to_string());
        self.rules.iter().any(|rule| of(rule).is_some_and(|named| named == authority))
    }

    fn rule(&self, host: &str, path: &[u8]) -> Option<&Redirect> {
        // A path below an exact rule may be for a shorter one.
        let mut path = path;
        let whole = path;
        loop {
            let number = self.claims.choose(host, path).ok()?;
            let rule = self.rules.get(number)?;
            if rule.below || (path.len() == whole.len() && rule.is_for(path)) {
                return Some(rule);
            }
            let shorter = rule.from.path.as_str().rfind('/')?;
            path = whole.get(..shorter.max(1))?;
            if path.len() >= whole.len() || rule.from.path.as_str().is_empty() {
                return None;
            }
        }
    }

    /// Returns whether a request of a rule's own path comes back to it, as far as that is plain: through hosts that
    /// rules name, and through targets on the same host.
    fn loops(&self, start: &Redirect) -> bool {
        let mut host = match &start.from.host {
            HostClaim::Any => String::new(),
            HostClaim::Exact(name) => name.clone(),
            HostClaim::Below(name) => format!("any.{name}"),
        };
        let mut path = format!("{}/", start.from.path.as_str().trim_end_matches('/'));
        if !start.below && path.len() > 1 {
            path.pop();
        }
        let mut seen = HashSet::new();
        for _ in 0..LONGEST_CHAIN {
            let Some(rule) = self.rule(&host, path.as_bytes()) else { return false };
            let Ok(sent) = path.parse::<uri::PathAndQuery>() else { return false };
            let location = rule.location(path.as_bytes(), &sent);
            let Ok(target) = location.parse::<Uri>() else { return false };
            if let Some(named) = target.host() {
                let same = named.eq_ignore_ascii_case(&host);
                // Another machine may serve the host, unless a rule names it. To https is another address.
                let rule_host = &rule.from.host;
                if *rule_host == HostClaim::Any
                    || (same && target.path() == path && target.scheme_str() == Some("https"))
                {
                    return false;
                }
                host = named.to_ascii_lowercase();
            }
            let next = target.path().to_owned();
            if !seen.insert((host.clone(), next.clone())) {
                return true;
            }
            path = next;
        }
        true
    }
}

/// Returns whether a target is the request's own address.
fn is_own(location: &str, address: Address<'_>) -> bool {
    if location.starts_with('/') {
        return location == address.sent.as_str();
    }
    let Ok(target) = location.parse::<Uri>() else { return false };
    let (own_scheme, usual_port) = if address.secure { ("https", 443) } else { ("http", 80) };
    let port = target.port_u16().unwrap_or(usual_port);
    target.scheme_str() == Some(own_scheme)
        && address.port.is_none_or(|own| own == port)
        && target.host().is_some_and(|host| host.eq_ignore_ascii_case(address.host))
        && target.path_and_query() == Some(address.sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route;

    fn redirects(rules: &[(&str, &str)]) -> Result<Redirects, RuleError> {
        let rules: Vec<_> =
            rules.iter().map(|(from, to)| Redirect::new(from, to).expect(to)).collect();
        Redirects::new(&rules)
    }

    fn target(redirects: &Redirects, host: &str, sent: &str) -> String {
        let sent: uri::PathAndQuery = sent.parse().unwrap();
        let clean = route::clean(sent.path()).unwrap();
        let clean = clean.as_bytes();
        let (host, port) = crate::request_head::split_host(host);
        let port = port.or(Some(443));
        let found = redirects.find(Address { secure: true, host, port, clean, sent: &sent });
        found.map_or_else(
            || "none".into(),
            |(location, status)| format!("{} {location}", status.as_u16()),
        )
    }

    #[test]
    fn requests_are_sent_on_by_path_prefix_and_host_with_their_query() {
        // One rule for a path and one for all below it would both be for that path.
        assert!(redirects(&[("/old", "/new"), ("/old/*", "/archive/*")]).is_err());
        let all = redirects(&[
            ("/old", "/new"),
            ("/docs/*", "/guide/* 308"),
            ("/shop/*", "https://shop.example.com/* 301"),
            ("/page", "/p?id=7 303"),
            ("www.example.com", "https://example.com 301"),
            ("*.example.net", "https://example.net/moved 307"),
        ])
        .unwrap();
        for (host, sent, expected) in [
            ("a.example", "/old", "302 /new"),
            ("a.example", "/old/", "302 /new"),
            ("a.example", "/%6fld?a=1&b=/", "302 /new?a=1&b=/"),
            ("a.example", "/old/x", "none"),
            ("a.example", "/older", "none"),
            ("a.example", "/docs", "308 /guide/"),
            ("a.example", "/docs/a%2Fb/c?q", "308 /guide/a%2Fb/c?q"),
            ("a.example", "/%64ocs/a%20b", "308 /guide/a%20b"),
            ("a.example", "/page?x", "303 /p?id=7"),
            ("a.example", "/shop/cart", "301 https://shop.example.com/cart"),
            ("shop.example.com", "/shop/cart", "301 https://shop.example.com/cart"),
            ("www.example.com", "/", "301 https://example.com/"),
            ("WWW.example.com.", "/a%2Fb?c", "301 https://example.com/a%2Fb?c"),
            ("example.com", "/", "none"),
            ("a.b.example.net", "/x?y", "307 https://example.net/moved?y"),
        ] {
            assert_eq!(target(&all, host, sent), expected, "{host}{sent}");
        }
    }

    #[test]
    fn no_path_of_a_client_becomes_a_host() {
        let all = redirects(&[("/go/*", "/*"), ("www.a.example", "https://a.example")]).unwrap();
        for sent in [
            "/go//evil.example",
            "/go/\\evil.example",
            "//go//evil.example",
            "/go///\\/evil.example",
        ] {
            assert_eq!(target(&all, "", sent), "302 /evil.example", "{sent}");
        }
        assert_eq!(target(&all, "", "/go/%2F%2Fevil.example"), "302 /%2F%2Fevil.example");
        for sent in ["//evil.example", "/@evil.example", "/.evil.example"] {
            let location = target(&all, "www.a.example", sent);
            assert!(location.starts_with("302 https://a.example/"), "{location}");
        }
    }

    #[test]
    fn a_redirect_to_its_own_address_does_not_apply() {
        let all = redirects(&[("/blog/*", "https://blog.example/blog/*")]).unwrap();
        assert_eq!(target(&all, "a.example", "/blog/x"), "302 https://blog.example/blog/x");
        for host in ["blog.example", "blog.example:443", "BLOG.example"] {
            assert_eq!(target(&all, host, "/blog/x"), "none", "{host}");
        }
        let expected = "302 https://blog.example/blog/x";
        assert_eq!(target(&all, "blog.example:8443", "/blog/x"), expected);
        let all = redirects(&[("/shop/*", "https://a.example:8443/shop/*")]).unwrap();
        assert_eq!(target(&all, "a.example:8443", "/shop/x"), "none");
        assert_eq!(target(&all, "a.example", "/shop/x"), "302 https://a.example:8443/shop/x");
        // A proxy that does not state the port may have received the request at this one.
        let (clean, sent) = (&b"/shop/x"[..], "/shop/x".parse().unwrap());
        let host = "a.example";
        let address = Address { secure: true, host, port: None, clean, sent: &sent };
        assert_eq!(all.find(address), None);
    }

    #[test]
    fn loops_are_refused() {
        for rules in [
            &[("/a", "/a/")][..],
            &[("/a", "/b"), ("/b", "/a")],
            &[("/a/*", "/a/b/*")],
            &[("/*", "/x")],
            &[("a.example", "https://b.example"), ("b.example", "https://a.example")],
            &[("a.example/x", "https://a.example/y"), ("/y", "/x")],
        ] {
            let error = redirects(rules).expect_err(rules[0].0).to_string();
            assert!(error.contains("comes back to itself"), "{error}");
        }
        for rules in [
            &[("/a", "/b"), ("/b", "/c")][..],
            &[("a.example", "https://a.example")],
            &[("www.a.example", "https://a.example"), ("a.example/old", "https://a.example/new")],
        ] {
            assert!(redirects(rules).is_ok(), "{rules:?}");
        }
    }

    #[test]
    fn redirects_that_cannot_be_are_refused() {
        for (from, to) in [
            ("", "/x"),
            ("old", ""),
            ("/old", ""),
            ("/old", "new"),
            ("/old", "//evil.example"),
            ("/old", "/\\evil.example"),
            ("/old", "/new/*"),
            ("/old/*", "/new*"),
            ("/old/*", "/new?a/*"),
            ("/old", "/new 200"),
            ("/old", "/new 304"),
            ("/old", "/new abc"),
            ("/old", "/new 301 302"),
            ("/old", "ftp://a.example/"),
            ("/old", "https://"),
            ("/old", "https://user@a.example/"),
            ("/old", "javascript:alert(1)"),
            ("/a*b", "/x"),
            ("/a/../b", "/x"),
            ("http://a.example", "/x"),
        ] {
            assert_eq!(Redirect::new(from, to), Err(NoRedirect), "{from} {to}");
        }
    }
}
