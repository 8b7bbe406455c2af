//! Queries the maximum number of connections of a server, with one query in each protocol.
//!
//! Invariants
//! - Only used when settings are checked. A server that does not answer is not asked again.

use std::time::Duration;

use crate::proof;
use crate::server::Stream;
use crate::{Protocol, mysql, postgres, redis};

/// Returns the maximum; `None` if the server does not state it.
pub(crate) async fn ask(stream: &mut Stream, protocol: Protocol, limit: Duration) -> Option<u64> {
    let question = match protocol {
        Protocol::MySql => mysql::query("SELECT @@max_connections"),
        Protocol::Postgres => postgres::query("SHOW max_connections"),
        Protocol::Redis => redis::command(&["CONFIG", "GET", "maxclients"]),
    };
    let mut value = None;
    let answered = proof::proves(stream, &question, limit, |answer| {
        let (verdict, found) = match protocol {
            Protocol::MySql => mysql::only_value(answer),
            Protocol::Postgres => postgres::only_value(answer),
            Protocol::Redis => redis::second_value(answer),
        };
        value = found.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        verdict
    });
    answered.await.then_some(value).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::{Checked, DOUBT, MORE, Verdict};

    /// Asserts that no prefix of a response counts as complete.
    fn check(check: fn(&[u8]) -> Checked<'_>, whole: &[u8], expected: &[u8]) {
        for at in 0..whole.len() {
            assert_eq!(check(&whole[..at]), MORE, "{at}");
        }
        assert_eq!(check(whole), (Verdict::Clean, Some(expected)));
    }

    #[test]
    fn each_protocols_capacity_answer_is_read() {
        let row =
            b"\x01\0\0\x01\x01\x04\0\0\x02\x03def\x04\0\0\x03\x03151\x07\0\0\x04\xfe\0\0\x02\0\0\0";
        check(mysql::only_value, row, b"151");
        let row = b"T\0\0\0\x06\0\x01D\0\0\0\x0d\0\x01\0\0\0\x03100C\0\0\0\x09SHOW\0Z\0\0\0\x05I";
        check(postgres::only_value, row, b"100");
        check(redis::second_value, b"*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n", b"10000");
    }

    #[test]
    fn a_refusing_server_reports_no_capacity() {
        assert_eq!(mysql::only_value(b"\x05\0\0\x01\xff\x7a\x04no"), DOUBT);
        assert_eq!(postgres::only_value(b"E\0\0\0\x06S\0"), DOUBT);
        assert_eq!(redis::second_value(b"-NOPERM no\r\n"), DOUBT);
    }
}
