//! The mark that every published message carries: `@@<16 hex digits of ns>:<8 hex digits>@@`.
//!
//! It survives JSON in JSON, so it is found in a frame without parsing. It has the time of sending, the sender, and the
//! message's number.
//!
//! Invariants
//! - A number is `sender` in the upper 8 bits and a count from 0 in the lower 24: at most 256 senders of 16 million messages.

use memchr::memmem;

/// Bytes of a stamp as text.
pub(crate) const LENGTH: usize = 29;
/// Messages that one sender can number.
pub(crate) const COUNTS: u32 = 1 << 24;

/// The contents of a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Nanoseconds of the monotonic clock at which the message was handed to the kernel.
    pub(crate) at: u64,
    pub(crate) sender: u8,
    /// Below [`COUNTS`].
    pub(crate) count: u32,
}

impl Stamp {
    pub(crate) fn text(self) -> String {
        let number = u32::from(self.sender) << 24 | self.count & (COUNTS - 1);
        format!("@@{:016x}:{number:08x}@@", self.at)
    }

    /// The first stamp in `bytes`.
    pub(crate) fn find(bytes: &[u8]) -> Option<Self> {
        memmem::find_iter(bytes, b"@@")
            .find_map(|start| Self::parse(bytes.get(start..start + LENGTH)?))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let inside = text.strip_prefix(b"@@")?.strip_suffix(b"@@")?;
        let (at, number) = inside.split_at_checked(16)?;
        let number = u32::try_from(hex(number.strip_prefix(b":")?)?).ok()?;
        let [sender, ..] = number.to_be_bytes();
        Some(Self { at: hex(at)?, sender, count: number & (COUNTS - 1) })
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stamp_is_found_in_escaped_json() {
        let stamp = Stamp { at: 0x0123_4567_89ab_cdef, sender: 7, count: 9 };
        let frame = format!(r#"{{"event":"e","data":"{{\"at\":\"{}\"}}"}}"#, stamp.text());

        assert_eq!(stamp.text(), "@@0123456789abcdef:07000009@@");
        assert_eq!(Stamp::find(frame.as_bytes()), Some(stamp));
    }

    #[test]
    fn signs_that_are_no_stamp_are_passed_over() {
        let stamp = Stamp { at: 1, sender: 0, count: 2 };

        assert_eq!(Stamp::find(b"@@ a @@b@@ 0123456789abcdef:00000000"), None);
        assert_eq!(Stamp::find(b"@@0123456789abcdeg:00000000@@"), None);
        assert_eq!(Stamp::find(b"@@0123456789abcdef:0000"), None);
        assert_eq!(Stamp::find(format!("@@@@x@@{}", stamp.text()).as_bytes()), Some(stamp));
    }

    proptest! {
        #[test]
        fn every_stamp_comes_back(at: u64, sender: u8, count in 0..COUNTS) {
            let stamp = Stamp { at, sender, count };
            prop_assert_eq!(stamp.text().len(), LENGTH);
            prop_assert_eq!(Stamp::find(stamp.text().as_bytes()), Some(stamp));
        }
    }
}
