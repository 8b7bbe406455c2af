//! How long requests take, and how many may be with a worker therefore.

use std::time::Duration;

use super::DEEPEST;

/// Maximum work in a worker's socket.
pub(super) const LONGEST_LINE: Duration = Duration::from_millis(10);
/// A running request blocks its worker's line if it has taken longer than this, and than [`UNUSUAL`] average ones.
pub(super) const LEAST_STALL: Duration = Duration::from_millis(5);
const UNUSUAL: f64 = 8.0;
/// Number of requests before anything is concluded from their times.
pub(super) const SAMPLES: u32 = 8;
/// Weight of one sample.
const WEIGHT: f64 = 1.0 / 16.0;

/// Average time of a request, weighted exponentially, and what follows from it.
#[derive(Debug)]
pub(crate) struct ServiceTime {
    seconds: f64,
    samples: u32,
    depth: usize,
    stall: Duration,
}

impl Default for ServiceTime {
    fn default() -> Self {
        Self { seconds: 0.0, samples: 0, depth: 1, stall: LEAST_STALL }
    }
}

impl ServiceTime {
    pub(super) fn add(&mut self, took: Duration) {
        self.samples = self.samples.saturating_add(1);
        // The mean of the first samples, then a moving average.
        let weight = WEIGHT.max(1.0 / f64::from(self.samples));
        self.seconds += (took.as_secs_f64() - self.seconds) * weight;
        let unusual = self.seconds * UNUSUAL;
        self.stall = if unusual > LEAST_STALL.as_secs_f64() {
            Duration::try_from_secs_f64(unusual).unwrap_or(Duration::MAX)
        } else {
            LEAST_STALL
        };
        if self.samples >= SAMPLES {
            let fit = LONGEST_LINE.as_secs_f64() / self.seconds.max(1e-9);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "as intended: it saturates"
            )]
            let fit = fit as usize;
            self.depth = fit.clamp(1, DEEPEST);
        }
    }

    /// Returns how many requests may be with a worker, the running one included.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns whether requests are known to take so long that none is written ahead.
    pub(super) fn is_long(&self) -> bool {
        self.samples >= SAMPLES && self.depth == 1
    }

    /// Returns after which time a running request blocks its worker's line.
    pub(super) fn stall(&self) -> Duration {
        self.stall
    }
}
