//! Pieces of bytes in order. Small ones are copied together, because each would otherwise keep its larger read buffer
//! alive.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Pieces below this size are copied.
const SMALL: usize = 4 << 10;
/// Copied bytes become one piece at this size.
const JOINED: usize = 16 << 10;

/// Pieces in the order in which they were pushed.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    queue: VecDeque<Bytes>,
    /// The last bytes, from small pieces.
    joined: BytesMut,
    bytes: u64,
}

impl Pieces {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len() as u64;
        if piece.len() < SMALL {
            self.joined.extend_from_slice(&piece);
            if self.joined.len() >= JOINED {
                self.seal();
            }
        } else {
            self.seal();
            self.queue.push_back(piece);
        }
    }

    /// Removes the first piece.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.queue.is_empty() {
            self.seal();
        }
        let piece = self.queue.pop_front()?;
        self.bytes -= piece.len() as u64;
        Some(piece)
    }

    /// Removes all pieces.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        self.seal();
        self.bytes = 0;
        std::mem::take(&mut self.queue).into()
    }

    /// Inserts pieces before all others.
    pub(super) fn put_back(&mut self, pieces: Vec<Bytes>) {
        for piece in pieces.into_iter().rev() {
            self.bytes += piece.len() as u64;
            self.queue.push_front(piece);
        }
    }

    fn seal(&mut self) {
        if !self.joined.is_empty() {
            self.queue.push_back(self.joined.split().freeze());
        }
    }
}
