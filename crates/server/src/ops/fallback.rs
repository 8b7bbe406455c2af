//! One model in the place of another, as the log, `/status` and the dashboard show it.

use pool::Model;
use serde::{Serialize, Serializer};

use crate::config::hint_of_application;
use crate::ops::fallback_cost::Costs;

/// A model that runs in the place of another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Fallback {
    /// The requested model.
    #[serde(serialize_with = "name")]
    pub wished: Model,
    /// The model that runs.
    #[serde(serialize_with = "name")]
    pub instead: Model,
    /// The reason.
    pub why: String,
    /// The action that an operator can take.
    pub hint: String,
    /// The application did not boot: the server is degraded, and a later boot may succeed.
    pub degraded: bool,
    /// The cost of a request in the possible replacements, if no setting names one. `None`: there was no choice.
    pub costs: Option<Costs>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn name<S: Serializer>(model: &Model, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(model.name())
}

impl Fallback {
    /// Returns the fallback of one of several applications.
    #[must_use]
    pub(crate) fn of_application(self, name: &str) -> Self {
        Self { hint: hint_of_application(&self.hint, name), ..self }
    }

    /// Logs the fallback as a warning.
    pub(crate) fn warn(&self) {
        let costs = self.costs.as_ref();
        let (fork_processor, fork_wall, fork_without) =
            costs.map(|costs| costs.fork.fields()).unwrap_or_default();
        let (request_processor, request_wall, request_without) =
            costs.map(|costs| costs.request.fields()).unwrap_or_default();
        tracing::warn!(
            model = self.wished.name(),
            instead = self.instead.name(),
            why = self.why,
            fork.processor_ms = fork_processor,
            fork.wall_ms = fork_wall,
            fork.not_measured = fork_without,
            request.processor_ms = request_processor,
            request.wall_ms = request_wall,
            request.not_measured = request_without,
            hint = self.hint,
            "model cannot run here, another takes its place"
        );
    }
}
