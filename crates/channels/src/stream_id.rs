//! Socket ids for event streams. A socket's signatures are worth nothing without the socket, whose id nobody could foretell; a stream names its id itself, so
//! it must be one that was given shortly before: otherwise a signature, once given, would open a channel for ever.
//!
//! Invariants
//! - An id is good for its application, for one to two minutes, on every node that has the application's secret and the time to a minute.
//! - Nothing is kept of it. Within its time it may be used again: a stream that breaks off comes back with the same signatures.

use crate::app::Secret;
use crate::auth;
use crate::moment::UnixTime;
use crate::socket_id::SocketId;

/// In seconds: an id is good in the period in which it was given and in the next one, and before it for clocks that are behind.
const PERIOD: u64 = 60;

/// Bits of an id that are drawn at random. The other 40 show that it was given here, and when.
const DRAWN: u32 = 23;

/// A new one, from 23 random bits; the others are not looked at.
pub(crate) fn give(secret: &Secret, random: u64, now: UnixTime) -> SocketId {
    of(secret, random & ((1 << DRAWN) - 1), now.seconds() / PERIOD)
}

/// Was it given lately?
pub(crate) fn is_given(secret: &Secret, socket: SocketId, now: UnixTime) -> bool {
    let period = now.seconds() / PERIOD;
    let drawn = socket.bits() & ((1 << DRAWN) - 1);
    let periods = period.saturating_sub(1)..=period + 1;
    periods.into_iter().any(|period| of(secret, drawn, period) == socket)
}

fn of(secret: &Secret, drawn: u64, period: u64) -> SocketId {
    // Applications sign nothing of this form: all that browsers have them sign has a colon, and calls begin with a method.
    let digits = auth::sign(secret, format!("event stream\n{period}\n{drawn}").as_bytes());
    let tag = digits.get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    SocketId::from_random(tag.expect("64 hexadecimal digits") << DRAWN | drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    #[test]
    fn an_id_is_good_for_a_while_and_for_its_application() {
        let (ours, other) = (Secret::new("ours"), Secret::new("other"));
        let at = |seconds: u64| UnixTime::from_millis(seconds * SECOND);
        let given = at(1_000_000_000);
        for random in [0, 7, u64::MAX] {
            let id = give(&ours, random, given);
            assert_eq!(id.to_string().parse(), Ok(id));
            for seconds in [0, 59] {
                assert!(is_given(&ours, id, at(1_000_000_000 + seconds)));
                assert!(is_given(&ours, id, at(1_000_000_000 - seconds)), "a clock that is behind");
                assert!(!is_given(&other, id, given));
            }
            assert!(!is_given(&ours, id, at(1_000_000_000 + 120)));
            assert!(!is_given(&ours, id, at(1_000_000_000 - 120)));
        }
        assert_ne!(give(&ours, 1, given), give(&ours, 2, given));
    }

    #[test]
    fn no_other_id_is_good() {
        let secret = Secret::new("ours");
        let now = UnixTime::from_millis(1_000_000_000 * SECOND);
        let id = give(&secret, 5, now).bits();
        for bit in 0..63 {
            let changed = SocketId::from_random(id ^ 1 << bit);
            assert!(!is_given(&secret, changed, now), "bit {bit}");
        }
        assert!(!is_given(&secret, SocketId::from_random(0), UnixTime::from_millis(0)));
    }
}
