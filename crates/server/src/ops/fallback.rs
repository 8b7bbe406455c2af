//! One model in the place of another, as the log, `/status` and the dashboard show it.

use pool::Model;
use serde::{Serialize, Serializer};

use crate::config::hint_of_application;

/// A model that runs in the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fallback {
    /// The requested model.
    #[serde(serialize_with = "name")]
    pub wished: Model,
    /// The model that runs.
    #[serde(serialize_with = "name")]
    pub instead: Model,
    /// The reason.
    pub why: String,
    /// What an operator can do about it.
    pub hint: String,
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
        tracing::warn!(
            model = self.wished.name(),
            instead = self.instead.name(),
            why = self.why,
            hint = self.hint,
            "model cannot run here, another takes its place"
        );
    }
}
