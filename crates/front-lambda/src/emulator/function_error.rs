//! The error of a function, its runtime or the platform, as the caller of an invocation gets it.
//!
//! The names are those of the AWS Runtime Interface Emulator, which the real service shares.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

/// An error reported by a function or its runtime instead of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionError {
    /// Error type: `Category.Reason`.
    pub kind: String,
    /// Body for the caller: JSON with `errorType`, `errorMessage` and possibly `stackTrace`.
    pub body: Bytes,
}

impl FunctionError {
    /// Creates an error of the platform.
    pub fn new(kind: &str, message: &str) -> Self {
        let body = json!({"errorType": kind, "errorMessage": message});
        Self { kind: kind.into(), body: body.to_string().into() }
    }

    /// Creates the error posted by the runtime; as on AWS, a type other than `Runtime.Reason` or `Function.Reason`
    /// becomes `Unknown`.
    pub(super) fn posted(kind: &str, body: Bytes) -> Self {
        let reason = kind.strip_prefix("Runtime.").or_else(|| kind.strip_prefix("Function."));
        let named = reason.is_some_and(|reason| {
            reason.len() > 1
                && reason.starts_with(|first: char| first.is_ascii_uppercase())
                && reason.bytes().all(|byte| byte.is_ascii_alphabetic())
        });
        let kind = if named {
            kind
        } else if kind.starts_with("Function.") {
            "Function.Unknown"
        } else {
            "Runtime.Unknown"
        };
        Self { kind: kind.into(), body }
    }

    /// Creates the error for a response that is too large.
    pub(super) fn too_large(size: usize, limit: usize) -> Self {
        let message = format!(
            "Response payload size ({size} bytes) exceeded maximum allowed payload size ({limit} bytes)."
        );
        Self::new("Function.ResponseSizeTooLarge", &message)
    }

    /// Creates the error for a response cut off by the runtime's connection.
    pub(super) fn truncated() -> Self {
        let message = "the runtime closed the connection before its response was whole";
        Self::new("Runtime.TruncatedResponse", message)
    }

    /// Creates the error for an invocation that ran too long.
    pub(super) fn timed_out(id: &str, timeout: Duration) -> Self {
        let seconds = timeout.as_secs_f64();
        let message = format!("RequestId: {id} Error: Task timed out after {seconds:.2} seconds");
        Self::new("Sandbox.Timedout", &message)
    }
}
