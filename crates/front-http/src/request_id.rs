//! Names for requests: from a trusted proxy, else made here without a system call or a lock.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use pool::RequestId;

/// The longest id that is taken from a proxy, in bytes.
const MAX_LENGTH: usize = 64;

/// Makes ids that differ from those of every other process and start.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// Random for each process.
    prefix: [u8; 16],
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        // The standard library seeds its hash maps from the system's randomness.
        let mut hasher = std::hash::RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        Self { prefix: hex(hasher.finish()), next: AtomicU64::new(1) }
    }

    /// The id of the next request: 28 hexadecimal digits.
    pub(crate) fn next(&self) -> RequestId {
        let count = hex(self.next.fetch_add(1, Ordering::Relaxed));
        let mut text = [0; 28];
        text[..16].copy_from_slice(&self.prefix);
        text[16..].copy_from_slice(&count[4..]);
        RequestId(Arc::from(std::str::from_utf8(&text).expect("hexadecimal digits are UTF-8")))
    }
}

/// The id that a trusted proxy gave, when it is one.
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
    use super::*;

    #[test]
    fn ids_differ_and_fit_in_a_field() {
        let ids = RequestIds::new();
        let (first, second) = (ids.next(), ids.next());
        assert_ne!(first, second);
        assert_eq!(first.0.len(), 28);
        assert!(first.0.ends_with("000000000001"));
    }

    #[test]
    fn an_id_that_could_break_a_log_line_is_not_taken() {
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
