//! Sampling: OpenTelemetry's `ParentBased` and `TraceIdRatioBased` (its specification, "Trace SDK", "Built-in
//! samplers").

use crate::{Context, TraceId};

/// Decides for each span that begins here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Upper bound of a sampled trace id's last eight bytes, without their highest bit.
    bound: u64,
    /// Traces that another process has begun follow its decision.
    follows: bool,
}

/// The error for an invalid share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no share: 0 to 1")]
pub struct OutOfRange(pub f64);

impl Sampler {
    /// `share` is the share of traces, 0 to 1. With `follows`, traces that another process has begun follow its
    /// decision.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of 2^63 is a number below it"
    )]
    pub fn new(share: f64, follows: bool) -> Result<Self, OutOfRange> {
        if !(0.0..=1.0).contains(&share) {
            return Err(OutOfRange(share));
        }
        Ok(Self { bound: (share * (1_u64 << 63) as f64) as u64, follows })
    }

    /// Returns whether the spans of a trace are recorded; `parent` is the context of another process.
    pub(crate) fn samples(self, trace: TraceId, parent: Option<&Context>) -> bool {
        if let Some(parent) = parent.filter(|_| self.follows) {
            return parent.is_sampled();
        }
        let (_, last) = trace.0.split_last_chunk().expect("eight of sixteen bytes");
        u64::from_be_bytes(*last) >> 1 < self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpanId;

    fn parent(flags: u8) -> Context {
        Context { trace: TraceId([1; 16]), span: SpanId([1; 8]), flags }
    }

    #[test]
    fn a_followed_parent_decides() {
        let (none, all) = (Sampler::new(0.0, true).unwrap(), Sampler::new(1.0, true).unwrap());
        let trace = TraceId([0xff; 16]);
        assert!(none.samples(trace, Some(&parent(1))));
        assert!(!all.samples(trace, Some(&parent(0))));
        assert!(all.samples(trace, None) && !none.samples(trace, None));
        let off = Sampler::new(0.0, false).unwrap();
        assert!(!off.samples(trace, Some(&parent(1))));
    }

    #[test]
    fn a_ratio_samples_the_same_ids_in_every_process() {
        let half = Sampler::new(0.5, true).unwrap();
        let trace = |last: u64| TraceId((u128::from(last) | 1 << 127).to_be_bytes());
        assert!(half.samples(trace(0), None));
        assert!(half.samples(trace((1 << 63) - 1), None));
        assert!(!half.samples(trace(1 << 63), None));
        assert!(Sampler::new(1.0, true).unwrap().samples(trace(u64::MAX), None));
    }

    #[test]
    fn invalid_ratios_are_rejected() {
        for share in [-0.1, 1.1, f64::NAN] {
            assert!(Sampler::new(share, true).is_err(), "{share}");
        }
    }
}
