//! What is known of a connection between two calls: for how long the origin keeps it, and what bytes mean that come unasked. Sans I/O.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::origin::Condition;

/// What bytes mean that no request had asked for. Some servers end an answer with an empty line too many, and some announce with 408 that
/// they close an idle connection.
pub(super) fn unasked(bytes: &[u8]) -> Condition {
    let text = bytes.trim_ascii_start();
    if text.is_empty() {
        Condition::Spent
    } else if text.starts_with(b"HTTP/1.1 408") || text.starts_with(b"HTTP/1.0 408") {
        Condition::Closed
    } else {
        Condition::Unasked
    }
}

/// `Keep-Alive: timeout=N` (RFC 2068, 19.7.1.1), less a second: the origin's clock runs since it sent the answer. `max=0`: not at all.
pub(super) fn kept_for(headers: &HeaderMap) -> Option<Duration> {
    const ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    let mut kept = None;
    for parameter in headers.get(ALIVE)?.to_str().ok()?.split(',') {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let Ok(value) = value.trim().parse::<u32>() else { continue };
        if name.trim().eq_ignore_ascii_case("timeout") {
            kept = Some(Duration::from_secs(u64::from(value.saturating_sub(1))));
        } else if name.trim().eq_ignore_ascii_case("max") && value == 0 {
            return Some(Duration::ZERO);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_is_believed_with_a_second_to_spare() {
        for (value, wanted) in [
            ("timeout=5", Some(4)),
            ("timeout=5, max=100", Some(4)),
            ("max=100,Timeout = 75", Some(74)),
            ("timeout=1", Some(0)),
            ("timeout=0", Some(0)),
            ("timeout=60, max=0", Some(0)),
            ("max=3", None),
            ("timeout=soon", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", value.parse().expect("a value"));
            assert_eq!(kept_for(&headers), wanted.map(Duration::from_secs), "{value:?}");
        }
    }

    #[test]
    fn bytes_that_nothing_asked_for_are_an_answer_unless_they_announce_a_close() {
        for (bytes, wanted) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], Condition::Unasked),
            (b"\r\nHTTP/1.1 200 OK", Condition::Unasked),
            (b"H", Condition::Unasked),
            (b"\0", Condition::Unasked),
            (b"HTTP/1.1 408 Requ", Condition::Closed),
            (b"HTTP/1.0 408 Requ", Condition::Closed),
            (b"\r\n", Condition::Spent),
        ] {
            assert_eq!(unasked(bytes), wanted, "{bytes:?}");
        }
    }
}
