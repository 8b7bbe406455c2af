//! One invocation as returned by `next`, and its variables for PHP.
//!
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html#runtimes-api-next>

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http1::Response;

use crate::event::write_json;

/// An event and its metadata from the Runtime API.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// Id of the invocation, here and in the platform's logs. Visible ASCII without `/`.
    pub(crate) id: Arc<str>,
    /// End of the invocation in any case.
    pub(crate) deadline: SystemTime,
    /// The event.
    pub(crate) event: Bytes,
    /// Header fields of the response.
    fields: HeaderMap,
}

impl Invocation {
    /// Creates an invocation; `None` if the response contains no valid id.
    pub(crate) fn new(answer: Response) -> Option<Self> {
        Self::of(answer.head.headers, answer.body)
    }

    pub(super) fn of(fields: HeaderMap, event: Bytes) -> Option<Self> {
        let id = text(&fields, "lambda-runtime-aws-request-id");
        let writable =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if id.is_empty() || id.len() > 64 || !id.bytes().all(writable) {
            return None;
        }
        let id = Arc::from(id);
        let deadline = text(&fields, "lambda-runtime-deadline-ms").parse().ok();
        let deadline = deadline.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        // Without a deadline, the longest that a function may run.
        let deadline = deadline.unwrap_or_else(|| SystemTime::now() + Duration::from_mins(15));
        Some(Self { id, deadline, event, fields })
    }

    /// Returns the ARN that was invoked; empty if it is missing.
    pub(crate) fn arn(&self) -> &str {
        text(&self.fields, "lambda-runtime-invoked-function-arn")
    }

    /// Returns X-Ray's tracing header; empty if there is none.
    pub(crate) fn trace(&self) -> &str {
        text(&self.fields, "lambda-runtime-trace-id")
    }

    pub(crate) fn trace_value(&self) -> Option<&HeaderValue> {
        self.fields.get("lambda-runtime-trace-id").filter(|value| !value.is_empty())
    }

    /// Returns `$_SERVER['LAMBDA_INVOCATION_CONTEXT']`, with the names that Bref uses.
    pub(crate) fn context(&self) -> Bytes {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"awsRequestId\":");
        write_json(&mut out, &*self.id);
        let deadline = self.deadline.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        out.extend_from_slice(b",\"deadlineMs\":");
        out.extend_from_slice(deadline.to_string().as_bytes());
        out.extend_from_slice(b",\"invokedFunctionArn\":");
        write_json(&mut out, self.arn());
        out.extend_from_slice(b",\"traceId\":");
        write_json(&mut out, self.trace());
        // These two are JSON already, if they are valid.
        for (name, field) in [
            ("clientContext", "lambda-runtime-client-context"),
            ("identity", "lambda-runtime-cognito-identity"),
        ] {
            let value = text(&self.fields, field);
            if serde_json::from_str::<&serde_json::value::RawValue>(value).is_ok() {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
                out.extend_from_slice(value.as_bytes());
            }
        }
        let tenant = text(&self.fields, "lambda-runtime-aws-tenant-id");
        if !tenant.is_empty() {
            out.extend_from_slice(b",\"tenantId\":");
            write_json(&mut out, tenant);
        }
        out.push(b'}');
        Bytes::from(out)
    }

    /// Returns the time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

fn text<'f>(fields: &'f HeaderMap, name: &str) -> &'f str {
    fields
        .get(name)
        .and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
        .unwrap_or_default()
}
