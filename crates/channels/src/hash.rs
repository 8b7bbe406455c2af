//! A hash of names that is the same on all nodes.

/// Offset basis of FNV-1a, a hash that is the same on all nodes. Names chosen to collide are all reported by one
/// node, which costs only that node.
pub(crate) const SEED: u64 = 0xcbf2_9ce4_8422_2325;

pub(crate) fn hash(bytes: &[u8], seed: u64) -> u64 {
    bytes
        .iter()
        .fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Applies the last step of `SplitMix64`: each input bit changes half of the output bits.
pub(crate) fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
