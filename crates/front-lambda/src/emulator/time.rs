//! The time formats of AWS.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns milliseconds since 1970.
pub(super) fn epoch_milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns `06/Nov/1994:08:49:37 +0000`, as in `requestContext`.
pub(super) fn common_log(time: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
    let date = httpdate::fmt_http_date(time);
    let mut words = date.split(' ').skip(1);
    let mut word = || words.next().unwrap_or_default();
    let (day, month, year, clock) = (word(), word(), word(), word());
    format!("{day}/{month}/{year}:{clock} +0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_events() {
        let time = UNIX_EPOCH + Duration::from_millis(784_111_777_042);
        assert_eq!(epoch_milliseconds(time), 784_111_777_042);
        assert_eq!(common_log(time), "06/Nov/1994:08:49:37 +0000");
    }
}
