//! Socket ids for event streams.
//!
//! A WebSocket's signatures are bound to the socket, whose id cannot be predicted. An event stream names its id
//! itself, so the id must have been issued shortly before; otherwise a signature would grant access to a channel
//! forever.
//!
//! Invariants
//! - An id is valid for its application, for one to two minutes, on every node that has the application's secret and
//!   a clock accurate to a minute.
//! - Nothing is stored. While valid an id may be used again: a stream that reconnects uses the same signatures.

use crate::app::Secret;
use crate::auth;
use crate::moment::UnixTime;
use crate::socket_id::SocketId;

/// Period in seconds. An id is valid in the period in which it was issued and in the next one, and in the previous
/// one for clocks that are behind.
const PERIOD: u64 = 60;

/// Number of random bits of an id. The other 40 prove that and when it was issued here.
const DRAWN: u32 = 23;

/// Issues an id from 23 random bits; the other bits are ignored.
pub(crate) fn issue(secret: &Secret, random: u64, now: UnixTime) -> SocketId {
    of(secret, random & ((1 << DRAWN) - 1), now.seconds() / PERIOD)
}

/// Returns whether the id was issued recently.
pub(crate) fn is_issued(secret: &Secret, socket: SocketId, now: UnixTime) -> bool {
    let period = now.seconds() / PERIOD;
    let drawn = socket.bits() & ((1 << DRAWN) - 1);
    let periods = period.saturating_sub(1)..=period + 1;
    periods.into_iter().any(|period| of(secret, drawn, period) == socket)
}

fn of(secret: &Secret, drawn: u64, period: u64) -> SocketId {
    // Applications sign nothing of this form: all texts signed for browsers contain a colon, and API requests start
    // with a method.
    let digits = auth::sign(secret, format!("event stream\n{period}\n{drawn}").as_bytes());
    let tag = digits.get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    SocketId::from_random(tag.expect("64 hexadecimal digits") << DRAWN | drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    #[test]
    fn an_id_is_valid_for_a_limited_time_and_its_application() {
        let (ours, other) = (Secret::new("ours"), Secret::new("other"));
        let at = |seconds: u64| UnixTime::from_millis(seconds * SECOND);
        let given = at(1_000_000_000);
        for random in [0, 7, u64::MAX] {
            let id = issue(&ours, random, given);
            assert_eq!(id.to_string().parse(), Ok(id));
            for seconds in [0, 59] {
                assert!(is_issued(&ours, id, at(1_000_000_000 + seconds)));
                assert!(
                    is_issued(&ours, id, at(1_000_000_000 - seconds)),
                    "a clock that is behind"
                );
                assert!(!is_issued(&other, id, given));
            }
            assert!(!is_issued(&ours, id, at(1_000_000_000 + 120)));
            assert!(!is_issued(&ours, id, at(1_000_000_000 - 120)));
        }
        assert_ne!(issue(&ours, 1, given), issue(&ours, 2, given));
    }

    #[test]
    fn all_other_ids_are_invalid() {
        let secret = Secret::new("ours");
        let now = UnixTime::from_millis(1_000_000_000 * SECOND);
        let id = issue(&secret, 5, now).bits();
        for bit in 0..63 {
            let changed = SocketId::from_random(id ^ 1 << bit);
            assert!(!is_issued(&secret, changed, now), "bit {bit}");
        }
        assert!(!is_issued(&secret, SocketId::from_random(0), UnixTime::from_millis(0)));
    }
}
