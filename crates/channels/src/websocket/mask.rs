//! Masking (RFC 6455, 5.3), eight bytes at a time.

/// Unmasks `payload`, whose first byte is byte number `done` of its frame.
///
/// The loop over whole words has no dependency between its iterations, so the compiler vectorizes it.
pub(super) fn apply(payload: &mut [u8], mask: [u8; 4], done: usize) {
    let mask = u32::from_ne_bytes(mask);
    // Rotates the mask so that the next byte comes first in memory.
    let bits = u32::try_from(done % 4).expect("below four") * 8;
    let mask = if cfg!(target_endian = "little") {
        mask.rotate_right(bits)
    } else {
        mask.rotate_left(bits)
    };
    let half = mask.to_ne_bytes();
    let word = u64::from(mask) | u64::from(mask) << 32;

    let (words, rest) = payload.as_chunks_mut::<8>();
    for eight in words {
        *eight = (u64::from_ne_bytes(*eight) ^ word).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(half.iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_unmasked_correctly_wherever_it_is_split() {
        let mask = [0x12, 0x34, 0x56, 0x78];
        let plain: Vec<u8> = (0..=255).collect();
        let masked: Vec<u8> =
            plain.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]).collect();
        for cut in 0..40 {
            let mut bytes = masked.clone();
            let (before, after) = bytes.split_at_mut(cut);
            apply(before, mask, 0);
            apply(after, mask, cut);
            assert_eq!(bytes, plain, "cut at {cut}");
        }
    }
}
