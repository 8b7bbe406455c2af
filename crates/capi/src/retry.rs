//! Whether a request may be retried, and after what delay.
//!
//! Invariants
//! - A request that may have reached the origin is repeated only if its method is idempotent (RFC 9110, 9.2.2), or the caller insists.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, header::RETRY_AFTER};

use crate::error::Kind;
use crate::settings::Retry;

/// RFC 9110, 9.2.2.
fn idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS | Method::TRACE
    )
}

/// A kept connection may close in the moment in which it is used, and so may the next: such a try does not count. This is how often that
/// is assumed.
pub(crate) const STALE: u32 = 8;

/// Returns whether a kept connection had closed, so that the request may be made again.
pub(crate) fn was_stale(kept: bool, kind: Kind, method: &Method) -> bool {
    kept && matches!(kind, Kind::Empty | Kind::Reset) && idempotent(method)
}

/// Returns the delay before try number `tries + 1` after a failure; `None`: the failure is final. `sent`: the origin may have seen the request.
pub(crate) fn after_failure(
    retry: &Retry,
    tries: u32,
    kind: Kind,
    sent: bool,
    method: &Method,
) -> Option<Duration> {
    let transient = match kind {
        Kind::Resolve
        | Kind::Connect
        | Kind::ConnectTimeout
        | Kind::Tls
        | Kind::Proxy
        | Kind::System => true,
        Kind::Reset | Kind::Empty | Kind::Stream => !sent || retry.any_method || idempotent(method),
        _ => false,
    };
    (transient && tries < retry.most).then(|| delay(retry, tries))
}

/// Returns the delay for a mail. These failures happened before the message's end, or are the server's own refusal:
/// nothing was accepted.
pub(crate) fn after_mail(retry: &Retry, tries: u32, kind: Kind) -> Option<Duration> {
    let transient = matches!(
        kind,
        Kind::Resolve
            | Kind::Connect
            | Kind::ConnectTimeout
            | Kind::Tls
            | Kind::Proxy
            | Kind::System
            | Kind::Reset
            | Kind::Empty
            | Kind::Later
    );
    (transient && tries < retry.most).then(|| delay(retry, tries))
}

/// Returns the delay after a response.
pub(crate) fn after_answer(
    retry: &Retry,
    tries: u32,
    status: u16,
    headers: &HeaderMap,
    method: &Method,
) -> Option<Duration> {
    // 429 and 503 mean that nothing was done; a gateway knows less about 502 and 504.
    let again = match status {
        429 | 503 => true,
        502 | 504 => retry.any_method || idempotent(method),
        _ => false,
    };
    if !again || tries >= retry.most {
        return None;
    }
    let delay = delay(retry, tries);
    match retry.after.then(|| wished(headers)).flatten() {
        // An earlier retry is not wanted, a later one not permitted.
        Some(wished) if wished > retry.longest => None,
        Some(wished) => Some(wished.max(delay)),
        None => Some(delay),
    }
}

/// Doubles each time; of that, a random part between half and all.
fn delay(retry: &Retry, tries: u32) -> Duration {
    let factor = 1_u32.checked_shl(tries.min(30)).unwrap_or(u32::MAX);
    let delay = retry.delay.saturating_mul(factor).min(retry.longest);
    if retry.jitter { delay / 2 + delay.mul_f64(fastrand::f64() / 2.0) } else { delay }
}

/// Parses `Retry-After` (RFC 9110, 10.2.3): seconds, or a date.
fn wished(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Retry = Retry {
        most: 3,
        delay: Duration::from_millis(100),
        longest: Duration::from_secs(1),
        jitter: false,
        after: true,
        any_method: false,
    };

    #[test]
    fn only_repeatable_requests_are_retried() {
        for (kind, sent, method, again) in [
            (Kind::Connect, false, Method::POST, true),
            (Kind::Resolve, false, Method::POST, true),
            (Kind::Reset, true, Method::GET, true),
            (Kind::Reset, true, Method::POST, false),
            (Kind::Reset, false, Method::POST, true),
            (Kind::Certificate, false, Method::GET, false),
            (Kind::Timeout, true, Method::GET, false),
            (Kind::Denied, false, Method::GET, false),
            (Kind::Url, false, Method::GET, false),
        ] {
            assert_eq!(
                after_failure(&RETRY, 0, kind, sent, &method).is_some(),
                again,
                "{kind:?} {method}"
            );
        }
        assert!(
            was_stale(true, Kind::Empty, &Method::GET)
                && !was_stale(true, Kind::Empty, &Method::POST)
        );
        assert!(
            !was_stale(false, Kind::Empty, &Method::GET)
                && !was_stale(true, Kind::Timeout, &Method::GET)
        );
        assert!(after_failure(&RETRY, 3, Kind::Connect, false, &Method::GET).is_none());
        let insisting = Retry { any_method: true, ..RETRY };
        assert!(after_failure(&insisting, 0, Kind::Reset, true, &Method::POST).is_some());
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_limit() {
        let headers =
            |value: &str| HeaderMap::from_iter([(RETRY_AFTER, value.parse().expect("a value"))]);
        let after =
            |status, value: &str| after_answer(&RETRY, 0, status, &headers(value), &Method::POST);
        assert_eq!(after(503, "1"), Some(Duration::from_secs(1)));
        assert_eq!(after(503, "0"), Some(Duration::from_millis(100)));
        assert_eq!(after(503, "2"), None);
        assert_eq!(after(429, "Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::from_millis(100)));
        assert_eq!(after(429, "Fri, 31 Dec 2100 23:59:59 GMT"), None);
        assert_eq!(after(429, "soon"), Some(Duration::from_millis(100)));
        assert_eq!(after(502, "0"), None);
        assert_eq!(after(500, "0"), None);
        assert!(after_answer(&RETRY, 0, 502, &HeaderMap::new(), &Method::GET).is_some());
    }

    #[test]
    fn delays_double_up_to_the_longest_with_jitter_below() {
        let delays: Vec<_> = (0..6).map(|tries| delay(&RETRY, tries).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        let jitter = Retry { jitter: true, ..RETRY };
        for _ in 0..100 {
            let delay = delay(&jitter, 1).as_millis();
            assert!((100..=200).contains(&delay), "{delay}");
        }
    }
}
