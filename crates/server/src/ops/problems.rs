//! Current problems and where to look for their causes. A part of `/status` and of the dashboard.

use serde::Serialize;

/// A problem that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The severity.
    pub level: Level,
    /// The description, a sentence.
    pub text: String,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Requests fail.
    Error,
    /// Requests may fail soon, or some did.
    Warning,
}

/// The problems that subsystems have found.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Adds a problem; `text` is a sentence.
    pub(crate) fn add(&mut self, level: Level, text: impl Into<String>) {
        self.0.push(Problem { level, text: text.into() });
    }

    /// Returns the problems, the worst first, those of one level in the order in which they were added.
    pub(crate) fn worst_first(mut self) -> Vec<Problem> {
        self.0.sort_by_key(|problem| problem.level);
        self.0
    }
}
