//! Fields of requests and answers: the cache stores nothing that one of its rules forbids, and no restriction that is added makes it store more.

#![no_main]

use std::time::{Duration, SystemTime};

use answer_cache::{
    Answer, Conditional, CookieFilter, Key, Request, Standing, Target, answer_to, application_of,
    describes, if_range_holds, make_conditional, other_targets, store, tags, update, url_of,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};

// The input: a status and flags in two bytes, then fields of the request, of the answer and of a later 304, one a line, parted by empty lines.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [status, flags, text @ ..] = input else { return };
    let mut messages = [HeaderMap::new(), HeaderMap::new(), HeaderMap::new()];
    let mut at = 0;
    for line in text.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            at = 2.min(at + 1);
        } else if let Some((name, value)) = field(line) {
            messages[at].append(name, value);
        }
    }
    let [request, headers, confirmed] = messages;
    let status = [200, 203, 204, 206, 301, 304, 404, 418, 500, 999][usize::from(status % 10)];
    let status = StatusCode::from_u16(status).expect("three digits");
    asked(&request, flags & 2 != 0);
    answered(&request, &headers, status, flags & 1 != 0);
    validated(&request, &headers, &confirmed, status);
});

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at(colon);
    Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(&value[1..]).ok()?))
}

fn asked(headers: &HeaderMap, body: bool) {
    let cookies = CookieFilter::new(["consent", "_ga*"]);
    let read = Request::read(&Method::GET, headers, body, &cookies);
    if body || headers.contains_key(header::IF_MATCH) {
        assert!(read.is_err());
    }
    let mut named = headers.clone();
    named.append(header::COOKIE, HeaderValue::from_static("session=1"));
    assert!(Request::read(&Method::GET, &named, false, &cookies).is_err(), "a cookie of a user");

    let Some(uri) = headers.get("x-path").and_then(|path| path.to_str().ok()?.parse::<Uri>().ok())
    else {
        return;
    };
    let host = headers.get(header::HOST).map_or(&b"localhost"[..], |host| host.as_bytes());
    let target = Target { application: 7, secure: true, port: 443, host, uri: &uri, headers };
    if let Some(key) = Key::of(&target) {
        assert_eq!(application_of(key.as_bytes()), Some(7));
        assert!(url_of(key.as_bytes()).starts_with(b"https://"));
        assert_ne!(Key::of(&Target { secure: false, ..target }), Some(key.clone()));
        for path in other_targets(headers, host) {
            if let Some(other) = key.at(path) {
                assert_eq!(application_of(other.as_bytes()), Some(7));
            }
        }
    }
}

fn answered(request: &HeaderMap, headers: &HeaderMap, status: StatusCode, authorized: bool) {
    let received = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let decide = |headers: &HeaderMap, authorized| {
        store(&Answer { status, headers, authorized, received, delay: Duration::from_secs(1) })
    };
    let decision = decide(headers, authorized);
    // Whatever the other fields are: one more restriction forbids it.
    for more in ["no-store", "No-Store=\"x\"", "private", "no-store, must-understand=\"\", private"]
    {
        let mut restricted = headers.clone();
        restricted.append(header::CACHE_CONTROL, HeaderValue::from_static(more));
        let understands = headers.get_all(header::CACHE_CONTROL).iter().any(|value| {
            value.as_bytes().to_ascii_lowercase().windows(15).any(|part| part == b"must-understand")
        });
        let stored = decide(&restricted, authorized);
        assert!(
            stored.is_err() || (understands && !more.contains("private")),
            "{more} {headers:?}"
        );
    }
    let mut any = headers.clone();
    any.append(header::VARY, HeaderValue::from_static("*"));
    assert!(decide(&any, authorized).is_err(), "Vary: * {headers:?}");
    assert!(decide(headers, true).is_err() || decide(headers, false).is_ok(), "{headers:?}");
    let _found = tags(headers);

    let Ok(stored) = decision else { return };
    assert!(![206, 304].contains(&status.as_u16()));
    if headers.contains_key(header::SET_COOKIE) {
        assert!(stored.without.contains(&header::SET_COOKIE), "{headers:?}");
    }
    let fresh = |seconds| {
        matches!(stored.freshness.standing(Duration::from_secs(seconds)), Standing::Fresh(_))
    };
    assert!(fresh(1) || !fresh(2), "no answer gets fresh again");
    // `Expires` reaches to the year 9999.
    assert!(!fresh(8000 * 366 * 86_400), "nothing is fresh for ever");
    if let Some(rule) = stored.vary {
        assert!(rule.covers(&rule) && rule.join(&rule).is_ok_and(|both| both == rule));
        let select = |headers: &HeaderMap| {
            let mut key = Vec::new();
            rule.select(headers, &mut key);
            key
        };
        let found = select(request);
        assert_eq!(found, select(&request.clone()));
        assert!(rule.size() > 0 && !found.is_empty());
    }
}

fn validated(request: &HeaderMap, stored: &HeaderMap, confirmed: &HeaderMap, status: StatusCode) {
    let answer = answer_to(request, status, stored);
    assert!(status == StatusCode::OK || answer == Conditional::Whole);
    let _holds = if_range_holds(request, stored);
    let mut asks = request.clone();
    let has = stored.contains_key(header::ETAG) || stored.contains_key(header::LAST_MODIFIED);
    assert_eq!(make_conditional(&mut asks, stored), has);
    if has && stored.get_all(header::ETAG).iter().count() == 1 && is_tag(&stored[header::ETAG]) {
        assert_eq!(
            answer_to(&asks, StatusCode::OK, stored),
            Conditional::NotModified,
            "{stored:?}"
        );
    }
    if describes(confirmed, stored) {
        let mut updated = stored.clone();
        update(&mut updated, confirmed);
        let mut twice = updated.clone();
        update(&mut twice, confirmed);
        assert_eq!(twice, updated);
        for kept in [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::SET_COOKIE] {
            assert_eq!(updated.get(&kept), stored.get(&kept));
        }
    }
}

/// An entity tag as RFC 9110, 8.8.3, writes it: the shortest is `""`.
fn is_tag(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let opaque = bytes.strip_prefix(b"W/").unwrap_or(bytes);
    opaque.len() > 1
        && opaque.starts_with(b"\"")
        && opaque.ends_with(b"\"")
        && opaque[1..opaque.len() - 1].iter().all(|byte| *byte > b' ' && *byte != b'"')
}
