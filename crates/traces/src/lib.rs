//! OpenTelemetry traces: parents, sampling, the queue, and the export format. docs/guide/traces.md is for users; the
//! specifications are the W3C's Trace Context (level 1) and OTLP 1.
//!
//! The crate does not depend on sockets, servers, clients or settings.
//!
//! Invariants
//! - A span that is not sampled costs its ids: nothing is allocated for it.
//! - Ending a span never waits: if the queue is full, the span is dropped and counted.

mod context;
mod otlp;
mod sampler;
mod span;
mod tracer;

pub use context::{Context, SpanId, TRACEPARENT_LENGTH, TraceId, Traceparent};
pub use otlp::{Resource, encode, rejected};
pub use sampler::{OutOfRange, Sampler};
pub use span::{Finished, Kind, Span, Value, method_name};
pub use tracer::{Begun, Carried, Counts, Tracer};

/// OTLP's messages, to parse what [`encode`] writes.
pub mod messages {
    pub use crate::otlp::messages::*;
}
