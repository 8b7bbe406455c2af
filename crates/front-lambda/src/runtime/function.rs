//! The outcome of a function's script: a result, or an error. Hearth's own scripts send it
//! (docs/internals/lambda.md).
//!
//! Invariants
//! - A script that ends before it has answered has failed, whatever it has printed.
//! - What was printed past the script's buffer is no part of the result.

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;

/// With this response field a function's script marks its body as an error.
const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
/// With this response field a function's script passes the error's cause to X-Ray.
const CAUSE: &str = "lambda-runtime-function-xray-error-cause";
/// Encloses the outcome behind a body whose head was sent before there was one.
const MARK: u8 = b'\x1e';

/// The answer of a function's script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// The result, or the error in the API's format.
    pub(super) body: Bytes,
    /// Type and cause of an error.
    pub(super) error: Option<(String, String)>,
    /// Output printed past the script's buffer.
    pub(super) printed: Bytes,
}

/// The outcome behind a body.
#[derive(Debug, Deserialize)]
struct Outcome {
    /// Length of the result or error before it.
    length: usize,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    cause: String,
}

impl Answered {
    /// Reads a response. What its end says is later than what its head says, and counts.
    pub(super) fn read(headers: &HeaderMap, body: Bytes) -> Self {
        if let Some((outcome, before)) = outcome(&body) {
            let begins = before - outcome.length;
            return Self {
                printed: body.slice(..begins),
                body: body.slice(begins..before),
                error: outcome.kind.map(|kind| (kind, outcome.cause)),
            };
        }
        let error = headers.get(ERROR_TYPE).map(|kind| {
            let kind = String::from_utf8_lossy(kind.as_bytes()).into_owned();
            let cause = headers.get(CAUSE).and_then(|value| value.to_str().ok());
            (kind, cause.unwrap_or_default().to_owned())
        });
        Self { body, error, printed: Bytes::new() }
    }
}

/// Returns the outcome at the end of a body, and the number of bytes before it.
fn outcome(body: &[u8]) -> Option<(Outcome, usize)> {
    let (MARK, rest) = body.split_last().map(|(last, rest)| (*last, rest))? else { return None };
    let at = rest.iter().rposition(|byte| *byte == MARK)?;
    let outcome: Outcome = serde_json::from_slice(rest.get(at + 1..)?).ok()?;
    (outcome.length <= at).then_some((outcome, at))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn read(kind: Option<&'static str>, body: &'static str) -> Answered {
        let mut headers = HeaderMap::new();
        if let Some(kind) = kind {
            headers.insert(HeaderName::from_static(ERROR_TYPE), HeaderValue::from_static(kind));
        }
        Answered::read(&headers, Bytes::from_static(body.as_bytes()))
    }

    fn answered(body: &'static str, error: Option<&str>, printed: &'static str) -> Answered {
        let error = error.map(|kind| (kind.to_owned(), String::new()));
        Answered { body: body.into(), error, printed: printed.into() }
    }

    #[test]
    fn the_end_of_a_response_counts_for_more_than_its_head() {
        let exited = Some("Function.Exited");
        for (kind, body, expected) in [
            (None, "7", answered("7", None, "")),
            (exited, "{}", answered("{}", exited, "")),
            (exited, "7\x1e{\"length\":1,\"type\":null}\x1e", answered("7", None, "")),
            (exited, "ab7\x1e{\"length\":1,\"type\":null}\x1e", answered("7", None, "ab")),
            (
                exited,
                "\x1e{}\x1e\x1e{\"length\":2,\"type\":\"Function.A\",\"cause\":\"\"}\x1e",
                answered("}\x1e", Some("Function.A"), "\x1e{"),
            ),
            (None, "{}\x1e{\"length\":2,\"type\":\"B\"}\x1e", answered("{}", Some("B"), "")),
        ] {
            assert_eq!(read(kind, body), expected, "{body}");
        }
        // Not an outcome: printed by a function that has ended its script.
        for body in ["", "\x1e", "a\x1e", "\x1e\x1e", "\x1e{\"length\":1,\"type\":null}\x1e"] {
            assert_eq!(read(exited, body), answered(body, exited, ""), "{body:?}");
        }
    }
}
