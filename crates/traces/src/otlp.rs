//! Encodes spans as OTLP 1: `opentelemetry/proto/collector/trace/v1/trace_service.proto` and its imports.
//!
//! The messages are defined here because the ecosystem's crate for them includes a whole SDK and gRPC. A test
//! compares them with the output of the reference implementation.

use std::time::SystemTime;

use prost::Message;

use crate::{Finished, Value};

/// The messages, as far as they are used. Names and numbers are the protocol's.
#[expect(missing_docs, reason = "the protocol's own files say what each is")]
pub(crate) mod messages {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ExportTraceServiceRequest {
        #[prost(message, repeated, tag = "1")]
        pub resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub resource: Option<ResourceMessage>,
        #[prost(message, repeated, tag = "2")]
        pub scope_spans: Vec<ScopeSpans>,
        #[prost(string, tag = "3")]
        pub schema_url: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResourceMessage {
        #[prost(message, repeated, tag = "1")]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        pub scope: Option<InstrumentationScope>,
        #[prost(message, repeated, tag = "2")]
        pub spans: Vec<SpanMessage>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct InstrumentationScope {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct SpanMessage {
        #[prost(bytes = "vec", tag = "1")]
        pub trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub trace_state: String,
        #[prost(bytes = "vec", tag = "4")]
        pub parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
        #[prost(int32, tag = "6")]
        pub kind: i32,
        #[prost(fixed64, tag = "7")]
        pub start_time_unix_nano: u64,
        #[prost(fixed64, tag = "8")]
        pub end_time_unix_nano: u64,
        #[prost(message, repeated, tag = "9")]
        pub attributes: Vec<KeyValue>,
        #[prost(message, optional, tag = "15")]
        pub status: Option<Status>,
        #[prost(fixed32, tag = "16")]
        pub flags: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Status {
        #[prost(string, tag = "2")]
        pub message: String,
        /// Status code; 2 is an error.
        #[prost(int32, tag = "3")]
        pub code: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct KeyValue {
        #[prost(string, tag = "1")]
        pub key: String,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AnyValue {
        #[prost(oneof = "Any", tags = "1, 2, 3")]
        pub value: Option<Any>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Any {
        #[prost(string, tag = "1")]
        String(String),
        #[prost(bool, tag = "2")]
        Bool(bool),
        #[prost(int64, tag = "3")]
        Int(i64),
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ExportTraceServiceResponse {
        #[prost(message, optional, tag = "1")]
        pub partial_success: Option<PartialSuccess>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct PartialSuccess {
        #[prost(int64, tag = "1")]
        pub rejected_spans: i64,
        #[prost(string, tag = "2")]
        pub error_message: String,
    }
}

use messages::{
    Any, AnyValue, ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope,
    KeyValue, ResourceMessage, ResourceSpans, ScopeSpans, SpanMessage, Status,
};

/// URL of the schema that defines the attributes.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// The resource of all spans.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// Attributes: `service.name` and others.
    pub attributes: Vec<(String, String)>,
}

/// Returns the body of a request to a collector.
pub fn encode(resource: &Resource, spans: Vec<Finished>) -> Vec<u8> {
    let attributes = resource.attributes.iter();
    let attributes =
        attributes.map(|(name, value)| pair(name.clone(), Any::String(value.clone()))).collect();
    let scope = InstrumentationScope {
        name: "hearth".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let spans = spans.into_iter().map(span).collect();
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(ResourceMessage { attributes }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
            schema_url: SCHEMA.to_owned(),
        }],
    };
    request.encode_to_vec()
}

/// Returns how many spans a collector rejected, and why, from its response (`partial_success`).
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let partial = ExportTraceServiceResponse::decode(answer).ok()?.partial_success?;
    let number = u64::try_from(partial.rejected_spans).unwrap_or(0);
    (number > 0 || !partial.error_message.is_empty()).then_some((number, partial.error_message))
}

fn pair(key: String, value: Any) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { value: Some(value) }) }
}

fn span(span: Finished) -> SpanMessage {
    let Finished { context, parent, state, name, kind, began, took, attributes, error } = span;
    let begin = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let attributes = attributes.into_iter().map(|(name, value)| {
        let value = match value {
            Value::Text(text) => Any::String(text.into_owned()),
            Value::Number(number) => Any::Int(number),
            Value::Truth(truth) => Any::Bool(truth),
        };
        pair(name.to_owned(), value)
    });
    SpanMessage {
        trace_id: context.trace.0.to_vec(),
        span_id: context.span.0.to_vec(),
        trace_state: state
            .and_then(|state| state.to_str().ok().map(str::to_owned))
            .unwrap_or_default(),
        parent_span_id: parent.map(|parent| parent.0.to_vec()).unwrap_or_default(),
        name: name.into_owned(),
        kind: kind as i32,
        start_time_unix_nano: nanos(begin),
        end_time_unix_nano: nanos(begin + took),
        attributes: attributes.collect(),
        status: error.map(|why| Status { message: why.into_owned(), code: ERROR }),
        flags: context.flags.into(),
    }
}

#[cfg(test)]
mod tests;
