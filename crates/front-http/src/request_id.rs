//! Request ids: from a trusted proxy, otherwise generated without a system call or a lock.
//!
//! Invariants
//! - A generated id reveals nothing about other ids: neither the number of requests nor the next ids.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use pool::RequestId;

/// Maximum length of an id accepted from a proxy, in bytes.
const MAX_LENGTH: usize = 64;

/// Generates ids that differ from those of every other process and start: a counter under two keyed hashes whose keys
/// the standard library draws from the system's randomness.
#[derive(Debug)]
pub(crate) struct RequestIds {
    keys: [RandomState; 2],
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        Self { keys: [RandomState::new(), RandomState::new()], count: AtomicU64::new(0) }
    }

    /// Returns the id of the next request: 32 hexadecimal digits.
    pub(crate) fn next(&self) -> RequestId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; 32];
        text[..16].copy_from_slice(&hex(self.keys[0].hash_one(count)));
        text[16..].copy_from_slice(&hex(self.keys[1].hash_one(count)));
        RequestId(Arc::from(std::str::from_utf8(&text).expect("hexadecimal digits are UTF-8")))
    }
}

/// Returns the id that a trusted proxy sent, if it is valid.
pub(crate) fn given(headers: &HeaderMap) -> Option<RequestId> {
    let text = headers.get("x-request-id")?.to_str().ok()?;
    let valid = !text.is_empty()
        && text.len() <= MAX_LENGTH
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&byte));
    valid.then(|| RequestId(Arc::from(text)))
}

fn hex(number: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 16];
    for (index, digit) in text.iter_mut().enumerate() {
        let nibble = (number >> (60 - 4 * index)) & 0xf;
        *digit = DIGITS[usize::try_from(nibble).expect("a nibble is small")];
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_and_show_no_count() {
        let ids = RequestIds::new();
        let all: Vec<RequestId> = (0..1000).map(|_| ids.next()).collect();
        let distinct: HashSet<&str> = all.iter().map(|id| &*id.0).collect();
        assert_eq!(distinct.len(), all.len());
        for half in [0..16, 16..32] {
            let numbers = all
                .iter()
                .map(|id| u64::from_str_radix(id.0.get(half.clone()).unwrap(), 16).unwrap());
            let numbers: Vec<u64> = numbers.collect();
            // A counter only increases; of random numbers about half of the steps decrease.
            let up = numbers.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!((300..700).contains(&up), "{up} of 999 steps lead up");
            // A counter's ids differ in a few bits; of 64 random bits fewer than 4 change once in 10^14 steps.
            let changed = |pair: &[u64]| (pair[0] ^ pair[1]).count_ones();
            assert!(numbers.windows(2).all(|pair| changed(pair) >= 4), "ids have much in common");
        }
        assert_ne!(RequestIds::new().next(), RequestIds::new().next());
    }

    #[test]
    fn an_id_unsafe_for_logs_is_replaced() {
        for (text, taken) in [
            ("abc-1", true),
            ("a b", false),
            ("a\"b", false),
            ("", false),
            (&*"x".repeat(65), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", text.parse().unwrap());
            assert_eq!(given(&headers).is_some(), taken, "{text}");
        }
    }
}
