//! Pieces of a body that are written together.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// A piece of a body and those that arrived with it. One piece alone needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Empty only if there are no others.
    first: Bytes,
    others: VecDeque<Bytes>,
    /// Number of bytes in `others`.
    behind: usize,
}

impl From<Bytes> for Pieces {
    fn from(first: Bytes) -> Self {
        Self { first, ..Self::default() }
    }
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
        } else if !piece.is_empty() {
            self.behind += piece.len();
            self.others.push_back(piece);
        }
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.first.len() + self.behind
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        let pieces = std::iter::once(&self.first).chain(&self.others);
        let mut number = 0;
        for (slot, piece) in to.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slot = IoSlice::new(piece);
            number += 1;
        }
        number
    }

    fn advance(&mut self, mut count: usize) {
        while count >= self.first.len() {
            count -= self.first.len();
            let Some(next) = self.others.pop_front() else {
                assert_eq!(count, 0, "no more is consumed than there is");
                self.first = Bytes::new();
                return;
            };
            self.behind -= next.len();
            self.first = next;
        }
        self.first.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(texts: &[&'static str]) -> Pieces {
        let mut pieces = Pieces::default();
        for text in texts {
            pieces.push(Bytes::from_static(text.as_bytes()));
        }
        pieces
    }

    #[test]
    fn bytes_come_in_order_however_many_are_taken_at_once() {
        for step in 1..12 {
            let mut pieces = pieces(&["ab", "", "c", "defg"]);
            let mut seen: Vec<u8> = Vec::new();
            while pieces.has_remaining() {
                let taken = step.min(pieces.remaining());
                let mut slices = [IoSlice::new(&[]); 5];
                let number = pieces.chunks_vectored(&mut slices);
                let all: Vec<u8> =
                    slices.iter().take(number).flat_map(|one| one.to_vec()).collect();
                assert_eq!(all.len(), pieces.remaining());
                assert!(all.starts_with(pieces.chunk()) && !pieces.chunk().is_empty());
                seen.extend(all.iter().take(taken));
                pieces.advance(taken);
            }
            assert_eq!(seen, b"abcdefg", "{step} at once");
            assert_eq!((pieces.chunk(), pieces.remaining()), (&[][..], 0));
        }
    }

    #[test]
    fn few_slices_take_the_first_pieces() {
        let pieces = pieces(&["ab", "c", "d"]);
        let mut slices = [IoSlice::new(&[]); 2];
        assert_eq!(pieces.chunks_vectored(&mut slices), 2);
        assert_eq!((&*slices[0], &*slices[1]), (&b"ab"[..], &b"c"[..]));
        assert_eq!(Pieces::default().chunks_vectored(&mut slices), 0);
    }
}
