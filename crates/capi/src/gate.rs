//! The gate that a body passes: its rate limit, and its observer.
//!
//! Invariants
//! - Over any time no more bytes pass than the rate allows, but for one piece and what [`CREDIT`] makes up for.
//! - The observer has returned from one piece before the next one passes: nothing accumulates for a slow callback.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::Instant;

use crate::calls::Seen;
use crate::in_flight::InFlight;
use crate::progress::Track;

/// The time that a piece takes at its rate.
const PIECES: u64 = 20;
/// The smallest and the largest piece.
const SMALLEST: u64 = 256;
const LARGEST: u64 = 64 << 10;
/// Timers fire late: at most this much of the lost time is made up for.
const CREDIT: Duration = Duration::from_millis(50);

/// A rate in bytes per second.
#[derive(Debug)]
struct Pace {
    rate: u64,
    /// When the next piece may pass.
    due: Instant,
}

impl Pace {
    fn new(rate: NonZeroU64) -> Self {
        Self { rate: rate.get(), due: Instant::now() }
    }

    fn piece(&self) -> usize {
        usize::try_from((self.rate / PIECES).clamp(SMALLEST, LARGEST)).unwrap_or(usize::MAX)
    }

    /// Waits for the next turn.
    async fn pass(&mut self, bytes: usize) {
        tokio::time::sleep_until(self.due).await;
        let earliest = Instant::now().checked_sub(CREDIT).unwrap_or(self.due);
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.due = self.due.max(earliest) + takes;
    }
}

/// The gate of one body.
pub(crate) struct Gate {
    pace: Option<Pace>,
    /// The direction, if there is an observer.
    seen: Option<Seen>,
    in_flight: Arc<InFlight>,
    track: Arc<Track>,
    /// Of a request's body: false once the request has ended, or another try has the body.
    wanted: Option<Arc<AtomicBool>>,
}

impl Gate {
    /// Creates a gate; `None` without a limit and an observer.
    pub(crate) fn new(
        rate: Option<NonZeroU64>,
        seen: Seen,
        in_flight: &Arc<InFlight>,
        track: &Arc<Track>,
        wanted: Option<&Arc<AtomicBool>>,
    ) -> Option<Self> {
        let debugged = in_flight.spec.extras.as_ref().is_some_and(|extras| extras.debug.is_some());
        (rate.is_some() || debugged).then(|| Self {
            pace: rate.map(Pace::new),
            seen: debugged.then_some(seen),
            in_flight: Arc::clone(in_flight),
            track: Arc::clone(track),
            wanted: wanted.map(Arc::clone),
        })
    }

    /// Wraps a body.
    pub(crate) fn through<E: Send + 'static>(
        self,
        body: impl Body<Data = Bytes, Error = E> + Send + Unpin + 'static,
    ) -> UnsyncBoxBody<Bytes, E> {
        let all = (self, body, Bytes::new());
        let frames = stream::unfold(all, |(mut gate, mut body, mut rest)| async move {
            if rest.is_empty() {
                match body.frame().await? {
                    Ok(frame) => match frame.into_data() {
                        Ok(data) => rest = data,
                        Err(trailers) => return Some((Ok(trailers), (gate, body, rest))),
                    },
                    Err(error) => return Some((Err(error), (gate, body, rest))),
                }
            }
            let piece = gate.pass(&mut rest).await;
            Some((Ok(Frame::data(piece)), (gate, body, rest)))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Returns the next piece of `rest`, once it may pass and was observed.
    async fn pass(&mut self, rest: &mut Bytes) -> Bytes {
        let most = self.pace.as_ref().map_or(rest.len(), Pace::piece);
        let piece = rest.split_to(most.min(rest.len()));
        // The peer is not the reason for the pause.
        let _held = self.track.hold();
        if let Some(pace) = &mut self.pace {
            pace.pass(piece.len()).await;
        }
        if let Some(seen) = self.seen
            && self.wanted.as_ref().is_none_or(|wanted| wanted.load(Relaxed))
        {
            self.in_flight.show(seen, piece.clone()).await;
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_keep_their_rate_limit() {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        clock.expect("a runtime").block_on(async {
            let began = Instant::now();
            let mut pace = Pace::new(NonZeroU64::new(100_000).expect("some"));
            assert_eq!(pace.piece(), 5000);
            // Nothing gathers while nothing passes.
            tokio::time::sleep(Duration::from_millis(120)).await;
            for _ in 0..5 {
                pace.pass(5000).await;
            }
            let least = Duration::from_millis(120 + 3 * 50);
            assert!(began.elapsed() >= least, "{:?}", began.elapsed());
        });
    }

    #[test]
    fn pieces_are_neither_too_small_nor_too_large() {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        clock.expect("a runtime").block_on(async {
            for (rate, piece) in [(1, 256), (100_000, 5000), (u64::MAX, 64 << 10)] {
                assert_eq!(Pace::new(NonZeroU64::new(rate).expect("some")).piece(), piece);
            }
        });
    }
}
