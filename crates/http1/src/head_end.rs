//! The end of a head: its first empty line.

use memchr::memchr;

/// Returns where the body begins: behind the first empty line. Lines may end in a bare LF (RFC 9112, 2.2).
///
/// `searched`: how many bytes an earlier call has searched.
pub fn head_end(bytes: &[u8], searched: usize) -> Option<usize> {
    // The line's end and a CR may have been the last bytes of the earlier search.
    let mut at = searched.saturating_sub(2);
    loop {
        at += memchr(b'\n', bytes.get(at..)?)? + 1;
        match bytes.get(at..) {
            Some([b'\n', ..]) => return Some(at + 1),
            Some([b'\r', b'\n', ..]) => return Some(at + 2),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_wherever_an_earlier_search_stopped() {
        for bytes in [&b"A: b\r\n\r\nbody\n\n"[..], b"A: b\n\nbody", b"A: b\n\r\nbody"] {
            let end = bytes.len() - bytes.iter().rev().position(|byte| *byte == b'y').unwrap() - 4;
            for searched in 0..end {
                assert_eq!(head_end(bytes, searched), Some(end), "{searched}");
            }
            for length in 0..end {
                assert_eq!(head_end(&bytes[..length], 0), None);
            }
        }
    }
}
