//! The `Date` field of responses (RFC 9110, section 6.6.1), formatted once a second in each thread.
//!
//! Invariants
//! - The value follows the system's clock in both directions. hyper's own cache keeps its value until the clock
//!   passes it again: after the clock was set back by an hour, HTTP/1.1 responses would carry a future date for an
//!   hour.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache(None)) };
}

/// Returns the current `Date`.
pub(crate) fn now() -> HeaderValue {
    CACHE.with_borrow_mut(|cache| cache.at(SystemTime::now()))
}

/// The second that was formatted last, and its text.
struct Cache(Option<(u64, HeaderValue)>);

impl Cache {
    fn at(&mut self, now: SystemTime) -> HeaderValue {
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        match &self.0 {
            Some((of, value)) if *of == second => value.clone(),
            _ => {
                let value = HeaderValue::try_from(httpdate::fmt_http_date(now.max(UNIX_EPOCH)))
                    .expect("a date is a header value");
                self.0 = Some((second, value.clone()));
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_date_follows_a_clock_that_is_set_back() {
        let mut cache = Cache(None);
        let at = |seconds: f64| UNIX_EPOCH + Duration::from_secs_f64(seconds);
        for (seconds, date) in [
            (784_111_777.0, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777.9, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778.0, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (784_108_178.0, "Sun, 06 Nov 1994 07:49:38 GMT"),
            (784_108_179.5, "Sun, 06 Nov 1994 07:49:39 GMT"),
        ] {
            assert_eq!(cache.at(at(seconds)), date, "{seconds}");
        }
        assert_eq!(cache.at(UNIX_EPOCH - Duration::from_secs(1)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
