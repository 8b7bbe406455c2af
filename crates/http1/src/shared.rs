//! Small copies that stand in one piece of memory with their count. `Bytes` by itself needs two once a part is shared.

use bytes::Bytes;

/// Larger copies use two pieces of memory.
pub(crate) const MOST: usize = 488;
/// The room of a copy that is not large. With its count it fits into 256 bytes.
const FEW: usize = 232;

struct Copied<const ROOM: usize> {
    bytes: [u8; ROOM],
    length: usize,
}

impl<const ROOM: usize> AsRef<[u8]> for Copied<ROOM> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl<const ROOM: usize> Copied<ROOM> {
    fn of(from: &[u8]) -> Bytes {
        let mut copied = Self { bytes: [0; ROOM], length: from.len() };
        if let Some(to) = copied.bytes.get_mut(..from.len()) {
            to.copy_from_slice(from);
        }
        Bytes::from_owner(copied)
    }
}

/// Copies bytes.
pub(crate) fn copied(from: &[u8]) -> Bytes {
    if from.len() <= FEW {
        Copied::<FEW>::of(from)
    } else if from.len() <= MOST {
        Copied::<MOST>::of(from)
    } else {
        Bytes::copy_from_slice(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_any_size_is_whole() {
        for size in [0, 1, FEW - 1, FEW, FEW + 1, MOST - 1, MOST, MOST + 1, 5000] {
            let from: Vec<u8> = (0..=250).cycle().take(size).collect();
            assert_eq!(copied(&from), from, "{size}");
        }
    }
}
