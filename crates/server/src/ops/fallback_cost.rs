//! The cost of a request in `fork` and in `request`, and which of the two replaces `snapshot`.
//!
//! Invariants
//! - The model with less processor time per request is taken; wall time decides where processor time is unknown or equal.
//! - A model that cannot answer is never taken while the other one can.

use pool::Model;
use serde::Serialize;

/// The measured cost of a request in one model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// How many requests were measured.
    pub requests: u32,
    /// Processor time of all PHP processes per request, in milliseconds. `None`: /proc does not show it.
    pub processor_ms: Option<f64>,
    /// Time per request, one after the other, in milliseconds.
    pub wall_ms: f64,
}

/// The result of measuring one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Measured {
    /// The model answers, at this cost.
    Cost(Cost),
    /// The application does not run in this model.
    Cannot {
        /// Why not.
        cannot: String,
    },
    /// There was nothing to choose, or nothing to request.
    Not {
        /// Why it was not measured.
        not_measured: String,
    },
}

impl Measured {
    pub(crate) fn cannot(why: impl Into<String>) -> Self {
        Self::Cannot { cannot: why.into() }
    }

    pub(crate) fn not(why: impl Into<String>) -> Self {
        Self::Not { not_measured: why.into() }
    }

    fn cost(&self) -> Option<&Cost> {
        match self {
            Self::Cost(cost) => Some(cost),
            _ => None,
        }
    }

    /// Processor time, wall time, and why there are none: for the log.
    pub(crate) fn fields(&self) -> (Option<f64>, Option<f64>, Option<&str>) {
        match self {
            Self::Cost(cost) => (cost.processor_ms, Some(cost.wall_ms), None),
            Self::Cannot { cannot: why } | Self::Not { not_measured: why } => {
                (None, None, Some(why))
            }
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Cost(Cost { processor_ms: Some(processor), wall_ms, .. }) => {
                format!(
                    "{processor:.2} ms of processor time and {wall_ms:.2} ms in all per request"
                )
            }
            Self::Cost(Cost { wall_ms, .. }) => format!("{wall_ms:.2} ms per request"),
            Self::Cannot { cannot } => format!("cannot run ({cannot})"),
            Self::Not { not_measured } => format!("not measured ({not_measured})"),
        }
    }
}

/// Costs of both models, measured one after the other by the same requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Costs {
    pub fork: Measured,
    pub request: Measured,
}

impl Costs {
    /// The model to take.
    pub(crate) fn cheaper(&self) -> Model {
        let (Some(fork), Some(request)) = (self.fork.cost(), self.request.cost()) else {
            let only_request = matches!(self.fork, Measured::Cannot { .. })
                && !matches!(self.request, Measured::Cannot { .. });
            return if only_request { Model::Request } else { Model::Fork };
        };
        let by_processor = match (fork.processor_ms, request.processor_ms) {
            (Some(fork), Some(request)) => fork.total_cmp(&request),
            _ => std::cmp::Ordering::Equal,
        };
        if by_processor.then(fork.wall_ms.total_cmp(&request.wall_ms)).is_gt() {
            Model::Request
        } else {
            Model::Fork
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        format!("`fork`: {}; `request`: {}", self.fork.text(), self.request.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(processor_ms: Option<f64>, wall_ms: f64) -> Measured {
        Measured::Cost(Cost { requests: 20, processor_ms, wall_ms })
    }

    #[test]
    fn less_processor_time_wins_then_wall_time_then_whichever_can_run() {
        let cheaper = |fork, request| Costs { fork, request }.cheaper();
        assert_eq!(cheaper(cost(Some(2.0), 1.0), cost(Some(1.0), 9.0)), Model::Request);
        assert_eq!(cheaper(cost(Some(1.0), 9.0), cost(Some(2.0), 1.0)), Model::Fork);
        assert_eq!(cheaper(cost(None, 2.0), cost(Some(9.0), 1.0)), Model::Request);
        assert_eq!(cheaper(cost(Some(1.0), 1.0), cost(Some(1.0), 1.0)), Model::Fork);
        assert_eq!(cheaper(Measured::cannot("x"), cost(None, 1.0)), Model::Request);
        assert_eq!(cheaper(cost(None, 1.0), Measured::cannot("x")), Model::Fork);
        assert_eq!(cheaper(Measured::cannot("x"), Measured::cannot("x")), Model::Fork);
        assert_eq!(cheaper(Measured::not("x"), Measured::cannot("x")), Model::Fork);
        assert_eq!(cheaper(Measured::not("x"), Measured::not("x")), Model::Fork);
    }
}
