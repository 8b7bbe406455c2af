//! Errors in the format of the Runtime API.

use std::fmt::Write as _;

use crate::event::write_json;

/// Maximum length of a message for X-Ray, which must fit a header field.
const MAX_CAUSE_MESSAGE: usize = 1024;

/// The report of a failed invocation or init phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Error type: `Category.Reason`, such as `Hearth.WorkerDied`; a function's own errors have the class of their
    /// exception.
    pub kind: String,
    /// One sentence for people.
    pub message: String,
    /// Stack trace, one line per frame.
    pub stack: Vec<String>,
}

impl Report {
    /// Creates a report of Hearth's own: `reason` follows `Hearth.`.
    pub fn of_hearth(reason: &str, message: impl Into<String>) -> Self {
        Self { kind: format!("Hearth.{reason}"), message: message.into(), stack: Vec::new() }
    }

    /// Returns `{"errorMessage": …, "errorType": …, "stackTrace": […]}`.
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

    /// Returns the cause for X-Ray, for a header field: JSON of visible ASCII and blanks.
    pub(crate) fn cause(&self) -> String {
        let mut json = Vec::with_capacity(256);
        json.extend_from_slice(b"{\"working_directory\":\"\",\"exceptions\":[{\"type\":");
        write_json(&mut json, self.kind.as_str());
        json.extend_from_slice(b",\"message\":");
        let message: String = self.message.chars().take(MAX_CAUSE_MESSAGE).collect();
        write_json(&mut json, &*message);
        json.extend_from_slice(b",\"stack\":[]}],\"paths\":[]}");
        let mut cause = String::with_capacity(json.len());
        for character in String::from_utf8_lossy(&json).chars() {
            if matches!(character, ' '..='~') {
                cause.push(character);
                continue;
            }
            // JSON has escaped what is required; this is within a string.
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(cause, "\\u{unit:04x}").expect("writing to a String cannot fail");
            }
        }
        cause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_an_error_is_json_that_fits_a_field() {
        let message = format!("\"a\"\n\u{7f} ü 😀 {}", "x".repeat(9000));
        let cause = Report::of_hearth("WorkerDied", message.clone()).cause();
        assert!(cause.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{cause}");
        let told: serde_json::Value = serde_json::from_str(&cause).unwrap();
        assert_eq!(told["exceptions"][0]["type"], "Hearth.WorkerDied");
        let beginning: String = message.chars().take(MAX_CAUSE_MESSAGE).collect();
        assert_eq!(told["exceptions"][0]["message"], *beginning);
    }
}
