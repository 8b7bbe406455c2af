//! How long a stored answer is fresh, and what a stale one may still be used for (RFC 9111, section 4.2; RFC 5861).
//!
//! Invariants
//! - Age grows by the time that the answer has been stored, which a monotonic clock measures: a step of the system's
//!   clock makes no answer fresh again.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

use crate::directives::{Delta, Directives, Scope, delta_seconds};

/// The freshness of a stored answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The freshness lifetime.
    pub lifetime: Duration,
    /// The age when the answer was received.
    pub initial_age: Duration,
    /// How long it may be used after its lifetime while it is revalidated.
    pub while_revalidate: Duration,
    /// How long it may be used after its lifetime if the application fails.
    pub if_error: Duration,
    /// Whether the answer must be revalidated before each use.
    pub validate_always: bool,
    /// Whether the answer is for requests with `Authorization`, too.
    pub for_authorization: bool,
}

/// The permitted use of a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The answer may be used for this long.
    Fresh(Duration),
    /// The answer may be used while it is revalidated.
    WhileRevalidating,
    /// The answer must be revalidated first. With `true` it may be used if the application fails.
    Stale(bool),
}

impl Freshness {
    /// Returns the age after it was stored for this long.
    pub fn age(&self, resident: Duration) -> Duration {
        self.initial_age.saturating_add(resident)
    }

    /// Returns what the answer may be used for after it was stored for this long.
    pub fn standing(&self, resident: Duration) -> Standing {
        let age = self.age(resident);
        if self.validate_always {
            return Standing::Stale(false);
        }
        match self.lifetime.checked_sub(age) {
            Some(left) if !left.is_zero() => Standing::Fresh(left),
            _ => {
                let by = age.saturating_sub(self.lifetime);
                if by < self.while_revalidate {
                    Standing::WhileRevalidating
                } else {
                    Standing::Stale(by < self.if_error)
                }
            }
        }
    }

    /// Returns how long the answer is worth keeping.
    pub fn worth(&self) -> Duration {
        self.lifetime.saturating_add(self.while_revalidate.max(self.if_error))
    }
}

/// Computes the freshness of an answer received `now`, `delay` after its request was sent. `None` without explicit
/// freshness information: this cache guesses none (section 4.2.2).
pub(crate) fn of(
    headers: &HeaderMap,
    directives: &Directives,
    now: SystemTime,
    delay: Duration,
) -> Option<Freshness> {
    let date = single_date(headers, &header::DATE).and_then(Result::ok);
    let lifetime = match (directives.s_maxage, directives.max_age) {
        (Delta::Absent, Delta::Absent) => expires(headers, date.unwrap_or(now))?,
        (Delta::Absent, max_age) => seconds(max_age.seconds()),
        (s_maxage, _) => seconds(s_maxage.seconds()),
    };
    let apparent = date.and_then(|date| now.duration_since(date).ok()).unwrap_or_default();
    let corrected = age_value(headers).saturating_add(delay);
    // Whole seconds: the resolution of `Date`.
    let initial_age = Duration::from_secs(apparent.as_secs().max(corrected.as_secs()));
    let strict = directives.must_revalidate || directives.proxy_revalidate;
    let allowed = |delta: Delta| match delta {
        Delta::Seconds(seconds) if !strict => Duration::from_secs(seconds.into()),
        _ => Duration::ZERO,
    };
    Some(Freshness {
        lifetime,
        initial_age,
        while_revalidate: allowed(directives.stale_while_revalidate),
        if_error: allowed(directives.stale_if_error),
        validate_always: directives.no_cache == Scope::Whole,
        for_authorization: directives.allow_authorization(),
    })
}

fn seconds(seconds: Option<u32>) -> Duration {
    Duration::from_secs(seconds.unwrap_or_default().into())
}

/// Returns the lifetime by `Expires` (section 5.3): zero if it is no date, or if there are several that differ.
fn expires(headers: &HeaderMap, date: SystemTime) -> Option<Duration> {
    let expires = single_date(headers, &header::EXPIRES)?;
    Some(expires.ok().and_then(|expires| expires.duration_since(date).ok()).unwrap_or_default())
}

/// A field is no single date.
struct NoDate;

/// Returns the date of a field; `None` without the field, an error if it is no single date.
fn single_date(
    headers: &HeaderMap,
    name: &header::HeaderName,
) -> Option<Result<SystemTime, NoDate>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.any(|other| other != first) {
        return Some(Err(NoDate));
    }
    let date = first.to_str().ok().and_then(|text| httpdate::parse_http_date(text).ok());
    Some(date.ok_or(NoDate))
}

/// Returns `Age` (section 5.1): the first value counts, and one that is no number is ignored.
fn age_value(headers: &HeaderMap) -> Duration {
    let value = headers.get(header::AGE).and_then(|value| value.to_str().ok());
    let first = value.and_then(|value| value.split(',').next()).map(str::trim);
    first.and_then(delta_seconds).map_or(Duration::ZERO, |age| Duration::from_secs(age.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    const NOW: u64 = 1_700_000_000;

    fn at(offset: i64) -> String {
        let at = NOW.checked_add_signed(offset).unwrap();
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(at))
    }

    fn fresh(pairs: &[(&'static str, &str)]) -> Option<Freshness> {
        let headers = headers(pairs);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        of(&headers, &Directives::read(&headers), now, Duration::ZERO)
    }

    fn lifetime(pairs: &[(&'static str, &str)]) -> Option<u64> {
        fresh(pairs).map(|fresh| fresh.lifetime.as_secs())
    }

    /// RFC 9111, section 4.2.1.
    #[test]
    fn s_maxage_goes_before_max_age_and_max_age_before_expires() {
        let later = at(500);
        assert_eq!(
            lifetime(&[("cache-control", "s-maxage=1, max-age=2"), ("expires", &later)]),
            Some(1)
        );
        assert_eq!(lifetime(&[("cache-control", "max-age=2"), ("expires", &later)]), Some(2));
        assert_eq!(lifetime(&[("cache-control", "max-age=x"), ("expires", &later)]), Some(0));
        assert_eq!(lifetime(&[("expires", &later)]), Some(500));
        assert_eq!(lifetime(&[("expires", &later), ("date", &at(100))]), Some(400));
        assert_eq!(lifetime(&[("cache-control", "public")]), None);
        assert_eq!(lifetime(&[("last-modified", &at(-10_000))]), None);
    }

    /// RFC 9111, section 5.3.
    #[test]
    fn an_invalid_expires_is_in_the_past() {
        for expires in ["0", "-1", "", "tomorrow", &at(-1)] {
            assert_eq!(lifetime(&[("expires", expires)]), Some(0), "{expires}");
        }
        assert_eq!(lifetime(&[("expires", &at(5)), ("expires", &at(50))]), Some(0));
    }

    /// RFC 9111, section 4.2.3.
    #[test]
    fn age_is_the_larger_of_age_and_date_and_grows_with_time() {
        let age = |pairs: &[(&'static str, &str)]| {
            let pairs = [&[("cache-control", "max-age=60")], pairs].concat();
            fresh(&pairs).unwrap().initial_age.as_secs()
        };
        assert_eq!(age(&[]), 0);
        assert_eq!(age(&[("age", "7")]), 7);
        assert_eq!(age(&[("age", "7, 90")]), 7);
        assert_eq!(age(&[("age", "90"), ("age", "7")]), 90);
        assert_eq!(age(&[("age", "-7")]), 0);
        assert_eq!(age(&[("age", "7.0")]), 0);
        assert_eq!(age(&[("date", &at(-30))]), 30);
        assert_eq!(age(&[("date", &at(-30)), ("age", "7")]), 30);
        assert_eq!(age(&[("date", &at(3600))]), 0);
        let fresh = fresh(&[("cache-control", "max-age=60"), ("age", "10")]).unwrap();
        assert_eq!(
            fresh.standing(Duration::from_secs(49)),
            Standing::Fresh(Duration::from_secs(1))
        );
        assert_eq!(fresh.standing(Duration::from_secs(50)), Standing::Stale(false));
    }

    /// RFC 5861, sections 3 and 4; RFC 9111, sections 5.2.2.2 and 5.2.2.8.
    #[test]
    fn stale_answers_are_used_only_where_that_is_allowed() {
        let standing = |cache_control: &str, resident: u64| {
            let fresh = fresh(&[("cache-control", cache_control)]).unwrap();
            fresh.standing(Duration::from_secs(resident))
        };
        let both = "max-age=10, stale-while-revalidate=5, stale-if-error=20";
        assert_eq!(standing(both, 14), Standing::WhileRevalidating);
        assert_eq!(standing(both, 15), Standing::Stale(true));
        assert_eq!(standing(both, 30), Standing::Stale(false));
        for strict in ["must-revalidate", "proxy-revalidate"] {
            assert_eq!(standing(&format!("{both}, {strict}"), 10), Standing::Stale(false));
        }
        assert_eq!(
            standing("max-age=10, no-cache, stale-while-revalidate=5", 1),
            Standing::Stale(false)
        );
        assert_eq!(standing("max-age=10, stale-while-revalidate=x", 10), Standing::Stale(false));
    }
}
