//! Errors in the shape of the Runtime API.

use crate::event::write_json;

/// What is told of an invocation, or of an init phase, that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `Category.Reason`, such as `Hearth.WorkerDied`; a function's own errors have the class of their exception.
    pub kind: String,
    /// One sentence for people.
    pub message: String,
    /// What led there, one line each.
    pub stack: Vec<String>,
}

impl Report {
    /// A report of Hearth's own: `reason` is what follows `Hearth.`.
    pub fn of_hearth(reason: &str, message: impl Into<String>) -> Self {
        Self { kind: format!("Hearth.{reason}"), message: message.into(), stack: Vec::new() }
    }

    /// `{"errorMessage": …, "errorType": …, "stackTrace": […]}`
    pub(crate) fn json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(b"{\"errorMessage\":");
        write_json(&mut out, self.message.as_str());
        out.extend_from_slice(b",\"errorType\":");
        write_json(&mut out, self.kind.as_str());
        out.extend_from_slice(b",\"stackTrace\":");
        write_json(&mut out, &self.stack);
        out.push(b'}');
        out
    }
}
