//! The source of a request's body: the client, and for a further attempt first what an earlier one had consumed.
//!
//! Invariants
//! - Each attempt gets the same bytes in the same order.
//! - Nothing is copied: kept pieces share the client's memory.
//! - At most [`Source::KEPT`] bytes in [`Source::PIECES`] pieces are kept, and none after they were released.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::Body as _;

use crate::exchange::{BoxBody, BoxError};

/// The body of one request.
pub(crate) struct Source {
    /// The client's body; `None` when it has ended or failed.
    client: Option<BoxBody>,
    /// Pieces received from the client and still kept.
    kept: VecDeque<Bytes>,
    /// Number of bytes in `kept`.
    length: usize,
    /// How many pieces of `kept` this attempt has received.
    given: usize,
    /// Everything received is in `kept`. Otherwise it has only what this attempt has not received yet.
    whole: bool,
}

/// A body that is here, in the pieces that arrived.
#[derive(Debug)]
pub(crate) struct WholeBody {
    pieces: Vec<Bytes>,
    length: usize,
}

impl WholeBody {
    /// Appends the body's only frame.
    pub(crate) fn write_frame(&self, buffer: &mut Vec<u8>) {
        buffer.reserve(wire::HEADER_LEN + self.length);
        buffer.extend_from_slice(&wire::body_header(self.length, true));
        self.pieces.iter().for_each(|piece| buffer.extend_from_slice(piece));
    }
}

impl Source {
    /// Maximum number of bytes kept; a longer body is not sent again.
    pub(crate) const KEPT: usize = 64 * 1024;
    /// Maximum number of pieces kept, because each may keep more memory alive than its own bytes.
    pub(crate) const PIECES: usize = 64;

    pub(crate) fn new(client: BoxBody) -> Self {
        Self { client: Some(client), kept: VecDeque::new(), length: 0, given: 0, whole: true }
    }

    /// Returns the next bytes; `None` at the end. Cancel safe.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        if let Some(piece) = self.kept_piece() {
            return Poll::Ready(Some(Ok(piece)));
        }
        loop {
            let Some(client) = &mut self.client else { return Poll::Ready(None) };
            match ready!(client.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if client.is_end_stream() {
                        self.client = None;
                    }
                    let piece = frame.into_data().unwrap_or_default(); // trailers: none in CGI
                    if !piece.is_empty() {
                        self.keep(&piece);
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                Some(Err(error)) => {
                    self.client = None;
                    self.release();
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.client = None,
            }
        }
    }

    /// Takes all of a body that is here. `None` if it has more than `most` bytes, as `length` may announce: it is read
    /// from the beginning later.
    pub(crate) fn take_complete(
        &mut self,
        most: usize,
        length: Option<u64>,
    ) -> Result<Option<WholeBody>, BoxError> {
        if length.is_none_or(|length| length > most as u64) {
            return Ok(None);
        }
        let most = most.min(Self::KEPT / 2);
        let mut cx = Context::from_waker(Waker::noop());
        let (mut pieces, mut length) = (Vec::new(), 0);
        while pieces.len() < Self::PIECES && length <= most {
            match self.poll_data(&mut cx) {
                Poll::Ready(None) => return Ok(Some(WholeBody { pieces, length })),
                Poll::Ready(Some(piece)) => {
                    let piece = piece?;
                    length += piece.len();
                    pieces.push(piece);
                }
                Poll::Pending => break,
            }
        }
        // The next attempt must find all of it.
        if self.whole {
            self.rewind();
        } else {
            pieces.into_iter().rev().for_each(|piece| self.kept.push_front(piece));
        }
        Ok(None)
    }

    /// Returns whether all of it has been returned, as far as known without polling the client.
    pub(crate) fn is_at_end(&self) -> bool {
        self.client.is_none() && self.given == self.kept.len()
    }

    /// Returns whether another attempt can have all of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Releases the kept pieces, because there will be no other attempt.
    pub(crate) fn release(&mut self) {
        self.whole = false;
        self.kept.drain(..self.given);
        self.given = 0;
    }

    /// Restarts from the beginning, for another attempt. Only if it [is whole](Self::is_whole).
    pub(crate) fn rewind(&mut self) {
        self.given = 0;
    }

    fn kept_piece(&mut self) -> Option<Bytes> {
        if !self.whole {
            return self.kept.pop_front();
        }
        let piece = self.kept.get(self.given)?;
        self.given += 1;
        Some(piece.clone())
    }

    fn keep(&mut self, piece: &Bytes) {
        if !self.whole {
            return;
        }
        self.length += piece.len();
        if self.length > Self::KEPT || self.kept.len() == Self::PIECES {
            return self.release();
        }
        self.kept.push_back(piece.clone());
        self.given = self.kept.len();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use http_body::{Body, Frame};

    use super::*;

    /// A complete body; it may not announce its last piece as the last.
    struct Pieces {
        left: VecDeque<Result<Bytes, BoxError>>,
        tells_its_end: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            Poll::Ready(self.left.pop_front().map(|piece| piece.map(Frame::data)))
        }

        fn is_end_stream(&self) -> bool {
            self.tells_its_end && self.left.is_empty()
        }
    }

    fn of(pieces: Vec<Result<Bytes, BoxError>>) -> Source {
        Source::new(Box::pin(Pieces { left: pieces.into(), tells_its_end: true }))
    }

    fn pieces(sizes: &[usize]) -> Vec<Result<Bytes, BoxError>> {
        let piece = |(at, size): (usize, &usize)| Ok(Bytes::from(vec![at.to_le_bytes()[0]; *size]));
        sizes.iter().enumerate().map(piece).collect()
    }

    /// Reads at most `most` pieces.
    fn take(source: &mut Source, most: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        for _ in 0..most {
            match source.poll_data(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Ok(piece))) => taken.extend_from_slice(&piece),
                _ => break,
            }
        }
        taken
    }

    #[test]
    fn each_attempt_gets_the_same_bytes_however_far_the_one_before_came() {
        let sizes = [3, 0, 7, 1, 1000];
        let whole = take(&mut of(pieces(&sizes)), usize::MAX);
        assert_eq!(whole.len(), 1011);
        for first in 0..=5 {
            for second in 0..=5 {
                let mut source = of(pieces(&sizes));
                for taken in [first, second] {
                    assert!(whole.starts_with(&take(&mut source, taken)));
                    assert!(source.is_whole());
                    source.rewind();
                }
                assert!(!source.is_at_end());
                assert_eq!(take(&mut source, usize::MAX), whole);
                assert!(source.is_at_end());
            }
        }
    }

    #[test]
    fn what_is_let_go_in_the_middle_of_an_attempt_still_comes_to_its_end() {
        let mut source = of(pieces(&[1, 2, 3, 4]));
        take(&mut source, 3);
        source.rewind();
        assert_eq!(take(&mut source, 1), [0]);
        source.release();
        assert_eq!(take(&mut source, usize::MAX), [1, 1, 2, 2, 2, 3, 3, 3, 3]);
        assert!(source.is_at_end() && !source.is_whole());
        assert!(source.kept.is_empty());
    }

    #[test]
    fn a_body_without_bytes_is_whole_and_ends_each_time() {
        let mut source =
            Source::new(Box::pin(Pieces { left: VecDeque::new(), tells_its_end: false }));
        assert!(!source.is_at_end());
        assert!(take(&mut source, usize::MAX).is_empty());
        assert!(source.is_at_end() && source.is_whole());
        source.rewind();
        assert!(source.is_at_end());
    }

    #[test]
    fn nothing_is_kept_beyond_the_bounds() {
        let half = Source::KEPT / 2;
        for (sizes, whole) in [
            (vec![half, half], true),
            (vec![half, half, 1], false),
            (vec![Source::KEPT + 1], false),
            (vec![1; Source::PIECES], true),
            (vec![1; Source::PIECES + 1], false),
        ] {
            let mut source = of(pieces(&sizes));
            assert_eq!(take(&mut source, usize::MAX).len(), sizes.iter().sum::<usize>());
            assert_eq!(source.is_whole(), whole);
            assert_eq!(source.kept.is_empty(), !whole);
        }
    }

    #[test]
    fn a_small_body_that_is_here_is_taken_at_once_and_another_one_read_as_before() {
        let take_frame = |source: &mut Source| {
            let complete = source.take_complete(100, Some(100)).unwrap();
            complete.map(|body| {
                let mut frame = Vec::new();
                body.write_frame(&mut frame);
                frame
            })
        };
        for sizes in [vec![], vec![100], vec![1, 2, 97]] {
            let all = take(&mut of(pieces(&sizes)), usize::MAX);
            let mut frame = wire::body_header(all.len(), true).to_vec();
            frame.extend_from_slice(&all);
            assert_eq!(take_frame(&mut of(pieces(&sizes))), Some(frame));
        }
        for sizes in
            [vec![101], vec![1; Source::PIECES + 1], vec![Source::KEPT + 1], vec![99, Source::KEPT]]
        {
            let all = take(&mut of(pieces(&sizes)), usize::MAX);
            let mut source = of(pieces(&sizes));
            assert_eq!(take_frame(&mut source), None);
            assert_eq!(take(&mut source, usize::MAX), all);
        }
        let mut broken = pieces(&[5]);
        broken.push(Err("it broke off".into()));
        of(broken).take_complete(100, Some(100)).unwrap_err();
        let mut unannounced = of(pieces(&[5]));
        for length in [None, Some(101)] {
            assert!(unannounced.take_complete(100, length).unwrap().is_none());
        }
    }

    #[test]
    fn a_body_that_broke_off_is_not_sent_again() {
        let mut broken = pieces(&[5]);
        broken.push(Err("it broke off".into()));
        let mut source = of(broken);
        assert_eq!(take(&mut source, usize::MAX).len(), 5);
        assert!(!source.is_whole() && source.kept.is_empty());
    }
}
