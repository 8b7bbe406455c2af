//! One model in the place of another, as the log, `/status` and the dashboard show it.

use pool::Model;
use serde::{Serialize, Serializer};

use crate::config::hint_of_application;

/// One model in the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fallback {
    /// What was to run.
    #[serde(serialize_with = "name")]
    pub wished: Model,
    /// What runs.
    #[serde(serialize_with = "name")]
    pub instead: Model,
    /// What stands in the way.
    pub why: String,
    /// What to do about it.
    pub hint: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn name<S: Serializer>(model: &Model, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(model.name())
}

impl Fallback {
    /// The same for one of several applications.
    #[must_use]
    pub(crate) fn of_application(self, name: &str) -> Self {
        Self { hint: hint_of_application(&self.hint, name), ..self }
    }

    /// Tells it to who runs the server.
    pub(crate) fn warn(&self) {
        tracing::warn!(
            model = self.wished.name(),
            instead = self.instead.name(),
            why = self.why,
            hint = self.hint,
            "model cannot run here, another takes its place"
        );
    }
}
