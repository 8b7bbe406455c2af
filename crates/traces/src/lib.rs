//! Traces as OpenTelemetry has them: who is whose parent, which spans are kept, what waits to be sent, and how it is written.
//! docs/guide/traces.md is for people; the W3C's Trace Context (level 1) and OTLP 1 are what others hold us to.
//!
//! Knows nothing of sockets, of who answers a request or makes a call, and of settings.
//!
//! Invariants
//! - A span that is not sampled costs its ids: nothing is allocated for it.
//! - Whoever ends a span never waits: where the queue is full the span is dropped and counted.

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

/// OTLP's messages, for whoever reads what [`encode`] writes.
pub mod messages {
    pub use crate::otlp::messages::*;
}
