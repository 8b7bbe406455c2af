//! Validation (RFC 9111, section 4.3): asking the application whether a stored answer is still right, and answering
//! clients that ask the same of the cache.
//!
//! Invariants
//! - A 304 updates only the stored answer that it describes.
//! - Fields that describe the stored body stay as they are.

use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// The result of a client's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The whole answer is sent.
    Whole,
    /// The client has it: 304.
    NotModified,
}

/// The conditions of a request that a stored answer replaces by its own.
const CONDITIONS: [HeaderName; 3] =
    [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_RANGE];

/// Makes a request ask whether the stored answer is still right (section 4.3.1). Returns false, and changes nothing, if
/// the answer has no validator.
pub fn make_conditional(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    let etag = stored.get(header::ETAG);
    let modified = stored.get(header::LAST_MODIFIED);
    if etag.is_none() && modified.is_none() {
        return false;
    }
    for name in CONDITIONS {
        request.remove(name);
    }
    if let Some(etag) = etag {
        request.insert(header::IF_NONE_MATCH, etag.clone());
    }
    if let Some(modified) = modified {
        request.insert(header::IF_MODIFIED_SINCE, modified.clone());
    }
    true
}

/// Returns whether a 304 is about the stored answer (section 4.3.4).
pub fn describes(not_modified: &HeaderMap, stored: &HeaderMap) -> bool {
    match (not_modified.get(header::ETAG), stored.get(header::ETAG)) {
        (Some(said), Some(stored)) => opaque(said.as_bytes()) == opaque(stored.as_bytes()),
        (Some(_), None) => false,
        (None, _) => {
            match (not_modified.get(header::LAST_MODIFIED), stored.get(header::LAST_MODIFIED)) {
                (Some(said), Some(stored)) => said == stored,
                _ => true,
            }
        }
    }
}

/// Updates the fields of a stored answer by those of a 304 (section 3.2).
pub fn update(stored: &mut HeaderMap, not_modified: &HeaderMap) {
    for name in not_modified.keys() {
        if !may_update(name) {
            continue;
        }
        stored.remove(name);
        for value in not_modified.get_all(name) {
            stored.append(name.clone(), value.clone());
        }
    }
    // `Age` belongs to the answer that had it.
    if !not_modified.contains_key(header::AGE) {
        stored.remove(header::AGE);
    }
}

fn may_update(name: &HeaderName) -> bool {
    // PHP adds a default Content-Type to a 304, too: it does not describe the stored body.
    ![
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::SET_COOKIE,
    ]
    .contains(name)
}

/// Judges the conditions of a client by a stored answer (section 4.3.2).
pub fn answer_to(request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> Conditional {
    if status != StatusCode::OK {
        return Conditional::Whole;
    }
    if request.contains_key(header::IF_NONE_MATCH) {
        let Some(etag) = stored.get(header::ETAG) else { return Conditional::Whole };
        let known = request.get_all(header::IF_NONE_MATCH).iter();
        let listed = known
            .flat_map(|value| tags(value.as_bytes()))
            .any(|tag| tag == b"*" || opaque(tag) == opaque(etag.as_bytes()));
        return if listed { Conditional::NotModified } else { Conditional::Whole };
    }
    let since = request.get(header::IF_MODIFIED_SINCE).and_then(date);
    let modified =
        stored.get(header::LAST_MODIFIED).or_else(|| stored.get(header::DATE)).and_then(date);
    match (since, modified) {
        (Some(since), Some(modified)) if modified <= since => Conditional::NotModified,
        _ => Conditional::Whole,
    }
}

/// Returns whether `If-Range` allows a part of the stored answer (RFC 9110, section 13.1.5).
pub fn if_range_holds(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let Some(condition) = request.get(header::IF_RANGE) else { return true };
    let strong = |value: &HeaderValue| value.as_bytes().starts_with(b"\"");
    if let Some(etag) = stored.get(header::ETAG)
        && strong(condition)
    {
        return condition == etag;
    }
    !strong(condition)
        && date(condition).is_some()
        && stored.get(header::LAST_MODIFIED).is_some_and(|modified| modified == condition)
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// An entity tag without its mark of weakness.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Splits a list of entity tags at the commas outside of quotes.
fn tags(list: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in list.iter().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                found.push(list.get(start..at).unwrap_or_default().trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(list.get(start..).unwrap_or_default().trim_ascii());
    found
}

#[cfg(test)]
mod tests {
    use super::Conditional::{NotModified, Whole};
    use super::*;
    use crate::testing::headers;

    const THEN: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
    const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";

    /// RFC 9111, section 4.3.1.
    #[test]
    fn the_stored_validators_replace_the_clients() {
        let mut request =
            headers(&[("if-none-match", "\"client\""), ("if-range", "\"c\""), ("a", "b")]);
        let stored = headers(&[("etag", "\"s\""), ("last-modified", THEN)]);
        assert!(make_conditional(&mut request, &stored));
        let wanted =
            headers(&[("a", "b"), ("if-none-match", "\"s\""), ("if-modified-since", THEN)]);
        assert_eq!(request, wanted);
        assert!(!make_conditional(&mut request, &HeaderMap::new()));
        assert_eq!(request, wanted);
    }

    /// RFC 9111, section 4.3.2.
    #[test]
    fn conditions_of_clients_are_judged_by_the_stored_answer() {
        let stored = headers(&[("etag", "\"a,b\""), ("last-modified", THEN)]);
        let judge =
            |pairs: &[(&'static str, &str)]| answer_to(&headers(pairs), StatusCode::OK, &stored);
        for (pairs, expected) in [
            (&[("if-none-match", "\"x\", W/\"a,b\"")][..], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"x\""), ("if-modified-since", THEN)], Whole),
            (&[("if-none-match", "a,b")], Whole),
            (&[("if-modified-since", THEN)], NotModified),
            (&[("if-modified-since", BEFORE)], Whole),
            (&[("if-modified-since", "now")], Whole),
            (&[], Whole),
        ] {
            assert_eq!(judge(pairs), expected, "{pairs:?}");
        }
        let request = headers(&[("if-none-match", "*")]);
        assert_eq!(answer_to(&request, StatusCode::NOT_FOUND, &stored), Whole);
        assert_eq!(answer_to(&request, StatusCode::OK, &HeaderMap::new()), Whole);
    }

    /// RFC 9111, sections 3.2 and 4.3.4.
    #[test]
    fn a_304_updates_what_it_describes() {
        let mut stored = headers(&[
            ("etag", "\"a\""),
            ("x", "1"),
            ("y", "1"),
            ("content-type", "a/b"),
            ("content-length", "5"),
            ("age", "9"),
        ]);
        let said = headers(&[
            ("etag", "W/\"a\""),
            ("x", "2"),
            ("x", "3"),
            ("content-type", "text/html"),
            ("content-length", "0"),
            ("set-cookie", "a=1"),
        ]);
        assert!(describes(&said, &stored));
        update(&mut stored, &said);
        assert_eq!(
            stored,
            headers(&[
                ("etag", "W/\"a\""),
                ("x", "2"),
                ("x", "3"),
                ("y", "1"),
                ("content-type", "a/b"),
                ("content-length", "5")
            ])
        );
        assert!(!describes(&headers(&[("etag", "\"b\"")]), &stored));
        assert!(describes(&HeaderMap::new(), &stored));
    }

    /// RFC 9110, section 13.1.5.
    #[test]
    fn if_range_needs_a_strong_match() {
        let stored = headers(&[("etag", "\"a\""), ("last-modified", THEN)]);
        for (condition, holds) in
            [("\"a\"", true), ("W/\"a\"", false), ("\"b\"", false), (THEN, true), (BEFORE, false)]
        {
            assert_eq!(
                if_range_holds(&headers(&[("if-range", condition)]), &stored),
                holds,
                "{condition}"
            );
        }
        assert!(if_range_holds(&HeaderMap::new(), &stored));
    }
}
