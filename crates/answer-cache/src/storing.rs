//! Whether an answer may be stored (RFC 9111, section 3).
//!
//! Invariants
//! - An answer with `Set-Cookie` is not stored, unless `no-cache="Set-Cookie"` or `private="Set-Cookie"` says that the
//!   rest of it is for everyone; the field itself is never stored.
//! - An answer without explicit freshness is not stored: PHP sends nothing for pages of which nothing is known.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header};

use crate::directives::{Delta, Directives, Scope};
use crate::freshness::{self, Freshness};
use crate::vary::{Rule, VaryError};

/// Statuses whose caching rules this cache implements, for `must-understand`.
const UNDERSTOOD: [u16; 15] =
    [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 451, 501];

/// An answer, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The answer's status.
    pub status: StatusCode,
    /// The answer's header fields.
    pub headers: &'a HeaderMap,
    /// Whether the request has `Authorization`.
    pub authorized: bool,
    /// The time of its arrival.
    pub received: SystemTime,
    /// The time from the request to its arrival.
    pub delay: Duration,
}

/// Why an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// The request has `Authorization`, and no field says that the answer is for everyone.
    Authorization,
    /// The answer sets a cookie.
    SetCookie,
    /// The answer's status is partial, interim or not modified.
    Status,
    /// Nothing says how long it is fresh, or it is stale and has no validator.
    NoFreshness,
    /// `Vary: *`, or `Vary` names too much.
    Vary,
    /// The answer is a stream of events.
    Stream,
    /// The answer has more tags than this cache keeps.
    Tags,
    /// The answer is larger than the limit.
    Size,
    /// The answer's body is a file that the front sends.
    File,
}

impl NotStored {
    /// Returns the word in `Cache-Status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::SetCookie => "set-cookie",
            Self::Status => "status",
            Self::NoFreshness => "no-freshness",
            Self::Vary => "vary",
            Self::Stream => "stream",
            Self::Tags => "tags",
            Self::Size => "size",
            Self::File => "file",
        }
    }
}

/// The stored parts of an answer, beside its body.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The answer's freshness.
    pub freshness: Freshness,
    /// The request's fields by which it was chosen, if any.
    pub vary: Option<Rule>,
    /// Fields that are not stored, beside those that never are.
    pub without: Vec<HeaderName>,
}

/// Decides about an answer to a GET.
pub fn store(answer: &Answer<'_>) -> Result<Stored, NotStored> {
    let Answer { status, headers, authorized, received, delay } = *answer;
    // PHP answers 500 for a script that failed, with the fields that it had set before it did.
    if !is_final(status) || status == StatusCode::INTERNAL_SERVER_ERROR {
        return Err(NotStored::Status);
    }
    let directives = Directives::read(headers);
    let understood = UNDERSTOOD.contains(&status.as_u16());
    if directives.must_understand && !understood {
        return Err(NotStored::Status);
    }
    if directives.no_store && !directives.must_understand {
        return Err(NotStored::NoStore);
    }
    if directives.private == Scope::Whole {
        return Err(NotStored::Private);
    }
    if authorized && !directives.allow_authorization() {
        return Err(NotStored::Authorization);
    }
    let mut without = Vec::new();
    for scope in [&directives.private, &directives.no_cache] {
        if let Scope::Fields(fields) = scope {
            without.extend(fields.iter().cloned());
        }
    }
    if headers.contains_key(header::SET_COOKIE) && !without.contains(&header::SET_COOKIE) {
        return Err(NotStored::SetCookie);
    }
    let vary = Rule::read(headers).map_err(|error| match error {
        VaryError::Any | VaryError::TooMuch => NotStored::Vary,
    })?;
    if is_stream(headers) {
        return Err(NotStored::Stream);
    }
    let pragma = directives == Directives::default() && has_pragma(headers);
    let freshness = freshness::of(headers, &directives, received, delay).filter(|_any| !pragma);
    let freshness = freshness.ok_or(NotStored::NoFreshness)?;
    let validated =
        headers.contains_key(header::ETAG) || headers.contains_key(header::LAST_MODIFIED);
    let usable = !freshness.validate_always && freshness.age(Duration::ZERO) < freshness.worth();
    if !usable && !validated {
        return Err(NotStored::NoFreshness);
    }
    debug_assert!(
        directives.s_maxage != Delta::Absent || !authorized || directives.allow_authorization()
    );
    Ok(Stored { freshness, vary, without })
}

fn is_final(status: StatusCode) -> bool {
    !status.is_informational()
        && status != StatusCode::PARTIAL_CONTENT
        && status != StatusCode::NOT_MODIFIED
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}

fn has_pragma(headers: &HeaderMap) -> bool {
    headers.get_all(header::PRAGMA).iter().any(|value| {
        value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("no-cache"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn decide(
        status: u16,
        authorized: bool,
        pairs: &[(&'static str, &str)],
    ) -> Result<Stored, NotStored> {
        let headers = headers(pairs);
        store(&Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: &headers,
            authorized,
            received: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            delay: Duration::ZERO,
        })
    }

    fn refused(status: u16, authorized: bool, pairs: &[(&'static str, &str)]) -> Option<NotStored> {
        decide(status, authorized, pairs).err()
    }

    const FRESH: (&str, &str) = ("cache-control", "max-age=60");

    /// RFC 9111, section 3.
    #[test]
    fn what_must_not_be_stored_is_not() {
        let with = |value| [("cache-control", value)];
        assert_eq!(refused(200, false, &[FRESH]), None);
        assert_eq!(refused(200, false, &with("max-age=60, no-store")), Some(NotStored::NoStore));
        assert_eq!(refused(200, false, &with("max-age=60, private")), Some(NotStored::Private));
        assert_eq!(refused(200, false, &[]), Some(NotStored::NoFreshness));
        assert_eq!(refused(200, false, &with("public")), Some(NotStored::NoFreshness));
        assert_eq!(refused(200, false, &with("max-age=0")), Some(NotStored::NoFreshness));
        assert_eq!(refused(200, false, &with("no-cache")), Some(NotStored::NoFreshness));
        for status in [206, 304, 500] {
            assert_eq!(refused(status, false, &[FRESH]), Some(NotStored::Status));
        }
        for status in [301, 404, 503, 599] {
            assert_eq!(refused(status, false, &[FRESH]), None);
        }
        let old = [
            ("expires", "Thu, 19 Nov 1981 08:52:00 GMT"),
            ("cache-control", "no-store, no-cache, must-revalidate"),
        ];
        assert_eq!(refused(200, false, &old), Some(NotStored::NoStore), "PHP's session_start()");
        assert_eq!(
            refused(200, false, &with("no-cache, private")),
            Some(NotStored::Private),
            "Laravel"
        );
    }

    /// RFC 9111, section 3.5.
    #[test]
    fn an_authorised_answer_is_stored_only_if_it_is_for_everyone() {
        assert_eq!(refused(200, true, &[FRESH]), Some(NotStored::Authorization));
        for allowed in ["max-age=60, public", "s-maxage=60", "max-age=60, must-revalidate"] {
            let stored = decide(200, true, &[("cache-control", allowed)]).unwrap();
            assert!(stored.freshness.for_authorization);
        }
        assert_eq!(
            refused(200, true, &[("cache-control", "max-age=60, s-maxage=x")]),
            Some(NotStored::Authorization)
        );
        assert!(!decide(200, false, &[FRESH]).unwrap().freshness.for_authorization);
    }

    /// RFC 9111, section 7.3.
    #[test]
    fn a_cookie_is_never_stored() {
        let cookie = ("set-cookie", "a=1");
        assert_eq!(refused(200, false, &[FRESH, cookie]), Some(NotStored::SetCookie));
        assert_eq!(
            refused(200, false, &[("cache-control", "public, s-maxage=60"), cookie]),
            Some(NotStored::SetCookie)
        );
        let allowed = [("cache-control", "max-age=60, no-cache=\"Set-Cookie\""), cookie];
        assert_eq!(decide(200, false, &allowed).unwrap().without, [header::SET_COOKIE]);
    }

    /// RFC 9111, section 5.2.2.3.
    #[test]
    fn must_understand_goes_before_no_store() {
        let both = [("cache-control", "max-age=60, must-understand, no-store")];
        assert_eq!(refused(200, false, &both), None);
        assert_eq!(refused(499, false, &both), Some(NotStored::Status));
    }

    /// RFC 9111, section 4.3: an answer that must be validated is worth storing if it can be.
    #[test]
    fn a_stale_answer_needs_a_validator() {
        let etag = ("etag", "\"a\"");
        for stale in ["max-age=0", "no-cache, max-age=60"] {
            assert_eq!(refused(200, false, &[("cache-control", stale), etag]), None);
        }
        assert_eq!(
            refused(200, false, &[("cache-control", "no-cache"), etag]),
            Some(NotStored::NoFreshness)
        );
        assert_eq!(refused(200, false, &[("cache-control", "max-age=0, stale-if-error=9")]), None);
        assert_eq!(refused(200, false, &[FRESH, ("age", "61")]), Some(NotStored::NoFreshness));
    }

    #[test]
    fn what_has_no_end_or_no_key_is_not_stored() {
        let html = |vary| [FRESH, ("vary", vary)];
        assert_eq!(refused(200, false, &html("*")), Some(NotStored::Vary));
        assert_eq!(refused(200, false, &html("a, *")), Some(NotStored::Vary));
        assert_eq!(
            refused(200, false, &html("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q")),
            Some(NotStored::Vary)
        );
        assert_eq!(
            refused(200, false, &[FRESH, ("content-type", "Text/Event-Stream; a=b")]),
            Some(NotStored::Stream)
        );
        assert_eq!(
            refused(
                200,
                false,
                &[("pragma", "no-cache"), ("expires", "Sun, 06 Nov 2094 08:49:37 GMT")]
            ),
            Some(NotStored::NoFreshness)
        );
    }
}
