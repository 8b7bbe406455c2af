//! Conditional and range requests (RFC 9110, sections 13 and 14).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header};

/// Identifies one version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Validators {
    pub(crate) etag: HeaderValue,
    /// Modification time in whole seconds, as in HTTP dates.
    pub(crate) modified: SystemTime,
}

impl Validators {
    /// Creates validators from a file's size and modification time in nanoseconds. The tag is strong, because two
    /// versions of one size do not occur within a nanosecond. `coding` distinguishes precompressed variants.
    pub(crate) fn of(size: u64, modified: SystemTime, coding: &str) -> Self {
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let dash = if coding.is_empty() { "" } else { "-" };
        let text = format!("\"{:x}-{size:x}{dash}{coding}\"", since.as_nanos());
        Self {
            etag: HeaderValue::try_from(text).expect("hexadecimal digits are a header value"),
            modified: UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        }
    }
}

/// The result of a conditional GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The condition holds: send the file.
    Holds,
    /// The client has the current version: 304.
    NotModified,
    /// A precondition failed: 412.
    Failed,
}

/// Evaluates the conditions in the order of RFC 9110, section 13.2.2.
pub(crate) fn evaluate(headers: &HeaderMap, now: &Validators) -> Condition {
    if let Some(wanted) = text(headers, header::IF_MATCH) {
        if !lists(wanted, now, false) {
            return Condition::Failed;
        }
    } else if let Some(since) = date(headers, header::IF_UNMODIFIED_SINCE)
        && now.modified > since
    {
        return Condition::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        let mut lists_now = headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(|known| lists(known, now, true));
        if lists_now.any(|known| known) {
            return Condition::NotModified;
        }
    } else if let Some(since) = date(headers, header::IF_MODIFIED_SINCE)
        && now.modified <= since
    {
        return Condition::NotModified;
    }
    Condition::Holds
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: header::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// Returns whether a list of entity tags contains ours, which contains no comma.
fn lists(list: &str, now: &Validators, weak: bool) -> bool {
    list.split(',').map(str::trim).any(|tag| {
        tag == "*"
            || tag.as_bytes() == now.etag.as_bytes()
            || (weak
                && tag.strip_prefix("W/").is_some_and(|tag| tag.as_bytes() == now.etag.as_bytes()))
    })
}

/// The requested part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole file: 200.
    Whole,
    /// A range of bytes, both ends included: 206.
    Range {
        /// First byte.
        first: u64,
        /// Last byte.
        last: u64,
    },
    /// The range does not exist: 416.
    Unsatisfiable,
}

/// Returns the range of a GET. Several ranges are answered with the whole file, as RFC 9110 (section 14.2) allows,
/// because they let a small request cause a large response.
pub(crate) fn part(headers: &HeaderMap, size: u64, now: &Validators) -> Part {
    let Some(range) = text(headers, header::RANGE) else { return Part::Whole };
    if let Some(condition) = text(headers, header::IF_RANGE) {
        let same = if condition.starts_with('"') {
            condition.as_bytes() == now.etag.as_bytes()
        } else {
            httpdate::parse_http_date(condition).is_ok_and(|date| date == now.modified)
        };
        if !same {
            return Part::Whole;
        }
    }
    parse_range(range, size)
}

pub(crate) fn parse_range(range: &str, size: u64) -> Part {
    let parse = |text: &str| -> Option<u64> {
        // `u64::from_str` accepts a plus sign; RFC 9110 does not.
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(text.parse().unwrap_or(u64::MAX))
    };
    let Some((unit, set)) = range.split_once('=') else { return Part::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Part::Whole;
    }
    let Some((first, last)) = set.trim().split_once('-') else { return Part::Whole };
    match (first, last) {
        ("", suffix) => match parse(suffix) {
            None => Part::Whole,
            Some(0) => Part::Unsatisfiable,
            Some(_) if size == 0 => Part::Unsatisfiable,
            Some(length) => Part::Range { first: size.saturating_sub(length), last: size - 1 },
        },
        (first, last) => match (parse(first), last, parse(last)) {
            (Some(first), "", _) if first < size => Part::Range { first, last: size - 1 },
            (Some(first), _, Some(last)) if first > last => Part::Whole,
            (Some(first), _, Some(last)) if first < size => {
                Part::Range { first, last: last.min(size - 1) }
            }
            (Some(_), "", _) | (Some(_), _, Some(_)) => Part::Unsatisfiable,
            (None, _, _) | (Some(_), _, None) => Part::Whole,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        for (range, expected) in [
            ("bytes=0-0", Part::Range { first: 0, last: 0 }),
            ("bytes=0-99", Part::Range { first: 0, last: 9 }),
            ("bytes=5-", Part::Range { first: 5, last: 9 }),
            ("bytes=-3", Part::Range { first: 7, last: 9 }),
            ("bytes=-99", Part::Range { first: 0, last: 9 }),
            ("Bytes=2-3", Part::Range { first: 2, last: 3 }),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=10-11", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=99999999999999999999-", Part::Unsatisfiable),
            ("bytes=3-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes", Part::Whole),
            ("lines=1-2", Part::Whole),
        ] {
            assert_eq!(parse_range(range, 10), expected, "{range}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Part::Unsatisfiable);
        assert_eq!(parse_range("bytes=-1", 0), Part::Unsatisfiable);
    }

    fn with(pairs: &[(&'static str, &str)]) -> (Condition, Part) {
        let modified = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
        let now = Validators::of(10, modified, "");
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = value.replace("ETAG", now.etag.to_str().unwrap());
            headers.append(*name, value.parse().unwrap());
        }
        (evaluate(&headers, &now), part(&headers, 10, &now))
    }

    #[test]
    fn conditions_take_precedence_as_rfc_9110_says() {
        const THEN: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
        const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
        use Condition::{Failed, Holds, NotModified};
        for (pairs, expected) in [
            (&[("if-none-match", "ETAG")][..], NotModified),
            (&[("if-none-match", "\"x\", W/ETAG")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"x\""), ("if-modified-since", THEN)], Holds),
            (&[("if-modified-since", THEN)], NotModified),
            (&[("if-modified-since", BEFORE)], Holds),
            (&[("if-modified-since", "yesterday")], Holds),
            (&[("if-match", "ETAG")], Holds),
            (&[("if-match", "W/ETAG")], Failed),
            (&[("if-unmodified-since", BEFORE)], Failed),
            (&[("if-unmodified-since", THEN)], Holds),
        ] {
            assert_eq!(with(pairs).0, expected, "{pairs:?}");
        }
        let range = Part::Range { first: 0, last: 1 };
        for (condition, expected) in
            [("ETAG", range), ("W/ETAG", Part::Whole), (THEN, range), (BEFORE, Part::Whole)]
        {
            let pairs = [("range", "bytes=0-1"), ("if-range", condition)];
            assert_eq!(with(&pairs).1, expected, "{condition}");
        }
    }

    proptest! {
        #[test]
        fn a_range_lies_within_the_file(range in "bytes=[0-9]{0,4}-[0-9]{0,4}", size in 0_u64..2000) {
            if let Part::Range { first, last } = parse_range(&range, size) {
                prop_assert!(first <= last && last < size);
            }
        }

        #[test]
        fn any_range_header_is_handled(range in "\\PC{0,40}") {
            let _part = parse_range(&range, 100);
        }
    }
}
