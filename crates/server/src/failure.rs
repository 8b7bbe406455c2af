//! How the program ends when it cannot do what was asked: the message, its causes, what to do, and the exit status.

use std::error::Error;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A failure of a command: the message that `main` prints before it exits with 1 (failed) or 2 (misused). A server sends its own failures
/// to a command in this form, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// A wrong flag, key or value.
    pub(crate) fn misused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new(), hint: Some(hint.into()), status: 2 }
    }

    /// Returns the failure of something that should have worked.
    pub(crate) fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new(), hint: Some(hint.into()), status: 1 }
    }

    /// An error of an engine with its causes.
    pub(crate) fn caused(error: &(dyn Error + 'static), hint: impl Into<String>) -> Self {
        Self { causes: causes(error), ..Self::failed(error.to_string(), hint) }
    }

    /// A wrong flag, key or value, which an error describes with its causes.
    pub(crate) fn misused_by(error: &(dyn Error + 'static), hint: impl Into<String>) -> Self {
        Self { causes: causes(error), ..Self::misused(error.to_string(), hint) }
    }

    /// Returns a failure with Hearth's message around a library's error.
    pub(crate) fn caused_by(
        message: impl Into<String>,
        cause: &(dyn Error + 'static),
        hint: impl Into<String>,
    ) -> Self {
        let mut failure = Self::failed(message, hint);
        failure.causes = std::iter::once(cause.to_string()).chain(causes(cause)).collect();
        failure
    }

    /// Returns it as that of a command whose exit status 1 means a finding: it then exits with 2.
    #[must_use]
    pub(crate) fn could_not_run(self) -> Self {
        Self { status: 2, ..self }
    }

    /// Returns the failure of a command line without a command: the help is the message.
    pub(crate) fn help(text: String) -> Self {
        Self { message: text, causes: Vec::new(), hint: None, status: 2 }
    }

    /// Returns the message with its causes.
    pub(crate) fn message(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!(": {cause}"));
        std::iter::once(self.message.clone()).chain(causes).collect()
    }

    /// Returns the message without its causes.
    pub(crate) fn text(&self) -> &str {
        &self.message
    }

    /// Returns the causes, the nearest first.
    pub(crate) fn causes(&self) -> &[String] {
        &self.causes
    }

    /// Returns the failure as one of the server, which this command only passes on: its status is 1.
    #[must_use]
    pub(crate) fn of_server(self) -> Self {
        Self { status: 1, ..self }
    }

    /// Returns the failure with its message and its hint reworded.
    #[must_use]
    pub(crate) fn reworded(
        self,
        message: impl FnOnce(String) -> String,
        hint: impl FnOnce(String) -> String,
    ) -> Self {
        Self { message: message(self.message), hint: self.hint.map(hint), ..self }
    }

    /// Returns the hint: what the user can do.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the exit status: 1 or 2.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// The lines for stderr.
    pub(crate) fn render(&self) -> String {
        let Some(hint) = &self.hint else { return self.message.clone() };
        let mut text = format!("error: {}\n", self.message);
        for cause in &self.causes {
            writeln!(text, "  caused by: {cause}").expect("a String takes all");
        }
        writeln!(text, "hint: {hint}").expect("a String takes all");
        text
    }
}

/// An error and its causes, for a log.
pub(crate) fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    texts.extend(causes(error));
    texts.join(": ")
}

fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts
}
