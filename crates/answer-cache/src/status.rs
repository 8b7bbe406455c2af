//! `Cache-Status` (RFC 9211): how the cache took part in an answer.

use std::time::Duration;

use http::HeaderValue;

use crate::request::Bypass;
use crate::storing::NotStored;

/// Why a request was passed on to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// The cache took no part.
    Bypass(Bypass),
    /// Nothing was stored for its URI.
    UriMiss,
    /// The stored answer was stale.
    Stale,
}

/// Returns the field of an answer from the cache. `left` is its remaining freshness, negative if it is stale.
pub fn status_of_hit(left: i64, collapsed: bool) -> HeaderValue {
    let collapsed = if collapsed { "; collapsed" } else { "" };
    let text = format!("Hearth; hit; ttl={left}{collapsed}");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Hearth; hit"))
}

/// Returns the field of an answer of the application. `stored` has the reason if it is not stored; `None` if that was
/// not considered. `status` is the status of the application if the answer has another.
pub fn status_of_miss(
    forwarded: Forwarded,
    stored: Option<Result<Duration, NotStored>>,
    status: Option<u16>,
) -> HeaderValue {
    let forward = match forwarded {
        Forwarded::Bypass(Bypass::Method) => "method",
        Forwarded::Bypass(_) => "bypass",
        Forwarded::UriMiss => "uri-miss",
        Forwarded::Stale => "stale",
    };
    let status = status.map(|status| format!("; fwd-status={status}")).unwrap_or_default();
    let outcome = match (forwarded, stored) {
        (_, Some(Ok(lifetime))) => format!("; stored; ttl={}", lifetime.as_secs()),
        (_, Some(Err(reason))) => format!("; detail={}", reason.name()),
        (Forwarded::Bypass(reason), None) if reason != Bypass::Method => {
            format!("; detail={}", reason.name())
        }
        _ => String::new(),
    };
    let text = format!("Hearth; fwd={forward}{status}{outcome}");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Hearth"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9211, section 2.
    #[test]
    fn fields_say_what_happened() {
        assert_eq!(status_of_hit(30, false), "Hearth; hit; ttl=30");
        assert_eq!(status_of_hit(-3, true), "Hearth; hit; ttl=-3; collapsed");
        let miss = |forwarded, stored| status_of_miss(forwarded, stored, None);
        assert_eq!(
            miss(Forwarded::UriMiss, Some(Ok(Duration::from_mins(1)))),
            "Hearth; fwd=uri-miss; stored; ttl=60"
        );
        assert_eq!(
            miss(Forwarded::UriMiss, Some(Err(NotStored::SetCookie))),
            "Hearth; fwd=uri-miss; detail=set-cookie"
        );
        assert_eq!(miss(Forwarded::Bypass(Bypass::Method), None), "Hearth; fwd=method");
        assert_eq!(
            miss(Forwarded::Bypass(Bypass::Cookie), None),
            "Hearth; fwd=bypass; detail=cookie"
        );
        assert_eq!(
            status_of_miss(Forwarded::Stale, None, Some(304)),
            "Hearth; fwd=stale; fwd-status=304"
        );
    }
}
