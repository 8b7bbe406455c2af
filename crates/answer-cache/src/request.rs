//! Whether the cache takes part in answering a request (RFC 9111, sections 3, 3.5, 4 and 5.2.1).
//!
//! Invariants
//! - A request with a cookie that may name a user gets nothing from the cache, and its answer is not stored.
//! - A request with a body is passed on: what it has in its body is not in the key.

use http::{HeaderMap, Method, header};

use crate::directives::asks_for;

/// Why the cache takes no part in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// The request's method is neither GET nor HEAD.
    Method,
    /// The request has a body.
    Body,
    /// The request has a cookie.
    Cookie,
    /// The request has a precondition that only the application can check.
    Precondition,
    /// `Cache-Control: no-store`.
    NoStore,
    /// The client has shown a certificate: the answer is for no other client.
    Certificate,
}

impl Bypass {
    /// Returns the word in `Cache-Status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Body => "body",
            Self::Cookie => "cookie",
            Self::Precondition => "precondition",
            Self::NoStore => "no-store",
            Self::Certificate => "certificate",
        }
    }
}

/// The cookies that name no user: analytics, consent.
#[derive(Clone, Debug, Default)]
pub struct CookieFilter {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

impl CookieFilter {
    /// Creates a filter from names; one that ends with `*` stands for all that begin as it does.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut filter = Self::default();
        for name in names {
            match name.strip_suffix('*') {
                Some(prefix) => filter.prefixes.push(prefix.to_owned()),
                None => filter.exact.push(name.to_owned()),
            }
        }
        filter
    }

    fn ignores(&self, name: &str) -> bool {
        self.exact.iter().any(|known| known == name)
            || self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Returns whether a request has a cookie that this filter does not ignore.
    fn counts(&self, headers: &HeaderMap) -> bool {
        headers.get_all(header::COOKIE).iter().any(|value| {
            let Ok(text) = value.to_str() else { return true };
            let mut cookies = text.split(';').map(str::trim).filter(|cookie| !cookie.is_empty());
            cookies.any(|cookie| {
                let name = cookie.split('=').next().unwrap_or(cookie);
                !self.ignores(name.trim())
            })
        })
    }
}

/// A request that the cache may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether the request has `Authorization`.
    pub authorized: bool,
    /// Only a stored answer is wanted; without one the answer is 504.
    pub only_if_cached: bool,
    /// Whether the answer may be stored, and used for waiting requests: the request is a GET for the whole.
    pub may_fill: bool,
}

impl Request {
    /// Reads a request. `has_body` says that a body follows, or that it has arrived.
    pub fn read(
        method: &Method,
        headers: &HeaderMap,
        has_body: bool,
        cookies: &CookieFilter,
    ) -> Result<Self, Bypass> {
        if *method != Method::GET && *method != Method::HEAD {
            return Err(Bypass::Method);
        }
        if has_body {
            return Err(Bypass::Body);
        }
        if cookies.counts(headers) {
            return Err(Bypass::Cookie);
        }
        if headers.contains_key(header::IF_MATCH)
            || headers.contains_key(header::IF_UNMODIFIED_SINCE)
        {
            return Err(Bypass::Precondition);
        }
        let controlled = headers.contains_key(header::CACHE_CONTROL);
        if controlled && asks_for(headers, "no-store") {
            return Err(Bypass::NoStore);
        }
        Ok(Self {
            authorized: headers.contains_key(header::AUTHORIZATION),
            only_if_cached: controlled && asks_for(headers, "only-if-cached"),
            may_fill: *method == Method::GET && !headers.contains_key(header::RANGE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn read(
        method: &Method,
        pairs: &[(&'static str, &str)],
        body: bool,
    ) -> Result<Request, Bypass> {
        let headers = headers(pairs);
        Request::read(method, &headers, body, &CookieFilter::new(["consent", "_ga*"]))
    }

    /// RFC 9111, section 4; RFC 9110, section 9.3.1: content of a GET has no meaning, and PHP reads it all the same.
    #[test]
    fn only_plain_reads_are_answered() {
        assert!(read(&Method::GET, &[], false).unwrap().may_fill);
        assert!(!read(&Method::HEAD, &[], false).unwrap().may_fill);
        assert!(!read(&Method::GET, &[("range", "bytes=0-1")], false).unwrap().may_fill);
        assert_eq!(read(&Method::POST, &[], false), Err(Bypass::Method));
        assert_eq!(read(&Method::GET, &[], true), Err(Bypass::Body));
        assert_eq!(read(&Method::GET, &[("if-match", "\"a\"")], false), Err(Bypass::Precondition));
        assert_eq!(
            read(&Method::GET, &[("cache-control", "no-store")], false),
            Err(Bypass::NoStore)
        );
        assert!(
            read(&Method::GET, &[("cache-control", "only-if-cached")], false)
                .unwrap()
                .only_if_cached
        );
    }

    #[test]
    fn every_cookie_counts_but_those_that_name_no_user() {
        for (cookie, counts) in [
            ("PHPSESSID=1", true),
            ("consent=1", false),
            ("consent=1; _ga_X=2;", false),
            ("consent=1; PHPSESSID=1", true),
            ("consentx=1", true),
            ("ga", true),
            ("", false),
        ] {
            let outcome = read(&Method::GET, &[("cookie", cookie)], false);
            assert_eq!(outcome == Err(Bypass::Cookie), counts, "{cookie}");
        }
        let two = [("cookie", "consent=1"), ("cookie", "id=1")];
        assert_eq!(read(&Method::GET, &two, false), Err(Bypass::Cookie));
    }
}
