//! The entry point of the fuzz target: rules as an operator writes them, then a request of any client.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header, uri};

use super::basic_auth::{any_credentials, any_users};
use super::header::FRAMING;
use super::{
    Address, FieldRule, Fields, NoFieldRule, RateBuckets, RateLimit, RateLimits, Redirect,
    Redirects, is_behind, names,
};
use crate::claims::{Claim, Claims};
use crate::route;
use crate::site::Site;

/// Reads the first line as a request: a host, a path with a query, and a value of `Authorization`, parted by tabs. Each
/// further line is read as every kind of rule, and all of them together as a file of users.
///
/// # Panics
/// If a rule lets a client choose the host of a redirect, changes a field of the connection, or makes a field invalid.
pub(crate) fn fuzz(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (request, rules) = text.split_once('\n').unwrap_or((&text, ""));
    let mut words = request.splitn(3, '\t');
    let host = words.next().unwrap_or_default();
    let sent = words.next().unwrap_or_default().parse::<uri::PathAndQuery>();
    let clean = sent.as_ref().ok().and_then(|sent| route::clean(sent.path()).ok());
    let path = clean.as_ref().map(route::CleanPath::as_bytes);
    any_credentials(words.next().unwrap_or_default());
    any_users(rules);

    let lines = || rules.lines().take(16);
    let limits: Vec<RateLimit> = lines().filter_map(|line| line.parse().ok()).collect();
    if let (Ok(limits), Some(path)) = (RateLimits::new(&limits), path) {
        rates(&limits, host, path);
    }
    let pairs = || lines().filter_map(|line| line.split_once('='));
    let redirects: Vec<Redirect> =
        pairs().filter_map(|(from, to)| Redirect::new(from.trim(), to.trim()).ok()).collect();
    if let (Ok(redirects), Some(clean), Ok(sent)) = (Redirects::new(&redirects), path, &sent) {
        for secure in [false, true] {
            redirect(&redirects, Address { secure, host, port: None, clean, sent });
        }
    }
    fields(pairs(), host, path);
    if let Some(path) = path {
        spellings(lines().filter_map(|line| line.parse().ok()), host, path);
    }
}

/// Asserts that a front controller's name before a path, with or without a slash between, hides no claim.
fn spellings(claims: impl Iterator<Item = Claim>, host: &str, path: &[u8]) {
    let claims: Vec<Claim> = claims.collect();
    let claims = Claims::new(claims.iter().zip(0..));
    let Ok(number) = claims.choose(host, path) else { return };
    for rest in [path, path.strip_prefix(b"/").unwrap_or_default()] {
        let spelled = [b"/index.PHP", rest].concat();
        let found = names(&spelled).any(|name| claims.choose(host, name) == Ok(number));
        assert!(found || rest.is_empty(), "{}", String::from_utf8_lossy(&spelled));
    }
}

fn rates(limits: &RateLimits, host: &str, path: &[u8]) {
    let buckets = RateBuckets::default();
    let site = Site::of("192.0.2.1".parse().expect("an address"));
    let at = Duration::from_hours(1);
    let behind = is_behind(Some("/index.php"), path);
    let take = |at| limits.take(&buckets, site, host, path, behind, at);
    let first = take(at);
    assert_eq!(first, Ok(()), "the first request of a client is never too many");
    for _ in 0..3 {
        if let Err(wait) = take(at) {
            assert!(!wait.is_zero());
            assert_eq!(take(at + wait), Ok(()), "the time to wait is enough");
            return;
        }
    }
}

fn redirect(redirects: &Redirects, address: Address<'_>) {
    let Some((location, status)) = redirects.find(address) else { return };
    assert!(status.is_redirection());
    HeaderValue::from_str(&location).expect("a location is a valid field");
    if location.starts_with('/') {
        assert!(!location.starts_with("//") && !location.starts_with("/\\"), "{location}");
        return;
    }
    let target = location.parse::<http::Uri>().expect("an address");
    let authority = target.authority().expect("an address with a host").as_str();
    // The host is one that a rule names: no client's host or path becomes one.
    assert!(redirects.names_authority(authority), "{location}");
}

fn fields<'t>(rules: impl Iterator<Item = (&'t str, &'t str)>, host: &str, path: Option<&[u8]>) {
    let mut read = Vec::new();
    for (rule, value) in rules {
        match FieldRule::new(rule, value) {
            Ok(rule) => read.push(rule),
            Err(NoFieldRule::Form | NoFieldRule::Framing) => {}
        }
    }
    let fields = Fields::new(&read);
    let mut headers = HeaderMap::new();
    for name in FRAMING {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static("own"));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    let chosen = fields.choose(host, path, Some("/index.php"));
    fields.apply(&chosen, &mut headers, false);
    assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY), "over plain HTTP");
    for name in FRAMING {
        let values: Vec<_> = headers.get_all(*name).iter().collect();
        assert_eq!(values, ["own"], "{name}");
    }
    let values = headers.values().all(|value| !value.as_bytes().contains(&b'\n'));
    assert!(values, "a rule adds no line");
}

#[cfg(test)]
mod tests {
    proptest::proptest! {
        #[test]
        fn whatever_stands_in_rules_is_read_or_refused(
            host in "(a|b|\\*|\\.|:|\\[|\\]|1){0,8}",
            path in "(/|a|b|\\.|%2f|%5c|\\\\|\\?|=|index\\.php|é){0,10}",
            authorization in "(Basic |[a-zA-Z0-9+/=]{0,12}){0,3}",
            rules in "((/|a|b|\\*|\\.| |=|\\+|\\?|-|https://|h|[0-9]{1,7}|/s|/m|:|\\$2y\\$|301|text/html|X-A|Vary){0,12}\n){0,4}",
        ) {
            super::fuzz(format!("{host}\t/{path}\t{authorization}\n{rules}").as_bytes());
        }
    }
}
